#pragma once

#include <cstdint>
#include <string>

namespace waggle {

/// A download that was given up because the updates received meanwhile do not fit in memory.
struct slow_download {
  std::uint64_t state_bytes = 0; // 0: not known
  std::uint64_t received_bytes = 0;
  double seconds = 0;             // so far
  double epoch_seconds = 0;       // typical duration of the run's epochs
  std::uint64_t update_bytes = 0; // of one epoch
  std::uint64_t kept_bytes_max = 0;
  std::uint64_t target_batch_size = 0;
};

/// The target batch size with which the updates received during a whole download would fit, with a
/// quarter to spare; 0: not known.
std::uint64_t sufficient_target_batch(const slow_download& what);

/// A message for the operator, with the numbers: state, bandwidth, epoch, and what would help.
std::string cannot_keep_up(const slow_download& what);

} // namespace waggle
