#pragma once

#include <map>
#include <set>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

struct donor_config {
  std::uint32_t chunk_bytes = 1U << 20U;
  /// Peers that may download at once; another one is refused with ec::overloaded and asks another
  /// donor.
  std::size_t downloads_max = 4;
  /// A snapshot is dropped when no chunk of it was requested for this long.
  milliseconds snapshot_idle{30'000};
  milliseconds snapshot_timeout{30'000}; // for the source to make one
};

/// To itself: drop snapshots that are not being downloaded.
struct drop_idle_snapshots {};

struct state_donor_state {
  static inline const char* name = "state-donor";

  struct snapshot {
    state_snapshot content;
    std::map<peer_id, steady_time> readers; // peers that still download, with their last request
    steady_time used;                       // the last request of any peer
  };
  std::map<digest, snapshot> snapshots; // by content hash; a peer reads at most one
  std::multiset<peer_id> opening;       // peers that wait for the source's snapshot
};

using state_donor_impl = state_donor_actor::extend<caf::reacts_to<drop_idle_snapshots>>;

/// Serves the state of `source` to newcomers in chunks. A snapshot is immutable and shared by all
/// peers that download it; the trainer continues meanwhile.
state_donor_impl::behavior_type
state_donor(state_donor_impl::stateful_pointer<state_donor_state> self, node_context ctx,
            donor_config config, snapshot_source_actor source);

} // namespace waggle

WAGGLE_LOCAL(drop_idle_snapshots)
