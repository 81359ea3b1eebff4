#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Timeouts of a round. Every wait is finite.
struct round_config {
  /// A member whose contributions are awaited is considered lost if it sends none of them for this
  /// long; results are awaited for `result_timeout`, and both for longer where newcomers would go
  /// on without a member that holds the state (patience_with_holders). Raise it if peers are slow
  /// rather than dead: the rounds' faults show `stalled`.
  milliseconds stall_timeout{5'000};
  milliseconds result_timeout{0}; // 0: twice stall_timeout
  /// How long a new leader waits for the others' promises.
  milliseconds takeover_timeout{2'000};
  milliseconds deadline{60'000};
  /// Results of at most this many bytes are compared by their SHA-256, larger ones by a faster hash
  /// under a key, which takes one more message delay. Must be the same for all members.
  std::uint64_t keyless_bytes_max = std::uint64_t{1} << 20U;
  /// Parts with at least this many values are reduced by another thread, if there is one.
  std::uint32_t offload_elements = 1U << 15U;
};

/// So many times as long, but at most a third of the deadline, is a member of an open group awaited
/// without which newcomers would go on among themselves (leaves_it_to_newcomers).
inline constexpr int patience_with_holders = 4;

/// A newcomer to an open group that has sent nothing, when the contributions of all others are
/// here, is awaited for so long, and for as long as the others took: an honest one contributes at
/// once.
constexpr milliseconds patience_with_newcomers(const round_config& config) {
  return std::max(config.stall_timeout / 4, std::min(config.stall_timeout, milliseconds{500}));
}

/// Checks the configuration. Fails with ec::bad_config and the name of the field in the sentence.
status check_round_config(const round_config& config);

} // namespace waggle
