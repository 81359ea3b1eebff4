#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace waggle {

/// What a lane averages.
enum class lane_content : std::uint8_t {
  gradient,   // of the accumulated samples
  parameters, // as they are
  progress,   // anchor − parameters
};

/// Fragment `index` of `count` of the parameters; the default is all of them.
struct lane_part {
  std::uint32_t index = 0;
  std::uint32_t count = 1;

  friend bool operator==(const lane_part&, const lane_part&) = default;
};

/// When a round of a lane is due.
struct lane_clock {
  enum class unit : std::uint8_t {
    swarm_samples, // of all peers toward the next boundary; such a lane makes the boundaries
    own_steps,     // micro-steps of this peer
  };
  unit counts = unit::swarm_samples;
  std::uint64_t every = 1;
  std::uint64_t phase = 0; // own_steps: due at phase, phase + every, …

  friend bool operator==(const lane_clock&, const lane_clock&) = default;
};

/// When the result of a round is merged: how much this peer learns while the round runs.
struct lane_overlap {
  enum class until : std::uint8_t {
    own_steps,     // `steps` after the begin; 0: the round blocks
    next_boundary, // before the next round of the lane begins
    it_arrives,
  };
  until ends = until::own_steps;
  std::uint64_t steps = 0;

  [[nodiscard]] bool blocks() const { return ends == until::own_steps && steps == 0; }

  friend bool operator==(const lane_overlap&, const lane_overlap&) = default;
};

/// How a mean is merged. Everything is relative to the snapshot taken when the round began, so that
/// nothing that was learned since is lost (INV-5).
struct lane_merge {
  enum class rule : std::uint8_t {
    optimizer_step, // with the mean as gradient
    add_change,     // x += mean − snapshot
    outer_step,     // anchor −= rate · mean; x = keep_local · x + (1 − keep_local) · anchor
  };
  rule how = rule::optimizer_step;
  double rate = 1;
  double keep_local = 0;

  friend bool operator==(const lane_merge&, const lane_merge&) = default;
};

/// What a round that failed for good means.
enum class failure_rule : std::uint8_t {
  own_gradient, // an optimizer step with this peer's own mean gradient of the same epoch (INV-6)
  skip,         // as if it had not been due; what was learned counts in the next round
};

/// One row of a strategy: what is averaged, when, who waits, and what becomes of the result.
struct lane {
  lane_content what = lane_content::gradient;
  lane_part part;
  lane_clock due;
  lane_overlap overlap;
  lane_merge merge;
  std::uint32_t quorum = 1; // with fewer contributors there is no mean
  failure_rule on_failure = failure_rule::own_gradient;

  friend bool operator==(const lane&, const lane&) = default;
};

/// What happens to the gradient of a micro-step.
enum class inner_rule : std::uint8_t {
  hold, // it is accumulated for a lane
  step, // the optimizer steps with it at once
};

/// Which bytes all peers of an epoch share: these are hashed, compared and donated.
enum class consistency_rule : std::uint8_t {
  exact,       // all parameters
  anchor,      // the anchor and the outer optimizer's state
  approximate, // none
};

/// How a run trains. The same on all its peers.
struct strategy {
  inner_rule inner = inner_rule::hold;
  std::vector<lane> lanes;
  consistency_rule consistency = consistency_rule::exact;

  friend bool operator==(const strategy&, const strategy&) = default;
};

/// Gradients at `target_batch` samples of the swarm; everybody waits for the mean (hivemind's
/// Optimizer as it comes).
strategy collaborative(std::uint64_t target_batch);

/// The same, but training goes on while a round runs: its mean is the optimizer step at the next
/// boundary (`delay_grad_averaging`).
strategy delayed_gradients(std::uint64_t target_batch);

/// The optimizer steps locally; parameters are averaged at own steps phase, phase + every, … and
/// their change is added when it arrives (decentralized SGD, `delay_state_averaging`).
strategy local_updates(std::uint64_t every, std::uint64_t phase = 0);

struct streaming_options {
  std::uint32_t fragments = 2;
  std::uint64_t every = 100; // own steps between two rounds of one fragment
  std::uint64_t overlap = 0; // own steps from a round's begin to its merge; 0: rounds block
  double outer_rate = 0.7;
  double keep_local = 0; // share of the local parameters that an outer step keeps
};

/// DiLoCo with one lane per fragment, evenly offset in time (arXiv:2501.18512).
/// REQUIRES: every is a multiple of fragments, and overlap < every: one flight per fragment.
strategy streaming_diloco(const streaming_options& options);

/// What a strategy may depend on when it changes at a boundary.
struct training_history {
  std::uint64_t epochs_done = 0;
};

/// The strategy from this boundary on. All rows above stay as they are.
strategy on_boundary(strategy now, const training_history& history);

} // namespace waggle
