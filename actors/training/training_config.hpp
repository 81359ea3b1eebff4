#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "actors/state/state_fetcher.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/notice_period.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/training_options.hpp"

namespace waggle {

/// Of a trainer. Of `how`, the actor fills in `target_batch` and `numbers`.
struct training_config : training_options {
  std::uint64_t target_batch_size = 256; // samples of all peers from one round to the next
  std::uint64_t max_epochs = 0;          // rounds; 0: until stopped
  std::uint64_t max_passes = 0; // over the data, if the learner has a ledger of them; 0: no limit
  std::uint32_t group_size_max = 64; // contributors of a round
  lr_schedule schedule;
  /// What the operator should know about these settings, for the log and the status; empty:
  /// nothing.
  std::string notice{};
  /// When this peer's machine will be taken away; null: nobody says so.
  std::shared_ptr<const leave_notice> leave{};
  peer_id instead_of{}; // whose place this peer takes (left_progress); zero: of nobody
  fetch_config fetch;
  std::optional<checkpoint_store> checkpoints;
  std::uint64_t checkpoint_every = 1; // epochs; 0: only when stopped
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
