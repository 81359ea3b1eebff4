#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// How the contributions to one part are combined into one result. The values are sent to peers:
/// append only.
///
/// All aggregators work on one part at a time, so that a round has as many independent decisions as
/// parts (butterfly all-reduce; Gorbunov et al. 2022, arXiv:2106.11257), and none needs more memory
/// than a block of values per contributor. n is the number of contributors with a weight above 0, f
/// is `aggregation::faulty_max`. All but the mean cap the weights (see `capped_weights`).
///
/// - mean: Σ wᵢxᵢ / Σ wᵢ. Not robust: one Byzantine contributor can move it anywhere.
/// - trimmed_mean: per value, the weighted mean without the f smallest and the f largest. With at
///   most f Byzantine contributors and 2f < n every value lies between those of honest peers.
/// - median: per value, the weighted median; the middle of the two where the weight splits in
///   halves. The same guarantee as long as Byzantine contributors have less than half of the capped
///   weight.
/// - centered_clip: centre ← centre + Σ wᵢ·clip(xᵢ − centre) / Σ wᵢ, three times, starting from the
///   median; clip shortens a difference to the lower median of all their lengths. With fewer than
///   half of n Byzantine, one of them moves the centre no further than an honest peer could.
/// - krum: the weighted mean of the n − f contributions with the least sums of squared distances to
///   their n − f − 2 nearest. With at most f Byzantine contributors and 2f + 3 ≤ n, outliers do not
///   count.
///
/// Sources: trimmed_mean and median are from Yin et al. 2018 (arXiv:1803.01498, definitions 1 and
/// 2); centered_clip from Karimireddy et al. 2021 (arXiv:2012.10333, section 4), where the radius
/// is a parameter to tune; krum from Blanchard et al. 2017 (NeurIPS, section 4). The last is what
/// that paper calls multi-krum with m = n − f: its variance is that of a mean of m, and if the
/// Byzantine contributors collude (so that one of them is the single best) they are f of m
/// contributions instead of all.
///
/// No aggregator detects Byzantine contributions that stay within the spread of the honest ones ("a
/// little is enough", Baruch et al. 2019, arXiv:1902.06156). The error is then bounded by that
/// spread, so larger batches help.
enum class aggregator : std::uint8_t {
  mean = 0,
  trimmed_mean = 1,
  median = 2,
  centered_clip = 3,
  krum = 4,
};

std::string_view to_string(aggregator how);
result<aggregator> parse_aggregator(std::string_view name);

/// The settings that all members must share, so that any reducer of a part produces the same bytes.
struct aggregation {
  aggregator how = aggregator::mean;
  /// The assumed maximum number of Byzantine contributors: trimmed_mean drops that many at both
  /// ends, krum leaves that many out of its neighbourhoods and of its mean. The other two do not
  /// use it.
  std::uint32_t faulty_max = 0;

  friend bool operator==(const aggregation&, const aggregation&) = default;
};

/// The fewest contributors for which the guarantee of `how` holds. At least 1.
std::uint64_t contributors_needed(const aggregation& how);

/// Whether `contributors` are enough for the guarantee; checked at start. Fails with ec::bad_config
/// and a sentence: too few contributors, a mean with faulty_max > 0, or a robust aggregator that
/// needs faulty_max and has none.
status check_aggregation(const aggregation& how, std::size_t contributors);

/// The aggregator that is applied to `contributors`: `how.how` if there are enough of them, else
/// the median, which has no minimum; a round that shrank below the guarantee uses that. With
/// faulty_max 0, trimmed_mean and krum are the mean.
aggregator effective_aggregator(const aggregation& how, std::size_t contributors);

} // namespace waggle
