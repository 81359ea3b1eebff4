#pragma once

#include <map>
#include <optional>
#include <utility>

#include "runtime/averaging/group_bandwidths.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// What the members of an open group report to its leader between two plans: their bandwidths, and
/// that one of them should lead. On both sides.
///
/// A member asks for the lead on behalf of a peer that reaches it and not the leader
/// (open_group::hand_lead_to). Anybody can say that it does not reach a leader, so a member asks
/// once for each plan, and a leader that has given way keeps the lead that it gets next for five
/// minutes. Not thread-safe.
class group_lead {
public:
  /// @param declared this peer's bandwidth; nothing: it is `measured`.
  group_lead(std::optional<double> declared, own_bandwidth measured)
    : declared_(declared), announced_(measured), measured_(std::move(measured)) {}

  // -- as a member --------------------------------------------------------------------------------

  [[nodiscard]] std::optional<double> bandwidth() const {
    return declared_ ? declared_ : measured_.reported();
  }
  /// A search begins: what the others learn of the measured bandwidth by it.
  [[nodiscard]] std::optional<double> announce(steady_time now) {
    (void)announced_.update(now);
    return announced_.reported();
  }
  /// The leader of the group that we have entered knows our bandwidth.
  void entered(const peer_id& leader) { known_to_ = leader; }
  /// A round begins: whether its leader has to learn our bandwidth. One of 0, with which this peer
  /// never reduces, shows in its share.
  [[nodiscard]] bool is_news(const peer_id& leader, steady_time now) {
    bool to_another = std::exchange(known_to_, leader) != leader;
    return (measured_.update(now) || to_another) && bandwidth() != 0.0;
  }
  /// Whether to ask the leader of this plan for the lead.
  [[nodiscard]] bool asks_in(const round_id& plan) {
    return std::exchange(asked_in_, plan) != plan;
  }

  // -- as the leader ------------------------------------------------------------------------------

  void report(const peer_id& member, std::optional<double> bandwidth) {
    reported_[member] = bandwidth;
  }
  [[nodiscard]] std::map<peer_id, std::optional<double>> take_reports() {
    return std::exchange(reported_, {});
  }
  /// A member asks for the lead. The last one counts.
  void ask(const peer_id& member) { heir_ = member; }
  /// The member that may have the lead now; nothing: none asked, or it was given away lately.
  [[nodiscard]] std::optional<peer_id> heir(steady_time now) {
    if (now < kept_until_)
      heir_.reset();
    return heir_;
  }
  void given(steady_time now) {
    heir_.reset();
    kept_until_ = now + std::chrono::minutes{5};
  }

private:
  std::optional<double> declared_;
  own_bandwidth announced_; // as matchmaking knows it
  own_bandwidth measured_;  // as leaders know it
  peer_id known_to_;
  round_id asked_in_;
  std::map<peer_id, std::optional<double>> reported_;
  std::optional<peer_id> heir_;
  steady_time kept_until_;
};

} // namespace waggle
