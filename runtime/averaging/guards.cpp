#include "runtime/averaging/guards.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/core/median.hpp"

namespace waggle {

namespace {

std::string short_number(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", x);
  return text.data();
}

/// The median of `all` without `all[without]`. REQUIRES: at least two numbers.
double median_of_others(std::span<const double> all, std::size_t without) {
  std::vector<double> others;
  others.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i != without)
      others.push_back(all[i]);
  return upper_median(std::move(others));
}

} // namespace

std::string describe(const outlier& what) {
  if (what.reason == ec::non_finite)
    return "a value is NaN or infinite";
  return (what.reason == ec::bad_weight ? "weight " : "root mean square ")
         + short_number(what.observed) + ", bound " + short_number(what.bound);
}

std::vector<outlier> judge_weights(std::span<const contribution_view> contributions) {
  std::vector<outlier> found;
  if (contributions.size() < contributions_to_compare)
    return found;
  auto [least, most] = std::minmax_element(
    contributions.begin(), contributions.end(),
    [](const contribution_view& a, const contribution_view& b) { return a.weight < b.weight; });
  if (most->weight <= weight_ratio_max * least->weight)
    return found;
  std::vector<double> weights;
  for (const auto& v : contributions)
    weights.push_back(v.weight);
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    auto bound = weight_ratio_max * median_of_others(weights, i);
    if (weights[i] > bound)
      found.push_back({contributions[i].member, ec::bad_weight, weights[i], bound});
  }
  return found;
}

std::vector<outlier> judge_values(std::span<const contribution_view> contributions,
                                  std::span<const double> squares, std::size_t elements) {
  std::vector<outlier> found;
  std::vector<double> sizes;        // root mean squares of the finite contributions
  std::vector<std::size_t> members; // their members
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    if (!std::isfinite(squares[i])) {
      found.push_back({contributions[i].member, ec::non_finite, squares[i],
                       static_cast<double>(std::numeric_limits<float>::max())});
    } else {
      sizes.push_back(std::sqrt(squares[i] / static_cast<double>(elements)));
      members.push_back(contributions[i].member);
    }
  }
  for (std::size_t i = 0; sizes.size() >= contributions_to_compare && i < sizes.size(); ++i) {
    if (sizes[i] <= norm_ratio_max)
      continue;
    auto bound = norm_ratio_max * std::max(median_of_others(sizes, i), 1.0);
    if (sizes[i] > bound)
      found.push_back({members[i], ec::implausible_norm, sizes[i], bound});
  }
  std::ranges::sort(found, [](const outlier& a, const outlier& b) { return a.member < b.member; });
  return found;
}

} // namespace waggle
