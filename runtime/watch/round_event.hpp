#pragma once

#include <chrono>
#include <functional>

#include "runtime/allreduce/round_report.hpp"
#include "runtime/core/time.hpp"
#include "runtime/watch/events.hpp"

namespace waggle::watch {

/// The round's course, from its report. Members are empty if nothing was sent in it.
/// @param began the wall time when the all-reduce began here, Unix milliseconds.
/// @param round_trip to a member; zero: not known.
round_ended event_of(const round_report& report, std::int64_t began,
                     const std::function<std::chrono::microseconds(const peer_id&)>& round_trip);

/// Seconds of the report's phases, which add up to its whole time.
struct round_phases {
  double search = 0;
  double contributions = 0; // until the last contribution to our parts was here
  double results = 0;       // from then until the result was complete here
  double agreement = 0;     // from then to the end
};
round_phases phases_of(const round_report& report);

} // namespace waggle::watch
