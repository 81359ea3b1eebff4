#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/state/state_fetcher.hpp"
#include "runtime/progress/membership.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// How it finds its group: membership::options.
struct training_config : membership::options {
  std::uint64_t target_batch_size = 256; // samples of all peers from one round to the next
  std::uint64_t max_epochs = 0;          // rounds; 0: until stopped
  std::uint64_t max_passes = 0; // over the data, if the learner has a ledger of them; 0: no limit
  std::uint32_t group_size_max = 64;      // contributors of a round
  std::string strategy = "collaborative"; // in strategy_table
  strategy_settings how;                  // the actor fills in target_batch and numbers
  /// If parameters are averaged, how far this peer's move towards the mean of a round: x += alpha
  /// (mean − snapshot). More than 0, at most 1. Its own choice.
  double averaging_alpha = 1;
  lr_schedule schedule;
  /// What the operator should know about these settings, for the log and the status; empty:
  /// nothing.
  std::string notice{};
  /// The least time from one micro-step to the next, to leave computing time to other processes. 0:
  /// none.
  milliseconds step_interval{0};
  milliseconds averaging_timeout{60'000}; // of one round; then our own gradient is used
  milliseconds sync_timeout{600'000};
  fetch_config fetch;
  std::optional<checkpoint_store> checkpoints;
  std::uint64_t checkpoint_every = 1; // epochs; 0: only when stopped
  /// The least time between two checkpoints: with short epochs, writing each one would cost more
  /// than it saves. A peer that was killed downloads what it missed from the others anyway.
  milliseconds checkpoint_interval{0};
  /// Passes go on while an update is applied (hivemind's `delay_optimizer_step`): their gradients
  /// may be one update late.
  bool delay_optimizer_step = false;
  /// Reduces for the others and applies their updates, but runs no passes.
  bool auxiliary = false;
  /// Limit, in bytes, of the updates kept while the state that they belong to is downloaded, and
  /// separately of those kept while a long pass runs.
  std::uint64_t missed_bytes_max = 1ULL << 30U;
};

/// Of a group_helper.
struct help_config {
  /// For the group's leader, a client, to admit us.
  milliseconds entry_timeout{5'000};
  milliseconds round_timeout{60'000};
  /// Before the next attempt, after an entry failed or a group was lost.
  milliseconds entry_pause{200};
  /// A group without a client is left after this long: a link may have broken for a moment.
  milliseconds patience_without_clients{1'000};
  /// Our report is repeated this often, because reports expire (progress_config::report_ttl).
  milliseconds report_interval{10'000};
  /// With `compare` none, the helper compares the offers of its group's members, until these turn
  /// out to differ: it is not told what the group averages.
  fetch_config fetch;
  milliseconds fetch_timeout{600'000};
  /// Offers that differed are not compared again for this long.
  milliseconds uncompared_for{600'000};
  /// A state that is not requested again within this time is dropped.
  milliseconds state_idle{30'000};
  /// Peers that may wait for one state; more are refused with ec::overloaded.
  std::size_t waiting_max = 16;
};

} // namespace waggle
