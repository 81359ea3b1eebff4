#pragma once

#include <cstdint>
#include <string_view>

namespace waggle {

/// What became of a gradient that a loop offered.
enum class step_outcome : std::uint8_t {
  held = 0, // it counts toward the run's next update
  stepped,  // it counts, and the run's update was applied; or, with a strategy that averages
            // parameters, the optimizer has stepped with it
  synced,   // the run's state was loaded; the gradient belonged to the old state and was dropped
  dropped,  // it was not finite, or computed from outdated parameters, or from samples (of shards)
            // that are another peer's now
  finished  // the run is over, or this peer is leaving it
};
std::string_view to_string(step_outcome x);

} // namespace waggle
