#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/training/learner.hpp"

namespace waggle {

/// The model of a training loop that is not ours, as its thread sees it: parameters, optimizer and
/// the optimizer's statistics. Called on the loop's thread only, with the tensors of the table that
/// its loop_port was made with.
class loop_model {
public:
  virtual ~loop_model() = default;

  /// One optimizer step with `gradient` (all parameters' values). `lr`: what the run's schedule
  /// says; the loop's optimizer may have a rate of its own.
  virtual void apply(std::span<const float> gradient, double lr) = 0;
  virtual void read_tensor(std::size_t which, std::span<float> out) const = 0;
  virtual void write_tensor(std::size_t which, std::span<const float> values) = 0;
  [[nodiscard]] virtual std::uint64_t optimizer_steps() const = 0;
  virtual void set_optimizer_steps(std::uint64_t steps) = 0;
};

/// What became of a gradient that a loop offered.
enum class step_outcome : std::uint8_t {
  held = 0, // it counts toward the run's next update
  stepped,  // it counts, and the run's update was applied
  synced,   // the run's state was loaded; the gradient belonged to another one and was dropped
  dropped,  // it was not finite, or computed from parameters that the run has left
  finished  // the run is over, or this peer is leaving it
};
std::string_view to_string(step_outcome x);

/// Thrown to the computing thread where a loop has ended: there is nobody left to compute.
class loop_closed final : public std::runtime_error {
public:
  loop_closed();
};

/// Where a training loop and the thread that computes for the trainer (a model_worker) meet. The
/// worker's calls are carried out by the loop's thread while that one is in `offer` or `serve`, so
/// that only the loop's thread ever touches a tensor. Gradients go the other way: `pass` returns
/// when the loop has offered one.
///
///     loop's thread   offer(gradient) ──── carries out calls ──── until the next pass is asked for
///                        │    ▲   │ result                                  ▲
///                gradient│    │call│                                        │
///                        ▼    │   ▼                                         │
///     worker's thread  pass()  call(apply, read, write, …)  ─────────────  pass()
///
/// Both sides wait as long as the other one computes. The loop's thread looks up every `slice`;
/// `close` releases the worker's from wherever it waits, for good.
class loop_port {
public:
  static constexpr std::chrono::milliseconds slice{100};
  static constexpr std::chrono::milliseconds empty_pass_pause{20};

  loop_port(state_table tensors, digest schema);

  [[nodiscard]] const state_table& tensors() const { return tensors_; }
  [[nodiscard]] digest schema() const { return schema_; }

  // -- the loop's thread --------------------------------------------------------------------------

  /// Whether there is still something to wait for. Asked every `slice` without anything to do, and
  /// may throw.
  using is_over = std::function<bool()>;

  /// The mean gradient over `step.samples` samples, in the order of the table, computed from the
  /// parameters as the last call left them. Returns when the next gradient is wanted, so that this
  /// one is computed from the newest parameters. What `model` throws reaches the loop and, as an
  /// error, the worker.
  step_outcome offer(loop_model& model, std::span<const float> gradient, const micro_step& step,
                     const is_over& over);
  /// Carries out the worker's calls until `over`. Passes are answered with nothing from the first
  /// such call on: the loop has ended.
  void serve(loop_model& model, std::chrono::milliseconds look_every, const is_over& over);
  /// From now on every call of the worker fails with loop_closed and every pass is empty. REQUIRES:
  /// no call is being carried out, i.e. this is the loop's thread.
  void close();

  /// Samples of gradients that were offered, that count or counted toward an update, and that the
  /// run never heard of because their parameters were out of date.
  struct account {
    std::uint64_t offered = 0;
    std::uint64_t given = 0;
    std::uint64_t outdated = 0;
  };
  [[nodiscard]] account samples() const;

  // -- the worker's thread ------------------------------------------------------------------------

  /// Waits for the loop's next gradient.
  micro_step pass();
  enum class effect : std::uint8_t { none, applied, loaded };
  /// Has `work` carried out by the loop's thread and waits for it. Throws loop_closed, or a
  /// std::runtime_error with the text of what `work` threw.
  void call(effect what, const std::function<void(loop_model&)>& work);

  // -- any thread ---------------------------------------------------------------------------------

  std::uint64_t take_mean_gradient(std::span<float> out);
  std::uint64_t drop_gradient();
  [[nodiscard]] std::uint64_t accumulated_samples() const { return accumulated_samples_.load(); }

private:
  using guard = std::unique_lock<std::mutex>;
  struct task {
    effect what = effect::none;
    const std::function<void(loop_model&)>* work = nullptr;
    bool done = false;
    std::optional<std::string> failed;
  };
  struct change_count {
    std::uint64_t applied = 0;
    std::uint64_t loaded = 0;
    friend bool operator==(const change_count&, const change_count&) = default;
  };

  bool serve_until_pass(guard& lock, loop_model& model, const is_over& over);
  void carry_out(guard& lock, loop_model& model);
  void accumulate(std::span<const float> gradient, std::uint64_t samples);

  const state_table tensors_;
  const digest schema_;

  mutable std::mutex mutex_; // of everything up to the accumulators
  std::condition_variable loop_;
  std::condition_variable worker_;
  task* task_ = nullptr; // the worker's call that nobody has begun to carry out
  bool pass_wanted_ = false;
  std::optional<micro_step> handed_; // over to the pass that waits
  bool ended_ = false;               // there are no gradients any more
  bool closed_ = false;
  change_count changes_; // of the parameters
  account account_;
  double last_loss_; // NaN before the first

  std::mutex accumulators_; // taken alone or inside mutex_, never around it
  std::vector<float> sum_;  // Σ b·∇; of a single gradient, while `single_`, that itself
  bool single_ = false;
  std::atomic<std::uint64_t> accumulated_samples_{0};
};

/// The worker's end of `port`.
std::unique_ptr<learner> make_loop_learner(std::shared_ptr<loop_port> port);

} // namespace waggle
