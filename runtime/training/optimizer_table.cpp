#include "runtime/training/optimizer_table.hpp"

#include <fmt/format.h>

#include "runtime/core/named.hpp"

namespace waggle {

namespace {

using kind = state_tensor::kind;
using identity = optimizer_identity;
using statistics = std::vector<statistic>;

// -- hyper-parameters -----------------------------------------------------------------------------

constexpr std::string_view never_fades = "from 1 on past gradients would never fade";
constexpr std::string_view works_against = "a negative one would work against the gradients";
constexpr std::string_view not_negative = "it cannot be negative";
constexpr std::string_view divides_by_zero =
  "a step would divide by 0 where a gradient is 0, and float32 rounds smaller numbers to 0";

constexpr hyper_parameter hyper_table[] = {
  {"momentum", "Momentum", &identity::momentum, nullptr, 0, 1, true, works_against, never_fades},
  {"dampening", "Part of a gradient that does not enter the momentum", &identity::dampening,
   nullptr, 0, 1, true, not_negative, "from 1 on no gradient would enter the momentum"},
  {"nesterov", "Nesterov's momentum, which looks one step ahead", nullptr, &identity::nesterov},
  {"beta1", "Decay of the mean of past gradients", &identity::beta1, nullptr, 0, 1, true,
   works_against, never_fades},
  {"beta2", "Decay of the mean of past squares (of lion: of past gradients)", &identity::beta2,
   nullptr, 0, 1, true, not_negative, never_fades},
  {"epsilon", "Added to a denominator", &identity::epsilon, nullptr, 1e-37, 1, false,
   divides_by_zero, "a larger one would outweigh the gradients"},
  {"amsgrad", "Divide by the largest mean of squares so far", nullptr, &identity::amsgrad},
  {"smoothing", "Decay of the mean of past squares", &identity::smoothing, nullptr, 0, 1, true,
   not_negative, never_fades},
  {"centered", "Subtract the square of the mean gradient", nullptr, &identity::centered},
  {"trust", "Length of a step relative to that of its tensor", &identity::trust, nullptr, 0, 1e3,
   false, not_negative, "a step would be longer than a tensor a thousand times"},
};

constexpr hyper_default of_sgd[] = {{"momentum", 0}, {"dampening", 0}, {"nesterov", 0}};
constexpr hyper_default of_adam[] = {
  {"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"amsgrad", 0}};
constexpr hyper_default of_adagrad[] = {{"epsilon", 1e-10}};
constexpr hyper_default of_rmsprop[] = {
  {"smoothing", 0.99}, {"epsilon", 1e-8}, {"momentum", 0}, {"centered", 0}};
constexpr hyper_default of_lamb[] = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-6}};
constexpr hyper_default of_lars[] = {{"momentum", 0.9}, {"trust", 1e-3}, {"epsilon", 1e-8}};
constexpr hyper_default of_lion[] = {{"beta1", 0.9}, {"beta2", 0.99}};
constexpr hyper_default of_adafactor[] = {{"epsilon", 1e-30}};
constexpr hyper_default of_muon[] = {
  {"momentum", 0.95}, {"nesterov", 1}, {"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}};

// -- statistics -----------------------------------------------------------------------------------

statistics momentum(const identity& of, const tensor_shape& shape) {
  return of.momentum > 0 ? statistics{{"momentum_buffer", kind::statistic, shape}} : statistics{};
}

statistics two_moments(const identity& of, const tensor_shape& shape) {
  statistics all{{"exp_avg", kind::statistic, shape}, {"exp_avg_sq", kind::square, shape}};
  if (of.amsgrad)
    all.push_back({"max_exp_avg_sq", kind::square, shape});
  return all;
}

statistics sum_of_squares(const identity& /*of*/, const tensor_shape& shape) {
  return {{"sum", kind::square, shape}};
}

statistics rmsprop(const identity& of, const tensor_shape& shape) {
  statistics all{{"square_avg", kind::square, shape}};
  if (of.momentum > 0)
    all.push_back({"momentum_buffer", kind::statistic, shape});
  if (of.centered)
    all.push_back({"grad_avg", kind::statistic, shape});
  return all;
}

statistics one_moment(const identity& /*of*/, const tensor_shape& shape) {
  return {{"exp_avg", kind::statistic, shape}};
}

/// The means of the squares over the rows and over the columns; a tensor with more dimensions is a
/// matrix whose columns are its last dimension.
statistics factored(const identity& /*of*/, const tensor_shape& shape) {
  if (shape.size() < 2)
    return {{"variance", kind::square, shape}};
  return {{"row_var", kind::square, {shape.begin(), shape.end() - 1}},
          {"col_var", kind::square, {shape.back()}}};
}

statistics muon(const identity& of, const tensor_shape& shape) {
  return shape.size() < 2 ? two_moments(of, shape)
                          : statistics{{"momentum_buffer", kind::statistic, shape}};
}

constexpr optimizer_row table[] = {
  {"sgd", "the gradient, with momentum if it is set", of_sgd, momentum},
  {"sgdw", "sgd with decoupled weight decay", of_sgd, momentum},
  {"adam", "weight decay as a part of the gradient", of_adam, two_moments},
  {"adamw", "adam with decoupled weight decay", of_adam, two_moments},
  {"adagrad", "divides by the root of the sum of all squares", of_adagrad, sum_of_squares},
  {"rmsprop", "divides by the root of a moving mean of squares", of_rmsprop, rmsprop},
  {"lamb", "adam whose step per tensor is relative to its length, for large batches", of_lamb,
   two_moments},
  {"lars", "sgd whose step per tensor is relative to its length, for large batches", of_lars,
   momentum},
  {"lion", "the sign of the momentum; wants a tenth of adamw's rate", of_lion, one_moment},
  {"adafactor", "keeps only the row and column means of the squares of a matrix", of_adafactor,
   factored},
  {"muon", "orthogonal steps for matrices, adamw for the rest", of_muon, muon},
};

} // namespace

double hyper_parameter::of(const optimizer_identity& identity) const {
  return number != nullptr ? identity.*number : identity.*flag ? 1 : 0;
}

void hyper_parameter::set(optimizer_identity& identity, double value) const {
  if (number != nullptr)
    identity.*number = value;
  else
    identity.*flag = value != 0;
}

std::span<const hyper_parameter> hyper_parameters() {
  return hyper_table;
}

const hyper_default* optimizer_row::find(std::string_view hyper) const {
  return find_named(takes, hyper);
}

std::span<const optimizer_row> optimizer_table() {
  return table;
}

const optimizer_row* find_optimizer(std::string_view name) {
  return find_named(optimizer_table(), name);
}

optimizer_identity identity_with(std::string_view name, const std::map<std::string, double>& set) {
  optimizer_identity id{.kind = std::string{name}};
  const auto* row = find_optimizer(name);
  for (const auto& hyper : hyper_table) {
    const auto* initial = row != nullptr ? row->find(hyper.name) : nullptr;
    if (initial == nullptr)
      continue;
    auto given = set.find(std::string{hyper.name});
    hyper.set(id, given != set.end() ? given->second : initial->value);
  }
  return id;
}

std::string users_of(const hyper_parameter& hyper) {
  std::vector<std::string> users;
  for (const auto& row : table)
    if (const auto* initial = row.find(hyper.name))
      users.push_back(hyper.number != nullptr
                        ? fmt::format("{} ({:g})", row.name, initial->value)
                        : fmt::format("{} ({})", row.name, initial->value != 0));
  return joined(users, " and ");
}

std::string optimizer_help() {
  std::string all;
  for (const auto& row : table)
    all.append(all.empty() ? "" : "; ").append(row.name).append(": ").append(row.help);
  return all;
}

status check_optimizer(const optimizer_identity& o) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  const auto* row = find_optimizer(o.kind);
  const auto* nesterov = row != nullptr ? row->find("nesterov") : nullptr;
  if (o.nesterov && o.momentum == 0 && nesterov != nullptr && nesterov->value != 0)
    return bad("--momentum 0 needs --nesterov false with --optimizer " + o.kind
               + ", which looks one step of the momentum ahead by default");
  if (o.nesterov && o.momentum == 0)
    return bad("--nesterov needs --momentum: it is a kind of momentum");
  if (o.nesterov && o.dampening != 0)
    return bad("--nesterov and --dampening exclude each other: the step ahead would be too short; "
               "leave one of them out");
  if (o.dampening != 0 && o.momentum == 0)
    return bad("--dampening needs --momentum: it damps what enters the momentum");
  if (!o.decay_vectors && o.weight_decay == 0)
    return bad("--no-decay vectors needs --weight-decay: nothing decays without it");
  return done{};
}

} // namespace waggle
