#include "trainer/optimizers.hpp"

#include <array>
#include <cmath>
#include <stdexcept>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"

namespace waggle {

namespace {

namespace optim = torch::optim;

// -- steps over flat tensors ----------------------------------------------------------------------

/// Weight decay as a part of the gradient.
void add_decay(const optimizer_identity& numbers, step_slice& v) {
  if (numbers.weight_decay != 0)
    v.gradient = v.gradient.add(v.parameters, numbers.weight_decay);
}

void step_sgd(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
              step_slice& v) {
  add_decay(numbers, v);
  if (numbers.momentum > 0) {
    v.statistics[0].mul_(numbers.momentum).add_(v.gradient);
    v.gradient = v.statistics[0];
  }
  v.parameters.add_(v.gradient, -lr);
}

void step_moments(const optimizer_identity& numbers, double lr, std::uint64_t count,
                  step_slice& v) {
  auto& first = v.statistics[0];
  auto& second = v.statistics[1];
  first.mul_(numbers.beta1).add_(v.gradient, 1 - numbers.beta1);
  second.mul_(numbers.beta2).addcmul_(v.gradient, v.gradient, 1 - numbers.beta2);
  auto t = static_cast<double>(count);
  auto correction1 = 1 - std::pow(numbers.beta1, t);
  auto correction2 = 1 - std::pow(numbers.beta2, t);
  auto denominator = second.sqrt().div_(std::sqrt(correction2)).add_(numbers.epsilon);
  v.parameters.addcdiv_(first, denominator, -lr / correction1);
}

void step_adam(const optimizer_identity& numbers, double lr, std::uint64_t count, step_slice& v) {
  add_decay(numbers, v);
  step_moments(numbers, lr, count, v);
}

void step_adamw(const optimizer_identity& numbers, double lr, std::uint64_t count, step_slice& v) {
  if (numbers.weight_decay != 0)
    v.parameters.mul_(1 - lr * numbers.weight_decay);
  step_moments(numbers, lr, count, v);
}

// -- torch::optim ---------------------------------------------------------------------------------

/// Null if the optimizer has no state for the parameter yet and `make` is false.
template <class State>
State* state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter, bool make) {
  auto key = c10::guts::to_string(parameter.unsafeGetTensorImpl());
  auto found = optimizer.state().find(key);
  if (found == optimizer.state().end() && make)
    found = optimizer.state().emplace(key, std::make_unique<State>()).first;
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

torch::Tensor* momentum_of(optim::Optimizer& optimizer, const torch::Tensor& parameter,
                           std::size_t /*which*/, bool make) {
  auto* state = state_of<optim::SGDParamState>(optimizer, parameter, make);
  if (make && !state->momentum_buffer().defined())
    state->momentum_buffer(torch::zeros_like(parameter.detach()));
  return state != nullptr ? &state->momentum_buffer() : nullptr;
}

// The states and options of Adam and AdamW are different types with the same members.

template <class State>
State& moments_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = *state_of<State>(optimizer, parameter, true);
  if (!state.exp_avg().defined()) {
    state.exp_avg(torch::zeros_like(parameter.detach()));
    state.exp_avg_sq(torch::zeros_like(parameter.detach()));
  }
  return state;
}

template <class State>
torch::Tensor* moment_of(optim::Optimizer& optimizer, const torch::Tensor& parameter,
                         std::size_t which, bool make) {
  auto* state =
    make ? &moments_of<State>(optimizer, parameter) : state_of<State>(optimizer, parameter, false);
  if (state == nullptr)
    return nullptr;
  return which == 0 ? &state->exp_avg() : &state->exp_avg_sq();
}

template <class State>
std::int64_t steps_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto* state = state_of<State>(optimizer, parameter, false);
  return state != nullptr ? state->step() : 0;
}

template <class State>
void set_steps(optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps) {
  moments_of<State>(optimizer, parameter).step(steps);
}

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make_with_moments(const optimizer_identity& numbers, double lr,
                                                    std::vector<torch::Tensor> parameters) {
  return std::make_unique<Optimizer>(std::move(parameters), Options(lr)
                                                              .betas({numbers.beta1, numbers.beta2})
                                                              .eps(numbers.epsilon)
                                                              .weight_decay(numbers.weight_decay));
}

template <class Options>
optimizer_identity identity_with_moments(const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const Options&>(options);
  if (o.amsgrad())
    throw std::invalid_argument{"amsgrad is not supported: its third statistic is not part of the "
                                "run's state"};
  optimizer_identity id;
  std::tie(id.beta1, id.beta2) = o.betas();
  id.epsilon = o.eps();
  id.weight_decay = o.weight_decay();
  return id;
}

std::unique_ptr<optim::Optimizer> make_sgd(const optimizer_identity& numbers, double lr,
                                           std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(lr)
                                                               .momentum(numbers.momentum)
                                                               .nesterov(numbers.nesterov)
                                                               .weight_decay(numbers.weight_decay));
}

optimizer_identity identity_of_sgd(const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const optim::SGDOptions&>(options);
  if (o.dampening() != 0)
    throw std::invalid_argument{"SGD with dampening is not supported: its first step differs from "
                                "later ones, so the parameters of a joining peer would diverge"};
  optimizer_identity id;
  id.momentum = o.momentum();
  id.nesterov = o.nesterov();
  id.weight_decay = o.weight_decay();
  return id;
}

const std::array table{
  torch_optimizer{"sgd", "SGD", &typeid(optim::SGD), step_sgd, make_sgd, identity_of_sgd,
                  momentum_of, nullptr, nullptr},
  torch_optimizer{"adam", "Adam", &typeid(optim::Adam), step_adam,
                  make_with_moments<optim::Adam, optim::AdamOptions>,
                  identity_with_moments<optim::AdamOptions>, moment_of<optim::AdamParamState>,
                  steps_of<optim::AdamParamState>, set_steps<optim::AdamParamState>},
  torch_optimizer{"adamw", "AdamW", &typeid(optim::AdamW), step_adamw,
                  make_with_moments<optim::AdamW, optim::AdamWOptions>,
                  identity_with_moments<optim::AdamWOptions>, moment_of<optim::AdamWParamState>,
                  steps_of<optim::AdamWParamState>, set_steps<optim::AdamWParamState>},
};

} // namespace

const torch_optimizer& torch_optimizer_named(std::string_view name) {
  const auto* found = find_named(table, name);
  WAGGLE_CHECK(found != nullptr, name);
  return *found;
}

const torch_optimizer& torch_optimizer_of(const optim::Optimizer& optimizer) {
  std::vector<std::string> classes;
  for (const auto& row : table) {
    if (typeid(optimizer) == *row.type)
      return row;
    classes.emplace_back(row.class_name);
  }
  throw std::invalid_argument{
    "only the optimizers " + joined(classes, " and ")
    + " of torch::optim are supported: the statistics of others are not known, so a peer that "
      "joins could not receive them"};
}

} // namespace waggle
