#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// Which samples of the present pass over the data have entered an update, and which member draws
/// which of the others: see "Passes over the data" in README.md. It changes with the end of an
/// epoch alone, as a function of what the round has decided.
///
/// A pass is cut into `ranges` of places in its order (sample_order.hpp), of equal length up to
/// one. A member of a round keeps what it has, at most its share of the unseen ranges, and begins
/// with the first ones; the rest goes to the members with the fewest. But where no more ranges are
/// left than members, one whose owner has added nothing to two updates goes to another member. Not
/// after one: where passes go on during rounds, the next update has begun when a range is dealt.
///
/// A pass ends at the latest when it has had `doubtful_base` updates, and `doubtful_per_good` for
/// each other one, of whose samples less than half were claimed so that it holds: only liars make
/// such updates. What is left then counts as never seen.
///
/// A value; not thread-safe.
class sample_ledger {
public:
  static constexpr std::size_t ranges = 256;     // a claim is a float: 1 KiB with each contribution
  static constexpr std::size_t members_max = 64; // round_members_max
  static constexpr std::uint64_t samples_max = std::uint64_t{1} << 32U; // floats count exactly
  static constexpr std::uint64_t doubtful_base = 64;
  static constexpr std::uint64_t doubtful_per_good = 4; // so a pass takes ten times as long at most

  /// REQUIRES: samples is 1 to samples_max.
  explicit sample_ledger(std::uint64_t samples);

  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  /// The passes that are complete.
  [[nodiscard]] std::uint64_t passes() const { return passes_; }
  /// The first place of a range in the pass's order, and the number of its places.
  [[nodiscard]] std::uint64_t begin_of(std::size_t range) const {
    return samples_ * range / ranges;
  }
  [[nodiscard]] std::uint64_t size_of(std::size_t range) const {
    return begin_of(range + 1) - begin_of(range);
  }
  [[nodiscard]] std::uint64_t seen_of(std::size_t range) const { return seen_[range]; }
  [[nodiscard]] std::uint64_t left_of(std::size_t range) const {
    return size_of(range) - seen_[range];
  }
  [[nodiscard]] bool owns(const peer_id& peer, std::size_t range) const;
  /// The samples that `peer` may draw.
  [[nodiscard]] std::uint64_t left_to(const peer_id& peer) const;

  /// How often the samples of a pass have entered an update. `twice`: those that entered one
  /// without a claim that holds; they are drawn once more.
  struct account {
    std::uint64_t once = 0;
    std::uint64_t twice = 0;
    std::uint64_t never = 0;
    friend bool operator==(const account&, const account&) = default;
  };
  [[nodiscard]] account present() const; // of the pass that is not complete
  [[nodiscard]] account last() const;    // of the one before; all 0: there is none

  // -- the end of an epoch
  // --------------------------------------------------------------------------

  /// What a member claims: `counts` of its `samples` are from each range. The mean of the claims of
  /// a round, weighted by samples, has what all of them drew, whatever the others claim.
  static void write_claims(std::span<const std::uint64_t, ranges> counts, std::uint64_t samples,
                           std::span<float, ranges> out);
  /// A round has ended an epoch, and perhaps the pass. A claim to more than a range has left is
  /// refused, and if there are more claims than samples, all are.
  /// @param claims the mean of the claims; empty: the update was dropped, or there was none.
  /// @param weight the sum of the round's weights: samples in the update.
  /// @param members decided_round::members.
  void end_epoch(std::span<const float> claims, double weight, std::span<const peer_id> members);

  // -- in the state
  // ---------------------------------------------------------------------------------

  static constexpr std::size_t value_count = 8 + 2 * ranges + 2 * members_max;
  [[nodiscard]] std::vector<float> encode() const;
  /// Fails with ec::malformed if no ledger of so many samples has these values.
  static result<sample_ledger> decode(std::uint64_t samples, std::span<const float> values);

  friend bool operator==(const sample_ledger&, const sample_ledger&) = default;

private:
  using member_name = std::array<std::uint32_t, 2>; // 48 bits of its id, which two floats hold
  static member_name name_of(const peer_id& peer);

  [[nodiscard]] std::size_t position_of(const peer_id& peer) const;
  void see(std::span<const float> claims, double weight);
  [[nodiscard]] bool pass_ends() const;
  void deal(std::span<const peer_id> members, const std::vector<bool>& adds);

  std::uint64_t samples_;
  std::uint64_t passes_ = 0;
  std::uint64_t twice_ = 0;
  std::uint64_t last_twice_ = 0;
  std::uint64_t last_never_ = 0;
  std::uint64_t good_ = 0; // updates of the pass
  std::uint64_t doubtful_ = 0;
  std::array<std::uint64_t, ranges> seen_{};
  std::array<std::uint32_t, ranges> owners_{}; // a position in members_, plus 1; 0: nobody
  std::array<bool, ranges> waits_{}; // its owner, who had it, has added nothing to the last update
  std::vector<member_name> members_;
};

} // namespace waggle
