#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// How the contributions to one part become one result. Values travel: append only.
///
/// All work on one part at a time, so that a round has as many independent verdicts as parts
/// (butterfly all-reduce; Gorbunov et al. 2022, arXiv:2106.11257), and none needs more memory than
/// a block of values per contributor. n is the number of contributors with a weight above 0, f is
/// `aggregation::faulty_max`; all but the mean cap the weights (see `capped_weights`).
///
/// - mean: Σ wᵢxᵢ / Σ wᵢ. Withstands nobody: one liar can move it anywhere.
/// - trimmed_mean: per value, the weighted mean without the f smallest and the f largest. With at
///   most f liars and 2f < n every value lies between those of honest peers.
/// - median: per value, the weighted median; the middle of the two where the weight splits in
///   halves. As above while liars have less than half of the capped weight.
/// - centered_clip: centre ← centre + Σ wᵢ·clip(xᵢ − centre) / Σ wᵢ, three times, from the median
///   on; clip shortens a difference to the lower median of all their lengths. With fewer than half
///   of n a liar moves the centre no further than an honest peer could.
/// - krum: the weighted mean of the n − f contributions with the least sums of squared distances to
///   their n − f − 2 nearest. With at most f liars and 2f + 3 ≤ n, those that stand apart do not
///   count.
///
/// Sources: trimmed_mean and median of Yin et al. 2018 (arXiv:1803.01498, definitions 1 and 2);
/// centered_clip of Karimireddy et al. 2021 (arXiv:2012.10333, section 4), there with a radius to
/// be tuned; krum of Blanchard et al. 2017 (NeurIPS, section 4). The last is what that paper calls
/// multi-krum with m = n − f: its variance is that of a mean of m, and when the liars agree with
/// each other (so that one of them is the single best) they are f of m voices instead of all.
///
/// None of them sees through liars that stay within the spread of the honest ("a little is
/// enough", Baruch et al. 2019, arXiv:1902.06156): then the error is bounded by that spread, so
/// that larger batches help.
enum class aggregator : std::uint8_t {
  mean = 0,
  trimmed_mean = 1,
  median = 2,
  centered_clip = 3,
  krum = 4,
};

std::string_view to_string(aggregator how);
result<aggregator> parse_aggregator(std::string_view name);

/// Everything the members must have alike so that whoever reduces a part gets the same bytes.
struct aggregation {
  aggregator how = aggregator::mean;
  /// Contributors that may lie: trimmed_mean drops that many at both ends, krum leaves that many
  /// out of its neighbourhoods and of its mean. The other two do not need to know.
  std::uint32_t faulty_max = 0;

  friend bool operator==(const aggregation&, const aggregation&) = default;
};

/// The fewest contributors over which `how` keeps its promise. At least 1.
std::uint64_t contributors_needed(const aggregation& how);

/// Whether `contributors` are enough for the promise, for a sentence at start. Fails with
/// ec::bad_config: too few contributors, a mean that is to withstand somebody, or a robust
/// aggregator that needs faulty_max and has none.
status check_aggregation(const aggregation& how, std::size_t contributors);

/// What is computed over `contributors`: `how.how` if they are enough, else the median, which still
/// does its best; a round that shrank below the promise ends with that. With nobody to withstand,
/// trimmed_mean and krum are the mean.
aggregator effective_aggregator(const aggregation& how, std::size_t contributors);

} // namespace waggle
