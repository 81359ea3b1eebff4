#pragma once

#include <cstdint>
#include <vector>

namespace waggle {

/// The last progress report of another member at our epoch.
struct member_progress {
  std::uint64_t samples = 0;     // toward this epoch
  double age = 0;                // seconds since it wrote the report
  double delay = 0;              // seconds that its reports typically take to arrive
  double samples_per_second = 0; // while it computes; 0: not known
  /// Samples of one pass; 0: not known, and its pass is assumed to take as long as ours.
  std::uint64_t micro_batch = 0;
};

/// The inputs of the decision whether another pass begins.
struct pass_situation {
  std::uint64_t target = 0;
  std::uint64_t own_samples = 0; // accumulated toward this epoch
  double own_pass = 0;           // typical duration of our passes in seconds; 0: not known
  double epoch = 0;              // typical duration of the run's epochs in seconds; 0: not known
  std::vector<member_progress> others{};
};

struct pass_decision {
  bool begin = true;
  double wait = 0; // if not: decide again after this many seconds, or after the next report
};

/// Decides whether the computing thread should begin another pass now.
///
/// A pass that is still running when the epoch ends is computed from outdated parameters. And if
/// passes are shorter than a report's delay, peers that do not look ahead compute several passes
/// too many. So a peer begins no pass if the others alone are expected to reach the target before
/// half of the pass is done. An epoch then ends with at most one micro-batch per peer above its
/// target. The forecast:
///
/// - A member's next micro-batch is done one pass after it wrote its last report. If its report is
///   overdue, it is expected at any moment, and the next micro-batch one pass later.
/// - A member is late when its last report is `late_after` passes old, not counting the delay. From
///   then on nothing is expected of it: no peer waits longer than this for a peer that has stopped.
/// - Nothing is expected of a member that has not reported its speed.
///
/// A peer whose pass is longer than `longest_pass` epochs always begins a pass: its samples count
/// toward a later epoch.
pass_decision decide_pass(const pass_situation& now);

inline constexpr double late_after = 3;     // passes of the member
inline constexpr double longest_pass = 1.5; // epochs

} // namespace waggle
