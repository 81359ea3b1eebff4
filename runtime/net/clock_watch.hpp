#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/core/ids.hpp"
#include "runtime/net/clock_offset.hpp"

namespace waggle::net {

/// Remembers how far the clocks of peers are from ours, and decides what to report to the operator:
/// that a peer's clock is off (once for each peer, and once more if it is refused for that), or
/// that this machine's own clock is, if it is off from those of most peers. Not thread-safe.
class clock_watch {
public:
  struct options {
    clock_limits limits{};
    /// The sentence about our own clock is repeated after this time at the earliest.
    steady_time::duration repeat = std::chrono::minutes{10};
    /// The peer that was seen longest ago is forgotten for a further one.
    std::size_t peers_max = 256;
  };

  clock_watch() = default;
  explicit clock_watch(options opts) : options_(opts) {}

  /// `offset`: of the peer's clock from ours; above zero: it is ahead. Returns what to log now.
  std::optional<std::string> compared(const peer_id& peer, swarm_clock::duration offset,
                                      steady_time now);

  void moved(swarm_clock::duration by) {
    for (auto& [id, of] : peers_)
      of.offset =
        std::max(difference(swarm_time{of.offset}, swarm_time{by}), -swarm_clock::duration::max());
  }

  /// The median of all peers' offsets from our clock; zero if none is known.
  [[nodiscard]] swarm_clock::duration median() const;

private:
  enum class told { nothing, noticeable, refused };
  struct entry {
    swarm_clock::duration offset{0};
    steady_time seen;
    told said = told::nothing;
  };

  [[nodiscard]] std::optional<std::string> own_clock() const;
  void make_room();

  options options_{};
  std::map<peer_id, entry> peers_;
  std::optional<steady_time> own_told_;
};

/// Notices that this machine's clock was set, or stood still while the machine slept. Not
/// thread-safe.
class clock_jumps {
public:
  static constexpr swarm_clock::duration noticeable = 1s;

  /// Call it now and then. How far the clock has moved, since the last call, beyond the time that
  /// has passed; nothing if that may be its usual adjustment.
  std::optional<swarm_clock::duration> look(steady_time steady, swarm_time wall) {
    auto ahead = wall.time_since_epoch() - steady.time_since_epoch();
    auto before = std::exchange(ahead_, ahead);
    if (!before || std::chrono::abs(ahead - *before) < noticeable)
      return std::nullopt;
    return ahead - *before;
  }

private:
  std::optional<swarm_clock::duration> ahead_;
};

} // namespace waggle::net
