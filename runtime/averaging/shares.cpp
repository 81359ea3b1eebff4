#include "runtime/averaging/shares.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace waggle {

namespace {

// Fractions are rounded to nine decimals and kept as integers, so that inputs that differ only in
// their unit or in the order of summation give the same integers.
constexpr double one = 1e9;
// Bandwidths below this fraction of the fastest make no difference, and the bound keeps 1/b finite.
constexpr double bandwidth_min = 1e-12;

/// Each member's bandwidth as a fraction of the largest; 0: never reduce. Empty if no member gave a
/// positive bandwidth.
std::vector<double> normalised(const std::vector<share_bid>& members) {
  double largest = 0;
  for (const auto& m : members)
    if (m.mode != member_mode::client)
      largest = std::max(largest, m.bandwidth.value_or(0));
  if (largest <= 0)
    return {};
  std::vector<double> known;
  for (const auto& m : members)
    if (m.mode != member_mode::client && m.bandwidth.value_or(0) > 0)
      known.push_back(std::max(*m.bandwidth / largest, bandwidth_min));
  // Sorted, so that the mean does not depend on the order of the members.
  std::sort(known.begin(), known.end());
  auto mean = std::accumulate(known.begin(), known.end(), 0.0) / static_cast<double>(known.size());
  std::vector<double> out;
  for (const auto& m : members) {
    if (m.mode == member_mode::client || (m.bandwidth && *m.bandwidth <= 0))
      out.push_back(0);
    else
      out.push_back(m.bandwidth ? std::max(*m.bandwidth / largest, bandwidth_min) : mean);
  }
  return out;
}

/// The smallest ξ that makes the fractions sum to one, but at least 1/min b: below that the slowest
/// member could not even send its own vector in time. REQUIRES: a positive bandwidth, n > 2.
double water_level(const std::vector<double>& bandwidths, double n) {
  std::vector<double> b;
  std::copy_if(bandwidths.begin(), bandwidths.end(), std::back_inserter(b),
               [](double x) { return x > 0; });
  std::sort(b.begin(), b.end(), std::greater{});
  // If only the k fastest reduce, Σ (ξ·bᵢ - 1) / (n-2) = 1. That holds as long as the next one
  // would have a negative fraction.
  double sum = 0;
  double level = 0;
  for (std::size_t k = 0; k < b.size(); ++k) {
    sum += b[k];
    level = (n - 2 + static_cast<double>(k + 1)) / sum;
    if (k + 1 == b.size() || level * b[k + 1] <= 1)
      break;
  }
  return std::max(level, 1 / b.back());
}

std::vector<std::uint64_t> fractions(const std::vector<share_bid>& members) {
  auto bandwidths = normalised(members);
  std::vector<std::uint64_t> out(members.size(), 0);
  if (bandwidths.empty()) { // equal for all members that may reduce
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].mode != member_mode::client && !members[i].bandwidth)
        out[i] = static_cast<std::uint64_t>(one);
    return out;
  }
  auto n = static_cast<double>(members.size());
  auto level = members.size() > 2 ? water_level(bandwidths, n) : 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (bandwidths[i] <= 0)
      continue;
    // Between two members both send and receive the whole vector, whatever the shares are.
    auto w = members.size() > 2 ? (level * bandwidths[i] - 1) / (n - 2) : 1.0;
    out[i] = static_cast<std::uint64_t>(std::llround(std::clamp(w, 0.0, 1.0) * one));
  }
  return out;
}

} // namespace

result<std::vector<std::uint64_t>> balanced_shares(const std::vector<share_bid>& members,
                                                   std::uint64_t elements,
                                                   std::uint64_t min_vector_size) {
  if (elements > plan_elements_max)
    return failure{ec::bad_config, std::to_string(elements) + " elements are too many for a round"};
  auto scores = fractions(members);
  auto largest = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  if (largest == 0)
    return failure{ec::bad_config,
                   "no member of this group may reduce: all are clients or have bandwidth 0"};
  if (elements != 0) {
    auto smallest = static_cast<double>(min_vector_size) / static_cast<double>(elements) * one;
    auto too_small = [&](std::uint64_t score) { return static_cast<double>(score) + 1 < smallest; };
    if (!too_small(largest))
      std::replace_if(scores.begin(), scores.end(), too_small, std::uint64_t{0});
  }
  // score ≤ 1e9 < 2^30 and elements ≤ 2^33: no product below overflows.
  static_assert(plan_elements_max <= std::uint64_t{1} << 33U);
  auto total = std::accumulate(scores.begin(), scores.end(), std::uint64_t{0});
  std::vector<std::uint64_t> shares;
  for (auto score : scores)
    shares.push_back(elements * score / total);
  auto left = elements - std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  for (; left > 0; --left) { // fewer than there are members
    std::size_t best = 0;
    for (std::size_t i = 1; i < shares.size(); ++i)
      if (scores[i] * (shares[best] + 1) > scores[best] * (shares[i] + 1))
        best = i;
    ++shares[best];
  }
  return shares;
}

} // namespace waggle
