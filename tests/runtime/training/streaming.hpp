#pragma once

#include "runtime/core/check.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

struct streaming_options {
  std::uint32_t fragments = 2;
  std::uint64_t every = 100; // own steps between two rounds of one fragment
  std::uint64_t overlap = 0; // own steps from the start of a round to its merge; 0: rounds block
  double outer_rate = 0.7;
  double keep_local = 0; // share of the local parameters that an outer step keeps
};

/// A strategy with several lanes, for tests of what plans and ledgers do with them: DiLoCo with one
/// lane per fragment, evenly offset in time (arXiv:2501.18512).
/// REQUIRES: every is a multiple of fragments, and overlap < every: one flight per fragment.
inline strategy streaming_diloco(const streaming_options& options) {
  WAGGLE_CHECK(options.fragments > 0 && options.every % options.fragments == 0, "fragments");
  WAGGLE_CHECK(options.overlap < options.every, "one flight per fragment");
  strategy result{inner_rule::step, {}};
  auto gap = options.every / options.fragments;
  for (std::uint32_t i = 0; i < options.fragments; ++i) {
    lane fragment;
    fragment.what = lane_content::progress;
    fragment.part = {i, options.fragments};
    // The merge, not the begin, is at a multiple of the gap.
    auto phase = (gap * (i + 1) + options.every - options.overlap) % options.every;
    fragment.due = {lane_clock::unit::own_steps, options.every, phase};
    fragment.overlap = {lane_overlap::until::own_steps, options.overlap};
    fragment.merge = {lane_merge::rule::outer_step, options.outer_rate, options.keep_local};
    fragment.on_failure = failure_rule::skip;
    result.lanes.push_back(fragment);
  }
  return result;
}

} // namespace waggle
