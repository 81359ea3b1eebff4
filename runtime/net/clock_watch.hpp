#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "runtime/core/ids.hpp"
#include "runtime/net/clock_offset.hpp"

namespace waggle::net {

/// Remembers how far the clocks of peers are from ours, and decides what to tell the operator: that
/// a peer's clock is off (once for each peer, and once more if it is refused for that), or that
/// this machine's own clock is, if it is off from those of most peers.
///
/// Notices, too, when this machine's clock jumps. Whether the jump was a mistake or corrected one,
/// the clocks of the peers that are compared afterwards show: if more of them have the time that we
/// would have without it, `correction` undoes it, until more of them have the machine's time again.
/// Not thread-safe.
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

  /// Takes a reading of this machine's clock, which was made between two of the steady one. Returns
  /// what to log if the clock has jumped since the last reading; clocks of peers should be compared
  /// then.
  std::optional<std::string> looked(steady_time before, swarm_time machine, steady_time after);
  /// To add to this machine's clock: that is ours.
  [[nodiscard]] swarm_clock::duration correction() const { return correction_; }

  /// `offset`: of the peer's clock from ours; above zero: it is ahead. Returns what to log now.
  std::optional<std::string> compared(const peer_id& peer, swarm_clock::duration offset,
                                      steady_time now);

  /// The median of all peers' offsets from our clock; zero if none is known.
  [[nodiscard]] swarm_clock::duration median() const;

private:
  enum class told { nothing, noticeable, refused };
  struct entry {
    swarm_clock::duration offset{0}; // from this machine's clock, uncorrected
    steady_time seen;
    told said = told::nothing;
  };

  /// Two corrections between which the peers decide.
  struct jump {
    swarm_clock::duration undone{0};
    swarm_clock::duration followed{0};
  };
  /// How far this machine's clock is ahead of the steady one: at least, at most.
  struct reading {
    swarm_clock::duration low{0};
    swarm_clock::duration high{0};
  };

  [[nodiscard]] std::optional<std::string> own_clock() const;
  std::optional<std::string> choose_correction();
  void make_room();

  options options_{};
  std::map<peer_id, entry> peers_;
  std::optional<steady_time> own_told_;
  std::optional<reading> last_;
  std::optional<jump> jump_; // the last one
  swarm_clock::duration correction_{0};
};

} // namespace waggle::net
