#include "trainer/state_schema.hpp"

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

optimizer_identity identity_of(const learner_config& c) {
  return {c.optimizer, c.momentum, false, c.beta1, c.beta2, c.epsilon, c.weight_decay};
}

model_shape shape_of(const learner_config& c) {
  return {c.layers, c.width, c.heads, c.context};
}

state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer) {
  auto all = parameters;
  const auto* row = find_optimizer(optimizer.kind);
  WAGGLE_CHECK(row != nullptr, optimizer.kind);
  for (const auto& [name, kind] : row->statistics(optimizer))
    for (const auto& p : parameters)
      all.push_back({name + "/" + p.name, p.shape, kind});
  return state_table{std::move(all)};
}

std::string function_of(std::string_view model, const model_shape& shape) {
  const auto* row = find_model(model);
  return row != nullptr ? row->function(shape) : std::string{};
}

digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function) {
  byte_writer out;
  auto put_text = [&out](std::string_view text) {
    out.put(static_cast<std::uint32_t>(text.size())).put_raw(text);
  };
  put_text("waggle torch state 2");
  put_text(function);
  put_text(optimizer.kind);
  out.put(optimizer.weight_decay);
  // Parameters without an optimizer are hashed as with adam's: that digest is a part of agreements.
  const auto* row = find_optimizer(optimizer.kind);
  (row != nullptr ? row : find_optimizer("adam"))->write(optimizer, out);
  for (const auto& tensor : tensors.tensors()) {
    put_text(tensor.name);
    out.put(static_cast<std::uint8_t>(tensor.what));
    out.put(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size : tensor.shape)
      out.put(size);
  }
  return sha256(out.text());
}

} // namespace waggle
