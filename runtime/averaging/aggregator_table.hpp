#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace waggle {

struct contribution_view;

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
///   median of the values regardless of their weights. clip shortens a difference to the radius:
///   the lower median of the lengths of all differences, which never grows from one step to the
///   next. There is no radius to configure, and so no bound that is known in advance. With fewer
///   than half of n Byzantine, whatever they send and whichever weights they claim: the start lies
///   between honest values, value by value; the radius is at most the largest distance D of an
///   honest contribution from the start; so the result is within 3·D of the start.
/// - krum: the weighted mean of the n − f contributions with the least sums of squared distances to
///   their n − f − 2 nearest. With at most f Byzantine contributors and 2f + 3 ≤ n, outliers do not
///   count.
/// - median_norm: Σ wᵢ·sᵢxᵢ / Σ wᵢ, where sᵢ ≤ 1 shortens a contribution to the lower median of the
///   lengths of all. With fewer than half Byzantine, each moves the result by no more than its
///   share of the weight times the length of an honest contribution, whatever it sends. It does not
///   ask in which direction, so it suits sparse parts, of which two contributions have few places
///   in common.
///
/// Sources: trimmed_mean and median are from Yin et al. 2018 (arXiv:1803.01498, definitions 1 and
/// 2); centered_clip from Karimireddy et al. 2021 (arXiv:2012.10333, section 4), where the radius
/// is a parameter to tune; krum from Blanchard et al. 2017 (NeurIPS, section 4). The last is what
/// that paper calls multi-krum with m = n − f: its variance is that of a mean of m, and if the
/// Byzantine contributors collude (so that one of them is the single best) they are f of m
/// contributions instead of all. median_norm is what "Covenant-72B" used (arXiv:2603.08163).
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
  median_norm = 5,
};

struct aggregator_row {
  aggregator id;
  std::string_view name;
  /// The fewest contributors for which its guarantee holds if `faulty` of them are Byzantine; ≥ 1.
  std::uint64_t (*contributors_needed)(std::uint64_t faulty);
  /// Whether it depends on faulty_max: with 0 it is the mean, and with too few contributors the
  /// median is used.
  bool uses_faulty_max;
  /// Whether each value of a part is reduced independently of the others.
  bool by_value;
  /// Writes the aggregate to `out`. Returns Σ x² of each contribution; if one of them is not
  /// finite, `out` is not usable. Null for the mean, which part_reducer computes itself.
  /// REQUIRES: enough contributions (effective_aggregator).
  std::vector<double> (*write)(std::size_t faulty_max,
                               std::span<const contribution_view> contributions,
                               std::span<float> out);

  /// Whether its result is bounded in spite of Byzantine contributors.
  [[nodiscard]] constexpr bool robust() const { return write != nullptr; }
};

/// Each is defined in the file that computes it.
namespace aggregators {
extern const aggregator_row mean;
extern const aggregator_row trimmed_mean;
extern const aggregator_row median;
extern const aggregator_row centered_clip;
extern const aggregator_row krum;
extern const aggregator_row median_norm;
} // namespace aggregators

/// All aggregators, in the order of their numbers.
inline constexpr std::array aggregator_table{
  &aggregators::mean,          &aggregators::trimmed_mean, &aggregators::median,
  &aggregators::centered_clip, &aggregators::krum,         &aggregators::median_norm,
};

} // namespace waggle
