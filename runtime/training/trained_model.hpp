#pragma once

#include <memory>
#include <optional>
#include <span>

#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/epoch_policy.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

/// A learner, the epoch that it is at, and where every sample that it was given went.
///
/// Invariants after every call (spec/optimizer.md §1):
/// - INV-1, INV-7: the epoch goes up by one with a step, and changes otherwise only with a state
///   that was loaded whole and is not older.
/// - INV-2: samples().pending is what the accumulators hold. They are emptied when, and only when,
///   those samples are counted as used or dropped.
/// - `parameters()` and `image()` are of this epoch: nobody is told of parameters that changed
///   since.
///
/// Knows no time, metrics or network. Not thread-safe: of whoever owns the learner.
class trained_model {
public:
  explicit trained_model(std::unique_ptr<learner> learns) : learner_(std::move(learns)) {}

  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const sample_account& samples() const { return samples_; }
  [[nodiscard]] digest schema() const { return learner_->schema(); }
  /// float32 values in a gradient.
  [[nodiscard]] std::size_t parameter_count() const { return learner_->parameter_count(); }
  /// Of the parameters that this epoch began with. Hashed when it is first asked for: that may take
  /// longer than the step before it.
  [[nodiscard]] const digest& parameters();

  /// One micro-step. If it is not finite, its samples are dropped.
  micro_step accumulate();
  /// Of what is accumulated, a copy (INV-6): `out` has parameter_count() values.
  void mean_gradient(std::span<float> out) { learner_->mean_gradient(out); }
  /// Drops what is accumulated. Returns how many samples that were.
  std::uint64_t drop();

  enum class own_samples : std::uint8_t {
    used,   // they are in the gradient
    dropped // they are not: others decided without them
  };
  /// The optimizer step that ends this epoch. Returns how many samples were used or dropped.
  std::uint64_t step(std::span<const float> gradient, double learning_rate, own_samples fate);

  /// Takes the epoch, parameters and optimizer state of an `encode_state` image, all or nothing.
  /// Returns how many accumulated samples were dropped with the state before. Fails with
  /// ec::epoch_mismatch if the image is older, ec::schema_mismatch if it is another model's, or
  /// with what is wrong with its bytes (ec::malformed, hash_mismatch).
  result<std::uint64_t> load(byte_span image);
  /// The `encode_state` image of this epoch, shared by all who ask for it.
  [[nodiscard]] const payload& image();
  /// Writes a checkpoint.
  status save(checkpoint_store& checkpoints);

private:
  void changed();

  std::unique_ptr<learner> learner_;
  epoch_id epoch_;
  sample_account samples_;
  std::optional<digest> parameters_; // nothing: not hashed since they changed
  payload image_;                    // empty: nobody asked since they changed
};

} // namespace waggle
