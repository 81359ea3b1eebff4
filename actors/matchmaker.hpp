#pragma once

#include <optional>
#include <set>
#include <string>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/matchmaking/group_search.hpp"

namespace waggle {

/// What the members of a group have to agree on is hashed into the schema that a leader checks.
struct matchmaking_config {
  /// Names what is averaged; groups of different prefixes never mix. Without ".".
  std::string prefix = "vector";
  /// Over whatever else both sides must share (shapes, optimizer).
  digest schema;
  member_mode mode = member_mode::node;
  /// Bytes per second that this peer can send and receive; none: not known, 0: never reduce.
  std::optional<double> bandwidth;
  aggregation reduce_by;
  std::uint32_t part_elements = 1U << 17U;
  std::uint32_t min_contributors = 1;
  std::uint64_t min_vector_size = 0; // elements; smaller shares are given to others

  std::size_t min_group_size = 2;
  std::size_t target_group_size = round_members_max;
  /// A group below its target size begins this long after its leader began to search. Raise it if
  /// peers come late and groups are small.
  milliseconds min_matchmaking_time{5'000};
  milliseconds request_timeout{2'000};
};

/// To itself: time passes for the search with this number.
struct search_tick {
  std::uint64_t search = 0;
};

struct matchmaker_state {
  static inline const char* name = "matchmaker";

  struct running {
    explicit running(group_search machine) : search(std::move(machine)) {}

    group_search search;
    find_group what;
    digest schema;
    steady_time began;
    caf::typed_response_promise<group_formed> promise;
    std::optional<record> declared;
    bool looking_up = false;
  };

  std::optional<running> current;
  std::uint64_t searches = 0;               // number of `current`
  std::pair<std::uint64_t, peer_id> led_by; // the last search that ended under a leader
  std::map<peer_id, peer_record> connected;
  struct refused_seeker {
    digest schema;
    steady_time when;
  };
  std::map<peer_id, refused_seeker> seekers; // found us not looking; bounded by seekers_max
  std::uint64_t last_sequence = 0;
  std::optional<random_source> random;
};

using matchmaker_impl = matchmaker_actor::extend<caf::reacts_to<search_tick>>;

/// Leads or joins a group for one round, as group_search decides: declares itself in the DHT under
/// the group key, asks candidates found there and peers that are connected anyway.
matchmaker_impl::behavior_type matchmaker(matchmaker_impl::stateful_pointer<matchmaker_state> self,
                                          node_context ctx, matchmaking_config config,
                                          switchboard_actor switchboard, dht_router_actor dht);

} // namespace waggle

WAGGLE_LOCAL(search_tick)
