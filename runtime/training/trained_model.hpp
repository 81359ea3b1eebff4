#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/own_progress.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// A copy of the state of a model that `seal` turns into an image.
struct model_copy {
  training_state state; // without `learner`
  std::shared_ptr<byte_store> image;
  own_progress own; // its first field; the caller adds the others
};

/// The conditions that an image must meet to be loaded.
struct wanted_state {
  digest branch; // of its history; zero: any
  epoch_id epoch_max{~std::uint64_t{0}};
};

/// A learner, with the epoch and history of its parameters.
///
/// Invariants after every call:
/// - INV-1, INV-7: the epoch increases by one at its end, and changes otherwise only when a whole
///   state is loaded, or renamed: peers whose parameters are only approximately equal skip an epoch
///   or two without a download.
/// - `parameters()` belongs to this epoch: a digest of parameters that have changed since is never
///   returned.
///
/// Has no clock, metrics or network. Not thread-safe: use it on the computing thread only.
class trained_model {
public:
  explicit trained_model(std::shared_ptr<learner> learns) : learner_(std::move(learns)) {}

  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const history& past() const { return past_; }
  [[nodiscard]] learner& computes() const { return *learner_; }
  /// The digest of the parameters at the beginning of this epoch. Computed on first use.
  [[nodiscard]] const digest& parameters();

  /// Ends the epoch: one optimizer step with the mean gradient, if there is one at all. After the
  /// gradient, `mean` has the mean of the buffers, the update_terms, and the mean of the metrics;
  /// `buffers`: what this peer contributed to the buffers, or empty (learner::merge_buffers). `by`:
  /// see learner::end_epoch.
  void step(std::span<const float> mean, double learning_rate, const history& after,
            std::span<const float> buffers = {}, const decided_round& by = {});
  /// Ends the epoch with the mean of the parameters: see learner::add_change. REQUIRES:
  /// learner_abilities::copies_during_passes.
  void add_change(const averaged_tensors& averaged, std::span<const float> mean,
                  std::span<const float> snapshot, const history& after);
  /// One optimizer step within the epoch.
  void step_locally(double learning_rate);
  /// Keeps the state and changes its history to `past`, and its epoch to `epoch`.
  void rename(const history& past, epoch_id epoch) {
    past_ = past;
    epoch_ = epoch;
  }

  /// Loads epoch, history, parameters and optimizer state of an image, all or nothing. Fails with
  /// ec::schema_mismatch if it belongs to another model, wrong_run or epoch_mismatch if it does not
  /// match `wanted`, or with the reason why its bytes are invalid (ec::malformed, hash_mismatch,
  /// non_finite, io_error). Throws as learner::load_state_from does.
  status load_from(const byte_source& image, const wanted_state& wanted = wanted_state{});
  status load(byte_span image, const wanted_state& wanted = wanted_state{}) {
    return load_from(borrowed_bytes{image}, wanted);
  }

  /// The part of making an image that must run on this thread; written to `to`, which is empty.
  /// Fails with ec::io_error.
  [[nodiscard]] result<model_copy> copy_state(std::shared_ptr<byte_store> to);

private:
  std::shared_ptr<learner> learner_;
  epoch_id epoch_;
  history past_;
  std::optional<digest> parameters_; // nothing: not hashed since the last change
};

/// Hashes and completes the image that `copy_state` began. Any thread. Fails with ec::io_error.
result<std::shared_ptr<const byte_source>> seal(model_copy from);

} // namespace waggle
