#pragma once

// Internal to trainer/: the peer behind a swarm.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/commands/peer_process.hpp"
#include "runtime/training/loop_learner.hpp"
#include "trainer/state_schema.hpp"
#include "trainer/swarm.hpp"

namespace waggle {

/// One loop's peer, from join to goodbye. Of the loop's thread.
///
/// | state    | what leaves it                             |
/// |----------|--------------------------------------------|
/// | prepared | `start`: an optimizer was made             |
/// | running  | `stop`: the optimizer ends                 |
/// | stopped  | nothing                                    |
class swarm_session {
public:
  static result<std::shared_ptr<swarm_session>> prepare(const swarm_options& options);
  ~swarm_session();
  swarm_session(const swarm_session&) = delete;
  swarm_session& operator=(const swarm_session&) = delete;

  [[nodiscard]] const swarm_options& given() const { return given_; }
  /// What `function_of` says of the model that the options name.
  [[nodiscard]] std::string model_function() const;

  /// Listens, and begins to look for the run. Fails with a sentence. Once only.
  status start(std::shared_ptr<loop_port> port, const optimizer_identity& optimizer,
               double learning_rate);
  /// Whether the run's last update was applied. Throws std::runtime_error if the peers of the run
  /// refuse this one, or it broke.
  [[nodiscard]] bool over();
  /// What `over` was at last.
  [[nodiscard]] bool was_over() const { return over_; }
  /// Ends the peer: waits for the round under way, and for peers that need the last state, up to
  /// `drain_time`; then checkpoint, goodbye, end of all threads that call `model`. In a hurry: the
  /// goodbye is said within a second. Does not throw.
  void stop(loop_model& model, bool in_a_hurry) noexcept;

  [[nodiscard]] swarm_status status_now() const;
  /// Tells the metrics of samples that no trainer knew of.
  void count_outdated(std::uint64_t samples) const;

  static constexpr std::chrono::milliseconds drain_time{5'000};

private:
  explicit swarm_session(swarm_options given) : given_(std::move(given)) {}

  [[nodiscard]] result<run_agreement> agreement(const loop_port& port) const;
  [[nodiscard]] std::optional<training_status> ask() const;
  [[nodiscard]] swarm_status summary(const training_status& s) const;
  void serve(loop_model& model, std::chrono::milliseconds limit, const std::function<bool()>& done);
  void stop_running(loop_model& model, bool in_a_hurry);

  const swarm_options given_;
  run_options options_;
  std::unique_ptr<peer_process> process_;
  std::shared_ptr<loop_port> port_;
  std::shared_ptr<std::atomic<bool>> node_ended_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<started_node> node_; // while it runs
  std::optional<training_status> last_;
  bool over_ = false;
};

} // namespace waggle
