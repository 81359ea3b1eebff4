#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// Chooses which peer to ask next for a place in a group: first the peers that the caller named,
/// then the leaders that they refer us to. No peer is asked twice, and the number of referrals is
/// bounded. A leader that accepted us and does not admit us may be busy, or may lie: others are
/// asked meanwhile, and if one of them refers us to it, or none is left, we wait for it. A member
/// that names a leader which we do not reach is asked once more and learns that, because another
/// member may lead (open_group::hand_lead_to). Not thread-safe.
class entry_search {
public:
  /// At most this many referred peers are asked: referrals may be invented.
  static constexpr std::size_t suggestions_max = 16;
  /// After so many acceptances of one peer without a plan, others are asked, too.
  static constexpr int acceptances_max = 3;

  /// @param through in order of preference.
  /// @param branch of the history that the group must train.
  entry_search(std::vector<peer_record> through, const digest& branch, const peer_id& self);

  /// Goes on to the next peer. False: none is left, see why().
  [[nodiscard]] bool next();
  /// The peer that is asked now. REQUIRES: next() was true.
  [[nodiscard]] const peer_record& asked() const { return asked_; }
  [[nodiscard]] bool asks(const peer_id& who) const { return asked_.id == who; }
  /// Whether a plan of this peer would be welcome: it is asked, or it has accepted us.
  [[nodiscard]] bool expects(const peer_id& who) const;
  /// The peer that is asked now has accepted us. True: it did so several times and does not admit
  /// us, so asked() is another one now.
  [[nodiscard]] bool accepted() { return ++acceptances_ >= acceptances_max && look_further(); }
  /// The peer that is asked now has accepted us and does not admit us. True: asked() is another one
  /// now. False: there is no other, or one has confirmed that it is the leader.
  [[nodiscard]] bool look_further();
  /// The leader that asked() has named and that we do not reach; zero: none.
  [[nodiscard]] const peer_id& unreached() const { return unreached_; }
  [[nodiscard]] const digest& branch() const { return branch_; }
  /// The peer that is asked now refused. With ec::not_a_leader the first of `suggested` is asked
  /// next.
  void refused(failure why, const std::vector<peer_record>& suggested = {});
  /// The last refusal; that of a leader which excludes us, or that we did not reach, if all others
  /// refer to it.
  [[nodiscard]] const failure& why() const { return why_; }

private:
  digest branch_;
  std::deque<peer_record> waiting_;
  std::set<peer_id> seen_; // asked, or ourselves
  peer_record asked_;
  std::deque<peer_record> accepted_by_; // and not admitted since
  int acceptances_ = 0;                 // of asked_, without a plan
  bool confirmed_ = false;              // asked_ is the leader that another peer named, too
  std::size_t suggestions_ = 0;
  std::map<peer_id, peer_record> named_by_; // leaders, by the first member that named them
  std::set<peer_id> lost_;                  // peers that we asked and did not reach
  struct complaint {
    peer_record to;
    peer_id about;
  };
  std::optional<complaint> complaint_; // comes next
  bool complained_ = false;            // one is enough: the next search has another
  peer_id unreached_;
  failure why_{ec::no_donor, "no peer was named"};
};

/// Whether a leader that answers so keeps this peer out for a while: ec::stalled, if it was slow
/// (patience), otherwise ec::excluded.
inline bool is_exclusion(ec answer) {
  return answer == ec::excluded || answer == ec::stalled;
}
/// What a peer waits for that a group did not admit, for its operator; empty: it only tries again.
std::string awaited_after(const failure& refusal);

} // namespace waggle
