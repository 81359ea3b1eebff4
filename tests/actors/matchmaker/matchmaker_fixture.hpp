#pragma once

// Matchmakers among other matchmakers and scripted peers, with one record table for all.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include "actors/averaging/matchmaker.hpp"
#include "runtime/dht/record_store.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/silent_service.hpp"

namespace waggle {

/// The requests of a peer's matchmaker, and the answers that it gets.
struct surroundings {
  peer_record self;
  std::map<peer_id, matchmaker_actor>* wired =
    nullptr; // calls and events for these peers are delivered automatically
  // For other peers. No answer: the peer is silent until the request times out.
  std::function<std::optional<result<wire::join_reply>>(const wire::join_group&)> peer_says;
  service_actor nobody; // answers nothing, as a silent peer
  std::vector<call_peer> calls;
  std::vector<notify_peer> told;
  std::vector<record> stored;
  record_store* table = nullptr; // the swarm's, with the rules of the real DHT
  bool finds = true;             // false: find_records is not answered
  std::vector<caf::typed_response_promise<found_records>> unanswered;
  std::shared_ptr<testing::manual_clock> wall;
};
using world = std::shared_ptr<surroundings>;

inline switchboard_actor::behavior_type fake_switchboard(switchboard_actor::pointer self,
                                                         world around) {
  return {
    [=](const call_peer& msg) -> caf::result<peer_answer> {
      around->calls.push_back(msg);
      auto promise = self->make_response_promise<peer_answer>();
      if (auto other = around->wired->find(msg.to.id); other != around->wired->end()) {
        self->request(other->second, msg.timeout, inbound_call{around->self, msg.what})
          .then(
            [=](const outbound_answer& a) mutable {
              promise.deliver(peer_answer{msg.to.id, a.what, {}});
            },
            [=](const caf::error& why) mutable { promise.deliver(why); });
        return promise;
      }
      const auto* join = std::get_if<wire::join_group>(&msg.what);
      auto says = join != nullptr && around->peer_says
                    ? around->peer_says(*join)
                    : std::optional{result<wire::join_reply>{failure{ec::unreachable, {}}}};
      if (says && says->ok())
        promise.deliver(peer_answer{msg.to.id, **says, {}});
      else if (says)
        promise.deliver(to_caf(says->error()));
      else
        self->request(around->nobody, msg.timeout, inbound_call{around->self, msg.what})
          .then([](const outbound_answer&) {},
                [=](const caf::error&) mutable { promise.deliver(to_caf(ec::timeout)); });
      return promise;
    },
    [=](const notify_peer& msg) {
      around->told.push_back(msg);
      if (auto other = around->wired->find(msg.to.id); other != around->wired->end())
        if (std::holds_alternative<wire::begin_group>(msg.what)
            || std::holds_alternative<wire::disband_group>(msg.what)
            || std::holds_alternative<wire::leave_group>(msg.what))
          self->send(other->second, inbound_event{around->self, msg.what, {}, nullptr});
    },
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
  };
}

inline dht_id key_of(const std::string& name) {
  return record_key("test", record_kind::group_member, name);
}

inline dht_router_actor::behavior_type fake_dht(dht_router_actor::pointer self, world around) {
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::not_ready); },
    [](const inbound_event&) {},
    [=](const store_record& msg) {
      around->stored.push_back(msg.entry);
      auto now = around->wall->now();
      auto verifier = make_plain_verifier();
      auto valid = validate_record("test", msg.entry, now, *verifier);
      auto code =
        valid ? around->table->put(key_of(msg.entry.name), msg.entry, now) : valid.error().code;
      return code == ec::none ? store_report{1, 0, 0, ec::none} : store_report{0, 1, 0, code};
    },
    [=](const find_records& msg) -> caf::result<found_records> {
      if (!around->finds) {
        around->unanswered.push_back(self->make_response_promise<found_records>());
        return around->unanswered.back();
      }
      record_merge merge;
      auto now = around->wall->now();
      for (const auto& entry : around->table->get(key_of(msg.name), now))
        merge.add(entry);
      return found_records{merge.live(now)};
    },
    [](const bootstrap_from&) {},
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
  };
}

class matchmaker_fixture : public testing::actor_test {
protected:
  struct peer {
    node_context ctx;
    world around;
    matchmaker_actor maker;
  };

  peer start(std::uint64_t seed, matchmaking_config config = {}) {
    peer p;
    p.ctx = testing::test_context(seed, wall);
    p.ctx.seed = seed_of_all.value_or(seed);
    p.ctx.log = log;
    p.ctx.record.client_mode = config.mode == member_mode::client;
    p.around = std::make_shared<surroundings>();
    p.around->self = p.ctx.record;
    p.around->wired = &wired;
    p.around->table = &table;
    p.around->wall = wall;
    p.around->nobody = spawn(testing::silent_service);
    auto board = spawn(fake_switchboard, p.around);
    auto dht = spawn(fake_dht, p.around);
    p.maker = spawn<matchmaker>(p.ctx, config, board, dht);
    return p;
  }
  peer wire_up(std::uint64_t seed, matchmaking_config config = {}) {
    auto p = start(seed, config);
    wired[p.ctx.record.id] = p.maker;
    return p;
  }
  void connect(const peer& a, const peer& b) {
    tell(a.maker, peer_connected{b.ctx.record});
    tell(b.maker, peer_connected{a.ctx.record});
  }
  static find_group search(milliseconds deadline = 10s, std::uint32_t expected = 0) {
    return {epoch_id{3}, {{100, codec_id::none}}, {}, deadline, expected};
  }
  pending<group_formed> find(const peer& p, find_group what) {
    return ask_later<group_formed>(p.maker, what);
  }
  result<wire::join_reply> join(const peer& p, const wire::join_group& what, std::uint64_t from) {
    auto answer = ask<outbound_answer>(p.maker, inbound_call{testing::test_peer(from), what});
    if (!answer)
      return answer.error();
    return std::get<wire::join_reply>(answer->what);
  }
  /// The bits of the bucket in which this peer declared itself last.
  static std::string bits_of(const peer& p) {
    constexpr std::string_view before = ".0b";
    for (auto entry = p.around->stored.rbegin(); entry != p.around->stored.rend(); ++entry)
      if (auto at = entry->name.find(before); at != std::string::npos)
        return entry->name.substr(at + before.size());
    return "?";
  }
  /// The request of a compatible peer.
  wire::join_group question(const peer& like, const matchmaking_config& config = {}) {
    auto probe = start(900, config);
    tell(probe.maker, peer_connected{like.ctx.record});
    ask_later<group_formed>(probe.maker, search(200ms));
    pass(300ms);
    EXPECT_FALSE(probe.around->calls.empty());
    auto what = std::get<wire::join_group>(probe.around->calls.at(0).what);
    what.expiration = wall->now() + 1h;
    return what;
  }
  template <class Event>
  static std::vector<Event> told(const peer& p) {
    std::vector<Event> out;
    for (const auto& msg : p.around->told)
      if (const auto* event = std::get_if<Event>(&msg.what))
        out.push_back(*event);
    return out;
  }

  std::map<peer_id, matchmaker_actor> wired;
  record_store table;
  std::optional<std::uint64_t> seed_of_all; // of the peers that start; none: each has its own
  std::ostringstream lines;                 // the log, at info and above
  std::shared_ptr<spdlog::logger> log = std::make_shared<spdlog::logger>(
    "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
};

} // namespace waggle
