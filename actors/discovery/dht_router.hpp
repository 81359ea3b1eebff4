#pragma once

#include <functional>
#include <map>
#include <optional>

#include <caf/all.hpp>

#include "actors/discovery/dht_joining.hpp"
#include "actors/discovery/dht_punching.hpp"
#include "actors/discovery/dht_reach.hpp"
#include "actors/node_context.hpp"
#include "runtime/core/time_outs.hpp"
#include "runtime/dht/lookup.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/dht/replication.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

struct dht_config {
  routing_options routing;
  lookup::options search;
  /// Peers that keep a record. More survive more simultaneous failures and cost more traffic.
  std::size_t replicas = 5;
  /// How long one peer may take to answer one request.
  milliseconds request_timeout{2'000};
  /// Lookups at once; more fail with ec::overloaded instead of waiting in a growing queue.
  std::size_t searches_max = 512;
  record_store::limits store;
  /// Records of applications (record_rules) are stored, also unsigned ones, which anybody may
  /// write. For services, and for tests.
  bool open_records = false;
  /// Of records of applications: which are stored here and believed. Empty: all that are valid.
  std::function<bool(const record&)> accepts{};
  /// A stranger's record is refused if we know this many peers that are nearer to its key: twice
  /// the peers that a writer asks for the nearest ones (spec: 2·k).
  std::size_t nearer_max = 40;
  joining_config joining;
  reach_config reach;
  punch_config punching;
  /// How often buckets are refreshed and expired records dropped.
  milliseconds upkeep_interval{10'000};
  /// A bucket that was not updated for this long is refreshed by a lookup (Kademlia §2.3).
  milliseconds bucket_refresh{900'000};
  /// How long a peer that is silent again and again is not asked: the time doubles.
  time_outs_of<std::string>::limits silence{milliseconds{5'000}, milliseconds{60'000}};
};

/// Owns the routing table and the record store; answers other peers' pings, finds and stores; runs
/// lookups for this peer.
class dht_router final : public dht_router_base {
public:
  dht_router(caf::actor_config& cfg, node_context ctx, dht_config config,
             switchboard_actor switchboard);

  const char* name() const override { return "dht-router"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct search {
    enum class purpose : std::uint8_t { store, find, refresh };
    search(purpose what, const dht_id& target, lookup path, steady_time now)
      : why(what), key(target), way(std::move(path)), began(now) {}

    purpose why;
    dht_id key;
    lookup way;
    steady_time began;

    // store
    record entry;
    std::optional<replication> writing; // once the nearest peers are known
    caf::typed_response_promise<store_report> stored;
    // find
    record_kind kind = record_kind::open;
    bool latest = true;
    record_merge merge;
    std::vector<std::uint64_t> known; // of what `merge` had when the search began
    struct asker {
      steady_time until;
      caf::typed_response_promise<found_records> promise;
    };
    std::vector<asker> askers; // of the same question
    bool current = true;       // we have stored nothing under the key since it began
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }

  // The routing table and the links.
  void seen(const peer_record& named);
  void on_reached(const peer_id& peer);
  void on_event(const inbound_event& msg);
  void ping(const peer_record& peer);
  void on_connected(const peer_record& peer);
  void on_disconnected(const peer_disconnected& msg);

  // What our own actors ask.
  caf::result<store_report> store(store_record& msg);
  caf::result<found_records> find(const find_records& msg);
  caf::result<found_records> await(std::uint64_t id, milliseconds timeout);
  void begin_with_what_is_here(search& s) const;
  [[nodiscard]] status check(const record& entry) const;

  // Searches.
  [[nodiscard]] bool overloaded() const { return searches_.size() >= config_.searches_max; }
  std::uint64_t begin(search::purpose why, const dht_id& key, milliseconds timeout);
  void advance(std::uint64_t id);
  void ask(std::uint64_t id, const search& s, const peer_record& peer);
  void on_found(std::uint64_t id, const peer_record& peer, steady_time began, peer_answer& answer);
  void on_find_failed(std::uint64_t id, const peer_record& peer, const failure& why);
  ec take(search& s, const record& entry);
  void on_search_expired(std::uint64_t id);
  void finish(std::uint64_t id, search& s);

  // Writing to the peers that a search has found.
  void begin_writing(std::uint64_t id, search& s);
  void go_on_writing(std::uint64_t id, search& s);
  void write(std::uint64_t id, const search& s, const peer_record& peer);
  void on_written(std::uint64_t id, std::optional<ec> outcome, ec why);
  void store_unread();

  void look_up_self();
  void refresh(const dht_id& target);
  void on_tick();

  // What other peers ask (dht_answers.cpp).
  caf::result<outbound_answer> answer(const inbound_call& msg);
  caf::result<outbound_answer> answer_find(const wire::dht_find& question, const peer_id& asker);
  [[nodiscard]] wire::dht_found known_here(const wire::dht_find& question,
                                           const peer_id& asker) const;
  void name_neighbours(const dht_id& key, const peer_id& asker,
                       std::vector<peer_record>& named) const;
  wire::dht_stored answer_store(const wire::dht_store& put, const inbound_call& call);
  [[nodiscard]] ec refusal(const record& entry, const dht_id& key, const peer_id& from,
                           bool member) const;

  const node_context ctx_;
  const dht_config config_;
  switchboard_actor switchboard_;

  routing_table table_;
  time_outs_of<std::string> silent_; // by named_at
  record_store store_;
  random_source random_;
  dht_joining joining_;
  dht_reach reach_;
  dht_punching punching_;
  std::map<std::uint64_t, search> searches_;
  std::uint64_t last_search_ = 0;
  std::uint64_t self_lookup_ = 0;              // the last lookup of our own id
  std::pair<dht_id, record_merge> last_found_; // by the last search for what is newest
  /// Our own records that were stored before any other peer was known.
  record_store unread_;
};

} // namespace waggle
