#pragma once

#include <functional>

#include <gmock/gmock.h>

#include "actors/discovery/dht_router.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/hosted_link.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {

// One router among peers that the test scripts.

/// The answers of a peer that knows no other peers and stores every record.
inline result<wire::response> polite(const call_peer& asked) {
  if (const auto* find = std::get_if<wire::dht_find>(&asked.what))
    return wire::response{wire::dht_found{std::vector<wire::dht_found::answer>(find->keys.size())}};
  if (const auto* store = std::get_if<wire::dht_store>(&asked.what))
    return wire::response{wire::dht_stored{std::vector<ec>(store->records.size())}};
  return wire::response{wire::dht_pong{}};
}

struct surroundings {
  std::function<result<wire::response>(const call_peer&)> answer = polite;
  std::function<result<peer_record>(const endpoint&)> connect = [](const endpoint& where) {
    return result<peer_record>{failure{ec::unreachable, to_string(where) + ": refused"}};
  };
  bool hangs = false; // calls are never answered
  endpoint hangs_at;  // dials to it are never answered
  std::vector<caf::typed_response_promise<peer_connected>> hanging_dials;
  std::vector<caf::typed_response_promise<peer_answer>> hanging;
  std::vector<call_peer> calls;
  std::vector<steady_time> dials;
  link_listener_actor listener; // notified of dialled peers before the dialler is
};

inline switchboard_actor::behavior_type scripted_switchboard(switchboard_actor::pointer self,
                                                             std::shared_ptr<surroundings> world) {
  return {
    [self, world](const call_peer& msg) -> caf::result<peer_answer> {
      world->calls.push_back(msg);
      if (world->hangs) {
        world->hanging.push_back(self->make_response_promise<peer_answer>());
        return world->hanging.back();
      }
      auto answer = world->answer(msg);
      if (!answer)
        return to_caf(answer.error());
      return peer_answer{msg.to.id, *answer, {}};
    },
    [](const notify_peer&) {},
    [self, world](const connect_address& msg) -> caf::result<peer_connected> {
      world->dials.push_back(self->clock().now());
      if (msg.where == world->hangs_at) {
        world->hanging_dials.push_back(self->make_response_promise<peer_connected>());
        return world->hanging_dials.back();
      }
      auto peer = world->connect(msg.where);
      if (!peer)
        return to_caf(peer.error());
      if (world->listener)
        self->send(world->listener, peer_connected{*peer});
      return peer_connected{*peer};
    },
  };
}

class DhtRouter : public actor_test {
protected:
  void start(dht_config with = {}) {
    config = with;
    config.open_records = open_records;
    config.upkeep_interval = 1s;
    router = spawn<dht_router>(ctx, config, spawn(scripted_switchboard, world));
  }
  void SetUp() override { start(); }

  void connect(std::uint64_t seed) { tell(router, peer_connected{test_peer(seed)}); }
  /// With a link; `outbound`: we dialled the peer.
  void link(std::uint64_t seed, const std::string& host, bool outbound) {
    auto made = std::make_shared<hosted_link>(test_peer(seed), host, outbound);
    links[test_peer(seed).id] = made;
    ctx.links->set(test_peer(seed).id, made);
    connect(seed);
  }
  void disconnect(std::uint64_t seed, ec why) {
    tell(router, peer_disconnected{test_peer(seed).id, {why, {}}});
  }
  dht_status status() {
    return first_event<dht_status, subscribe_dht_status>(router).value_or(dht_status{});
  }
  /// After the next upkeep.
  double routing_entries() {
    pass(config.upkeep_interval);
    return exported(*ctx.metrics, "waggle_dht_routing_table_entries");
  }
  double records() {
    pass(config.upkeep_interval);
    return exported(*ctx.metrics, "waggle_dht_records{");
  }

  record open_record(std::string value, std::uint64_t sequence = 1,
                     std::chrono::nanoseconds life = 60s) const {
    record entry{.name = "greeting",
                 .subkey = "en",
                 .value = std::move(value),
                 .expiration = wall->now() + life,
                 .sequence = sequence};
    return entry;
  }
  /// The record of the peer with the identity of `seed`.
  record owned_record(std::uint64_t seed, std::string_view run = "test") const {
    auto entry = open_record("mine");
    entry.kind = record_kind::progress;
    sign_record(run, *identity::from_seed(seed), entry);
    return entry;
  }
  /// An application's, with the key of `seed`.
  record application_record(std::uint64_t seed, std::uint64_t sequence = 1) const {
    auto entry = open_record("v" + std::to_string(sequence), sequence);
    entry.kind = record_kind::owned;
    sign_record("test", *identity::from_seed(seed), entry);
    return entry;
  }
  find_records query(record_kind kind = record_kind::open) const {
    return {.kind = kind, .name = "greeting"};
  }

  /// The answer to an unknown peer's request.
  template <class Answer>
  Answer asked_by_peer(wire::request what, std::uint64_t seed = 2, const std::string& host = {}) {
    auto got = ask<outbound_answer>(router, inbound_call{test_peer(seed), std::move(what), host});
    if (!got) {
      ADD_FAILURE() << to_string(got.error());
      return {};
    }
    return std::get<Answer>(got->what);
  }
  double rejected(const std::string& reason) const {
    return exported(*ctx.metrics, "waggle_dht_records_rejected_total{reason=\"" + reason + "\"");
  }

  std::map<peer_id, std::shared_ptr<hosted_link>> links; // of `link`
  bool open_records = true;
  std::shared_ptr<surroundings> world = std::make_shared<surroundings>();
  node_context ctx = test_context(1, wall);
  dht_config config;
  wired_dht_router_actor router;
};

} // namespace waggle::testing
