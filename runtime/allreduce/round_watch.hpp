#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/allreduce/round_config.hpp"
#include "runtime/averaging/patience.hpp"
#include "runtime/averaging/round_view.hpp"

namespace waggle {

/// The times of one round, and whether a member that holds up the agreement has stalled. Not
/// thread-safe.
class round_watch {
public:
  /// What is known about a round whose result is complete here.
  struct agreement {
    member_set awaited; // have not confirmed that they hold the result
    member_set slow;    // are not awaited for long (patience)
    std::size_t self = 0;
    std::size_t participants = 0;
    bool leads = false; // this member leads the view
    /// Body bytes that were written on the link to a member so far.
    std::function<std::uint64_t(std::size_t member)> written;
  };

  round_watch(std::size_t members, const round_config& config, steady_time now)
    : config_(config), began_(now), completed_(now), deliveries_(members, {0, now}) {}

  /// A view began, or the result of the view is complete here.
  void advanced(steady_time now) { completed_ = now; }
  /// A member was lost, or a message about a lost member has arrived.
  void fault(steady_time now) {
    if (!first_fault_)
      first_fault_ = now;
  }

  [[nodiscard]] bool is_over(steady_time now) const { return now - began_ >= config_.deadline; }
  /// The awaited members that must be considered stalled. To be called at each check.
  [[nodiscard]] member_set stalled(const agreement& known, steady_time now) {
    // A member that still receives our results cannot have confirmed them: on a slow link that also
    // carries a download, the last ones arrive long after they were sent.
    for (std::size_t i = 0; i < deliveries_.size(); ++i)
      if (auto written = known.written(i);
          written != std::exchange(deliveries_[i].written, written))
        deliveries_[i].when = now;
    // Other members may wait for results up to twice the stall timeout before they finish or report
    // a stall. The leader gives up earlier than its followers: it may be waiting for a stalled
    // member itself and must not be mistaken for the stalled one. So it extends its wait only a
    // little once a follower has confirmed and waits for it, and up to the round's deadline while
    // none has.
    bool others_wait = known.awaited.size() + 1 < known.participants;
    bool overdue = known.leads && others_wait && now - completed_ >= 4 * config_.stall_timeout;
    member_set found;
    known.awaited.for_each([&](std::size_t member) {
      auto since = std::max(completed_, deliveries_[member].when);
      auto patience = known.slow.contains(member) ? patience_with_slow : config_.stall_timeout;
      bool silent = now - since >= (known.leads ? 3 : 5) * patience;
      if (member != known.self && (silent || overdue))
        found.insert(member);
    });
    return found;
  }

  /// Seconds since the round began, since its result was complete here, and since the first fault
  /// (0: there was none).
  [[nodiscard]] double since_begin(steady_time now) const { return seconds_of(now - began_); }
  [[nodiscard]] double since_complete(steady_time now) const {
    return seconds_of(now - completed_);
  }
  [[nodiscard]] double since_fault(steady_time now) const {
    return first_fault_ ? seconds_of(now - *first_fault_) : 0;
  }

private:
  struct delivery {
    std::uint64_t written = 0;
    steady_time when; // of the check that saw this number first
  };

  const round_config config_;
  const steady_time began_;
  steady_time completed_;
  std::vector<delivery> deliveries_;
  std::optional<steady_time> first_fault_;
};

} // namespace waggle
