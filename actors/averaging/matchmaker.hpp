#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/entry_search.hpp"
#include "runtime/matchmaking/bucket_watch.hpp"
#include "runtime/matchmaking/group_declaration.hpp"
#include "runtime/matchmaking/group_key.hpp"
#include "runtime/matchmaking/group_plan.hpp"
#include "runtime/matchmaking/group_search.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"
#include "runtime/matchmaking/recent_seekers.hpp"

namespace waggle {

/// To itself: check the timeouts of the search with this number.
struct search_tick {
  std::uint64_t search = 0;
};

/// To itself: the deadline of the search for a place with this number is over.
struct place_expired {
  std::uint64_t search = 0;
};
/// To itself: the leader has accepted us, but no plan has arrived. Apply again.
struct ask_again {
  std::uint64_t search = 0;
  peer_id leader;
};

using matchmaker_base =
  wired_matchmaker_actor::extend<caf::reacts_to<search_tick>, caf::reacts_to<place_expired>,
                                 caf::reacts_to<ask_again>>::base;

/// Leads or joins a group for one round, as group_search decides: declares itself in the DHT under
/// the group key, asks candidates found there and, as long as all peers share one bucket, peers
/// that are connected anyway. Finds a place in a group that peers enter between rounds, as
/// entry_search decides, without the DHT. REQUIRES: check_matchmaking_config succeeded.
class matchmaker final : public matchmaker_base {
public:
  matchmaker(caf::actor_config& cfg, node_context ctx, matchmaking_config config,
             switchboard_actor switchboard, dht_router_actor dht);

  const char* name() const override { return "matchmaker"; }
  void on_exit() override;

  void operator()(const group_search::declare& a);
  void operator()(const group_search::withdraw& a);
  void operator()(const group_search::look_up& a);
  void operator()(const group_search::ask& a);
  void operator()(const group_search::leave& a);
  void operator()(const group_search::disband& a);
  void operator()(const group_search::begin& a);
  void operator()(const group_search::failed& a);

protected:
  behavior_type make_behavior() override;

private:
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
    std::optional<peer_record> open_group; // the leader of one that we are to enter
    std::set<peer_id> seen;                // others that search for a group in this bucket
    std::set<peer_id> compatible;          // of those: known to be compatible and reachable

    [[nodiscard]] group_purpose purpose() const {
      return {what.epoch, what.codecs, what.gather, bandwidth};
    }
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
  };

  /// A search for a place in a group that peers enter between rounds.
  struct place_search {
    entry_search search;
    find_place what;
    steady_time began;
    caf::typed_response_promise<place_found> promise;
  };

  [[nodiscard]] group_search::moment now() const { return {clock().now(), ctx_.wall->now()}; }
  [[nodiscard]] std::size_t min_size() const;
  [[nodiscard]] std::size_t target_size() const;

  // One search.
  caf::result<group_formed> begin(const find_group& msg);
  void start(waiting wanted);
  void call_extra();
  void cancel();
  void on_time(const search_tick& msg);
  [[nodiscard]] bool asks_connected() const;
  [[nodiscard]] bool avoids(const peer_id& peer) const;
  void add_candidate(const peer_record& peer, std::optional<swarm_time> expiration);
  void perform(const group_search::actions& actions);
  void publish(const record& entry);
  void on_reply(std::uint64_t search, const peer_record& to, ec code,
                const std::vector<peer_record>& suggested);
  void notify_leave(const peer_record& to);
  void form(const round_plan& plan, partition_terms terms);
  void note_auxiliaries(const round_plan& plan);
  void end(const failure& why);

  // A place in an open group (matchmaker_places.cpp).
  caf::result<place_found> begin(find_place& msg);
  void ask_next();
  void ask_leader();
  void on_answer(std::uint64_t search, const peer_id& from, const wire::join_reply& reply);
  void on_refusal(failure why, const std::vector<peer_record>& suggested = {});
  void judged(const plan_judged& plan);
  void end_place(const failure& why);

  // How many buckets.
  void look_at_loads(waiting wanted);
  void on_loads(std::uint64_t search, const std::vector<record>& reported);
  void follow(const std::vector<bucket_load>& loads);
  void announce_load();
  void leave_empty_bucket();

  // What peers send.
  caf::result<outbound_answer> answer(const inbound_call& msg);
  void refer(wire::join_reply& reply) const;
  void on_event(const inbound_event& msg);
  void on_begin(const peer_record& from, const round_plan& plan);
  void decline(const peer_record& from, const round_plan& plan);
  void on_connected(const peer_record& peer);
  void on_disconnected(const peer_disconnected& msg);

  const node_context ctx_;
  const member_mode mode_;    // that was configured
  matchmaking_config config_; // `mode` is the one of the last search
  switchboard_actor switchboard_;
  dht_router_actor dht_;

  random_source random_;
  std::optional<group_key> key_; // of the next search; none: the configuration is invalid
  std::optional<waiting> next_;
  std::optional<running> current_;
  std::uint64_t searches_ = 0; // number of `next_` or `current_`
  std::optional<place_search> place_;
  std::uint64_t places_ = 0; // number of `place_`
  std::pair<std::uint64_t, peer_id>
    led_by_; // our last search that ended under a leader, and that one
  std::map<peer_id, peer_record> connected_;
  recent_seekers seekers_;             // peers that asked us while we were not searching
  recent_seekers extra_;               // extra auxiliaries that asked us
  std::set<peer_id> auxiliaries_;      // of the groups that we were in; bounded by seen_max
  std::optional<peer_id> open_leader_; // of the open group that we are in
  bool open_full_ = false;             // it has no place for further peers
  digest open_schema_;                 // of its vectors
  group_declaration declaration_;
  std::optional<bucket_watch> loads_; // none: the number of bits is fixed
};

} // namespace waggle
