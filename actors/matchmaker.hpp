#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/bucket_watch.hpp"
#include "actors/group_declaration.hpp"
#include "actors/matchmaking_config.hpp"
#include "actors/node_context.hpp"
#include "runtime/matchmaking/group_key.hpp"
#include "runtime/matchmaking/group_search.hpp"
#include "runtime/matchmaking/recent_seekers.hpp"

namespace waggle {

/// To itself: check the timeouts of the search with this number.
struct search_tick {
  std::uint64_t search = 0;
};

struct matchmaker_state {
  static inline const char* name = "matchmaker";

  static constexpr std::size_t seen_max = 4096;

  struct running {
    running(group_search machine, group_key bucket)
      : search(std::move(machine)), key(std::move(bucket)) {}

    group_search search;
    group_key key;
    std::optional<double> bandwidth; // the one that we announce
    find_group what;
    digest schema;
    steady_time began;
    caf::typed_response_promise<group_formed> promise;
    bool looking_up = false;
    std::set<peer_id> seen;       // others that search for a group in this bucket
    std::set<peer_id> compatible; // of those: known to be compatible and reachable

    /// Bounded, because ids can be made up.
    void saw(const peer_id& other) {
      if (seen.size() < seen_max)
        seen.insert(other);
    }
    void add_known(const peer_id& other) {
      saw(other);
      if (compatible.size() < seen_max)
        compatible.insert(other);
    }
  };
  /// A search that waits for the bucket loads of other peers.
  struct waiting {
    find_group what;
    caf::typed_response_promise<group_formed> promise;
    steady_time began;
    group_key key;
  };

  std::optional<waiting> next;

  std::optional<running> current;
  std::optional<group_key> key;             // of the next search; set from the beginning
  std::optional<double> measured;           // our bandwidth, bytes per second
  std::uint64_t searches = 0;               // number of `next` or `current`
  std::pair<std::uint64_t, peer_id> led_by; // the last search that ended under a leader
  std::map<peer_id, peer_record> connected;
  recent_seekers seekers; // asked us while we were not searching
  /// Peers that searched in our bucket when our group formed and are not in it: the swarm has more
  /// peers than a group. Kept until the next search.
  std::set<peer_id> unmatched;
  std::optional<group_declaration> declaration;
  std::optional<bucket_watch> loads; // none: the number of bits is fixed
  std::optional<random_source> random;
};

using matchmaker_impl = matchmaker_actor::extend<caf::reacts_to<search_tick>>;

/// Leads or joins a group for one round, as group_search decides: declares itself in the DHT under
/// the group key, asks candidates found there and, as long as all peers share one bucket, connected
/// peers. Ends at once with ec::bad_config if the configuration cannot be used.
matchmaker_impl::behavior_type matchmaker(matchmaker_impl::stateful_pointer<matchmaker_state> self,
                                          node_context ctx, matchmaking_config config,
                                          switchboard_actor switchboard, dht_router_actor dht);

} // namespace waggle

WAGGLE_LOCAL(search_tick)
