#include "runtime/allreduce/round_watch.hpp"

#include <algorithm>
#include <utility>

#include "runtime/averaging/patience.hpp"

namespace waggle {

member_set round_watch::stalled(const agreement& known, steady_time now) {
  // A member that still receives our results cannot have confirmed them: on a slow link that also
  // carries a download, the last ones arrive long after they were sent.
  for (std::size_t i = 0; i < deliveries_.size(); ++i)
    if (auto written = known.written(i); written != std::exchange(deliveries_[i].written, written))
      deliveries_[i].when = now;
  // Other members may wait for results up to twice the stall timeout before they finish or report a
  // stall. The leader gives up earlier than its followers: it may be waiting for a stalled member
  // itself and must not be mistaken for the stalled one. So it extends its wait only a little once
  // a follower has confirmed and waits for it, and up to the round's deadline while none has.
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

} // namespace waggle
