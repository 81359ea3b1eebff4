#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/filling.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/vector_pool.hpp"
#include "runtime/training/decided_round.hpp"
#include "runtime/training/learner_factory.hpp"
#include "runtime/training/micro_step.hpp"
#include "runtime/training/partial_gradient.hpp"
#include "runtime/training/plateau.hpp"
#include "runtime/training/sample_ledger.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/tensor_store.hpp"

namespace waggle {

class shared_parameters; // shared_parameters.hpp

/// What a learner can do.
struct learner_abilities {
  bool resumes = false;       // else it has no position, and copies and loads no gradient
  bool keeps_gradient = true; // `copy_gradient` has the gradient
  bool steps_locally = false; // with each micro-batch: see strategy::steps_locally
  /// `copy_tensors` may be called during a pass: not if the pass changes the tensors, or only its
  /// thread may read them.
  bool copies_during_passes = false;
  /// Passes read a copy of the parameters, so that another thread may call `accumulate` while the
  /// computing thread applies an update. A pass then uses the parameters before or after that
  /// update, never older ones. REQUIRES: there are no buffers, which passes change.
  bool passes_beside_updates = false;
  /// A pass adds to the only copy of the accumulated gradient, which can only be taken between two
  /// passes. It can be dropped at any time.
  bool adds_in_place = false;
};

/// Interface between the trainer and the computation: LibTorch in trainer/, a user's own loop, a
/// closed-form model in tests. Owns parameters, optimizer state, data and accumulators.
///
/// Only the computing thread may call the methods of the first group. Any thread can take the
/// accumulated gradient while the computing thread is in the middle of a pass, so that a round
/// never waits for a pass, unless the learner adds in place.
///
/// A learner that steps locally, and whose tensors can be copied during passes, can also average
/// its tensors.
///
/// What a learner does not override, the one below it does (learner_layer), if there is one.
class learner : public tensor_store {
public:
  /// The pool for temporary vectors; the vectors of rounds (gradient_count values) come from it,
  /// too. Called at most once, before everything else.
  virtual void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) {}

  /// What a layer above it lets peers share instead of this learner's own parameters. Called at
  /// most once.
  virtual void use_shared(std::shared_ptr<const shared_parameters> shared) {
    ask(&learner::use_shared, std::move(shared));
  }
  [[nodiscard]] virtual learner_abilities abilities() const { return ask(&learner::abilities); }

  // -- the computing thread -----------------------------------------------------------------------

  /// Forward and backward of the next micro-batch: acc += b·∇, so that unequal micro-batches are
  /// weighted correctly.
  virtual micro_step accumulate() = 0;
  /// When the gradient of a pass may be taken before it is complete. Called by the computing
  /// thread, during the pass.
  struct early_gradient {
    std::function<bool()> due;
    std::function<void()> offered; // it can be taken from now on
  };
  /// The same bytes; but once some of them are there and it is due, the samples of this pass count
  /// as accumulated, and `take_mean_vector` returns a vector that the pass fills. A learner that
  /// cannot do so, or has samples of an earlier pass, never asks.
  virtual micro_step accumulate_in_buckets(const early_gradient& /*when*/) { return accumulate(); }
  /// Before a pass: how many updates its parameters have. A learner that has a schedule of its own
  /// follows it.
  virtual void at_epoch(epoch_id now) { ask(&learner::at_epoch, now); }
  /// The update that `apply` makes next ends this epoch.
  virtual void at_update(epoch_id ends) { ask(&learner::at_update, ends); }
  /// The values of the update_terms that all members have settled for the update that `apply`
  /// makes next. Without them, or without this call: `lr`, and all parameters.
  virtual void settle(std::span<const float> terms) { ask(&learner::settle, terms); }
  /// One optimizer step with `gradient` (parameter_count values) and learning rate `lr`; with
  /// lane_merge::rule::blend, `lr` is the share of the way to the anchor, 0: by its change.
  virtual void apply(std::span<const float> gradient, double lr) = 0;
  /// One optimizer step with the accumulated gradient, which is emptied; none if there is none.
  /// REQUIRES: abilities().steps_locally.
  virtual void step_locally(double lr);
  /// Adds a change to the tensors with these indices in `tensors()`, whose values stand one after
  /// another in both vectors: see `changed`.
  virtual void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                          std::span<const float> snapshot);
  /// Adds to the buffers the difference of their mean and what this learner contributed to it
  /// (buffer_count values each): see `changed`. Replaces them by the mean if `contributed` is
  /// empty, and values that are not finite in any case.
  virtual void merge_buffers(std::span<const float> mean, std::span<const float> contributed);
  /// The means of the metrics (metric_count values) over all samples of the update that ends
  /// `epoch` and was applied just now.
  virtual void take_metrics(std::span<const float> means, epoch_id epoch) {
    ask(&learner::take_metrics, means, epoch);
  }
  /// The epoch has ended, and its update, if it had one, was applied.
  virtual void end_epoch(const decided_round& by) { ask(&learner::end_epoch, by); }
  /// The state of the schedule, if it is part of the learner's (layers.hpp).
  [[nodiscard]] virtual std::optional<plateau_report> plateau_state() const {
    return ask(&learner::plateau_state);
  }
  /// What `read_tensor` copies, without a copy, valid until the next step. Empty if the values are
  /// not contiguous in host memory; use `read_tensor` then.
  [[nodiscard]] virtual std::span<const float> values_of(std::size_t /*which*/) const { return {}; }
  /// The number of optimizer steps that the statistics have accumulated.
  [[nodiscard]] virtual std::uint64_t optimizer_steps() const = 0;
  virtual void set_optimizer_steps(std::uint64_t steps) = 0;
  /// Equal on two peers if their optimizers change fixed parameters by fixed gradients to the same
  /// bits. These depend on the processor and the version of torch, if the optimizer is one of
  /// torch's. 0: not known.
  [[nodiscard]] virtual std::uint64_t rounding() const { return ask(&learner::rounding); }
  /// This peer's own state beside the tensors, such as the scale of the loss: at most own_bytes_max
  /// bytes, which checkpoints keep and other peers never receive.
  static constexpr std::size_t own_bytes_max = 1024;
  [[nodiscard]] virtual std::string own_state() const { return ask(&learner::own_state); }
  /// Continues from what `own_state` returned. Fails with ec::malformed; nothing changes then.
  virtual status load_own_state(std::string_view own) {
    return below_ != nullptr ? below_->load_own_state(own) : done{};
  }

  // -- over a restart: the position in its data, and the gradient of an unfinished epoch, which are
  // no part of the run's state. The computing thread, while no pass runs

  /// Continues with the pass after `position`. Fails with ec::malformed, and changes nothing, if it
  /// is of other data or another seed.
  virtual status load_position(std::string_view position) {
    return below_ != nullptr ? below_->load_position(position) : done{};
  }
  /// A copy of the accumulated gradient, which stays.
  [[nodiscard]] virtual partial_gradient copy_gradient() const {
    return ask(&learner::copy_gradient);
  }
  /// Continues to accumulate from here, bit for bit. Fails with ec::malformed, and changes nothing,
  /// if it does not fit this learner. REQUIRES: nothing was accumulated.
  virtual status load_gradient(const partial_gradient& partial) {
    return below_ != nullptr ? below_->load_gradient(partial) : done{};
  }

  // -- any thread ---------------------------------------------------------------------------------

  /// The position in the data after the last pass that has ended; at most position_bytes_max bytes.
  [[nodiscard]] virtual std::string position() const { return ask(&learner::position); }
  /// The same at the moment when the gradient was last taken or dropped: after all samples in it,
  /// and before those of a pass that was running.
  [[nodiscard]] virtual std::string taken_position() const { return ask(&learner::taken_position); }

  /// Copies the tensors as they are between two steps or changes. Returns how many changes they
  /// contain; nothing if the thread that alone may read them does something else. Waits for a step,
  /// not for a pass.
  virtual std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                                    std::span<float> out) const;
  /// Which samples of the data have entered an update, if the state says so (layers.hpp).
  [[nodiscard]] virtual std::optional<sample_ledger> ledger() const {
    return ask(&learner::ledger);
  }
  /// Whether a pass has samples to draw; otherwise it must not begin before the epoch has ended.
  [[nodiscard]] virtual bool has_samples() const {
    return below_ == nullptr || below_->has_samples();
  }
  /// The tensor on which the strategy's next rounds depend (strategy_row::on_boundary); empty:
  /// none.
  [[nodiscard]] virtual std::vector<float> strategy_state() const {
    return ask(&learner::strategy_state);
  }
  /// All tensors of the state by name: first the parameters, in the order of the flat vector that
  /// is averaged, then the optimizer's statistics. Fixed (INV-8).
  [[nodiscard]] virtual const state_table& tensors() const = 0;
  /// Hash of names, shapes, optimizer and its statistics: equal exactly for peers that may average
  /// and exchange state.
  [[nodiscard]] virtual digest schema() const = 0;
  struct mean_gradient {
    std::shared_ptr<float_vector> values;
    std::uint64_t samples = 0;
    std::uint64_t merges = 0; // of all merge_buffers, those that the buffers in `values` contain
    /// Which of the values are there; null: all. It ends before the pass that is running does.
    std::shared_ptr<filling> fills{};
  };
  /// What is taken next is for the round that ends this epoch.
  virtual void at_round(epoch_id ends) { ask(&learner::at_round, ends); }
  /// Takes the accumulated gradient, and empties the accumulators: a vector of `vectors` with
  /// acc / Σb, then the buffers, as the last pass left them, the update_terms, and the metrics
  /// (gradient_count values, or fewer where an epoch averages some of the parameters; zeros if Σb =
  /// 0), then `room` values for the caller.
  virtual mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room = 0) = 0;
  /// Empties the accumulators, returns Σb.
  virtual std::uint64_t drop_gradient() = 0;
  /// What was taken last is in no update: it counts toward the next one. Returns its Σb, or 0 if
  /// this learner cannot take it back, so that it is lost.
  virtual std::uint64_t take_back() { return ask(&learner::take_back); }
  /// Σb of the accumulated gradient.
  [[nodiscard]] virtual std::uint64_t accumulated_samples() const = 0;
  /// Samples so far that were in no pass, because a loop computed them from parameters that were
  /// replaced meanwhile.
  [[nodiscard]] virtual std::uint64_t outdated_samples() const {
    return ask(&learner::outdated_samples);
  }
  /// Whether the gradient can only be taken after the pass that runs now, if one does.
  [[nodiscard]] virtual bool waits_for_pass() const {
    return below_ != nullptr ? below_->waits_for_pass() : abilities().adds_in_place;
  }

  /// The number of float32 values in the flat parameter vector.
  [[nodiscard]] std::size_t parameter_count() const {
    return static_cast<std::size_t>(tensors().parameter_count());
  }

  /// The number of values that a round of gradients averages: the gradient, the buffers, the
  /// update_terms, the metrics.
  [[nodiscard]] std::size_t gradient_count() const {
    const auto& t = tensors();
    return parameter_count()
           + static_cast<std::size_t>(t.buffer_count() + t.term_count() + t.metric_count());
  }

  // -- whole states; the computing thread ---------------------------------------------------------

  /// SHA-256 over the bytes of the parameters and of what an outer optimizer keeps for them
  /// (state_table::shared_count): equal exactly for equal models.
  [[nodiscard]] digest parameters_digest() const;
  /// Writes a copy of all tensors, without learning rates or epoch, to `to` at offset `at` (layout:
  /// state_table.hpp). Fails with ec::io_error.
  status save_state_to(byte_store& to, std::uint64_t at) const;
  /// Copies the values of a tensor of the table from a state. Fails with ec::io_error.
  using tensor_reader = std::function<status(std::size_t which, std::span<float> out)>;
  /// Whether a state that fits the table can be loaded: what else the learner demands of its
  /// values. Fails with ec::malformed, or as `read`.
  virtual status check_values(const tensor_reader& /*read*/) const { return done{}; }
  /// Loads the state that begins at `at` of `from` and ends with it. All or nothing: on
  /// ec::schema_mismatch, malformed, non_finite or io_error nothing changes. Throws if bytes that
  /// were read and checked cannot be read a second time (a disk that fails at that moment): the
  /// learner then holds half a state and must not be used any more.
  status load_state_from(const byte_source& from, std::uint64_t at);

protected:
  explicit learner(learner* below = nullptr) : below_(below) {}

  mutable std::mutex values_; // held while tensors change, in `step_locally` and `apply`
  std::uint64_t changes_ = 0; // that the tensors contain; guarded by values_

private:
  /// What the learner below answers; without one, nothing.
  template <class Learner, class Answer, class... Values, class... Given>
  Answer ask(Answer (Learner::*what)(Values...), Given&&... given) {
    return below_ != nullptr ? (below_->*what)(std::forward<Given>(given)...) : Answer();
  }
  template <class Learner, class Answer>
  Answer ask(Answer (Learner::*what)() const) const {
    return below_ != nullptr ? (below_->*what)() : Answer();
  }

  learner* const below_; // null: none
};

} // namespace waggle
