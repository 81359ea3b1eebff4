#include "trainer/optimizers.hpp"

#include <array>
#include <cmath>
#include <stdexcept>

#include "runtime/core/named.hpp"
#include "runtime/training/state_schema.hpp"
#include "trainer/optimizer_state.hpp"
#include "trainer/rule_optimizer.hpp"

namespace waggle {

namespace {

namespace optim = torch::optim;

// -- statistics -----------------------------------------------------------------------------------

// The states and options of Adam and AdamW are different types with the same members.

template <class Options, class State>
std::vector<torch::Tensor*> moments_of(State& state, const optim::OptimizerOptions& options) {
  std::vector<torch::Tensor*> all{&state.exp_avg(), &state.exp_avg_sq()};
  if (static_cast<const Options&>(options).amsgrad())
    all.push_back(&state.max_exp_avg_sq());
  return all;
}

// The statistics of a state, in the order of optimizer_row::statistics.

std::vector<torch::Tensor*> tensors_of(optim::SGDParamState& state,
                                       const optim::OptimizerOptions& /*options*/) {
  return {&state.momentum_buffer()};
}

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

std::vector<torch::Tensor*> tensors_of(rule_state& state,
                                       const optim::OptimizerOptions& /*options*/) {
  std::vector<torch::Tensor*> all;
  for (auto& statistic : state.statistics)
    all.push_back(&statistic);
  return all;
}

/// Groups differ only in what no statistic depends on.
const optim::OptimizerOptions& options_of(optim::Optimizer& optimizer) {
  return optimizer.param_groups().front().options();
}

/// The state of a parameter with all its statistics.
template <class State>
State& whole_state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = *state_in<State>(optimizer, parameter, true);
  for (auto* tensor : tensors_of(state, options_of(optimizer)))
    if (!tensor->defined())
      *tensor = torch::zeros_like(parameter.detach());
  return state;
}

template <>
rule_state& whole_state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  return static_cast<rule_optimizer&>(optimizer).state_of(parameter);
}

template <class State>
torch::Tensor* statistic_of(optim::Optimizer& optimizer, const torch::Tensor& parameter,
                            std::size_t which, bool make) {
  auto* state = make ? &whole_state_of<State>(optimizer, parameter)
                     : state_in<State>(optimizer, parameter, false);
  return state != nullptr ? tensors_of(*state, options_of(optimizer)).at(which) : nullptr;
}

template <class State>
std::int64_t steps_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto* state = state_in<State>(optimizer, parameter, false);
  return state != nullptr ? state->step() : 0;
}

template <class State>
void set_steps(optim::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps) {
  whole_state_of<State>(optimizer, parameter).step(steps);
}

// -- options --------------------------------------------------------------------------------------

optimizer_identity read(const optim::SGDOptions& o) {
  if (o.dampening() != 0)
    throw std::invalid_argument{"SGD with dampening is not supported: its first step differs from "
                                "later ones, so the parameters of a joining peer would diverge"};
  optimizer_identity id{"sgd"};
  id.momentum = o.momentum();
  id.nesterov = o.nesterov();
  id.weight_decay = o.weight_decay();
  return id;
}

void write(optim::SGDOptions& o, const optimizer_identity& numbers) {
  o.momentum(numbers.momentum)
    .dampening(numbers.dampening)
    .nesterov(numbers.nesterov)
    .weight_decay(numbers.weight_decay);
}

template <class Adam>
optimizer_identity read(const Adam& o) {
  optimizer_identity id{std::is_same_v<Adam, optim::AdamOptions> ? "adam" : "adamw"};
  std::tie(id.beta1, id.beta2) = o.betas();
  id.epsilon = o.eps();
  id.amsgrad = o.amsgrad();
  id.weight_decay = o.weight_decay();
  return id;
}

template <class Adam>
void write(Adam& o, const optimizer_identity& numbers) {
  o.betas({numbers.beta1, numbers.beta2})
    .eps(numbers.epsilon)
    .amsgrad(numbers.amsgrad)
    .weight_decay(numbers.weight_decay);
}

optimizer_identity read(const optim::AdagradOptions& o) {
  if (o.lr_decay() != 0)
    throw std::invalid_argument{"Adagrad with lr_decay is not supported: use a schedule, of which "
                                "the learning rate depends on the epoch only"};
  if (o.initial_accumulator_value() != 0)
    throw std::invalid_argument{"Adagrad with an initial_accumulator_value is not supported: the "
                                "statistics of a run begin as zeros"};
  optimizer_identity id{"adagrad"};
  id.epsilon = o.eps();
  id.weight_decay = o.weight_decay();
  return id;
}

void write(optim::AdagradOptions& o, const optimizer_identity& numbers) {
  o.eps(numbers.epsilon).weight_decay(numbers.weight_decay);
}

optimizer_identity read(const optim::RMSpropOptions& o) {
  optimizer_identity id{"rmsprop"};
  id.smoothing = o.alpha();
  id.epsilon = o.eps();
  id.momentum = o.momentum();
  id.centered = o.centered();
  id.weight_decay = o.weight_decay();
  return id;
}

void write(optim::RMSpropOptions& o, const optimizer_identity& numbers) {
  o.alpha(numbers.smoothing)
    .eps(numbers.epsilon)
    .momentum(numbers.momentum)
    .centered(numbers.centered)
    .weight_decay(numbers.weight_decay);
}

optimizer_identity read(const rule_options& o) {
  return o.numbers;
}

void write(rule_options& o, const optimizer_identity& numbers) {
  o.numbers = numbers;
}

// -- the table ------------------------------------------------------------------------------------

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make(const optimizer_identity& numbers, double lr,
                                       std::vector<torch::Tensor> parameters) {
  if constexpr (std::is_same_v<Optimizer, rule_optimizer>) {
    return std::make_unique<Optimizer>(std::move(parameters), Options{numbers, lr});
  } else {
    Options options(lr);
    write(options, numbers);
    return std::make_unique<Optimizer>(std::move(parameters), options);
  }
}

template <class Optimizer, class Options, class State>
torch_optimizer row(std::string_view name, std::string_view class_name, counted_state counter) {
  return {name,
          class_name,
          &typeid(Optimizer),
          make<Optimizer, Options>,
          [](const optim::OptimizerOptions& o) { return read(static_cast<const Options&>(o)); },
          [](optim::OptimizerOptions& o, const optimizer_identity& numbers) {
            write(static_cast<Options&>(o), numbers);
          },
          statistic_of<State>,
          counter};
}

template <class Optimizer, class Options, class State>
torch_optimizer counting(std::string_view name, std::string_view class_name) {
  return row<Optimizer, Options, State>(name, class_name, {steps_of<State>, set_steps<State>});
}

const std::array table{
  row<optim::SGD, optim::SGDOptions, optim::SGDParamState>("sgd", "SGD", {}),
  counting<optim::Adam, optim::AdamOptions, optim::AdamParamState>("adam", "Adam"),
  counting<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("adamw", "AdamW"),
  counting<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>("adagrad", "Adagrad"),
  counting<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>("rmsprop", "RMSprop"),
  counting<rule_optimizer, rule_options, rule_state>("", ""),
};

} // namespace

std::vector<double> numbers_in(const torch_optimizer& kind,
                               const optim::OptimizerOptions& options) {
  auto identity = kind.identity(options);
  std::vector<double> out{options.get_lr(), identity.weight_decay};
  auto names = settled_numbers(*find_optimizer(identity.kind));
  for (auto name : std::span{names}.subspan(2))
    out.push_back(find_named(hyper_parameters(), name)->of(identity));
  return out;
}

void set_numbers_in(const torch_optimizer& kind, optim::OptimizerOptions& options,
                    std::span<const std::optional<double>> numbers) {
  constexpr double resolution = 1e-44;
  auto identity = kind.identity(options);
  bool others = false;
  auto names = settled_numbers(*find_optimizer(identity.kind));
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

std::unique_ptr<optim::Optimizer> make_optimizer(const optimizer_identity& numbers, double lr,
                                                 std::vector<torch::Tensor> parameters) {
  const auto* known = find_named(table, numbers.kind);
  return known != nullptr && numbers.decay_vectors
           ? known->make(numbers, lr, std::move(parameters))
           : rule_optimizer::of_each(parameters, numbers, lr);
}

const torch_optimizer& torch_optimizer_of(const optim::Optimizer& optimizer) {
  std::vector<std::string> classes;
  for (const auto& row : table) {
    if (typeid(optimizer) == *row.type)
      return row;
    if (!row.class_name.empty())
      classes.emplace_back(row.class_name);
  }
  throw std::invalid_argument{
    "only the optimizers " + joined(classes, " and ")
    + " of torch::optim, and waggle::rule_optimizer, are supported: the statistics of others are "
      "not known, so a peer that joins could not receive them"};
}

} // namespace waggle
