#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/state_table.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

model_shape shape_of(const learner_config& config);

/// Returns a table of the parameters, followed by one block per statistic for all parameters that
/// have it, and by the buffers.
state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer,
                     std::vector<state_tensor> buffers = {});

/// model_row::function of the model with that name; empty for a model that is not built in.
std::string function_of(std::string_view model, const model_shape& shape);

/// A digest of the names and shapes of the tensors, `function_of` the model, and the optimizer with
/// its hyper-parameters. Peers may average and exchange state exactly if their digests are equal,
/// even if the models come from different programs.
digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function);

} // namespace waggle
