#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/allreduce/round_state.hpp"
#include "runtime/averaging/result_comparison.hpp"
#include "runtime/averaging/result_digest.hpp"
#include "runtime/averaging/round_pledges.hpp"

namespace waggle {

/// The pledges of a round's members (runtime/averaging/round_pledges.hpp): sends ours, keeps the
/// others', and finds out who pledged different things to different members.
///
///   our parts are sent ─► pledge ─► participants
///   result and all pledges here, contributions to our parts agree with them ─► share of the key
///   shares of all ─ one is not as pledged ─► ask the leader for it
///                 └ members were sent different pledges ─► compare ─► who sent them is suspected
///
/// Not thread-safe.
class pledge_exchange {
public:
  /// Both must outlive this.
  pledge_exchange(round_state& round, const by_view<digest>& shares);

  /// Nothing is pledged in a view whose result is adopted.
  [[nodiscard]] bool applies() const { return !round_.view().adopted; }
  /// Our contribution to a part is being sent. Pledges once all are.
  void contribute(std::uint32_t part, const digest& contribution);
  /// Pledges in the current view, if we have not and can.
  void pledge();
  /// What arrived for a part that we reduce.
  void received(std::uint32_t part, std::size_t member, const digest& contribution) {
    received_[part].emplace(member, contribution);
  }

  /// A member's pledge. False: it was refused. Releases the event.
  bool on_pledge(std::size_t from, const inbound_event& event, const wire::round_pledge& what);
  /// The digest of all pledges that `member` sent us with its share of the key.
  void on_share(std::size_t member, std::uint32_t view, const digest& pledges) {
    said_.add(member, view, pledges);
  }
  /// The list of pledges that `from` was sent. `shared`: we have revealed our share.
  void on_digests(std::size_t from, const wire::round_pledge_digests& what, bool shared);
  /// A view begins.
  void enter();

  [[nodiscard]] member_set missing() const { return pledges_.missing(round_.view()); }
  /// One digest of all pledges of the view. REQUIRES: missing().empty().
  [[nodiscard]] digest all() const { return pledges_.of(round_.view()); }
  [[nodiscard]] bool covers(std::size_t member, std::uint32_t part, const digest& given) const {
    return pledges_.covers(member, part, given);
  }
  [[nodiscard]] bool opens(std::size_t member, const digest& share) const {
    return pledges_.opens(round_.plan().id, round_.view(), member, share);
  }

  /// Whether the contributions to our parts are what their members pledged. Before we reveal our
  /// share: afterwards we answer for them.
  [[nodiscard]] bool own_parts_agree();
  /// Once the key is known: whether all members were sent the same pledges, and the shares are
  /// those that were pledged.
  [[nodiscard]] bool agree();
  /// To members that were sent a wrong share, once we have all.
  void send_shares();
  /// Participants without whose answer pledges cannot be compared.
  [[nodiscard]] member_set awaited() const { return comparing_ ? otherwise() : member_set{}; }

private:
  [[nodiscard]] member_set otherwise() const;
  void compare();
  void judge();

  round_state& round_;
  const by_view<digest>& shares_;
  round_pledges pledges_;
  std::vector<digest> contributed_; // by part: what we pledge; zero: not sent yet
  std::size_t contributed_parts_ = 0;
  std::optional<std::uint32_t> pledged_; // the view for which we have sent our pledge
  std::map<std::uint32_t, std::map<std::size_t, digest>> received_; // by part of ours and member
  by_view<digest> said_; // one digest of all pledges, with a member's share of the key
  by_view<std::vector<digest>> lists_;
  bool comparing_ = false; // in the current view; so is all that follows
  bool judged_ = false;
  bool asked_for_shares_ = false;
  member_set wants_shares_; // members that were sent a wrong share, and asked us for the right one
  member_set sent_shares_;
};

} // namespace waggle
