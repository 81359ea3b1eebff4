#pragma once

#include <memory>
#include <optional>
#include <span>

#include "runtime/training/learner.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// A copy of the state of a model that `seal` turns into an image.
struct model_copy {
  training_state state; // without `learner`
  std::shared_ptr<byte_store> image;
};

/// What an image has to be, to be loaded.
struct wanted_state {
  digest branch; // that it belongs to; zero: any
  epoch_id epoch_max{~std::uint64_t{0}};
};

/// A learner, and where in which history its parameters are.
///
/// Invariants after every call:
/// - INV-1, INV-7: the epoch goes up by one with a step, and changes otherwise only with a state
///   that was loaded whole.
/// - `parameters()` are of this epoch: nobody is told of parameters that changed since.
///
/// Knows no time, metrics or network. Not thread-safe: of the thread that computes.
class trained_model {
public:
  explicit trained_model(std::shared_ptr<learner> learns) : learner_(std::move(learns)) {}

  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const history& line() const { return line_; }
  [[nodiscard]] learner& computes() const { return *learner_; }
  /// Of the parameters that this epoch began with. Hashed when it is first asked for.
  [[nodiscard]] const digest& parameters();

  /// Ends the epoch: one optimizer step, if there is a gradient at all.
  void step(std::span<const float> gradient, double learning_rate, const history& after);
  /// The same state, from now on on another line.
  void rename(const history& line) { line_ = line; }

  /// Takes epoch, history, parameters and optimizer state of an image, all or nothing. Fails with
  /// ec::schema_mismatch if it is another model's, wrong_run or epoch_mismatch if it is not what is
  /// wanted, or with what is wrong with its bytes (ec::malformed, hash_mismatch, non_finite,
  /// io_error). Throws as learner::load_state_from does.
  status load_from(const byte_source& image, const wanted_state& wanted = wanted_state{});
  status load(byte_span image, const wanted_state& wanted = wanted_state{}) {
    return load_from(borrowed_bytes{image}, wanted);
  }

  /// The part of an image that has to be made on this thread, in `to`, which is empty. Fails with
  /// ec::io_error.
  [[nodiscard]] result<model_copy> copy_state(std::shared_ptr<byte_store> to);

private:
  std::shared_ptr<learner> learner_;
  epoch_id epoch_;
  history line_;
  std::optional<digest> parameters_; // nothing: not hashed since they changed
};

/// Hashes and completes what `copy_state` made; any thread. Fails with ec::io_error.
result<std::shared_ptr<const byte_source>> seal(model_copy from);

} // namespace waggle
