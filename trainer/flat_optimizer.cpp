#include "trainer/flat_optimizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "runtime/core/check.hpp"

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
  : rule_(update_rule_named(numbers.kind)), numbers_(numbers), without_decay_(numbers),
    statistics_(
      torch::zeros({number(tensors.value_count() - tensors.parameter_count())}, like.options())) {
  without_decay_.weight_decay = 0;
  plan(tensors);
  if (!rule_.whole_tensors)
    join_neighbours();
}

void flat_optimizer::plan(const state_table& tensors) {
  const auto* row = find_optimizer(numbers_.kind);
  WAGGLE_CHECK(row != nullptr, numbers_.kind);
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
}

/// For an element-wise rule. Its statistics have the shapes of the parameters, so neighbours in the
/// parameters are neighbours in every statistic.
void flat_optimizer::join_neighbours() {
  std::vector<piece> joined;
  for (auto& next : pieces_) {
    auto count = count_of(next.parameters.sizes);
    if (joined.empty() || joined.back().decays != next.decays) {
      next.parameters.sizes = {0};
      joined.push_back(std::move(next));
    }
    joined.back().parameters.sizes.front() += count;
  }
  pieces_ = std::move(joined);
}

void flat_optimizer::step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr) {
  torch::NoGradGuard guard;
  ++steps_;
  // Slices of element-wise operations give the same values. Temporary tensors are then only as long
  // as a slice, and stay in the cache.
  bool sliced = !rule_.whole_tensors && parameters.is_cpu();
  for (const auto& piece : pieces_) {
    const auto& numbers = piece.decays ? numbers_ : without_decay_;
    auto count = count_of(piece.parameters.sizes);
    auto length = sliced ? slice_values : count;
    for (std::int64_t at = 0; at < count; at += length) {
      auto part = [&](const torch::Tensor& all, const range& of) {
        return rule_.whole_tensors ? all.narrow(0, of.at, count_of(of.sizes)).view(of.sizes)
                                   : all.narrow(0, of.at + at, std::min(length, count - at));
      };
      step_tensors values{part(parameters, piece.parameters), part(gradient, piece.parameters), {}};
      for (const auto& statistic : piece.statistics)
        values.statistics.push_back(part(statistics_, statistic));
      rule_.step(numbers, lr, steps_, values);
    }
  }
}

} // namespace waggle
