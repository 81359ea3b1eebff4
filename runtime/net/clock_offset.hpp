#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/core/time.hpp"

namespace waggle::net {

struct clock_limits {
  /// Beyond this the operator is warned. The same as in the alert WaggleClockSkew.
  milliseconds noticeable{500};
  /// Beyond this two peers do not link.
  milliseconds refused{15'000};
};

/// Reports count for `report_ttl` after the time at which their author's clock says that they were
/// made. Of that, the clocks may cost a quarter; both of two peers may be that far from a third one
/// between them. Below a second the time that messages take would be mistaken for an offset.
constexpr clock_limits clock_limits_for(milliseconds report_ttl) {
  auto refused = std::max(report_ttl / 4, milliseconds{1'000});
  return {std::min(milliseconds{500}, refused / 2), refused};
}

/// The least offset of a peer's clock from ours (above zero: it is ahead) if the peer read `theirs`
/// at a moment that lies between two readings of ours. The interval includes all delays of the
/// network and of both processes, so that nothing but a clock can be the reason of the offset.
constexpr swarm_clock::duration least_offset(swarm_time theirs, swarm_time earliest,
                                             swarm_time latest) {
  if (latest < earliest) // our clock was set back meanwhile
    std::swap(earliest, latest);
  auto ahead = difference(theirs, latest);
  auto behind = difference(theirs, earliest);
  constexpr swarm_clock::duration zero{0};
  // The largest negative number has no positive counterpart.
  return ahead > zero    ? ahead
         : behind < zero ? std::max(behind, -swarm_clock::duration::max())
                         : zero;
}

constexpr bool beyond(swarm_clock::duration offset, milliseconds limit) {
  return offset > limit || offset < -std::chrono::duration_cast<swarm_clock::duration>(limit);
}

/// "61.2 s ahead of", "0.8 s behind".
inline std::string how_far(swarm_clock::duration offset) {
  auto tenths = std::abs(offset / 100ms);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10)
         + (offset > swarm_clock::duration{0} ? " s ahead of" : " s behind");
}

/// One sentence for the operator of either machine. `offset`: of the other machine's clock.
inline std::string clock_sentence(swarm_clock::duration offset, milliseconds limit) {
  return "the clock there is " + how_far(offset) + " the clock here, more than "
         + std::to_string(limit.count() / 1000) + " s: set both, e.g. with NTP";
}

} // namespace waggle::net
