#include "runtime/training/state_schema.hpp"

#include <algorithm>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

state_table table_of(std::vector<state_tensor> parameters,
                     const std::vector<std::vector<statistic>>& statistics,
                     std::vector<state_tensor> buffers, std::size_t numbers) {
  WAGGLE_CHECK(statistics.size() == parameters.size(), std::to_string(statistics.size()));
  std::vector<std::pair<std::string, std::vector<state_tensor>>> blocks; // by name, in order
  for (std::size_t i = 0; i < parameters.size(); ++i)
    for (const auto& s : statistics[i]) {
      auto block = std::find_if(blocks.begin(), blocks.end(),
                                [&](const auto& known) { return known.first == s.name; });
      if (block == blocks.end())
        block = blocks.insert(blocks.end(), {s.name, {}});
      block->second.push_back({s.name + "/" + parameters[i].name, s.shape, s.what});
    }
  state_tensor left_out{
    std::string{left_out_name}, {parameters.size()}, state_tensor::kind::statistic};
  auto all = std::move(parameters);
  for (auto& [name, tensors] : blocks)
    std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
  all.push_back(std::move(left_out));
  std::move(buffers.begin(), buffers.end(), std::back_inserter(all));
  return state_table{std::move(all), numbers};
}

state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer,
                     std::vector<state_tensor> buffers, bool settles) {
  const auto* row = find_optimizer(optimizer.kind);
  WAGGLE_CHECK(row != nullptr, optimizer.kind);
  std::vector<std::vector<statistic>> statistics;
  for (const auto& p : parameters)
    statistics.push_back(row->statistics(optimizer, p.shape));
  return table_of(std::move(parameters), statistics, std::move(buffers),
                  settles ? settled_numbers(*row).size() : 0);
}

std::vector<std::string_view> settled_numbers(const optimizer_row& of) {
  std::vector<std::string_view> names{"lr", "weight_decay"};
  for (const auto& hyper : hyper_parameters())
    if (hyper.number != nullptr && of.find(hyper.name) != nullptr)
      names.push_back(hyper.name);
  return names;
}

std::string function_of(std::string_view model, const model_shape& shape) {
  const auto* row = find_model(model);
  return row != nullptr ? row->function(shape) : std::string{};
}

digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function) {
  byte_writer out;
  out.put_text<std::uint32_t>("waggle torch state 4").put(std::uint64_t{tensors.numbers()});
  out.put_text<std::uint32_t>(function).put_text<std::uint32_t>(optimizer.kind);
  out.put(optimizer.weight_decay, optimizer.decay_vectors);
  const auto* row = find_optimizer(optimizer.kind); // null: without a known optimizer
  for (const auto& hyper : hyper_parameters())
    if (row != nullptr && row->find(hyper.name) != nullptr)
      out.put_text<std::uint32_t>(hyper.name).put(hyper.of(optimizer));
  for (const auto& tensor : tensors.tensors()) {
    out.put_text<std::uint32_t>(tensor.name).put(static_cast<std::uint8_t>(tensor.what));
    out.put(static_cast<std::uint32_t>(tensor.shape.size()), tensor.shape);
  }
  return sha256(out.text());
}

} // namespace waggle
