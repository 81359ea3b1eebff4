#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// The digest of what a member contributes to one part: SHA-256 of its weight and the encoded
/// values.
digest contribution_digest(double weight, byte_span encoded);

/// What binds a member to the share of a view's key that it reveals later.
digest share_commitment(const round_id& round, std::uint32_t view, std::size_t member,
                        const digest& share);

/// What each member of a round fixes before any member can know which sums will be checked (see
/// sum_checks.hpp): its share of the key, by a hash of it, and its contributions, by a digest of
/// each part. All members must have been sent the same; they compare `of(view)` when they reveal
/// their shares.
///
/// A member's contributions are the same in all views of a round, its share is not. Not
/// thread-safe.
class round_pledges {
public:
  /// @param contributors the members that have a vector; the others list no contributions.
  /// @param parts of the round's vector.
  round_pledges(member_set contributors, std::size_t parts)
    : contributors_(contributors), parts_(parts) {}

  /// The pledge of `member` for view `number`. The first one for the highest view counts. False: it
  /// lists other contributions than before, or not one for each part.
  [[nodiscard]] bool add(std::size_t member, std::uint32_t number, const digest& commitment,
                         std::vector<digest> contributions);

  /// The participants of `view` whose pledges for it are not here.
  [[nodiscard]] member_set missing(const round_view& view) const {
    return commitments_.missing(view);
  }
  /// Whether `member` pledged this contribution to `part`.
  [[nodiscard]] bool covers(std::size_t member, std::uint32_t part,
                            const digest& contribution) const;
  /// Whether the participant pledged this share for the view.
  [[nodiscard]] bool opens(const round_id& round, const round_view& view, std::size_t member,
                           const digest& share) const;

  /// The digest of each participant's pledge, ascending by member. REQUIRES: missing(view).empty().
  [[nodiscard]] std::vector<digest> each_of(const round_view& view) const;
  /// One digest of all of them. REQUIRES: the same.
  [[nodiscard]] digest of(const round_view& view) const;

  /// Which participants pledged different things to different members, as far as this member can
  /// tell: more than half of the members in `lists` did not receive the same from it, it lists
  /// another pledge itself, or it pledged something else to us.
  /// @param lists what members received (`each_of`), by member; contains `self`, all of one length.
  [[nodiscard]] static member_set unequal(const round_view& view,
                                          const std::map<std::size_t, std::vector<digest>>& lists,
                                          std::size_t self);

private:
  const member_set contributors_;
  const std::size_t parts_;
  by_view<digest> commitments_;
  std::map<std::size_t, std::vector<digest>> contributions_; // by member: of each part
  std::map<std::size_t, digest> lists_;                      // by member: of contributions_
};

} // namespace waggle
