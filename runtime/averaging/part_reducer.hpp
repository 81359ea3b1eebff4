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

/// Weights are 0 or within these bounds. With these bounds neither the sum of 64 weighted floats
/// nor the reciprocal of a weight overflows a double. The mean of finite values is therefore
/// finite, and a mean that is not finite can be traced to a contributor.
constexpr double weight_min = 1e-60;
constexpr double weight_max = 1e60;
bool is_weight(double weight);

/// Collects what the members contribute to one part and computes their mean, or another aggregate
/// of aggregation.hpp.
///
/// All computation runs over the contributors in ascending member order, in double precision,
/// without fused operations: the bytes are the same on every machine, whichever member reduces the
/// part. Contributions are kept, encoded, until the round ends, so that a part can be reduced again
/// over fewer members when one is lost, without another transfer.
///
/// A copy shares the contributions. Not thread-safe; `reduce` is const.
class part_reducer {
public:
  part_reducer(codec_id codec, std::uint32_t elements, aggregation reduce_by = {})
    : codec_(codec), elements_(elements), reduce_by_(reduce_by) {}

  /// True if a reducer with these settings accepts payloads in shared memory. Only single-pass
  /// reads may use shared memory: otherwise a peer could change bytes between validation and use
  /// (TOCTOU). Where a second pass is needed, the reducer reads a copy.
  static bool reads_once(codec_id codec, const aggregation& reduce_by) {
    bool once = codec == codec_id::none || result_of(codec) == codec_result::mean;
    return once && reduce_by.how == aggregator::mean;
  }

  /// Keeps `values` (encoded) as the contribution of `member`. REQUIRES: the bytes do not change,
  /// or reads_once() is true. The first contribution of a member counts: fails with
  /// ec::duplicate_peer for a second one, and with ec::wrong_shape, ec::bad_weight or ec::malformed
  /// for an invalid one.
  status add(std::size_t member, double weight, payload values);

  [[nodiscard]] member_set present() const { return present_; }
  /// The weights of `contributors`, ascending by member. REQUIRES: `present()` contains them.
  [[nodiscard]] std::vector<double> weights(member_set contributors) const;

  /// What `member` contributed, encoded. REQUIRES: `present()` contains it.
  struct shown {
    double weight;
    payload values;
  };
  [[nodiscard]] shown contribution_of(std::size_t member) const;

  struct reduction {
    double weight_sum = 0; // of the contributors, as they reported it
    /// Members that should not count, with the reason; sorted by member. The caller should leave
    /// them out and reduce again. If one of them sent NaN or infinite values, `out` is not usable.
    ///
    /// Weights and finiteness are always checked. A mean detects implausibly large values only if
    /// they show in the result (beyond 4096; values that cancel out or have no weight do no harm).
    /// The robust aggregators always detect them, because they read more of the contributions than
    /// their sum.
    std::vector<outlier> excluded;
  };
  /// Writes the aggregate over `contributors`, or what the codec says (codec_result), to `out`
  /// (elements values). Contributions with weight
  /// 0 are skipped: the result is bitwise the same as without them. If the weights sum to 0, `out`
  /// is zeros (the caller keeps its own vector then: INV-4 in runtime/training/README.md).
  /// REQUIRES: `present()` contains `contributors`.
  reduction reduce(member_set contributors, std::span<float> out) const;

  /// The bytes that all `contributors` with a weight above 0 sent, if they are equal. They are
  /// their own mean; decoding, averaging and encoding them again would add a rounding error.
  /// REQUIRES: `present()` contains `contributors`.
  [[nodiscard]] std::optional<payload> unanimous(member_set contributors) const;

  [[nodiscard]] std::uint32_t elements() const { return elements_; }
  [[nodiscard]] codec_id codec() const { return codec_; }
  [[nodiscard]] const aggregation& reduce_by() const { return reduce_by_; }

private:
  struct contribution {
    std::size_t member;
    double weight;
    payload bytes;      // the bytes that `values` reads
    part_reader values; // opened once, when the contribution arrived
  };

  /// Redirects `views` to copies where the sender can still change the bytes; returns the copies.
  [[nodiscard]] std::vector<contribution> fix(std::vector<contribution_view>& views) const;

  codec_id codec_;
  std::uint32_t elements_;
  aggregation reduce_by_;
  member_set present_;
  std::vector<contribution> contributions_; // sorted by member
};

bool all_finite(std::span<const float> values);

/// Copies the bytes of `out.size()` values and returns `all_finite` of the copies; stops at the
/// first value that is not finite. REQUIRES: equal sizes.
bool copy_finite(byte_span values, std::span<float> out);

} // namespace waggle
