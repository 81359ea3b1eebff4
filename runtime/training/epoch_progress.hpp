#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/core/time.hpp"
#include "runtime/progress/membership.hpp"
#include "runtime/progress/sample_claims.hpp"
#include "runtime/training/pass_account.hpp"
#include "runtime/training/pass_barrier.hpp"
#include "runtime/training/pass_policy.hpp"
#include "runtime/training/plan.hpp"
#include "runtime/training/run_position.hpp"
#include "runtime/training/sample_ledger.hpp"
#include "runtime/training/schedule_clock.hpp"

namespace waggle {

/// How far a group is toward the end of its epoch: what its members have done since the last
/// boundary, as far as their reports are believed, and what is expected of them. Not thread-safe.
class epoch_progress {
public:
  /// From the begin of an epoch until all members in step have reported something.
  static constexpr auto reports_due = 1s;
  /// So long, and for as long as the longest pass of a member takes, the others wait for a member
  /// that may draw samples and reports none: it reports a pass at its end, up to 5 s later
  /// (report_pace). Seconds.
  static constexpr double tail_patience = 10;
  /// All members see the same epochs, so this limits those that end early because a member leaves.
  static constexpr auto early_every = 1min;
  /// An epoch that is shorter than this share of the others ended early.
  static constexpr double early_share = 0.75;

  /// @param seen, group, at, averages outlive this object; `averages` may change.
  /// @param target samples of all peers. @param patience see pass_barrier.
  epoch_progress(const run_view& seen, const membership& group, const run_position& at,
                 const lane& averages, std::uint64_t target, std::chrono::nanoseconds patience)
    : seen_(seen), group_(group), at_(at), averages_(averages), target_(target), claims_(target),
      barrier_(patience) {}

  // -- boundaries ---------------------------------------------------------------------------------

  /// We are in a group now, and its epoch is ours.
  void enter(steady_time now) { began_ = now; }
  /// From here on, samples and steps count toward the next boundary. @param wall the swarm's time.
  void begin_counting(swarm_time wall, steady_time now);
  /// The next passes begin: see pass_barrier.
  void begin_passes(steady_time now) { barrier_.begin(now); }
  /// The epoch has ended.
  void end(steady_time now);
  /// Seconds until the next one ends, if this epoch takes as long as others; nothing: not known.
  [[nodiscard]] std::optional<double> until_end(steady_time now) const;
  /// Whether a member that leaves may end an epoch before its time: none was so short for a while.
  [[nodiscard]] bool may_end_early(steady_time now) const {
    return !ended_early_ || now - *ended_early_ >= early_every;
  }
  /// How long one typically takes; 0: not known.
  [[nodiscard]] double seconds() const { return seconds_; }

  // -- what is reported ---------------------------------------------------------------------------

  /// Other peers have reported.
  void observe();
  /// Whether what they report can be compared with what they deliver: the weight of a round is the
  /// samples of its contributors.
  [[nodiscard]] bool is_comparable() const;
  /// See sample_claims.
  sample_claims::shortfall end_round(const std::vector<peer_id>& participants, double delivered,
                                     std::uint64_t own, steady_time now) {
    return claims_.end_round(participants, delivered, own, now);
  }
  [[nodiscard]] std::size_t suspects(steady_time now) const { return claims_.suspects(now); }

  // -- decisions ----------------------------------------------------------------------------------

  /// Samples that the other members have reported for this epoch.
  [[nodiscard]] std::uint64_t samples_of_others(steady_time now) const;
  /// Fills in what a situation has of the group. @param ledger null: samples are not counted.
  /// REQUIRES: in step, and no round runs: otherwise the others have reported nothing toward it.
  void describe(situation& what, std::uint64_t own_samples, const sample_ledger* ledger,
                steady_time now);
  /// Milliseconds of the clock that all peers share, and of the boundary on the grid of the rounds.
  void describe_time(situation& what, swarm_time wall) const;
  /// The epoch of the schedule for the next local step, which counts toward `epoch`. It never goes
  /// back.
  epoch_id schedule_epoch(const schedule_clock& clock, epoch_id epoch, std::uint64_t own_samples,
                          bool round_runs, steady_time now);
  /// Whether all samples that the members may draw before this epoch ends are drawn and reported.
  /// Members that have not reported anything yet, because the epoch has just begun, are waited for;
  /// those that download a state are not, nor those that add nothing any more.
  /// @param adds whether this peer will add samples.
  /// @param passes ours: others draw as many samples for one.
  [[nodiscard]] bool exhausted(const sample_ledger& ledger, std::uint64_t own_samples, bool adds,
                               const pass_account& passes, steady_time now);
  /// Whether the next pass begins. @param round_runs the others, too, compute on and report nothing
  /// before it has ended: what they have done is forecast from their speed.
  [[nodiscard]] pass_decision next_pass(std::uint64_t own_samples, const pass_account& passes,
                                        bool round_runs, swarm_time wall, steady_time now) const;

private:
  /// Seconds, as far as the members' speeds are believed; not longer than an epoch.
  [[nodiscard]] double longest_pass(const pass_account& passes, steady_time now) const;
  /// The members whose samples count here.
  template <class F>
  void for_members(F f) const {
    for (const auto& peer : seen_.progress.peers)
      if (group_.counts(peer, at_.past().branch, at_.epoch()))
        f(peer);
  }

  const run_view& seen_;
  const membership& group_;
  const run_position& at_;
  const lane& averages_;
  std::uint64_t target_;
  sample_claims claims_;
  pass_barrier barrier_;
  steady_time began_;
  double seconds_ = 0; // of an epoch, smoothed
  std::optional<steady_time> ended_early_;
  steady_time boundary_;            // since when samples and passes count toward the next one
  std::uint64_t boundary_time_ = 0; // the same by the swarm's clock, on the grid of the rounds
  std::uint64_t samples_ = 0;       // of all peers, and since when there are not more
  steady_time grew_;
  epoch_id schedule_;
};

} // namespace waggle
