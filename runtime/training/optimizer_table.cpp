#include "runtime/training/optimizer_table.hpp"

#include "runtime/core/named.hpp"

namespace waggle {

namespace {

using kind = state_tensor::kind;

statistic_names two_moments(const optimizer_identity& /*of*/) {
  return {{"exp_avg", kind::statistic}, {"exp_avg_sq", kind::square}};
}

void write_betas(const optimizer_identity& from, byte_writer& out) {
  out.put(from.beta1).put(from.beta2).put(from.epsilon);
}

constexpr optimizer_row table[] = {
  {"sgd", true,
   [](const optimizer_identity& of) {
     return of.momentum > 0 ? statistic_names{{"momentum_buffer", kind::statistic}}
                            : statistic_names{};
   },
   [](const optimizer_identity& from, byte_writer& out) {
     out.put(from.momentum).put(static_cast<std::uint8_t>(from.nesterov ? 1 : 0));
   }},
  {"adam", false, two_moments, write_betas},
  {"adamw", false, two_moments, write_betas},
};

} // namespace

std::span<const optimizer_row> optimizer_table() {
  return table;
}

const optimizer_row* find_optimizer(std::string_view name) {
  return find_named(optimizer_table(), name);
}

} // namespace waggle
