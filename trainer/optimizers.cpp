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

using tensor_list = std::vector<torch::Tensor*>;

// The statistics of a state, in the order of optimizer_row::statistics. `numbers`: the identity of
// the options.

tensor_list tensors_of(optim::SGDParamState& state, const optimizer_identity& /*numbers*/) {
  return {&state.momentum_buffer()};
}

/// Of Adam and AdamW.
template <class State>
tensor_list tensors_of(State& state, const optimizer_identity& numbers) {
  tensor_list all{&state.exp_avg(), &state.exp_avg_sq()};
  if (numbers.amsgrad)
    all.push_back(&state.max_exp_avg_sq());
  return all;
}

tensor_list tensors_of(optim::AdagradParamState& state, const optimizer_identity& /*numbers*/) {
  return {&state.sum()};
}

tensor_list tensors_of(optim::RMSpropParamState& state, const optimizer_identity& numbers) {
  tensor_list all{&state.square_avg()};
  if (numbers.momentum > 0)
    all.push_back(&state.momentum_buffer());
  if (numbers.centered)
    all.push_back(&state.grad_avg());
  return all;
}

tensor_list tensors_of(rule_state& state, const optimizer_identity& /*numbers*/) {
  tensor_list all;
  for (auto& statistic : state.statistics)
    all.push_back(&statistic);
  return all;
}

/// Groups differ only in what no statistic depends on.
optimizer_identity numbers_of(optim::Optimizer& optimizer) {
  return torch_optimizer_of(optimizer).identity(optimizer.param_groups().front().options());
}

/// The state of a parameter with all its statistics.
template <class State>
State& whole_state_of(optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& state = *state_in<State>(optimizer, parameter, true);
  for (auto* tensor : tensors_of(state, numbers_of(optimizer)))
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
  return state != nullptr ? tensors_of(*state, numbers_of(optimizer)).at(which) : nullptr;
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

// Calls f(member of the options, member of the identity) for each that both have.

template <class Options, class Identity, class F>
void each_number(Options& o, Identity& id, F f) {
  f(o.weight_decay(), id.weight_decay);
  if constexpr (requires { o.betas(); }) {
    f(std::get<0>(o.betas()), id.beta1);
    f(std::get<1>(o.betas()), id.beta2);
    f(o.amsgrad(), id.amsgrad);
  }
  if constexpr (requires { o.eps(); })
    f(o.eps(), id.epsilon);
  if constexpr (requires { o.momentum(); })
    f(o.momentum(), id.momentum);
  if constexpr (requires { o.nesterov(); }) {
    f(o.nesterov(), id.nesterov);
    f(o.dampening(), id.dampening);
  }
  if constexpr (requires { o.centered(); }) {
    f(o.alpha(), id.smoothing);
    f(o.centered(), id.centered);
  }
}

/// Of its row in optimizer_table.
template <class Options>
constexpr std::string_view name_of = "";
template <>
constexpr std::string_view name_of<optim::SGDOptions> = "sgd";
template <>
constexpr std::string_view name_of<optim::AdamOptions> = "adam";
template <>
constexpr std::string_view name_of<optim::AdamWOptions> = "adamw";
template <>
constexpr std::string_view name_of<optim::AdagradOptions> = "adagrad";
template <>
constexpr std::string_view name_of<optim::RMSpropOptions> = "rmsprop";

template <class Options>
optimizer_identity read(const Options& o) {
  if constexpr (std::is_same_v<Options, optim::SGDOptions>)
    if (o.dampening() != 0)
      throw std::invalid_argument{
        "SGD with dampening is not supported: its first step differs from "
        "later ones, so the parameters of a joining peer would diverge"};
  if constexpr (std::is_same_v<Options, optim::AdagradOptions>) {
    if (o.lr_decay() != 0)
      throw std::invalid_argument{
        "Adagrad with lr_decay is not supported: use a schedule, of which "
        "the learning rate depends on the epoch only"};
    if (o.initial_accumulator_value() != 0)
      throw std::invalid_argument{"Adagrad with an initial_accumulator_value is not supported: the "
                                  "statistics of a run begin as zeros"};
  }
  optimizer_identity id{.kind = std::string{name_of<Options>}};
  each_number(o, id, [](const auto& from, auto& to) { to = from; });
  return id;
}

template <class Options>
void write(Options& o, const optimizer_identity& numbers) {
  each_number(o, numbers, [](auto& to, const auto& from) { to = from; });
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
torch_optimizer row(std::string_view class_name,
                    counted_state counter = {steps_of<State>, set_steps<State>}) {
  return {name_of<Options>,
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

const std::array table{
  row<optim::SGD, optim::SGDOptions, optim::SGDParamState>("SGD", {}),
  row<optim::Adam, optim::AdamOptions, optim::AdamParamState>("Adam"),
  row<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("AdamW"),
  row<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>("Adagrad"),
  row<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop"),
  row<rule_optimizer, rule_options, rule_state>(""),
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
