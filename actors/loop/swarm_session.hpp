#pragma once

// The peer to which a `swarm` refers. For those who make a loop of their own a peer: without torch.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/loop/swarm.hpp"
#include "actors/program/peer_process.hpp"
#include "runtime/config/options.hpp"
#include "runtime/progress/unanswered.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/loop_learner.hpp"
#include "runtime/training/state_schema.hpp"

namespace waggle {

/// An option that needs the optimizer: run_options_of leaves it out.
constexpr const char* averaged_statistics = "average-opt-statistics";
/// The options of a peer with these. `passes`: of shards; 0: there are none. Fails with a sentence.
result<run_options> run_options_of(const swarm_options& options, std::uint64_t passes);

/// Tensors of a model that nobody trains, with their values. Nothing: peers do not compare them.
using frozen_tensors = std::optional<std::vector<compared_tensor>>;

/// The failure, as a loop in C++ writes options.
inline failure in_members(const failure& why) {
  return {why.code, as_written(why.detail, option_writer::cpp_loop)};
}

/// The peer of one loop, from `join` until it leaves the run. Used by the loop's thread only.
///
/// | state    | left by                                    |
/// |----------|--------------------------------------------|
/// | prepared | `start`: an optimizer is constructed       |
/// | running  | `stop`: the optimizer is destroyed         |
/// | stopped  | nothing                                    |
class swarm_session {
public:
  static result<std::shared_ptr<swarm_session>> prepare(const swarm_options& options);
  ~swarm_session();
  swarm_session(const swarm_session&) = delete;
  swarm_session& operator=(const swarm_session&) = delete;

  /// Replaces the options, but for those of the peer itself: its data folder, identity and log.
  /// Call it before `start`. Fails with a sentence, and then changes nothing.
  status configure(const swarm_options& options);

  [[nodiscard]] const swarm_options& given() const { return given_; }
  /// `function_of` the model that the options name.
  [[nodiscard]] std::string model_function() const;
  [[nodiscard]] update_place place() const;
  [[nodiscard]] gradient_use use_of_gradients() const;
  /// Whether the members of a round settle the numbers of their update: they average gradients.
  [[nodiscard]] bool settles() const { return !strategy().steps_each_pass(); }
  /// Null without "loss-scale".
  [[nodiscard]] const std::shared_ptr<loss_scaler>& loss_scale() const { return scale_; }

  static constexpr std::uint64_t passes_max = 1U << 20U; // as --passes
  /// The run ends after `passes` over so many samples, of which the loop's are those of `draws`:
  /// for shards. Call it before `start`. Fails with a sentence.
  status deal(std::uint64_t samples, std::uint64_t passes);
  /// Null without `deal`.
  [[nodiscard]] const std::shared_ptr<sample_draws>& draws() const { return draws_; }
  /// Waits until there are samples to draw. Returns false if the run is over. REQUIRES: `deal`.
  [[nodiscard]] bool await_samples(const loop_port::is_over& over);
  /// Samples of all steps so far.
  [[nodiscard]] std::uint64_t offered() const { return port_ ? port_->samples().offered : 0; }

  /// Starts to listen and to look for the run. Fails with a sentence for the operator. Call it
  /// once.
  ///
  /// `optimizer.kind`: a name of the optimizer_table, or any other text, which the peers compare.
  /// So they do with the `frozen` ones, and where gradients are averaged with `rounds`: what of
  /// the software decides about loop_model::rounding, in words; empty: not known.
  /// REQUIRES: `model` lives until `stop`.
  status start(std::shared_ptr<loop_port> port, loop_model& model,
               const optimizer_identity& optimizer, double learning_rate,
               const std::string& rate_ratios,
               const frozen_tensors& frozen = frozen_tensors{std::in_place},
               const std::string& rounds = {});
  /// Throws std::invalid_argument with a sentence if no gradient may be over so many samples, of
  /// `claims` blocks of a stream (0: there is none).
  void check_samples(std::uint64_t samples, option_writer who = option_writer::cpp_loop,
                     std::uint64_t claims = 0) const;
  /// loop_port::offer to the running peer.
  step_outcome offer(std::span<const offered_tensor> gradient, const micro_step& pass,
                     const loop_port::is_over& over, std::uint64_t passes = 1);
  [[nodiscard]] bool started() const { return port_ != nullptr; }
  /// The address that this peer listens on, from `start` on; nothing before, and for a client.
  [[nodiscard]] std::optional<endpoint> address() const { return address_; }
  /// The addresses at which other peers can reach this one.
  [[nodiscard]] std::vector<endpoint> addresses() const {
    return node_ ? node_->ctx.reach->addresses().value_or(addresses_) : addresses_;
  }
  [[nodiscard]] const peer_id& id() const;
  /// Null unless it runs.
  [[nodiscard]] const started_node* node() const { return node_ ? &*node_ : nullptr; }
  [[nodiscard]] caf::actor_system& system() const { return process_->system(); }
  [[nodiscard]] const std::filesystem::path& data_dir() const;
  /// Whether the last update of the run is applied. Waits for no actor: the trainer may be waiting
  /// for this thread (loop_port::read_now). Throws swarm_error if all initial peers refuse
  /// this one, if none has answered for long, if a call waits for long while this thread has other
  /// loops, or if this peer has ended.
  [[nodiscard]] bool over();
  /// The last result of `over`.
  [[nodiscard]] bool was_over() const { return over_; }
  /// Stops the peer. Waits up to `drain_time` for a running round and for peers that need the last
  /// state, then writes a checkpoint, notifies the other peers and stops all threads that use
  /// `model`. `in_a_hurry`: notifies the other peers within a second. Does not throw.
  /// `interrupted`: asked every 20 ms whether to hurry from now on; must not throw.
  void stop(loop_model& model, bool in_a_hurry,
            const std::function<bool()>& interrupted = {}) noexcept;

  /// See swarm::notice. Any thread.
  [[nodiscard]] waggle::status notice(milliseconds within) const;
  /// Into the log.
  void warn(const std::string& sentence) const;
  /// See swarm::wait_until_ready. Any thread.
  [[nodiscard]] waggle::status wait_until_ready(std::chrono::milliseconds timeout) const;
  [[nodiscard]] swarm_status status_now() const;
  /// What `over` saw last. Waits for nothing.
  [[nodiscard]] swarm_status status_seen() const {
    return summary(last_.value_or(training_status{}));
  }

  static constexpr std::chrono::milliseconds drain_time{5'000};
  /// So many times swarm_options::join_timeout without an answer, and the loop ends.
  static constexpr int join_timeouts_max = 40;

private:
  swarm_session() = default;

  [[nodiscard]] result<run_agreement> agreement(const loop_port& port,
                                                const frozen_tensors& frozen) const;
  status check_statistics(const state_table& tensors);
  [[nodiscard]] const strategy_row& strategy() const;
  [[nodiscard]] std::optional<training_status> ask() const;
  [[nodiscard]] swarm_status summary(const training_status& s) const;
  void check_wait(const std::string& waiting_for);
  void serve(loop_model& model, std::chrono::milliseconds limit, const std::function<bool()>& done);
  void stop_running(loop_model& model, bool in_a_hurry, const std::function<bool()>& interrupted);

  swarm_options given_;
  run_options options_;
  std::shared_ptr<loss_scaler> scale_;
  std::unique_ptr<peer_process> process_;
  std::shared_ptr<sample_draws> draws_;
  std::uint64_t passes_ = 0;
  std::shared_ptr<loop_port> port_;
  loop_model* model_ = nullptr;                            // while it runs
  std::atomic<std::shared_ptr<const status_board>> board_; // from `start` on; any thread
  std::optional<started_node> node_;                       // while it runs
  std::optional<endpoint> address_;
  std::vector<endpoint> addresses_;
  std::optional<training_status> last_;
  std::optional<unanswered> unanswered_;                  // from `start` on
  std::shared_ptr<std::atomic<std::thread::id>> stepper_; // while it runs: the loop's thread
  struct {
    std::uint64_t offered = 0; // samples, when the call that waits began
    std::optional<std::chrono::steady_clock::time_point> since;
    bool logged = false;
  } wait_;
  bool over_ = false;
  int silent_steps_ = 0; // without a loss
};

} // namespace waggle
