#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
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
    swarm_samples, // of all peers toward the next boundary; such a lane defines the boundaries
    own_steps,     // micro-steps of this peer
  };
  unit counts = unit::swarm_samples;
  std::uint64_t every = 1;
  std::uint64_t phase = 0; // own_steps: due at phase, phase + every, …

  friend bool operator==(const lane_clock&, const lane_clock&) = default;
};

/// When the result of a round is merged, i.e. how long this peer trains on while the round runs.
struct lane_overlap {
  enum class until : std::uint8_t {
    own_steps,     // `steps` after it began; 0: the round blocks
    next_boundary, // before the next round of the lane begins
    it_arrives,
  };
  until ends = until::own_steps;
  std::uint64_t steps = 0;

  [[nodiscard]] bool blocks() const { return ends == until::own_steps && steps == 0; }

  friend bool operator==(const lane_overlap&, const lane_overlap&) = default;
};

/// How a mean is merged. The merge is relative to the snapshot taken when the round began, so that
/// nothing learned since is lost (INV-5).
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

/// What happens when a round failed permanently.
enum class failure_rule : std::uint8_t {
  own_gradient, // an optimizer step with this peer's own mean gradient of the same epoch (INV-6)
  skip,         // as if it had not been due; local progress enters the next round
};

/// One row of a strategy: what is averaged, when, whether training waits, and how the result is
/// used.
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
  hold, // accumulated for a lane
  step, // the optimizer steps with it immediately
};

/// Which bytes all peers of an epoch share: these are hashed, compared and sent to newcomers.
enum class consistency_rule : std::uint8_t {
  exact,       // all parameters
  anchor,      // the anchor and the outer optimizer's state
  approximate, // none
};

/// How a run trains. Equal on all its peers.
struct strategy {
  inner_rule inner = inner_rule::hold;
  std::vector<lane> lanes;
  consistency_rule consistency = consistency_rule::exact;

  friend bool operator==(const strategy&, const strategy&) = default;
};

/// Gradients are averaged every `target_batch` samples of the swarm; all peers wait for the mean
/// (the default of hivemind's Optimizer).
strategy collaborative(std::uint64_t target_batch);

/// The same, but training continues while a round runs: its mean is used for the optimizer step at
/// the next boundary (`delay_grad_averaging`).
strategy delayed_gradients(std::uint64_t target_batch);

/// The optimizer steps locally; parameters are averaged at own steps phase, phase + every, … and
/// the change is added when the mean arrives (decentralized SGD, `delay_state_averaging`).
strategy local_updates(std::uint64_t every, std::uint64_t phase = 0);

struct streaming_options {
  std::uint32_t fragments = 2;
  std::uint64_t every = 100; // own steps between two rounds of one fragment
  std::uint64_t overlap = 0; // own steps from the start of a round to its merge; 0: rounds block
  double outer_rate = 0.7;
  double keep_local = 0; // share of the local parameters that an outer step keeps
};

/// DiLoCo with one lane per fragment, evenly offset in time (arXiv:2501.18512).
/// REQUIRES: every is a multiple of fragments, and overlap < every: one flight per fragment.
strategy streaming_diloco(const streaming_options& options);

/// The numbers from which a strategy is made; each strategy uses its own.
struct strategy_settings {
  std::uint64_t target_batch = 256; // collaborative, delayed_gradients
  std::uint64_t every = 100;        // local_updates
  streaming_options streaming{};
};

struct strategy_row {
  std::string_view name;
  std::string_view help; // one sentence
  strategy (*make)(const strategy_settings& settings);
};

/// All strategies.
std::span<const strategy_row> strategy_table();
/// The one of `waggle train`.
const strategy_row& run_strategy();

/// The inputs on which a strategy may depend when it changes at a boundary.
struct training_history {
  std::uint64_t epochs_done = 0;
};

/// The strategy from this boundary on. The strategies above never change.
strategy on_boundary(strategy now, const training_history& history);

} // namespace waggle
