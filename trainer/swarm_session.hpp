#pragma once

// Internal to trainer/: the peer to which a `swarm` refers.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/program/peer_process.hpp"
#include "runtime/training/loop_learner.hpp"
#include "runtime/training/scaled_loss.hpp"
#include "trainer/state_schema.hpp"
#include "trainer/swarm.hpp"

namespace waggle {

/// The options of `waggle train` that swarm_options::more refuses, each with the rest of a sentence
/// that begins with "OPTION is" and says what to do instead.
const std::map<std::string, std::string>& options_not_for_loops();

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

  [[nodiscard]] const swarm_options& given() const { return given_; }
  /// `function_of` the model that the options name.
  [[nodiscard]] std::string model_function() const;
  [[nodiscard]] update_place place() const;
  /// Null without "loss-scale".
  [[nodiscard]] const std::shared_ptr<shared_loss_scale>& loss_scale() const { return scale_; }

  /// Starts to listen and to look for the run. Fails with a sentence for the operator. Call it
  /// once.
  status start(std::shared_ptr<loop_port> port, const optimizer_identity& optimizer,
               double learning_rate, const std::string& rate_ratios);
  /// Whether the last update of the run is applied. Throws std::runtime_error if all initial peers
  /// refuse this one, or if this peer has ended.
  [[nodiscard]] bool over();
  /// The last result of `over`.
  [[nodiscard]] bool was_over() const { return over_; }
  /// Stops the peer. Waits up to `drain_time` for a running round and for peers that need the last
  /// state, then writes a checkpoint, notifies the other peers and stops all threads that use
  /// `model`. `in_a_hurry`: notifies the other peers within a second. Does not throw.
  void stop(loop_model& model, bool in_a_hurry) noexcept;

  [[nodiscard]] swarm_status status_now() const;
  /// Counts samples in the metrics that were dropped before the trainer received them.
  void count_outdated(std::uint64_t samples) const;

  static constexpr std::chrono::milliseconds drain_time{5'000};

private:
  explicit swarm_session(swarm_options given) : given_(std::move(given)) {}

  [[nodiscard]] result<run_agreement> agreement(const loop_port& port) const;
  result<std::shared_ptr<const averaged_tensors>> averaged_by_strategy(const state_table& tensors);
  [[nodiscard]] std::optional<training_status> ask() const;
  [[nodiscard]] swarm_status summary(const training_status& s) const;
  void serve(loop_model& model, std::chrono::milliseconds limit, const std::function<bool()>& done);
  void stop_running(loop_model& model, bool in_a_hurry);

  const swarm_options given_;
  run_options options_;
  std::shared_ptr<shared_loss_scale> scale_;
  std::unique_ptr<peer_process> process_;
  std::shared_ptr<loop_port> port_;
  std::shared_ptr<std::atomic<bool>> node_ended_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<started_node> node_; // while it runs
  std::optional<training_status> last_;
  bool over_ = false;
};

} // namespace waggle
