#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/training/request_state.hpp"
#include "actors/training/training_config.hpp"
#include "runtime/progress/doubts.hpp"
#include "runtime/progress/parameter_vote.hpp"
#include "runtime/state/awaited_states.hpp"
#include "runtime/state/state_sync.hpp"
#include "runtime/status/training_report.hpp"
#include "runtime/training/epoch_progress.hpp"
#include "runtime/training/flight.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/left_progress.hpp"
#include "runtime/training/notice_period.hpp"
#include "runtime/training/pass_account.hpp"
#include "runtime/training/round_vector.hpp"
#include "runtime/training/run_position.hpp"

namespace waggle {

/// The actors that the trainer works with.
struct trainer_peers {
  group_averager_actor averager;
  progress_tracker_actor tracker;
  switchboard_actor switchboard;
  metrics_exporter_actor exporter;
};

using worker_factory = std::function<model_worker_actor(model_listener_actor)>; // makes one

struct check_swarm {  // to itself: check what can be begun
  bool again = false; // periodically
};

using trainer_base =
  trainer_actor::extend<caf::reacts_to<check_swarm>>::extend_with<model_listener_actor>::base;

/// Takes one peer through the epochs of a run. It receives every change as a message (progress of
/// other peers, calls for a round, results, passes, links) and after each one decides again what
/// can be begun, so it never waits for an event that can no longer happen.
///
/// A member whose model is not at its group's epoch (it has just entered) takes part in rounds
/// without samples, and keeps their results until it has downloaded the state that they belong to.
///
/// The strategy has one lane (runtime/training/strategy.hpp). If its rounds block, a round's result
/// is merged when it arrives. If training continues meanwhile, the group's epoch ends with the
/// round, but the model's with the merge: until then the flight is `ended`, and whatever needs the
/// model at the group's epoch (a donation, leaving, stopping) merges it first.
class trainer final : public trainer_base {
public:
  trainer(caf::actor_config& cfg, node_context ctx, training_config config, worker_factory worker,
          trainer_peers peers);

  const char* name() const override { return "trainer"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct awaited_state {
    get_state_snapshot wanted;
    caf::typed_response_promise<state_snapshot> promise;
  };
  struct checkpoint_clock {
    bool busy = false; // one is being written
    steady_time begun;
  };
  struct left_state { // what only one peer has: of those that leave, and of this one
    enum class at : std::uint8_t { none, asked, over };
    left_progress others;
    std::optional<state_snapshot> own;
    at handed = at::none;             // to a neighbour
    at recalled = at::none;           // from one
    std::vector<peer_record> holders; // that say that they have it, and are not asked yet
    std::size_t told = 0;             // how often somebody has said so
    steady_time patience;             // until then, the first pass waits
    std::shared_ptr<const float_vector> residual; // recalled, and in no round yet
  };
  struct last_report {
    steady_time to_tracker;
    std::uint64_t own_samples = 0;
  };
  struct stop_state {
    bool begun = false;
    bool keeps = false; // the last checkpoint will have the samples of the unfinished epoch
    std::vector<caf::typed_response_promise<training_status>> answers; // wait for that checkpoint
    failure why; // this peer cannot train any more; ec::none: it can
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] const lane& averages() const { return strategy_.averages; }
  [[nodiscard]] bool steps_locally() const { return strategy_.steps_locally(); }
  /// Otherwise samples are in flight until an update has them.
  [[nodiscard]] bool averages_parameters() const {
    return averages().what == lane_content::parameters;
  }
  /// Whether what this peer has learned moves to the state that replaces its own.
  [[nodiscard]] bool keeps_progress() const { return averages().what == lane_content::progress; }
  [[nodiscard]] bool exact() const { // all peers of an epoch hold the same parameters, or anchor
    return strategy_.peers_share_state();
  }
  [[nodiscard]] bool round_runs() const { return flight_.round_runs(); }
  [[nodiscard]] bool searches() const { return flight_.at() == flight::phase::searching; }
  [[nodiscard]] bool loads() const { return sync_.at() == state_sync::phase::loading; }
  [[nodiscard]] bool awaits_merge() const { return flight_.at() == flight::phase::ended; }
  /// An auxiliary in many groups: reduces for one after another, its epochs are those of the run.
  [[nodiscard]] bool serves_groups() const { return config_.auxiliary && config_.many_groups; }
  [[nodiscard]] bool waits_for_members() const { // an epoch has one pass of each
    return averages().due.counts == lane_clock::unit::each_member;
  }
  /// Whether the model's state has a ledger of the samples.
  [[nodiscard]] bool counts_passes() const { return !report_.status.passes.empty(); }
  /// Whether a round that begins now gets nothing of a peer that steps locally: its parameters can
  /// only be copied when the pass that runs has ended. In many groups the members are found first.
  [[nodiscard]] bool copy_waits() const {
    return pass_.runs && steps_locally() && !config_.many_groups
           && (averages_parameters() ? !model_->abilities().copies_during_passes
                                     : model_->waits_for_pass());
  }
  /// Whether the next pass, and the next round, need the update that is under way.
  [[nodiscard]] bool merges_in_turn() const {
    return (averages().merge.how == lane_merge::rule::blend || counts_passes())
           && vector_.waiting() > 0;
  }
  /// Whether a stop waits for the pass that runs: until then nobody knows what is to be saved.
  [[nodiscard]] bool saves_between_passes() const {
    return config_.delay_optimizer_step || steps_locally() || averages().in_buckets;
  }
  [[nodiscard]] bool is_blocked() const { // a round runs that passes wait for
    return round_runs() && averages().overlap.blocks() && !searches();
  }
  [[nodiscard]] epoch_id epoch_of_pass() const; // that the next pass counts toward
  /// Of the run, before the next pass, as the fastest peer counts them.
  [[nodiscard]] std::uint64_t batches_done() const;
  epoch_id schedule_epoch();
  double rate_of_pass();

  // -- what is reported
  const training_status& current_status();
  void publish(bool at_once);
  [[nodiscard]] trainer_work work() const;
  void show_phase();
  void log_progress();
  void show_model(const std::optional<plateau_report>& plateau, epoch_id epoch);
  void check_health(const round_report& report);
  /// Of the parameters at held_epoch; zero: they differ by peer, or are not merged yet.
  [[nodiscard]] digest held_parameters() const;
  void report_own_progress();
  void wait_for(std::string what);

  // -- lifecycle
  void start();
  void on_model(const model_ready& ready);
  void take_over(const own_progress& kept);
  caf::result<training_status> stop();
  void begin_stop();
  void end_because(const failure& why);
  void react();

  // -- the group, and what is believed (trainer_group.cpp)
  [[nodiscard]] membership_facts facts() const;
  bool follow_membership();
  void found();
  void enter(const history_choice& choice);
  void on_entered(const history_choice& choice, const group_view& group);
  void move_to(const history_choice& choice, epoch_id epoch);
  void on_group(const group_view& seen);
  void follow_run(bool outdated);
  void leave(const std::string& why);
  void follow_notice();
  [[nodiscard]] bool is_alone() const;
  [[nodiscard]] bool hurries() const;
  void change_mode();
  void show_doubts();
  void disbelieve(const std::string& what);
  void check_deliveries(const round_report& report, const contribution& given);
  bool enough_peers();

  // -- what only one peer has (trainer_left.cpp)
  [[nodiscard]] bool hands_over(const unfinished_work& left);
  void hand_over(const group_residual& kept);
  void hand_over_to(std::deque<peer_record> neighbours, const std::string& what);
  void recall();
  void on_recalled(bool found, const own_progress& what);
  caf::result<state_snapshot> give_left(const get_state_snapshot& wanted);
  void fetch_left(const peer_id& owner, std::vector<peer_record> from,
                  std::function<status(const byte_source&)> check,
                  std::function<void(const result<fetched_state>&)> then);

  // -- the state (trainer_state.cpp)
  void fetch_if_needed();
  void on_no_state(const failure& why);
  void show_suspects(const std::vector<peer_id>& suspects);
  void on_loaded(const image_loaded& outcome);
  void ask_for_curves(std::deque<peer_record> whom, std::optional<epoch_id> after, epoch_id until);
  void carry(const run_position::outcome& what);
  void cannot_keep_up();
  [[nodiscard]] bool differs_from_most();
  void distrust_own_state(const std::string& why);
  caf::result<state_snapshot> snapshot(const get_state_snapshot& wanted);
  void give_awaited();
  [[nodiscard]] std::shared_ptr<const float_vector> copy_parameters();
  void merge();
  void apply(const run_position::step& step);
  void checkpoint_if_due();
  void keep_unfinished();
  void save_and_answer();
  void save_and_answer(const group_residual& left);

  // -- passes and rounds (trainer_passes.cpp, trainer_rounds.cpp)
  [[nodiscard]] std::uint64_t samples_of_others() const {
    return progress_.samples_of_others(now());
  }
  [[nodiscard]] std::uint64_t own_samples() const;
  [[nodiscard]] bool done() const;
  [[nodiscard]] situation present();
  void begin_counting();
  void carry_out();
  void begin_round(bool call);
  void find_members_of_round(contribution given, bool call);
  void on_members(std::uint64_t number, const members_found& found);
  void send_round(std::uint64_t number, bool call);
  void on_answer(std::uint64_t number, const group_round& round);
  void on_round(const group_round& round);
  void on_no_answer(std::uint64_t number, const caf::error& why);
  void on_round_failed(const round_report& report);
  void count_round(const round_report& report);
  void end_epoch(const group_round& round);
  [[nodiscard]] round_meaning meaning_of(const group_round& round, const contribution& given);
  void maybe_pass();
  void on_offered();
  void on_pass(const pass_done& pass);
  void drop_accumulated(std::string_view reason);
  void drop_contribution(std::string_view reason);
  void settle(bool counted, std::string_view why_dropped);

  const node_context ctx_;
  const training_config config_;
  const strategy_row& row_;
  strategy strategy_; // of the next round, and of the one in flight
  const worker_factory make_worker_;
  trainer_peers peers_;
  random_source random_;

  model_worker_actor worker_;
  pass_worker_actor passes_;       // the worker itself, unless passes run beside updates
  std::shared_ptr<learner> model_; // its thread-safe half
  round_vector vector_;

  run_view seen_;
  membership membership_;
  run_position at_;
  doubts doubts_;

  flight flight_;
  pass_account pass_;
  epoch_progress progress_;
  notice_period notice_;

  state_sync sync_;
  state_request request_;
  parameter_vote vote_;
  awaited_states<awaited_state> awaited_;
  checkpoint_clock checkpoint_;
  left_state left_;

  training_report report_;
  std::uint64_t outdated_ = 0; // samples of the model's that are reported
  last_report reported_;
  steady_time began_; // this actor
  stop_state stop_;
};

} // namespace waggle
