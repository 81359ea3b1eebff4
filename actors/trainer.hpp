#pragma once

#include <functional>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/state_fetcher.hpp"
#include "runtime/state/donor_choice.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/loss_record.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/trained_model.hpp"

namespace waggle {

struct training_config {
  std::uint64_t target_batch_size = 256; // samples of the whole swarm per epoch
  std::uint64_t max_epochs = 0;          // 0: until stopped
  lr_schedule schedule;
  /// The least time from one micro-step to the next: leaves the machine to others. 0: none.
  milliseconds step_interval{0};
  /// How long to look for others before training starts alone. 0: at once (the first peer).
  milliseconds join_timeout{0};
  /// Matchmaking, retries and all-reduce of one epoch together; afterwards our own gradient is
  /// used.
  milliseconds averaging_timeout{60'000};
  milliseconds sync_timeout{600'000};
  /// The last word on a round is awaited this long before a peer that was left out acts on its own.
  milliseconds settle_time{2'000};
  fetch_config fetch;
  std::optional<checkpoint_store> checkpoints;
  std::uint64_t checkpoint_every = 1; // epochs; 0: only when stopped
  /// At least this long between two checkpoints: where epochs are short, writing each to the disk
  /// would cost more than it saves. A peer that was killed takes what it missed from the others
  /// anyway.
  milliseconds checkpoint_interval{0};
};

/// Whom the trainer works with.
struct trainer_peers {
  averager_actor averager;
  progress_tracker_actor tracker;
  switchboard_actor switchboard;
  metrics_exporter_actor exporter;
};

/// To itself: do what is next.
struct go_on {
  std::uint64_t turn = 0;
};

struct trainer_state {
  static inline const char* name = "trainer";

  std::optional<trained_model> model; // there from the phase of joining on
  loss_record losses;
  swarm_progress view;
  training_status status; // what of it does not stand elsewhere in this state; see current_status
  std::optional<checkpoint_store> checkpoints;
  donor_choice donors;

  std::uint64_t turn = 0; // generation of go_on and of what is under way
  bool started = false;
  bool stopping = false;
  steady_time phase_began;
  steady_time left_out_until;  // excluded from a round: wait for the run's word on it
  steady_time reported;        // to the exporter
  steady_time progress_told;   // to the tracker
  steady_time progress_logged; // a line about loss and speed
  steady_time checkpointed;    // began writing the last one
};

using trainer_impl = trainer_actor::extend<caf::reacts_to<go_on>>;

/// Owns the learner and drives it through the epochs of the run: accumulates micro-steps, averages
/// gradients once the swarm has its target batch, steps the optimizer, takes the run's state when
/// it is behind or different, donates its own. Blocks while the learner computes, so production
/// spawns it detached; between two micro-steps it hears messages.
///
/// | phase     | who may leave it, and how                                                        |
/// |-----------|----------------------------------------------------------------------------------|
/// | starting  | the learner is made → joining                                                    |
/// | joining   | others are known, or join_timeout passed → training or syncing                   |
/// | training  | target reached → averaging; behind or different → syncing; max_epochs → finished |
/// | averaging | the round's report: applied, or our own gradient (INV-6) → training              |
/// | syncing   | state loaded, or no donor → training                                             |
/// | finished  | goes on donating; different from the run → syncing; stop → stopped               |
trainer_impl::behavior_type trainer(trainer_impl::stateful_pointer<trainer_state> self,
                                    node_context ctx, training_config config,
                                    learner_factory make_learner, trainer_peers peers);

} // namespace waggle

WAGGLE_LOCAL(go_on)
