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
#include <utility>
#include <vector>

#include "runtime/training/awaited_pass.hpp"
#include "runtime/training/backward_pass.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/offered_gradients.hpp"
#include "runtime/training/sample_draws.hpp"
#include "runtime/training/shared_parameters.hpp"
#include "runtime/training/step_outcome.hpp"
#include "runtime/training/update_terms.hpp"

namespace waggle {

/// Where the optimizer of a user's training loop steps, and keeps its statistics.
enum class update_place : std::uint8_t {
  module = 0,   // on the parameters of the module
  host_memory,  // on a second copy of them, the master copy (--offload-optimizer)
  beside_passes // the same, while the loop computes (--delay-optimizer-step)
};

/// The model of a user's training loop: parameters, optimizer and the optimizer's statistics.
/// Called with the tensors of the table that its loop_port was constructed with, on the loop's
/// thread only; a master copy that a loop_port has, on the worker's thread.
class loop_model : public tensor_store, public device_gradient {
public:
  /// What the members have settled for the next `apply`. Not called if the table has no numbers.
  virtual void settle(const update_terms& /*terms*/) {}
  /// One optimizer step with `gradient` (all parameters' values). `lr`: the rate that the members
  /// have settled for the first parameter, or that of the run's schedule; the loop's optimizer may
  /// use a rate of its own.
  virtual void apply(std::span<const float> gradient, double lr) = 0;
  /// The same with the gradient that the loop has just offered, where the loop left it.
  virtual void step(double lr) = 0;
  [[nodiscard]] virtual std::uint64_t optimizer_steps() const = 0;
  virtual void set_optimizer_steps(std::uint64_t steps) = 0;
  /// See learner::rounding.
  [[nodiscard]] virtual std::uint64_t rounding() const { return 0; }
  /// Makes the module's parameters those of the master copy, if the loop_port has one.
  virtual void refresh() {}
  // Of a loop_port without gradients on a device, these are not called.
  void add_gradient(float /*keep*/, float /*times*/) override {}
  void read_gradient(std::span<float> /*out*/) const override {}
  void write_gradient(std::span<const float> /*sum*/) override {}
};

/// Thrown on the computing thread when the loop has ended and nothing computes any more.
class loop_closed final : public std::runtime_error {
public:
  loop_closed();
};

/// Connects a training loop with the thread that computes for the trainer (a model_worker). The
/// loop's thread executes the worker's calls while it is in `offer` or `serve`, so that only the
/// loop's thread ever touches a tensor. Gradients go the other way: `pass` returns when the loop
/// has offered one.
///
///     loop's thread   offer(gradient) ──── carries out calls ──── until the next pass is asked for
///                        │    ▲   │ result                                  ▲
///                gradient│    │call│                                        │
///                        ▼    │   ▼                                         │
///     worker's thread  pass()  call(apply, read, write, …)  ─────────────  pass()
///
/// Each side waits as long as the other one computes. The loop's thread wakes up every `slice` to
/// check whether the run is over; `close` releases the worker's thread permanently, wherever it
/// waits.
///
/// With a master copy, the worker carries out its calls itself, on the master copy, while the loop
/// computes. The loop's thread, in `offer`, copies the newest parameters to the module. So there
/// are two workers, and the calls of one may run beside the pass of the other:
///
///     loop's thread   offer(gradient) ── refresh ── until the next pass is asked for
///                gradient│                 ▲                           ▲
///                        ▼                 │parameters                 │
///     pass worker      pass() ─────────────│────────────────────────  pass()
///     worker           call(apply, …) ──  master copy
///
/// Invariant: when `offer` returns, the module has the parameters of the last update or state that
/// was complete, or of a later one. So a pass misses at most the update that is made while it
/// begins, and none begins while a state is being loaded.
class loop_port {
public:
  static constexpr std::chrono::milliseconds slice{100};
  static constexpr std::chrono::milliseconds empty_pass_pause{20};

  /// `master`: null, or the master copy; REQUIRES: then there are no buffers in `tensors`.
  /// `on_device`: the gradients are where the model has them (device_gradient), not what `offer` is
  /// given; REQUIRES: no master copy.
  loop_port(state_table tensors, digest schema, std::shared_ptr<loop_model> master = {},
            gradient_use use = gradient_use::summed, bool on_device = false);
  /// The loop's samples are those of `draws`, which the learner's ledger has, too (with_ledger):
  /// each `offer` is over the next ones that were drawn. Call it before anything else.
  void use_draws(std::shared_ptr<sample_draws> draws) { draws_ = std::move(draws); }

  [[nodiscard]] bool has_master() const { return master_ != nullptr; }
  [[nodiscard]] const state_table& tensors() const { return tensors_; }
  [[nodiscard]] digest schema() const { return schema_; }

  // -- the loop's thread --------------------------------------------------------------------------

  /// Whether the run is over, so that there is nothing to wait for. Called every `slice` while
  /// there is nothing to do; may throw.
  using is_over = std::function<bool()>;

  /// Offers the mean gradient over `step.samples` samples, in the order of the table, followed by
  /// the buffers and, if the table has numbers, the values of the loop's update_terms, computed
  /// from the parameters as the last call left them. `step.finite`: whether the loss is finite, and
  /// a gradient on a device; whether others are, is found here. Returns when the next gradient is
  /// wanted, so that this one is computed from the newest parameters. An exception that `model`
  /// throws reaches the loop and, as an error, the worker. `passes`: see offered_gradients::add.
  /// REQUIRES: with draws, so many samples are ahead.
  step_outcome offer(loop_model& model, std::span<const offered_tensor> gradient, micro_step step,
                     const is_over& over, std::uint64_t passes = 1);
  /// For a loop that calls `computed`. REQUIRES then: there is no master copy, and gradients are
  /// `summed` and on no device.
  [[nodiscard]] backward_pass& backward() { return backward_; }
  /// The values of a parameter's gradient are complete, in the pass whose gradient over `samples`
  /// samples the next `offer` has. They stay as they are until then: other peers may receive them
  /// before. With others, that `offer` throws std::invalid_argument.
  void computed(std::size_t parameter, const float* values, std::uint64_t samples);
  /// Waits, as `offer` does, until the first gradient is wanted: then a checkpoint or the state of
  /// the run is loaded. Does nothing later.
  void await_pass(loop_model& model, const is_over& over);
  /// Waits, as `offer` does, until there are samples to draw. Returns false if the run is over.
  /// REQUIRES: there are draws.
  [[nodiscard]] bool await_samples(loop_model& model, const is_over& over);
  static constexpr std::size_t kept_bytes_max = position_bytes_max;
  /// What of the loop's own the samples of the next `offer` lead to. It is kept over a restart,
  /// when these samples are. Throws std::length_error beyond kept_bytes_max, and with draws, of
  /// which no gradient is kept, or after `computed`, std::invalid_argument.
  void keep(std::string bytes);
  /// What was kept last, also by a process before this one; empty: nothing.
  [[nodiscard]] std::string kept() const { return gradients_.position(); }
  /// With gradient_use::in_place: whether the next backward pass must add to the gradient that was
  /// offered, instead of beginning with zeros.
  [[nodiscard]] bool adds_up() const {
    return gradients_.use() == gradient_use::in_place && gradients_.samples() > 0;
  }
  [[nodiscard]] std::uint64_t samples_each() const { return gradients_.samples_each(); }
  /// Puts the parameters that peers share into the module, and keeps its own for `show_own`. Does
  /// nothing if they are its own, and before the first `offer`. Throws std::logic_error if they are
  /// shown already; so does `offer` meanwhile.
  void show_shared(loop_model& model);
  /// Undoes `show_shared`; without it, does nothing.
  void show_own(loop_model& model);
  /// Executes the worker's calls until `over`. From the first such call on, passes return without a
  /// gradient: the loop has ended. At the end the module has the parameters of the master copy.
  void serve(loop_model& model, std::chrono::milliseconds look_every, const is_over& over);
  /// From now on every call of the worker that needs this thread fails with loop_closed, and every
  /// pass is empty. REQUIRES: no call is being carried out, i.e. this is the loop's thread.
  void close();

  /// Samples of gradients that were offered; that count or counted toward an update; and that were
  /// never passed to the run because their parameters were out of date. The rest waits in `offer`.
  /// `early`: of gradients that were taken before they were complete.
  struct account {
    std::uint64_t offered = 0;
    std::uint64_t given = 0;
    std::uint64_t outdated = 0;
    std::uint64_t early = 0;
  };
  [[nodiscard]] account samples() const;

  // -- the worker's thread ------------------------------------------------------------------------

  /// See learner::use_shared.
  void use_shared(std::shared_ptr<const shared_parameters> shared);
  /// Waits for the loop's next gradient. `when`: null, or see learner::accumulate_in_buckets.
  micro_step pass(const learner::early_gradient* when = nullptr);
  enum class effect : std::uint8_t {
    none,
    applied,
    merged,
    loading, // a tensor of a state was written; more follow
    loaded   // the number of steps was written, which is the last thing of a state
  };
  /// Runs `work` on the loop's thread and waits for it. Throws loop_closed, or a std::runtime_error
  /// with the text of the exception that `work` threw. With a master copy: runs `work` on it, here.
  void call(effect what, const std::function<void(loop_model&)>& work);

  // -- any thread ---------------------------------------------------------------------------------

  /// The same, of reading, if the loop's thread is in `offer`, `await_pass` or `serve`; returns
  /// false otherwise. Waits for the calls that are carried out, and so for a step at most.
  [[nodiscard]] bool read_now(const std::function<void(const loop_model&)>& work);
  [[nodiscard]] offered_gradients& gradients() { return gradients_; }
  /// Updates in the parameters of the pass that is computed.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

private:
  using guard = std::unique_lock<std::mutex>;
  class presence;
  struct task {
    effect what = effect::none;
    const std::function<void(loop_model&)>* work = nullptr;
    bool done = false;
    std::optional<std::string> failed;
  };
  struct change_count {
    std::uint64_t applied = 0;
    std::uint64_t merged = 0;
    std::uint64_t loaded = 0;
    friend bool operator==(const change_count&, const change_count&) = default;
  };

  void require_own() const;
  void write_parameters(loop_model& model, std::span<const float> all) const;
  void end_pass(const micro_step& step);
  bool serve_until_pass(guard& lock, loop_model& model, const is_over& over);
  [[nodiscard]] bool should_refresh() const;
  [[nodiscard]] bool pass_may_begin() const { return pass_.wanted() && !loading_; }
  void refresh(guard& lock, loop_model& model);
  void change_master(effect what, const std::function<void(loop_model&)>& work);
  [[nodiscard]] bool run(effect what, const std::function<void(loop_model&)>& work,
                         const std::function<bool()>& gone);
  void count(effect what);
  void carry_out(guard& lock, loop_model& model);

  const state_table tensors_;
  const digest schema_;
  const std::shared_ptr<loop_model> master_;
  std::shared_ptr<sample_draws> draws_; // null: the loop chooses its samples
  std::mutex changing_; // held while master_ changes or is copied; locked before mutex_

  mutable std::mutex mutex_; // guards everything up to shown_
  std::condition_variable loop_;
  std::condition_variable worker_;
  task* task_ = nullptr; // a call that has not been started
  bool present_ = false; // the loop's thread carries calls out
  awaited_pass pass_;
  bool ended_ = false; // there will be no more gradients
  bool closed_ = false;
  bool loading_ = false;   // the master copy holds a part of a state
  change_count changes_;   // of the parameters
  change_count in_module_; // those that the module's parameters contain
  account account_;
  double last_loss_;                                // NaN before the first
  std::shared_ptr<const shared_parameters> shared_; // null: the module's own

  bool shown_ = false;          // the loop's thread's: the shared ones are in the module
  float_vector own_;            // the loop's thread's: the module's own meanwhile, if they differ
  offered_gradients gradients_; // never waits for mutex_
  backward_pass backward_;      // the loop's thread's
  std::atomic<std::uint64_t> epoch_{0};
};

/// The learner that the worker uses, on top of `port`. `steps_locally`: with each gradient of the
/// loop. A round then copies tensors on the loop's thread, between two passes, so it never reads a
/// tensor while the loop may use it.
std::unique_ptr<learner> make_loop_learner(std::shared_ptr<loop_port> port,
                                           bool steps_locally = false);

} // namespace waggle
