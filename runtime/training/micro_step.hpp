#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/error.hpp"

namespace waggle {

/// The result of one pass over a micro-batch.
struct micro_step {
  double loss = 0;           // mean over the micro-batch
  std::uint64_t samples = 0; // micro-batch size
  bool finite = true;        // false: loss or gradient was NaN or infinite; nothing was accumulated
  /// With learner_abilities::adds_in_place: samples that were lost without being taken or dropped.
  /// If this pass is not finite: those of the earlier passes in the sum. Otherwise this pass's own,
  /// because the sum was dropped while it ran.
  std::uint64_t lost = 0;
  /// Its gradient was taken, or dropped, before it was complete (learner::accumulate_in_buckets).
  bool taken = false;
  double scale = 0;      // by which the loss was multiplied for the backward pass; 0: no scaler
  bool overflow = false; // not finite, and with a smaller scale it might have been finite
  /// A parameter that the loop has changed since the last update, as an embedding with a largest
  /// norm does in its passes: its peers hold other values. Empty: none, as far as is known.
  std::string written{};
  /// Data that it was to be over and cannot be used, and why: a warning. Empty: none.
  std::string left_out{};
  /// Not ec::none: there was no pass, because the data cannot be read any more. Nothing changed.
  failure why{};
};

} // namespace waggle
