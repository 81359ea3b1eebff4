#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/core/filling.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/training/own_progress.hpp"
#include "runtime/training/plan.hpp"
#include "runtime/training/run_position.hpp"

namespace waggle {

/// Passes since the last boundary, whose samples are in no contribution.
struct pass_counts {
  std::uint64_t samples = 0; // of local steps
  std::uint64_t passes = 0;
};

/// What this peer gives to the round of an epoch.
struct contribution {
  epoch_id epoch{};
  std::shared_ptr<const float_vector> own{}; // null: not copied yet
  std::uint64_t samples = 0;
  double weight = 0;
  bool from_state = false;          // we were in step: `own` is of our own model
  bool resumed = false;             // the process before this one had begun the round
  std::uint64_t steps = 0;          // with lane::counts_steps: of ours, that no round had counted
  pass_counts counts{};             // when it was given
  std::string position{};           // missed_update::position
  std::shared_ptr<filling> fills{}; // which values of `own` are there; null: all

  /// The pass that computed it came to values that are not finite: it is of no use.
  [[nodiscard]] bool is_spoiled() const { return fills && fills->failed(); }
};

/// What a process before this one has contributed to the round of `epoch`, which was not over.
/// REQUIRES: kept.pending.
contribution resumed(const own_progress& kept, epoch_id epoch);

/// The end of a round for this peer.
struct round_result {
  run_position::outcome follows;
  bool counted = false;    // the mean contains our samples
  std::string why_dropped; // if it does not
};

/// One contribution of this peer, from its copy until the mean is merged, and what it has counted
/// for the next one. There is one at a time.
///
/// | phase     | what holds                                            | left by                   |
/// |-----------|-------------------------------------------------------|---------------------------|
/// | idle      | nothing is contributed                                | hold, search              |
/// | held      | it is copied, and in no round: that failed, or begins | send, settle              |
/// | searching | the members of its round are not found yet            | found, settle             |
/// | averaging | its round runs                                        | end, interrupt, settle    |
/// | ended     | the group's epoch has ended, and not yet the model's  | settle, hold_again        |
///
/// Ends the process if a transition is not allowed. Not thread-safe.
class flight {
public:
  enum class phase : std::uint8_t { idle, held, searching, averaging, ended };

  [[nodiscard]] phase at() const { return phase_; }
  [[nodiscard]] bool round_runs() const {
    return phase_ == phase::searching || phase_ == phase::averaging;
  }
  /// Null while idle; when ended, not null only if nobody else has its mean.
  [[nodiscard]] const contribution* given() const { return given_ ? &*given_ : nullptr; }
  /// Whether an answer to the round of this number still counts.
  [[nodiscard]] bool awaits(std::uint64_t number) const { return number == number_; }
  /// For a `situation`: the round of this flight, and the epoch in which one was last begun.
  [[nodiscard]] std::optional<flying_round> round() const {
    return phase_ == phase::idle ? std::nullopt
                                 : std::optional{flying_round{begun_, phase_ == phase::ended}};
  }
  [[nodiscard]] std::optional<std::uint64_t> last_epoch() const { return last_epoch_; }
  /// Samples of the contribution, which are in no update yet.
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }

  // -- transitions --------------------------------------------------------------------------------

  /// The contribution is copied. Takes its samples, and begins a flight.
  void hold(contribution given, std::uint64_t own_step);
  /// The members of its round are looked for; it is copied when they are found. Returns the number
  /// of the round.
  std::uint64_t search(contribution given, std::uint64_t own_step);
  /// The members are found. @param own null: its round has ended without a mean. @param from_state
  /// false: they get zeros of us, with weight 0. Returns the number of the round from now on.
  std::uint64_t found(std::shared_ptr<const float_vector> own, bool from_state = true);
  /// Its round begins. Returns the number of the round.
  std::uint64_t send();
  /// Its round failed, or its group was left: answers do not count any more, and the contribution,
  /// if there is one, waits for another round.
  void interrupt();
  /// The round is over. @param alone nobody else has contributed.
  void end(round_result result, bool alone);
  /// The result of a round that ended. REQUIRES: ended. Settle it.
  [[nodiscard]] round_result take_result();
  /// Its mean is merged, the others decided without it, or the learner has taken its samples back
  /// (learner::take_back). Returns the number of its samples.
  std::uint64_t settle();
  /// The mean is not merged: the contribution waits for another round. REQUIRES: ended, given().
  void hold_again();

  /// The answer to the round that runs does not count.
  void ignore_answer() { ++number_; }
  /// Another member has begun the next round.
  void call() { called_ = true; }
  [[nodiscard]] bool called() const { return called_; }

  // -- samples and passes -------------------------------------------------------------------------

  void pass_ended() { ++counts_.passes; }
  /// A local step with these samples. A loop that has ended offers empty passes: these are no
  /// steps.
  void stepped(std::uint64_t samples) {
    counts_.samples += samples;
    uncounted_steps_ += samples > 0 ? 1 : 0;
  }

  /// From here on, samples, passes and calls are about the next boundary.
  void begin_counting() {
    counts_ = {};
    called_ = false;
  }
  [[nodiscard]] const pass_counts& counts() const { return counts_; }
  /// This peer stops: passes that ended with a contribution count toward its round, which begins
  /// anew.
  void count_again();
  /// What a process before this one has counted.
  void resume(const own_progress& kept);
  /// For the next process: the contribution, and if `local_steps` what is counted.
  void save(own_progress& out, bool local_steps) const;
  /// Counts on from there. Only the first call does something.
  void count_on() { counts_ = std::exchange(resumed_, {}); }
  void forget_resumed() { resumed_ = {}; }

  /// Steps in our parameters that no round has counted, with lane::counts_steps.
  [[nodiscard]] std::uint64_t uncounted_steps() const { return uncounted_steps_; }
  /// The mean contains the steps of the contribution.
  void count_steps() { uncounted_steps_ -= std::min(uncounted_steps_, given_->steps); }
  /// Another state replaces ours.
  void forget_steps() { uncounted_steps_ = 0; }

private:
  void begin(contribution given, std::uint64_t own_step);

  phase phase_ = phase::idle;
  std::uint64_t number_ = 0; // of the last round begun
  bool called_ = false;
  std::optional<contribution> given_;
  std::optional<round_result> result_;
  std::uint64_t begun_ = 0; // own step
  std::optional<std::uint64_t> last_epoch_;
  std::uint64_t in_flight_ = 0;
  pass_counts counts_;  // since the last boundary
  pass_counts resumed_; // the first ones of the epoch that resumes
  std::uint64_t uncounted_steps_ = 0;
};

} // namespace waggle
