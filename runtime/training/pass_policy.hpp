#pragma once

#include <cstdint>
#include <vector>

namespace waggle {

/// What another member at our epoch has reported.
struct member_progress {
  std::uint64_t samples = 0;     // toward this epoch
  double age = 0;                // seconds since it wrote the report
  double delay = 0;              // seconds that its reports typically take to get here
  double samples_per_second = 0; // while it computes; 0: not known
  std::uint64_t micro_batch =
    0; // samples of one pass; 0: not known, its pass takes as long as ours
};

/// Everything that decides whether another pass begins.
struct pass_situation {
  std::uint64_t target = 0;
  std::uint64_t own_samples = 0; // accumulated toward this epoch
  double own_pass = 0;           // typical duration of our passes in seconds; 0: not known
  double epoch = 0;              // typical duration of the run's epochs in seconds; 0: not known
  std::vector<member_progress> others;
};

struct pass_decision {
  bool begin = true;
  double wait = 0; // if not: ask again after this many seconds, or once something is reported
};

/// Should the computing thread begin another pass now?
///
/// A pass that is not over when the epoch ends is computed with parameters that are not the run's
/// any more; and where passes are shorter than a report's way, peers that do not look ahead
/// compute several passes too many. So nobody begins a pass when the others alone are expected to
/// reach the target before half of it is done. An epoch then ends with no more than one micro-batch
/// per peer above its target. The forecast:
///
/// - A member's next micro-batch is done one pass after it wrote its last report. If that should
///   have been reported by now, it is expected at any moment, and the one after it a pass later.
/// - A member is late when its last report is `late_after` passes old, not counting its way. From
///   then on nothing is expected of it: nobody waits longer than this for a peer that has stopped.
/// - Nothing is expected of a member that has not reported its speed.
///
/// A peer whose pass is longer than `longest_pass` epochs always begins: its samples count for a
/// later epoch.
pass_decision decide_pass(const pass_situation& now);

inline constexpr double late_after = 3;     // passes of the member
inline constexpr double longest_pass = 1.5; // epochs

} // namespace waggle
