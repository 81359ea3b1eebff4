#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// When the parts of each member of a round arrived, as this peer saw it. Every reducer of a
/// butterfly sees this without a message: the slow member arrives last, and all others only wait.
/// A mark costs a few nanoseconds, because the clock was read for the part anyway. Not thread-safe.
struct round_marks {
  using time = std::chrono::nanoseconds; // since the round began here
  static constexpr time never{-1};
  struct span {
    time first = never;
    time last = never;

    void mark(time at) {
      if (first == never)
        first = at;
      last = at;
    }
  };
  struct member {
    peer_id peer;
    bool contributes = false;
    bool reduces = false;
    double weight = 0; // of its contribution to parts that we reduce; else 0
    /// Its contributions to the parts that we reduce; our own: when they were encoded.
    span contributions;
    /// Parts of the result that came from it; our own: when we had summed them.
    span results;
    /// When it said that it holds the result of the view that was decided; our own: when we did.
    time confirmed = never;
    std::uint64_t bytes_in = 0;  // bodies that it sent us
    std::uint64_t bytes_out = 0; // bodies that we sent it
  };

  steady_time began{};
  std::size_t self = 0; // index of this peer
  std::vector<member> members;

  void contribution(std::size_t from, steady_time now, std::size_t bytes) {
    members[from].contributions.mark(now - began);
    members[from].bytes_in += bytes;
  }
  void confirmed(std::size_t from, steady_time now) { members[from].confirmed = now - began; }
  void result(std::size_t from, steady_time now, std::size_t bytes) {
    members[from].results.mark(now - began);
    members[from].bytes_in += bytes;
  }
};

} // namespace waggle
