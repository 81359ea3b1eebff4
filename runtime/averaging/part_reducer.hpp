#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/averaging/guards.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/codec/codec.hpp"
#include "runtime/codec/part_reader.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// Weights are 0 or within these bounds. They are far from where 64 of them times the largest float
/// overflow a double, or their reciprocal does: with them the mean of finite values is finite, so
/// that a mean that is not has a culprit.
constexpr double weight_min = 1e-60;
constexpr double weight_max = 1e60;
bool is_weight(double weight);

/// Collects what the members contribute to one part and computes their mean, or what else
/// aggregation.hpp has.
///
/// Everything runs over the contributors in ascending member order, in double precision, without
/// fused operations: the bytes are the same on every machine and whoever reduces the part.
/// Contributions are kept, encoded, until the round ends, so that a part can be reduced again over
/// fewer members when one is lost, without asking anybody to send again.
///
/// A copy shares the contributions. Not thread-safe; `reduce` is const.
class part_reducer {
public:
  part_reducer(codec_id codec, std::uint32_t elements, aggregation reduce_by = {})
    : codec_(codec), elements_(elements), reduce_by_(reduce_by) {}

  /// True if a reducer like that takes payloads that may change. It looks at each value once, and
  /// where it has to look again, at a copy.
  static bool reads_once(codec_id codec, const aggregation& reduce_by) {
    return codec == codec_id::none && reduce_by.how == aggregator::mean;
  }

  /// Keeps `values` (encoded) as the contribution of `member`. REQUIRES: they may not change, or
  /// we read them once. The first word counts: fails with
  /// ec::duplicate_peer if there is one, ec::wrong_shape, ec::bad_weight or ec::malformed for
  /// nonsense.
  status add(std::size_t member, double weight, payload values);

  /// The members whose contributions are here.
  [[nodiscard]] member_set present() const { return present_; }

  struct reduction {
    double weight_sum = 0; // of the contributors, as they said it
    /// Members that sent NaN or infinite values. If not empty, `out` is nonsense.
    member_set poisoned;
    /// Everybody who should not count, the poisoned among them, with the reason; ascending member.
    /// Whoever runs the round should leave them out and reduce again.
    ///
    /// Weights and finiteness are always looked at. Implausibly large values are found whenever
    /// they show in a mean (beyond 4096; what cancels out or weighs nothing harms nobody), and
    /// always by the robust aggregators, which see more of the contributions than their sum.
    std::vector<outlier> excluded;
  };
  /// Writes the aggregate over `contributors` to `out` (elements values). Contributions with
  /// weight 0 do not take part, so that it is bitwise what it is without them. If the weights sum
  /// to 0, `out` is zeros (INV-4: the caller keeps its own vector then).
  /// REQUIRES: `present()` contains `contributors`.
  reduction reduce(member_set contributors, std::span<float> out) const;

  /// The bytes that all `contributors` sent with a weight above 0, if they are equal. They are
  /// their own mean: encoding that again would round it again (F6 of spec optimizer.md §10).
  /// REQUIRES: `present()` contains `contributors`.
  [[nodiscard]] std::optional<payload> unanimous(member_set contributors) const;

  [[nodiscard]] std::uint32_t elements() const { return elements_; }
  [[nodiscard]] codec_id codec() const { return codec_; }
  [[nodiscard]] const aggregation& reduce_by() const { return reduce_by_; }

private:
  struct contribution {
    std::size_t member;
    double weight;
    payload bytes;      // what `values` reads
    part_reader values; // opened once, when the contribution came
  };

  /// Lets `views` speak from copies where their bytes may change; the copies.
  [[nodiscard]] std::vector<contribution> fix(std::vector<contribution_view>& views) const;

  codec_id codec_;
  std::uint32_t elements_;
  aggregation reduce_by_;
  member_set present_;
  std::vector<contribution> contributions_; // ascending member
};

/// True if every value is neither NaN nor infinite.
bool all_finite(std::span<const float> values);

/// Copies the bytes of `out.size()` values, and says of the copies what `all_finite` does; stops
/// where one is not. REQUIRES: equal sizes.
bool copy_finite(byte_span values, std::span<float> out);

} // namespace waggle
