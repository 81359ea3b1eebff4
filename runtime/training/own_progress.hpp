#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/bytes.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/partial_gradient.hpp"

namespace waggle {

/// What a peer keeps for itself beside a checkpoint, which is what other peers would receive. It is
/// only of use together with the state of that very checkpoint.
///
/// Written with each checkpoint: the first three. Only if the peer stops by itself: the rest, so
/// that the samples of the unfinished epoch are not lost. Without a stop, the position is the one
/// after the samples in the state, so later samples are drawn again.
struct own_progress {
  std::string run{};          // its run_tag; at most run_bytes_max bytes
  std::string own{};          // learner::own_state(); at most learner::own_bytes_max bytes
  std::string position{};     // learner::position(); at most position_bytes_max bytes
  bool stopped = false;       // the peer stopped by itself
  partial_gradient partial{}; // toward the next boundary; parameters of its own, of no samples
  /// The contribution to a round that was not over (learner::gradient_count values, or those of a
  /// fragment), which ends the epoch of the state; null: none.
  std::shared_ptr<const float_vector> pending{};
  std::uint64_t pending_samples = 0;
  std::string pending_position{}; // after those samples
  /// Local steps since the last boundary, which are in the state: what they count toward the next.
  std::uint64_t local_samples = 0;
  std::uint64_t local_passes = 0;
  std::uint64_t uncounted_steps = 0; // local steps in the state that no round has counted
  /// What codecs have taken from this peer's contributions (error_feedback::residual); null:
  /// nothing. Of no use without a stop: later rounds may have sent it.
  std::shared_ptr<const float_vector> residual{};

  static constexpr std::size_t run_bytes_max = 64;

  [[nodiscard]] bool empty() const {
    return run.empty() && own.empty() && position.empty() && !stopped && !partial.sum && !pending
           && !residual;
  }
  [[nodiscard]] std::uint64_t samples() const { return partial.samples + pending_samples; }
};

/// Names the state of a checkpoint: equal for two images exactly if all of their bytes are.
/// `header`: its first state_header_bytes (training_state.hpp).
digest name_of_state(byte_span header);

/// The bytes in front of the three vectors of `progress`, which follow as they are in memory.
/// Layout, little-endian:
///
///     magic "WGGLOW06" (8) | name_of_state (32) | SHA-256 of all that follows (32)
///     | stopped (1) | lengths of run, own, position, pending position (4 each)
///     | partial: samples (8), passes (8), scale (8), values (8) | pending: samples (8), values (8)
///     | local: samples (8), passes (8), uncounted steps (8) | residual: values (8)
///     | run | own | position | pending position | values of partial | of pending | of residual
std::string head_of(const own_progress& progress, const digest& state);

/// Fails with ec::malformed if the bytes are damaged or inconsistent, and wrong_run if they belong
/// to another state than `state`. Allocates no more than `bytes` has.
result<own_progress> decode_own_progress(std::string_view bytes, const digest& state);

} // namespace waggle
