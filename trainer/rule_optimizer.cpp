#include "trainer/rule_optimizer.hpp"

#include <algorithm>
#include <optional>

#include "runtime/core/check.hpp"
#include "trainer/optimizer_state.hpp"

namespace waggle {

namespace {

namespace optim = torch::optim;

/// 1 MiB of each vector. A multiple of the width of vector instructions, so that each value is
/// computed by the same instructions as without slices.
constexpr std::int64_t slice_values = std::int64_t{1} << 18U;

const rule_options& options_of(const optim::OptimizerParamGroup& group) {
  return static_cast<const rule_options&>(group.options());
}

bool neighbours(const torch::Tensor& a, const torch::Tensor& b) {
  return a.is_contiguous() && b.is_contiguous()
         && a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl()
         && a.storage_offset() + a.numel() == b.storage_offset();
}

} // namespace

std::unique_ptr<rule_optimizer>
rule_optimizer::of_each(const std::vector<torch::Tensor>& parameters,
                        const optimizer_identity& numbers, double lr) {
  std::vector<optim::OptimizerParamGroup> groups;
  for (const auto& p : parameters) {
    rule_options own{numbers, lr};
    if (!numbers.decay_vectors && p.dim() < 2)
      own.numbers.weight_decay = 0;
    groups.emplace_back(std::vector{p}, std::make_unique<rule_options>(own));
  }
  return std::make_unique<rule_optimizer>(groups, rule_options{numbers, lr});
}

rule_state& rule_optimizer::state_of(const torch::Tensor& parameter) {
  if (auto* known = state_in<rule_state>(*this, parameter, false))
    return *known;
  const auto& numbers = options_of(param_groups_.front()).numbers;
  const auto& row = *find_optimizer(numbers.kind);
  bool alone = update_rule_named(numbers.kind).whole_tensors;
  std::vector<torch::Tensor> run; // this parameter and its neighbours
  for (const auto& group : param_groups_)
    for (const auto& p : group.params())
      if (run.empty() ? p.is_same(parameter)
                      : !alone && neighbours(run.back(), p)
                          && state_in<rule_state>(*this, p, false) == nullptr)
        run.push_back(p);
  WAGGLE_CHECK(!run.empty(), "a state of a parameter of another optimizer");
  std::vector<std::vector<std::vector<std::int64_t>>> shapes; // by parameter and statistic
  for (const auto& p : run) {
    shapes.emplace_back();
    for (const auto& s : row.statistics(numbers, {p.sizes().begin(), p.sizes().end()}))
      shapes.back().emplace_back(s.shape.begin(), s.shape.end());
  }
  for (std::size_t s = 0; s < shapes.front().size(); ++s) {
    std::int64_t total = 0;
    for (const auto& of : shapes)
      total += c10::multiply_integers(of[s]);
    auto rest = torch::zeros({total}, parameter.options());
    for (std::size_t i = 0; i < run.size(); ++i) {
      auto values = c10::multiply_integers(shapes[i][s]);
      state_in<rule_state>(*this, run[i], true)
        ->statistics.push_back(rest.narrow(0, 0, values).view(shapes[i][s]));
      rest = rest.narrow(0, values, rest.numel() - values);
    }
  }
  return *state_in<rule_state>(*this, parameter, true); // some keep nothing but the count
}

void rule_optimizer::add_param_group(const optim::OptimizerParamGroup& group) {
  add_group(*this, group);
}

torch::Tensor rule_optimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    torch::AutoGradMode with_gradient{true};
    loss = closure();
  }
  torch::NoGradGuard guard;
  std::optional<piece> all;
  for (auto& group : param_groups_)
    for (auto& p : group.params()) {
      if (!p.grad().defined())
        continue;
      auto& state = state_of(p);
      state.step(state.step() + 1);
      auto gradient = p.grad().is_sparse() ? p.grad().to_dense() : p.grad().contiguous();
      step_tensors own{p.contiguous(), std::move(gradient), state.statistics};
      piece next{&options_of(group), state.step(), own, own, p.numel()};
      if (all && continues(*all, next)) {
        all->last = std::move(next.last);
        all->values += next.values;
        continue;
      }
      if (all)
        apply(*all);
      all = std::move(next);
      if (p.is_contiguous())
        continue;
      apply(*all);
      p.copy_(all->first.parameters);
      all.reset();
    }
  if (all)
    apply(*all);
  return loss;
}

bool rule_optimizer::continues(const piece& all, const piece& next) {
  const auto& numbers = all.how->numbers;
  return !update_rule_named(numbers.kind).whole_tensors && all.count == next.count
         && all.how->lr == next.how->lr && numbers == next.how->numbers
         && neighbours(all.last.parameters, next.first.parameters)
         && neighbours(all.last.gradient, next.first.gradient)
         && std::ranges::equal(all.last.statistics, next.first.statistics, neighbours);
}

void rule_optimizer::apply(const piece& of) {
  const auto& [how, count, first, last, values] = of;
  const auto& rule = update_rule_named(how->numbers.kind);
  if (rule.whole_tensors) {
    auto whole = first;
    return rule.step(how->numbers, how->lr, static_cast<std::uint64_t>(count), whole);
  }
  // Temporary tensors are then only as long as a slice, and stay in the cache.
  auto length = first.parameters.is_cpu() ? slice_values : values;
  for (std::int64_t at = 0; at < values; at += length) {
    auto part = [&, size = std::min(length, values - at)](const torch::Tensor& of_first) {
      return of_first.as_strided({size}, {1}, of_first.storage_offset() + at);
    };
    step_tensors slice{part(first.parameters), part(first.gradient), {}};
    for (const auto& statistic : first.statistics)
      slice.statistics.push_back(part(statistic));
    rule.step(how->numbers, how->lr, static_cast<std::uint64_t>(count), slice);
  }
}

void rule_optimizer::save(torch::serialize::OutputArchive& /*archive*/) const {
  TORCH_CHECK(false, "a rule_optimizer is not saved: checkpoints of the run have its statistics");
}

void rule_optimizer::load(torch::serialize::InputArchive& /*archive*/) {
  TORCH_CHECK(false, "a rule_optimizer is not loaded: checkpoints of the run have its statistics");
}

} // namespace waggle
