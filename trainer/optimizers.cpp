#include "trainer/optimizers.hpp"

#include <array>
#include <cmath>
#include <stdexcept>

#include <torch/version.h>

#include "runtime/core/named.hpp"
#include "runtime/training/state_schema.hpp"

namespace waggle {

namespace {

namespace optim = torch::optim;

// -- torch::optim ---------------------------------------------------------------------------------

/// Where an optimizer keeps the state of a parameter: at its address, before LibTorch 2 as text.
auto key_of(const torch::Tensor& parameter) {
#if TORCH_VERSION_MAJOR > 1
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

/// Null if the optimizer has no state for the parameter yet and `make` is false.
template <class State>
State* state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter, bool make) {
  auto key = key_of(parameter);
  auto found = optimizer.state().find(key);
  if (found == optimizer.state().end() && make)
    found = optimizer.state().emplace(key, std::make_unique<State>()).first;
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

// -- sgd ------------------------------------------------------------------------------------------

torch::Tensor* momentum_of(optim::Optimizer& optimizer, const torch::Tensor& parameter,
                           std::size_t /*which*/, bool make) {
  auto* state = state_of<optim::SGDParamState>(optimizer, parameter, make);
  if (make && !state->momentum_buffer().defined())
    state->momentum_buffer(torch::zeros_like(parameter.detach()));
  return state != nullptr ? &state->momentum_buffer() : nullptr;
}

std::unique_ptr<optim::Optimizer> make_sgd(const optimizer_identity& numbers, double lr,
                                           std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(lr)
                                                               .momentum(numbers.momentum)
                                                               .dampening(numbers.dampening)
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

void set_sgd(optim::OptimizerOptions& options, const optimizer_identity& numbers) {
  static_cast<optim::SGDOptions&>(options)
    .momentum(numbers.momentum)
    .dampening(numbers.dampening)
    .weight_decay(numbers.weight_decay);
}

// -- optimizers that count their steps ------------------------------------------------------------

// The states and options of Adam and AdamW are different types with the same members.

template <class Options, class State>
std::vector<torch::Tensor*> moments_of(State& state, const optim::OptimizerOptions& options) {
  std::vector<torch::Tensor*> all{&state.exp_avg(), &state.exp_avg_sq()};
  if (static_cast<const Options&>(options).amsgrad())
    all.push_back(&state.max_exp_avg_sq());
  return all;
}

// The statistics of a state, in the order of optimizer_row::statistics.

std::vector<torch::Tensor*> tensors_of(optim::AdamParamState& state,
                                       const optim::OptimizerOptions& options) {
  return moments_of<optim::AdamOptions>(state, options);
}

std::vector<torch::Tensor*> tensors_of(optim::AdamWParamState& state,
                                       const optim::OptimizerOptions& options) {
  return moments_of<optim::AdamWOptions>(state, options);
}

std::vector<torch::Tensor*> tensors_of(optim::AdagradParamState& state,
                                       const optim::OptimizerOptions& /*options*/) {
  return {&state.sum()};
}

std::vector<torch::Tensor*> tensors_of(optim::RMSpropParamState& state,
                                       const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const optim::RMSpropOptions&>(options);
  std::vector<torch::Tensor*> all{&state.square_avg()};
  if (o.momentum() > 0)
    all.push_back(&state.momentum_buffer());
  if (o.centered())
    all.push_back(&state.grad_avg());
  return all;
}

/// Groups differ only in what no statistic depends on.
const optim::OptimizerOptions& options_of(optim::Optimizer& optimizer) {
  return optimizer.param_groups().front().options();
}

/// The state of a parameter with all its statistics.
template <class State>
State& whole_state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = *state_of<State>(optimizer, parameter, true);
  for (auto* tensor : tensors_of(state, options_of(optimizer)))
    if (!tensor->defined())
      *tensor = torch::zeros_like(parameter.detach());
  return state;
}

template <class State>
torch::Tensor* statistic_of(optim::Optimizer& optimizer, const torch::Tensor& parameter,
                            std::size_t which, bool make) {
  auto* state = make ? &whole_state_of<State>(optimizer, parameter)
                     : state_of<State>(optimizer, parameter, false);
  return state != nullptr ? tensors_of(*state, options_of(optimizer)).at(which) : nullptr;
}

template <class State>
std::int64_t steps_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto* state = state_of<State>(optimizer, parameter, false);
  return state != nullptr ? state->step() : 0;
}

template <class State>
void set_steps(optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps) {
  whole_state_of<State>(optimizer, parameter).step(steps);
}

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make_adam(const optimizer_identity& numbers, double lr,
                                            std::vector<torch::Tensor> parameters) {
  return std::make_unique<Optimizer>(std::move(parameters), Options(lr)
                                                              .betas({numbers.beta1, numbers.beta2})
                                                              .eps(numbers.epsilon)
                                                              .amsgrad(numbers.amsgrad)
                                                              .weight_decay(numbers.weight_decay));
}

template <class Options>
optimizer_identity identity_of_adam(const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const Options&>(options);
  optimizer_identity id;
  std::tie(id.beta1, id.beta2) = o.betas();
  id.epsilon = o.eps();
  id.amsgrad = o.amsgrad();
  id.weight_decay = o.weight_decay();
  return id;
}

template <class Options>
void set_adam(optim::OptimizerOptions& options, const optimizer_identity& numbers) {
  static_cast<Options&>(options)
    .betas({numbers.beta1, numbers.beta2})
    .eps(numbers.epsilon)
    .weight_decay(numbers.weight_decay);
}

void set_adagrad(optim::OptimizerOptions& options, const optimizer_identity& numbers) {
  static_cast<optim::AdagradOptions&>(options)
    .eps(numbers.epsilon)
    .weight_decay(numbers.weight_decay);
}

void set_rmsprop(optim::OptimizerOptions& options, const optimizer_identity& numbers) {
  static_cast<optim::RMSpropOptions&>(options)
    .alpha(numbers.smoothing)
    .eps(numbers.epsilon)
    .momentum(numbers.momentum)
    .weight_decay(numbers.weight_decay);
}

std::unique_ptr<optim::Optimizer> make_adagrad(const optimizer_identity& numbers, double lr,
                                               std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::Adagrad>(
    std::move(parameters),
    optim::AdagradOptions(lr).eps(numbers.epsilon).weight_decay(numbers.weight_decay));
}

optimizer_identity identity_of_adagrad(const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const optim::AdagradOptions&>(options);
  if (o.lr_decay() != 0)
    throw std::invalid_argument{"Adagrad with lr_decay is not supported: use a schedule, of which "
                                "the learning rate depends on the epoch only"};
  if (o.initial_accumulator_value() != 0)
    throw std::invalid_argument{"Adagrad with an initial_accumulator_value is not supported: the "
                                "statistics of a run begin as zeros"};
  optimizer_identity id;
  id.epsilon = o.eps();
  id.weight_decay = o.weight_decay();
  return id;
}

std::unique_ptr<optim::Optimizer> make_rmsprop(const optimizer_identity& numbers, double lr,
                                               std::vector<torch::Tensor> parameters) {
  return std::make_unique<optim::RMSprop>(std::move(parameters),
                                          optim::RMSpropOptions(lr)
                                            .alpha(numbers.smoothing)
                                            .eps(numbers.epsilon)
                                            .momentum(numbers.momentum)
                                            .centered(numbers.centered)
                                            .weight_decay(numbers.weight_decay));
}

optimizer_identity identity_of_rmsprop(const optim::OptimizerOptions& options) {
  const auto& o = static_cast<const optim::RMSpropOptions&>(options);
  optimizer_identity id;
  id.smoothing = o.alpha();
  id.epsilon = o.eps();
  id.momentum = o.momentum();
  id.centered = o.centered();
  id.weight_decay = o.weight_decay();
  return id;
}

template <class State>
constexpr counted_state counted{steps_of<State>, set_steps<State>};

const std::array table{
  torch_optimizer{
    "sgd", "SGD", &typeid(optim::SGD), make_sgd, identity_of_sgd, set_sgd, momentum_of, {}},
  torch_optimizer{"adam", "Adam", &typeid(optim::Adam), make_adam<optim::Adam, optim::AdamOptions>,
                  identity_of_adam<optim::AdamOptions>, set_adam<optim::AdamOptions>,
                  statistic_of<optim::AdamParamState>, counted<optim::AdamParamState>},
  torch_optimizer{"adamw", "AdamW", &typeid(optim::AdamW),
                  make_adam<optim::AdamW, optim::AdamWOptions>,
                  identity_of_adam<optim::AdamWOptions>, set_adam<optim::AdamWOptions>,
                  statistic_of<optim::AdamWParamState>, counted<optim::AdamWParamState>},
  torch_optimizer{"adagrad", "Adagrad", &typeid(optim::Adagrad), make_adagrad, identity_of_adagrad,
                  set_adagrad, statistic_of<optim::AdagradParamState>,
                  counted<optim::AdagradParamState>},
  torch_optimizer{"rmsprop", "RMSprop", &typeid(optim::RMSprop), make_rmsprop, identity_of_rmsprop,
                  set_rmsprop, statistic_of<optim::RMSpropParamState>,
                  counted<optim::RMSpropParamState>},
};

} // namespace

std::vector<double> numbers_in(const torch_optimizer& kind,
                               const optim::OptimizerOptions& options) {
  auto identity = kind.identity(options);
  std::vector<double> out{options.get_lr(), identity.weight_decay};
  auto names = settled_numbers(*find_optimizer(kind.name));
  for (auto name : std::span{names}.subspan(2))
    out.push_back(find_named(hyper_parameters(), name)->of(identity));
  return out;
}

void set_numbers_in(const torch_optimizer& kind, optim::OptimizerOptions& options,
                    std::span<const std::optional<double>> numbers) {
  constexpr double resolution = 1e-44;
  auto identity = kind.identity(options);
  bool others = false;
  auto names = settled_numbers(*find_optimizer(kind.name));
  auto now = numbers_in(kind, options);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!numbers[i] || std::abs(*numbers[i] - now[i]) < resolution)
      continue;
    if (i == 0)
      options.set_lr(*numbers[i]);
    else if (i == 1)
      identity.weight_decay = *numbers[i];
    else
      find_named(hyper_parameters(), names[i])->set(identity, *numbers[i]);
    others = others || i > 0;
  }
  if (others)
    kind.set_numbers(options, identity);
}

const torch_optimizer* find_torch_optimizer(std::string_view name) {
  return find_named(table, name);
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
