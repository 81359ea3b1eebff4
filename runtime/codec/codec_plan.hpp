#pragma once

#include <cstdint>
#include <vector>

#include "runtime/codec/codec.hpp"

namespace waggle {

/// A range of the flat vector whose parts all use one codec.
struct codec_run {
  std::uint64_t elements = 0;
  codec_id codec = codec_id::none;

  friend bool operator==(const codec_run&, const codec_run&) = default;
};

/// The whole vector, in order. Invariant: no run is empty.
using codec_plan = std::vector<codec_run>;

/// A run whose numbers are settled one by one (codec_result) is one part: it has no more values
/// than this, and a multiple of those of a number.
constexpr std::uint64_t whole_run_max = 3U << 20U;

/// How many values the vector has.
constexpr std::uint64_t elements_of(const codec_plan& plan) {
  std::uint64_t sum = 0;
  for (const auto& run : plan)
    sum += run.elements;
  return sum;
}

/// A plan from a peer with more runs is refused.
constexpr std::size_t codec_runs_max = 4096;
/// Vectors that a group averages in turn (open_group::terms).
constexpr std::size_t vectors_in_turn_max = 64;

} // namespace waggle
