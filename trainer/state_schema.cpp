#include "trainer/state_schema.hpp"

#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

optimizer_identity identity_of(const learner_config& c) {
  return {c.optimizer, c.momentum, false, c.beta1, c.beta2, c.epsilon, c.weight_decay};
}

std::vector<std::pair<std::string, state_tensor::kind>>
statistics_of(const optimizer_identity& optimizer) {
  using kind = state_tensor::kind;
  if (optimizer.kind != "sgd")
    return {{"exp_avg", kind::statistic}, {"exp_avg_sq", kind::square}};
  if (optimizer.momentum > 0)
    return {{"momentum_buffer", kind::statistic}};
  return {};
}

state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer) {
  auto all = parameters;
  for (const auto& [name, kind] : statistics_of(optimizer))
    for (const auto& p : parameters)
      all.push_back({name + "/" + p.name, p.shape, kind});
  return state_table{std::move(all)};
}

std::string function_of(std::string_view model, std::int64_t heads) {
  return model == "char-gpt" ? "heads=" + std::to_string(heads) : std::string{};
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
  if (optimizer.kind == "sgd")
    out.put(optimizer.momentum).put(static_cast<std::uint8_t>(optimizer.nesterov ? 1 : 0));
  else
    out.put(optimizer.beta1).put(optimizer.beta2).put(optimizer.epsilon);
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
