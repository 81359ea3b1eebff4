#pragma once

#include <optional>
#include <utility>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Who asks for the lead of an open group, on behalf of a peer that reaches it and not the leader
/// (open_group::hand_lead_to). Anybody can say that it does not reach a leader, so a member asks
/// once for each plan, and a leader that has given way keeps the lead that it gets next for five
/// minutes. Not thread-safe.
class lead_requests {
public:
  /// As a member: whether to ask the leader of this plan.
  [[nodiscard]] bool begin(const round_id& plan) { return std::exchange(asked_in_, plan) != plan; }

  /// As the leader: a member asks. The last one counts.
  void take(const peer_id& member) { heir_ = member; }
  /// The member that may have the lead now; nothing: none asked, or it was given away lately.
  [[nodiscard]] std::optional<peer_id> due(steady_time now) {
    if (now < kept_until_)
      heir_.reset();
    return heir_;
  }
  /// The lead was given away.
  void given(steady_time now) {
    heir_.reset();
    kept_until_ = now + std::chrono::minutes{5};
  }

private:
  round_id asked_in_;
  std::optional<peer_id> heir_;
  steady_time kept_until_;
};

} // namespace waggle
