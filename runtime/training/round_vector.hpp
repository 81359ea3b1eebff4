#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/vector_pool.hpp"
#include "runtime/training/averaged_tensors.hpp"
#include "runtime/training/flight.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/missed_updates.hpp"
#include "runtime/training/pending_changes.hpp"

namespace waggle {

/// A round that has ended, as far as the update of its epoch depends on it.
struct averaged_round {
  /// If the mean is one of gradients, and of use. All but snapshot, position, work and steps.
  missed_update update{};
  std::size_t contributors = 0;
  bool took_part = false; // this peer is among them
  double stepping = 0;    // with lane::counts_steps: how many peers made the mean number of steps
  const std::uint64_t* total = nullptr; // and history::steps of this peer, as in change_of_steps
};

/// The meaning of a round for the model of one member.
struct round_meaning {
  missed_update update;
  bool counted = false;                      // the update has our samples
  std::string_view why_dropped = "left_out"; // otherwise: a reason of count_discarded
  bool finite = true;                        // false: the mean is dropped
  bool fits = true;                          // likewise
  bool counts_steps = false;                 // `update.steps` has those of the contribution
  double norm = 0;                           // of the mean gradient
  std::optional<double> drift; // from the mean, or from the anchor, to what was contributed
  std::optional<std::uint64_t> samples; // in the update, unless parameters are averaged
};

/// The vectors of this peer's rounds: what it contributes, read from the model, and what the mean
/// is for the model. Knows the updates that the model's thread has been asked to apply, and may not
/// have applied yet: a copy contains them. Not thread-safe.
class round_vector {
public:
  /// @param averages outlives this object; how it merges may change from one round to the next.
  /// @param alpha the share of the way to a mean of parameters that this peer goes.
  round_vector(const lane& averages, double alpha, std::shared_ptr<vector_pool> vectors)
    : averages_(averages), alpha_(alpha), vectors_(std::move(vectors)) {}

  /// The vectors are of this model. Fails with ec::bad_config if the model lacks what the lane
  /// averages.
  status begin(std::shared_ptr<learner> model);
  /// Those of an epoch. REQUIRES: begin.
  [[nodiscard]] const averaged_tensors& tensors(epoch_id of) const {
    return *tensors_[of.value() % tensors_.size()];
  }
  /// The values of all vectors, and the tensors of each, in turn. REQUIRES: begin.
  [[nodiscard]] std::size_t value_count() const;
  [[nodiscard]] std::vector<std::shared_ptr<const std::vector<tensor_info>>> infos() const;

  // -- what this peer contributes; REQUIRES: begin ------------------------------------------------

  /// Of a peer that has nothing to contribute.
  [[nodiscard]] std::shared_ptr<const float_vector> zeros(epoch_id of) const;
  /// The parameters with all changes that the model's thread has been asked for, also in the middle
  /// of a pass. Null: they cannot be read now.
  /// @param steps, total as in write_steps.
  [[nodiscard]] std::shared_ptr<const float_vector> copy(std::uint64_t steps, std::uint64_t total);
  /// Takes the accumulated gradient or progress for the round of `into.epoch`. Returns, if that was
  /// progress which is not finite, how many samples are dropped with it; the contribution is empty
  /// then.
  std::optional<std::uint64_t> take(contribution& into);

  // -- the mean of a round ------------------------------------------------------------------------

  [[nodiscard]] round_meaning meaning_of(averaged_round round, const contribution& given) const;

  // -- updates of the model -----------------------------------------------------------------------

  /// The model's thread is asked to apply this one. Returns apply_update::averaged.
  std::shared_ptr<const averaged_tensors> ask(const missed_update& update);
  /// The oldest one is applied.
  void applied();
  /// The number of updates that are not applied yet.
  [[nodiscard]] std::size_t waiting() const { return pending_.waiting(); }
  /// See pending_changes.
  [[nodiscard]] bool exceed(std::uint64_t bytes_max) const { return pending_.exceed(bytes_max); }

private:
  [[nodiscard]] bool of_parameters() const { return averages_.what == lane_content::parameters; }
  [[nodiscard]] std::shared_ptr<const float_vector> buffers_in(const float_vector& values,
                                                               epoch_id of) const;

  const lane& averages_;
  double alpha_;
  std::shared_ptr<vector_pool> vectors_;
  std::shared_ptr<learner> model_;                               // its thread-safe half
  std::vector<std::shared_ptr<const averaged_tensors>> tensors_; // of each fragment
  std::shared_ptr<const averaged_tensors> buffers_; // those behind a gradient; null: none
  pending_changes pending_;
};

} // namespace waggle
