#pragma once

#include <chrono>
#include <cstdint>

namespace waggle {

using namespace std::chrono_literals;

/// For timeouts and durations on this peer. Actors read it from `self->clock()`, which is virtual
/// under CAF's test coordinator.
using steady_time = std::chrono::steady_clock::time_point;
using milliseconds = std::chrono::milliseconds;

/// The clock that peers share: nanoseconds since the Unix epoch. It is used only for values that
/// peers read from each other (expirations, report times), never for a local timeout. It has no
/// `now()`: the current time comes from a `wall_clock`, so that a simulation can control it.
struct swarm_clock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<swarm_clock>;
  static constexpr bool is_steady = false;
};
using swarm_time = swarm_clock::time_point;

constexpr std::int64_t to_nanoseconds(swarm_time t) {
  return t.time_since_epoch().count();
}
constexpr swarm_time swarm_time_from(std::int64_t nanoseconds) {
  return swarm_time{swarm_clock::duration{nanoseconds}};
}
/// a − b, saturating: a time from a peer may have any value, and a plain subtraction may overflow.
constexpr swarm_clock::duration difference(swarm_time a, swarm_time b) {
  std::int64_t out = 0;
  if (!__builtin_sub_overflow(to_nanoseconds(a), to_nanoseconds(b), &out))
    return swarm_clock::duration{out};
  return a < b ? swarm_clock::duration::min() : swarm_clock::duration::max();
}
inline double seconds_of(std::chrono::nanoseconds d) {
  return std::chrono::duration<double>(d).count();
}

/// Interface to the swarm's time. Implementations are thread-safe.
class wall_clock {
public:
  virtual ~wall_clock() = default;
  [[nodiscard]] virtual swarm_time now() const = 0;
};

/// The machine's clock.
class system_wall_clock final : public wall_clock {
public:
  [[nodiscard]] swarm_time now() const override {
    auto since = std::chrono::system_clock::now().time_since_epoch();
    return swarm_time{std::chrono::duration_cast<swarm_clock::duration>(since)};
  }
};

} // namespace waggle
