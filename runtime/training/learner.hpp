#pragma once

#include <algorithm>
#include <cmath>
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
#include "runtime/training/plateau.hpp"
#include "runtime/training/sample_ledger.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

class resumable_learner; // resumable_learner.hpp
class shared_parameters; // shared_parameters.hpp

/// Interface between the trainer and the computation: LibTorch in trainer/, a user's own loop, a
/// closed-form model in tests. Owns parameters, optimizer state, data and accumulators.
///
/// Only the computing thread may call the methods of the first group. Any thread can take the
/// accumulated gradient while the computing thread is in the middle of a pass, so that a round
/// never waits for a pass, unless the learner adds in place.
///
/// A learner that steps locally, and whose tensors can be copied during passes, can also average
/// its tensors.
class learner {
public:
  virtual ~learner() = default;

  /// The pool for temporary vectors; the vectors of rounds (gradient_count values) come from it,
  /// too. Called at most once, before everything else.
  virtual void use_vectors(std::shared_ptr<vector_pool> /*vectors*/) {}

  /// What a layer above it lets peers share instead of this learner's own parameters. Called at
  /// most once.
  virtual void use_shared(std::shared_ptr<const shared_parameters> /*shared*/) {}

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
  virtual void at_epoch(epoch_id /*now*/) {}
  /// One optimizer step with `gradient` (parameter_count values) and learning rate `lr`; with
  /// lane_merge::rule::blend, `lr` is the share of the way to the anchor, 0: by its change.
  virtual void apply(std::span<const float> gradient, double lr) = 0;
  /// One optimizer step with the accumulated gradient, which is emptied; none if there is none.
  /// REQUIRES: steps_locally().
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
  virtual void take_metrics(std::span<const float> /*means*/, epoch_id /*epoch*/) {}
  /// The epoch has ended, and its update, if it had one, was applied.
  virtual void end_epoch(const decided_round& /*by*/) {}
  /// The state of the schedule, if it is part of the learner's (plateau_learner.hpp).
  [[nodiscard]] virtual std::optional<plateau_report> plateau_state() const { return std::nullopt; }
  /// Copies tensor `which` of `tensors()`, row by row. `out` has as many values as the tensor.
  virtual void read_tensor(std::size_t which, std::span<float> out) const = 0;
  /// The same values without a copy, valid until the next step. Empty if they are not contiguous in
  /// host memory; use `read_tensor` then.
  [[nodiscard]] virtual std::span<const float> values_of(std::size_t /*which*/) const { return {}; }
  /// Replaces the values of the tensor.
  virtual void write_tensor(std::size_t which, std::span<const float> values) = 0;
  /// The number of optimizer steps that the statistics have accumulated.
  [[nodiscard]] virtual std::uint64_t optimizer_steps() const = 0;
  virtual void set_optimizer_steps(std::uint64_t steps) = 0;
  /// This peer's own state beside the tensors, such as the scale of the loss: at most own_bytes_max
  /// bytes, which checkpoints keep and other peers never receive.
  static constexpr std::size_t own_bytes_max = 1024;
  [[nodiscard]] virtual std::string own_state() const { return {}; }
  /// Continues from what `own_state` returned. Fails with ec::malformed; nothing changes then.
  virtual status load_own_state(std::string_view /*own*/) { return done{}; }

  /// What it can keep of an unfinished epoch over a restart; null: nothing.
  [[nodiscard]] virtual resumable_learner* resumable() { return nullptr; }

  // -- any thread ---------------------------------------------------------------------------------

  /// Whether its optimizer can step with each micro-batch: see strategy::steps_locally.
  [[nodiscard]] virtual bool steps_locally() const { return false; }
  /// Copies the tensors as they are between two steps or changes. Returns how many changes they
  /// contain; nothing if the thread that alone may read them does something else. Waits for a step,
  /// not for a pass.
  virtual std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                                    std::span<float> out) const;
  /// Whether `copy_tensors` may be called during a pass: not if the pass changes the tensors, or
  /// only its thread may read them.
  [[nodiscard]] virtual bool copies_during_passes() const {
    return steps_locally() && tensors().buffer_count() == 0;
  }
  /// Which samples of the data have entered an update, if the state says so (ledger_learner.hpp).
  [[nodiscard]] virtual std::optional<sample_ledger> ledger() const { return std::nullopt; }
  /// Whether a pass has samples to draw; otherwise it must not begin before the epoch has ended.
  [[nodiscard]] virtual bool has_samples() const { return true; }
  /// The tensor on which the strategy's next rounds depend (strategy_row::on_boundary); empty:
  /// none.
  [[nodiscard]] virtual std::vector<float> strategy_state() const { return {}; }
  /// Whether passes read a copy of the parameters, so that another thread may call `accumulate`
  /// while the computing thread applies an update. A pass then uses the parameters before or after
  /// that update, never older ones.
  /// REQUIRES: there are no buffers, which passes change.
  [[nodiscard]] virtual bool passes_beside_updates() const { return false; }
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
  /// Takes the accumulated gradient, and empties the accumulators: a vector of `vectors` with
  /// acc / Σb, then the buffers, as the last pass left them, then the metrics (gradient_count
  /// values; zeros if Σb = 0), then `room` values for the caller.
  virtual mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room = 0) = 0;
  /// Empties the accumulators, returns Σb.
  virtual std::uint64_t drop_gradient() = 0;
  /// What was taken last is in no update: it counts toward the next one. Returns its Σb, or 0 if
  /// this learner cannot take it back, so that it is lost.
  virtual std::uint64_t take_back() { return 0; }
  /// Σb of the accumulated gradient.
  [[nodiscard]] virtual std::uint64_t accumulated_samples() const = 0;
  /// Whether a pass adds to the only copy of the accumulated gradient. If so, the gradient can only
  /// be taken between two passes. It can be dropped at any time.
  [[nodiscard]] virtual bool adds_in_place() const { return false; }
  /// Whether the gradient can only be taken after the pass that runs now, if one does.
  [[nodiscard]] virtual bool waits_for_pass() const { return adds_in_place(); }

  /// The number of float32 values in the flat parameter vector.
  [[nodiscard]] std::size_t parameter_count() const {
    return static_cast<std::size_t>(tensors().parameter_count());
  }

  /// The number of values that a round of gradients averages: the gradient, the buffers, the
  /// metrics.
  [[nodiscard]] std::size_t gradient_count() const {
    return parameter_count()
           + static_cast<std::size_t>(tensors().buffer_count() + tensors().metric_count());
  }

  // -- whole states; the computing thread ---------------------------------------------------------

  /// SHA-256 over the bytes of the parameters and of what an outer optimizer keeps for them
  /// (state_table::shared_count): equal exactly for equal models.
  [[nodiscard]] digest parameters_digest() const;
  /// Writes a copy of all tensors, without learning rates or epoch, to `to` at offset `at` (layout:
  /// state_table.hpp). Fails with ec::io_error.
  status save_state_to(byte_store& to, std::uint64_t at) const;
  /// Whether the image at `at` of `from`, which fits the table, can be loaded: what else the
  /// learner demands of its values. Fails with ec::malformed or io_error.
  virtual status check_values(const byte_source& /*from*/, std::uint64_t /*at*/) const {
    return done{};
  }
  /// Loads the state that begins at `at` of `from` and ends with it. All or nothing: on
  /// ec::schema_mismatch, malformed, non_finite or io_error nothing changes. Throws if bytes that
  /// were read and checked cannot be read a second time (a disk that fails at that moment): the
  /// learner then holds half a state and must not be used any more.
  status load_state_from(const byte_source& from, std::uint64_t at);

protected:
  mutable std::mutex values_; // held while tensors change, in `step_locally` and `apply`
  std::uint64_t changes_ = 0; // that the tensors contain; guarded by values_
};

/// x + mean − snapshot: what was learned since the snapshot remains (INV-5). Exactly the mean if
/// nothing was. A square stays at least the smaller one of x and the mean: it may have decayed
/// below the change, and the optimizer divides by its root. It does not follow a mean below 0, to
/// which a lossy codec can round small squares.
inline float changed(float x, float mean, float snapshot, bool square) {
  if (square && mean < 0)
    return x;
  auto y = x == snapshot ? mean : x + (mean - snapshot);
  return square ? std::max(y, std::min(x, mean)) : y;
}

/// The point at the share `alpha` (0 to 1) of the way from `x` to the mean; exactly `x` if they are
/// equal.
inline float moved_towards(float x, float mean, double alpha) {
  auto from = static_cast<double>(x);
  return static_cast<float>(from + alpha * (static_cast<double>(mean) - from));
}

/// The gradient of a peer's last step, after a round has averaged it. If there was no step since
/// the snapshot, it is the mean, so a round that begins before the next step does not correct the
/// same difference again. Otherwise it stays: the change belongs to the gradient before it.
inline void change_gradient(std::span<float> gradient, std::span<const float> mean,
                            std::span<const float> snapshot) {
  if (snapshot.empty() || std::equal(gradient.begin(), gradient.end(), snapshot.begin()))
    std::copy(mean.begin(), mean.end(), gradient.begin());
}

/// learner::merge_buffers, for tensors that `read` (index, span to fill) and `write` (index, span)
/// access.
template <class Read, class Write>
void merge_buffers_in(const state_table& table, Read read, Write write, std::span<const float> mean,
                      std::span<const float> contributed) {
  float_vector values;
  std::size_t at = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].what != state_tensor::kind::buffer)
      continue;
    values.resize(static_cast<std::size_t>(table[i].elements()));
    read(i, std::span{values});
    for (auto& x : values) {
      x = contributed.empty() || !std::isfinite(x)
            ? mean[at]
            : changed(x, mean[at], contributed[at], table[i].never_negative());
      ++at;
    }
    write(i, std::span<const float>{values});
  }
}

} // namespace waggle
