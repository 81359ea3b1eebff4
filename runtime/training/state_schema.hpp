#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

/// The name of the tensor that says how many updates had no gradient for each parameter, so that
/// its statistics have that many steps less.
constexpr std::string_view left_out_name = "optimizer/left_out";

/// Returns a table of the parameters, followed by one block per statistic for all parameters that
/// have it, what was left out, and the buffers and counters. `statistics`: of each parameter, in
/// their order. `numbers`: see state_table.
state_table table_of(std::vector<state_tensor> parameters,
                     const std::vector<std::vector<statistic>>& statistics,
                     std::vector<state_tensor> buffers, std::size_t numbers = 0);
/// The same with the statistics that an optimizer of the optimizer_table keeps, and with its
/// numbers if each round `settles` them: where gradients are averaged.
state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer,
                     std::vector<state_tensor> buffers = {}, bool settles = false);
/// The names of the numbers that rounds settle of an optimizer of the optimizer_table: "lr",
/// "weight_decay", and its hyper-parameters that are no switches.
std::vector<std::string_view> settled_numbers(const optimizer_row& of);

/// model_row::function of the model with that name; empty for a model that is not built in.
std::string function_of(std::string_view model, const model_shape& shape);

/// A digest of the names and shapes of the tensors, `function_of` the model, and the optimizer with
/// its hyper-parameters. Peers may average and exchange state exactly if their digests are equal,
/// even if the models come from different programs.
digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function);

} // namespace waggle
