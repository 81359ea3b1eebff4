#include "runtime/averaging/partition.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/averaging/shares.hpp"
#include "runtime/codec/blocks.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

constexpr std::size_t part_bytes_min = 32_KiB; // encoded
static_assert(sparse_chunk % codecs::block_values == 0);
constexpr double gain_worth_it = 1.0 / 16;
constexpr double seconds_worth_it = 0.002;
constexpr double nearly_equal = 0.1;
constexpr double change_worth_it = 0.05; // bandwidths are measured within a few hundredths

/// Encoded, on average. Of a member's load, about as much is contributions as is results, which
/// are all contributions again with some codecs.
double bytes_per_element(const round_plan& plan) {
  double bits = 0;
  double elements = 0;
  for (const auto& run : plan.codecs) {
    auto times = sends_contributions_back(run.codec) ? (plan.members.size() + 1) / 2.0 : 1.0;
    bits += static_cast<double>(run.elements) * bits_per_value(run.codec) * times;
    elements += static_cast<double>(run.elements);
  }
  return elements > 0 ? bits / 8 / elements : sizeof(float);
}

/// Measured bandwidths that differ by no more than the measuring noise count as equal: each is
/// replaced by the mean of those that are at most `nearly_equal` slower than the fastest of them.
/// Otherwise noise would give some member a larger share, and the round would last as long as that
/// member takes. Declared bandwidths are not noisy and are kept.
member_bandwidths leveled(member_bandwidths bandwidths) {
  std::vector<double*> measured;
  for (auto& bandwidth : bandwidths)
    if (!bandwidth.declared && bandwidth.bytes_per_second.value_or(0) > 0)
      measured.push_back(&*bandwidth.bytes_per_second);
  std::stable_sort(measured.begin(), measured.end(), [](auto* a, auto* b) { return *a > *b; });
  for (auto from = measured.begin(); from != measured.end();) {
    auto slowest = **from * (1 - nearly_equal);
    auto to =
      std::find_if(from, measured.end(), [&](auto* bandwidth) { return *bandwidth < slowest; });
    double sum = 0;
    for (auto i = from; i != to; ++i)
      sum += **i;
    for (auto i = from; i != to; ++i)
      **i = sum / static_cast<double>(to - from);
    from = to;
  }
  return bandwidths;
}

/// The load of member `i`'s link in each direction, in elements.
struct load {
  double carried = 0; // independent of the size of parts
  double idle = 0;    // to receive the last results, while it has nothing else to carry
};

load load_of(std::size_t i, const round_plan& plan, const vector_partition& how) {
  auto n = static_cast<double>(plan.members.size());
  auto own = static_cast<double>(how.shares[i]);
  // An auxiliary has no vector: it receives n - 1 contributions and sends as many results.
  if (plan.members[i].mode == member_mode::auxiliary)
    return {(n - 1) * own, 0};
  double last = 0; // one part of each other reducer
  for (std::size_t j = 0; j < how.shares.size(); ++j)
    if (j != i)
      last += static_cast<double>(std::min<std::uint64_t>(how.shares[j], how.part_elements));
  return {static_cast<double>(plan.elements) + (n - 2) * own, std::max(last - (n - 1) * own, 0.0)};
}

double seconds(const round_plan& plan, const member_bandwidths& bandwidths,
               const vector_partition& how, bool with_idle) {
  WAGGLE_CHECK(bandwidths.size() == plan.members.size(), "a bandwidth for each member");
  double elements_a_second = 1 / bytes_per_element(plan);
  double longest = 0;
  for (std::size_t i = 0; i < bandwidths.size(); ++i) {
    auto bandwidth = bandwidths[i].bytes_per_second.value_or(0);
    if (bandwidth <= 0)
      continue;
    auto load = load_of(i, plan, how);
    longest = std::max(longest, (load.carried + (with_idle ? load.idle : 0))
                                  / (bandwidth * elements_a_second));
  }
  return longest;
}

} // namespace

double transfer_seconds(const round_plan& plan, const member_bandwidths& bandwidths,
                        const vector_partition& how) {
  return seconds(plan, bandwidths, how, true);
}

std::uint32_t smallest_part(const codec_plan& codecs, const part_size& parts) {
  if (!parts.chosen)
    return parts.largest;
  auto narrowest = bits_per_value(codec_id::none);
  for (const auto& run : codecs)
    narrowest = std::min(narrowest, bits_per_value(run.codec));
  auto blocks =
    static_cast<std::uint32_t>(std::ceil(8 * part_bytes_min / narrowest / codecs::block_values));
  return std::min<std::uint32_t>(blocks * codecs::block_values, parts.largest);
}

bool may_be_part(std::uint32_t elements, const codec_plan& codecs, const part_size& parts) {
  return elements >= smallest_part(codecs, parts) && elements <= parts.largest;
}

result<vector_partition> make_partition(const round_plan& plan, const member_bandwidths& bandwidths,
                                        const part_size& parts, std::uint64_t min_vector_size) {
  WAGGLE_CHECK(bandwidths.size() == plan.members.size(), "a bandwidth for each member");
  std::vector<share_bid> bids;
  auto known = leveled(bandwidths);
  for (std::size_t i = 0; i < known.size(); ++i)
    bids.push_back({plan.members[i].mode, known[i].bytes_per_second});
  WAGGLE_TRY(shares, balanced_shares(bids, plan.elements, min_vector_size));
  vector_partition how{std::move(*shares), parts.largest};
  const auto* aggregator = find_row(plan.reduce_by.how);
  if (!parts.chosen || aggregator == nullptr || !aggregator->by_value)
    return how;
  auto needed = seconds(plan, bandwidths, how, false);
  auto allowed = needed + std::max(needed * gain_worth_it, seconds_worth_it);
  auto floor = smallest_part(plan.codecs, parts);
  while (transfer_seconds(plan, bandwidths, how) > allowed && how.part_elements / 2 >= floor)
    how.part_elements /= 2;
  return how;
}

std::optional<vector_partition> better_partition(const round_plan& plan,
                                                 const partition_terms& terms) {
  auto how = make_partition(plan, terms.bandwidths, terms.parts, terms.min_vector_size);
  if (!how)
    return std::nullopt; // a formed group has a member that reduces
  auto now = transfer_seconds(plan, terms.bandwidths, {plan.shares, plan.part_elements});
  if (transfer_seconds(plan, terms.bandwidths, *how) >= now * (1 - change_worth_it))
    return std::nullopt;
  return std::move(*how);
}

} // namespace waggle
