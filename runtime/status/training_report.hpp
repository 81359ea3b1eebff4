#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/time.hpp"
#include "runtime/core/wait_log.hpp"
#include "runtime/core/windowed_rate.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/progress/membership.hpp"
#include "runtime/progress/parameter_vote.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/training/loss_record.hpp"
#include "runtime/training/micro_step.hpp"
#include "runtime/training/plateau.hpp"
#include "runtime/training/run_health.hpp"
#include "runtime/training/run_position.hpp"
#include "runtime/training/sample_ledger.hpp"
#include "runtime/training/time_account.hpp"

namespace waggle {

/// What a trainer does at a moment.
struct trainer_work {
  bool started = false; // it has a model
  bool stopped = false;
  bool finished = false; // its last epoch has ended, and is merged
  bool member = false;   // of a group
  bool paused = false;
  bool in_step = false;
  bool downloads = false; // a state, or loads one
  bool round_runs = false;
  bool searches = false; // for the members of that round
  bool blocked = false;  // passes wait for that round
  bool pass_runs = false;
  bool updates = false; // the model's thread applies one, before the pass if that waits for it
  bool rests = false;   // the next pass is not due yet

  [[nodiscard]] trainer_phase phase() const;
  [[nodiscard]] activity present() const;
};

/// What a trainer reports about itself: the status, the metrics with it, and sentences for its log.
/// Not thread-safe.
class training_report {
public:
  struct options {
    std::uint64_t target_batch_size = 0;
    std::uint64_t max_epochs = 0; // 0: no end
    std::string notice;           // what the operator should know about the settings
    run_health::options health;
  };
  static constexpr auto status_interval = 100ms;
  static constexpr auto log_interval = 10s;
  static constexpr std::size_t passes_shown = 100;

  /// @param seen, group, at, vote outlive this object.
  training_report(options how, std::shared_ptr<metric_families> metrics, const run_view& seen,
                  const membership& group, const run_position& at, const parameter_vote& vote);

  /// Fields that no function below fills in are the trainer's to write.
  training_status status;
  /// Fills in what follows from other fields, and from what this object sees.
  /// @param epoch_seconds how long an epoch lasts; 0: not known. @param doubt see doubts::seen.
  void complete(double epoch_seconds, const notice& doubt, steady_time now);
  /// For other peers' pages. @param pass_seconds the mean of the passes' seconds, not of their
  /// speeds: of a peer with a tenth of a core many passes take no longer than elsewhere, and the
  /// others ten times as long.
  [[nodiscard]] peer_vitals vitals(double pass_seconds) const;

  // -- when to report -----------------------------------------------------------------------------

  /// Whether to send the status now; it counts as sent.
  bool is_due(bool at_once, steady_time now);
  /// The metrics of a complete status. @param batch samples of all peers toward the target.
  /// @param waiting updates that are not applied yet.
  void measure(std::uint64_t batch, std::size_t waiting) const;
  /// Whether to log `progress` of a complete status now; it counts as logged.
  bool logs_progress(steady_time now);
  [[nodiscard]] std::string progress() const;

  // -- what happens; some return a sentence for the log -------------------------------------------

  /// Returns whether it was in another phase.
  bool enter(trainer_phase phase);
  void count_time(activity present, steady_time now);
  /// A round ends that began at `began`. Returns the course of the epoch: recent_time::take_spans.
  std::string end_round(steady_time began, double agreement_seconds, steady_time now);
  /// @param what is waited for; empty: nothing.
  std::optional<wait_log::line> wait_for(std::string what, steady_time now);
  [[nodiscard]] steady_time waits_since() const { return waits_.since(); }

  /// It trains this history, which it has begun, from now on.
  std::string begin_history(const history& past);
  /// It trains `choice` from the group's epoch on, instead of `past` with which it was at `last`.
  /// Returns a warning, unless nothing is lost.
  std::optional<std::string> leave_history(const history& past, epoch_id last,
                                           const history_choice& choice);
  /// The epoch will end with our own mean gradient (INV-6).
  void fall_back();
  /// The vote has compared our parameters with those of others. Returns an error.
  std::optional<std::string> compare(const parameter_vote::outcome& found);
  /// Samples that are to be used or dropped later. @param resumed by the process before this one.
  void offer(std::uint64_t samples, bool resumed = false);
  /// @param peer whose updates round differently; null: none. Returns a warning, once.
  std::optional<std::string> show_rounding(const swarm_progress::peer* peer);
  void use(std::uint64_t samples, steady_time now);
  /// @param reason of training_metrics::discarded.
  void drop(std::uint64_t samples, std::string_view reason);
  std::optional<std::string> end_pass(const micro_step& step, double seconds, steady_time now);
  /// The ledger, and the schedule plateau, of the state that the model has now, of which `epoch`
  /// begins.
  std::optional<std::string> show(const sample_ledger& ledger);
  std::optional<std::string> show(const plateau_report& plateau, epoch_id epoch);
  /// The same of the schedule of a strategy with this name.
  std::optional<std::string> show(std::string_view strategy, const strategy_phase& phase);
  /// A round had an average. @param since this peer's start.
  void count_round(bool complete, std::string_view outcome, steady_time::duration since);
  /// The update that ends an epoch. The parameters are those of round_meaning.
  void show_update(std::optional<std::uint64_t> samples, double norm, std::optional<double> drift);
  /// An epoch has ended with a step.
  void end_epoch() { losses_.end_epoch(); }
  /// Whether the settings suit the run: see run_health. Returns warnings. Adds to `facts` what this
  /// object knows.
  std::vector<std::string> check_epoch(epoch_facts facts, steady_time now);
  std::optional<std::string> give_download_up(const slow_download& what);
  void catch_up();

private:
  /// What this peer has done for the history that it trains now.
  struct line {
    epoch_id began;
    std::uint64_t samples = 0; // ours, used since then
  };
  void show_health();
  void count(const time_account::span& span, steady_time now);

  const options how_;
  const std::shared_ptr<metric_families> metrics_;
  const run_view& seen_;
  const membership& group_;
  const run_position& at_;
  const parameter_vote& vote_;
  loss_record losses_;
  windowed_rate used_;
  run_health health_;
  time_account time_;
  recent_time recent_;
  wait_log waits_;
  line line_;
  steady_time sent_, logged_;
  std::uint64_t offered_ = 0;      // by passes that have ended, or resumed
  std::uint64_t pass_samples_ = 0; // of the last pass
  std::uint64_t fallbacks_ = 0;    // training_status::local_fallbacks when an epoch ended last
  int differed_ = 0;               // times that others held other parameters
  std::string written_;            // the last micro_step::written
  bool shown_rounding_ = false;
};

} // namespace waggle
