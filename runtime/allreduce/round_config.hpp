#pragma once

#include <cstdint>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// How patient a round is. Every wait is finite (spec/averaging.md §5.6, §10).
struct round_config {
  /// A member whose contributions are awaited and who sends none of them for this long is given up;
  /// results are awaited twice as long. Raise it if peers are slow rather than dead: the rounds'
  /// faults show `stalled`.
  milliseconds stall_timeout{5'000};
  /// How long a new leader waits for the others' word.
  milliseconds takeover_timeout{2'000};
  /// The round ends by then, whatever happens.
  milliseconds deadline{60'000};
  /// Parts with at least this many values are reduced by another thread, if there is one.
  std::uint32_t offload_elements = 1U << 15U;
};

/// Everything that makes a configuration unusable, with the field's name in the sentence:
/// ec::bad_config.
status check_round_config(const round_config& config);

} // namespace waggle
