#include "trainer/flat_optimizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"
#include "runtime/training/state_schema.hpp"

namespace waggle {

namespace {

/// 1 MiB of each vector. A multiple of the width of vector instructions, so that each value is
/// computed by the same instructions as without slices.
constexpr std::int64_t slice_values = std::int64_t{1} << 18U;

std::int64_t count_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t all = 1;
  for (auto size : sizes)
    all *= size;
  return all;
}

std::int64_t number(std::uint64_t n) {
  return static_cast<std::int64_t>(n);
}

} // namespace

flat_optimizer::flat_optimizer(const optimizer_identity& numbers, const state_table& tensors,
                               const torch::Tensor& like)
  : rule_(update_rule_named(numbers.kind)), numbers_(numbers),
    statistics_(
      torch::zeros({number(tensors.value_count() - tensors.parameter_count())}, like.options())) {
  plan(tensors);
}

void flat_optimizer::plan(const state_table& tensors) {
  const auto* row = find_optimizer(numbers_.kind);
  WAGGLE_CHECK(row != nullptr, numbers_.kind);
  auto names = settled_numbers(*row);
  for (auto name : std::span{names}.subspan(2))
    settled_.push_back(find_named(hyper_parameters(), name));
  auto range_of = [&](std::size_t i, std::uint64_t begin) {
    const auto& shape = tensors[i].shape;
    return range{number(tensors.offset(i) - begin), {shape.begin(), shape.end()}};
  };
  std::unordered_map<std::string, std::size_t> index; // of statistics, by name
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].what != state_tensor::kind::parameter)
      index.emplace(tensors[i].name, i);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& p = tensors[i];
    if (p.what != state_tensor::kind::parameter)
      break;
    piece next{range_of(i, 0), {}, numbers_.decay_vectors || p.shape.size() >= 2};
    for (const auto& s : row->statistics(numbers_, p.shape))
      next.statistics.push_back(
        range_of(index.at(s.name + "/" + p.name), tensors.parameter_count()));
    pieces_.push_back(std::move(next));
  }
  left_out_.resize(pieces_.size());
  auto place = range_of(index.at(std::string{left_out_name}), tensors.parameter_count());
  left_out_tensor_ = statistics_.narrow(0, place.at, number(pieces_.size()));
}

void flat_optimizer::set_steps(std::uint64_t steps) {
  torch::NoGradGuard guard;
  steps_ = steps;
  auto values = left_out_tensor_.cpu();
  for (std::size_t i = 0; i < left_out_.size(); ++i)
    left_out_[i] = static_cast<std::uint64_t>(std::max(values[number(i)].item<float>(), 0.0F));
}

flat_optimizer::treatment flat_optimizer::treatment_of(std::size_t parameter, double lr,
                                                       const update_terms* terms) const {
  treatment how{numbers_, lr, steps_ - std::min(left_out_[parameter], steps_ - 1)};
  if (!pieces_[parameter].decays)
    how.numbers.weight_decay = 0;
  if (terms == nullptr)
    return how;
  if (!terms->present[parameter])
    how.count = 0;
  if (terms->numbers_of_each == 0)
    return how;
  how.lr = terms->number(parameter, 0).value_or(lr);
  how.numbers.weight_decay = terms->number(parameter, 1).value_or(how.numbers.weight_decay);
  for (std::size_t i = 0; i < settled_.size(); ++i)
    if (auto settled = terms->number(parameter, i + 2))
      settled_[i]->set(how.numbers, *settled);
  return how;
}

void flat_optimizer::step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr,
                          const update_terms* terms) {
  torch::NoGradGuard guard;
  ++steps_;
  // The statistics of an element-wise rule have the shapes of the parameters, so neighbours in the
  // parameters are neighbours in every statistic.
  for (std::size_t i = 0; i < pieces_.size();) {
    auto how = treatment_of(i, lr, terms);
    auto piece = pieces_[i++];
    if (!rule_.whole_tensors) {
      piece.parameters.sizes = {count_of(piece.parameters.sizes)};
      for (; i < pieces_.size() && treatment_of(i, lr, terms) == how; ++i)
        piece.parameters.sizes.front() += count_of(pieces_[i].parameters.sizes);
    }
    if (how.count > 0)
      apply(piece, how, parameters, gradient);
  }
  bool any = false;
  for (std::size_t i = 0; terms != nullptr && i < pieces_.size(); ++i)
    if (!terms->present[i]) {
      ++left_out_[i];
      any = true;
    }
  if (any)
    left_out_tensor_.copy_(
      torch::tensor(std::vector<float>(left_out_.begin(), left_out_.end()), torch::kFloat32));
}

void flat_optimizer::apply(const piece& to, const treatment& how, torch::Tensor& parameters,
                           const torch::Tensor& gradient) {
  // Slices of element-wise operations give the same values. Temporary tensors are then only as long
  // as a slice, and stay in the cache.
  auto count = count_of(to.parameters.sizes);
  auto length = !rule_.whole_tensors && parameters.is_cpu() ? slice_values : count;
  for (std::int64_t at = 0; at < count; at += length) {
    auto part = [&](const torch::Tensor& all, const range& of) {
      return rule_.whole_tensors ? all.narrow(0, of.at, count_of(of.sizes)).view(of.sizes)
                                 : all.narrow(0, of.at + at, std::min(length, count - at));
    };
    step_tensors values{part(parameters, to.parameters), part(gradient, to.parameters), {}};
    for (const auto& statistic : to.statistics)
      values.statistics.push_back(part(statistics_, statistic));
    rule_.step(how.numbers, how.lr, how.count, values);
  }
}

} // namespace waggle
