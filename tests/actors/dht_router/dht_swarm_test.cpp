// Several routers over a simulated network.

#include <set>

#include <gmock/gmock.h>

#include "actors/discovery/dht_router.hpp"
#include "tests/support/network_test.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class DhtSwarm : public network_test {
protected:
  struct member {
    peer* who = nullptr;
    wired_dht_router_actor router;
  };

  /// A peer that joins through `through` (members' numbers).
  std::size_t join(const std::vector<std::size_t>& through, dht_config config = {},
                   const std::string& run_id = "test") {
    bootstrap_from order;
    for (auto other : through)
      order.addresses.push_back(net::sim_network::address_of(members[other].who->node));
    return join_at(order, config, run_id);
  }
  std::size_t join_at(bootstrap_from order, dht_config config = {},
                      const std::string& run_id = "test") {
    config.open_records = true;
    auto number = members.size();
    auto& who = add_peer(number + 1, {}, run_id);
    auto board = caf::actor_cast<switchboard_actor>(who.board);
    auto router = spawn<dht_router>(who.ctx, config, board);
    tell(who.board, serve{service_topic::dht, caf::actor_cast<service_actor>(router)});
    tell(who.board, listen_links{caf::actor_cast<link_listener_actor>(router)});
    members.push_back({&who, router});
    tell(router, order);
    return number;
  }
  /// `n` peers, each joining through the one before it.
  void chain(std::size_t n, dht_config config = {}) {
    for (std::size_t i = 0; i < n; ++i) {
      join(i == 0 ? std::vector<std::size_t>{} : std::vector{i - 1}, config);
      run_for(200ms);
    }
    run_for(2s);
  }
  void crash(std::size_t number, bool silently) {
    network.crash(members[number].who->node, silently);
    caf::anon_send_exit(members[number].router, caf::exit_reason::kill);
    caf::anon_send_exit(members[number].who->board, caf::exit_reason::kill);
    settle();
  }

  dht_status status(std::size_t number) {
    return first_event<dht_status, subscribe_dht_status>(members[number].router)
      .value_or(dht_status{});
  }
  /// After the next upkeep.
  double gauge(std::size_t number, const char* name) {
    run_for(dht_config{}.upkeep_interval);
    return exported(*members[number].who->ctx.metrics, name);
  }
  double routing_entries(std::size_t number) {
    return gauge(number, "waggle_dht_routing_table_entries");
  }
  result<store_report> store(std::size_t at, const std::string& name, const std::string& value) {
    store_record order;
    order.entry.name = name;
    order.entry.value = value;
    order.entry.sequence = 1;
    order.entry.expiration = wall->now() + std::chrono::minutes{60};
    return ask_for<store_report>(11s, members[at].router, order);
  }
  result<found_records> find(std::size_t at, const std::string& name, bool latest = true) {
    find_records question{.name = name, .latest = latest};
    return ask_for<found_records>(11s, members[at].router, question);
  }
  double hops(std::size_t at, const std::string& op) {
    return exported(*members[at].who->ctx.metrics, "waggle_dht_lookup_hops_sum{op=\"" + op + "\"");
  }

  std::vector<member> members;
};

TEST_F(DhtSwarm, StoresAtTheReplicasNearestToTheKeyAndNowhereElse) {
  dht_config config;
  config.replicas = 3;
  chain(12, config);
  auto report = store(5, "greeting", "hello");
  EXPECT_EQ(report->accepted, 3U);
  EXPECT_EQ(report->failed + report->rejected, 0U);
  auto key = record_key("test", record_kind::open, "greeting");
  std::vector<std::size_t> order(members.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return distance(key, members[a].who->id()) < distance(key, members[b].who->id());
  });
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    EXPECT_EQ(gauge(order[rank], "waggle_dht_records{"), rank < 3 ? 1 : 0) << "rank " << rank;
  for (std::size_t reader = 0; reader < members.size(); ++reader) {
    auto found = find(reader, "greeting", reader % 2 == 0);
    ASSERT_THAT(found->records, SizeIs(1)) << "reader " << reader;
    EXPECT_EQ(found->records[0].value, "hello");
  }
}

/// Routing tables so small that no peer knows all others.
dht_config narrow() {
  dht_config config;
  config.routing.bucket_size = 2;
  config.routing.depth_modulo = 1;
  config.search.beam = 4;
  config.search.workers = 2;
  config.replicas = 3;
  return config;
}

TEST_F(DhtSwarm, FindsOverSeveralHopsWhatNoneOfItsOwnPeersHolds) {
  chain(40, narrow());
  for (std::size_t i = 0; i < members.size(); ++i)
    EXPECT_LT(routing_entries(i), members.size() / 2) << "it knows most of the swarm";
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    auto name = "record " + std::to_string(i);
    auto report = store(i, name, "value " + std::to_string(i));
    EXPECT_EQ(report->accepted, 3U);
    auto reader = members.size() - 1 - i;
    auto before = hops(reader, "get");
    auto found = find(reader, name);
    ASSERT_THAT(found->records, SizeIs(1)) << name;
    EXPECT_EQ(found->records[0].value, "value " + std::to_string(i));
    deepest = std::max(deepest, static_cast<std::size_t>(hops(reader, "get") - before));
  }
  EXPECT_GE(deepest, 2U);
}

TEST_F(DhtSwarm, AfterAQuarterDiedSilentlyEverythingIsFoundAndTheDeadAreForgotten) {
  chain(16);
  for (std::size_t i = 0; i < 8; ++i)
    ASSERT_TRUE(store(i, "record " + std::to_string(i), "value"));
  for (std::size_t victim : {3U, 7U, 11U, 15U})
    crash(victim, true);
  for (std::size_t i = 0; i < 8; ++i) {
    auto found = find(i == 3 || i == 7 ? 0 : i, "record " + std::to_string(i));
    EXPECT_THAT(found->records, SizeIs(1)) << "record " << i;
  }
  // Regular lookups detect peers that have ended.
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < members.size(); ++i)
      if (i % 4 != 3) {
        ASSERT_TRUE(find(i, "something else " + std::to_string(round)));
      }
    run_for(10s);
  }
  for (std::size_t i = 0; i < members.size(); ++i)
    if (i % 4 != 3) {
      EXPECT_EQ(routing_entries(i), 11) << "peer " << i;
    }
}

TEST_F(DhtSwarm, ANewcomerWaitsForItsInitialPeerAndSaysWhyMeanwhile) {
  auto late = network.add_node("test", test_peer(100)); // its process is not running yet
  auto early = join_at({{net::sim_network::address_of(late)}});
  run_for(5s);
  EXPECT_FALSE(status(early).bootstrapped);
  ASSERT_THAT(status(early).bootstrap_failures, SizeIs(1));
  EXPECT_THAT(status(early).bootstrap_failures[0], HasSubstr("connection refused"));
  auto ctx = test_context(100, wall);
  ctx.record = network.record_of(late);
  auto board = spawn<switchboard>(ctx, switchboard_config{}, network.transport_of(late));
  listen({late, ctx, board});
  run_for(20s);
  EXPECT_TRUE(status(early).bootstrapped);
  EXPECT_THAT(status(early).bootstrap_failures, SizeIs(0));
}

TEST_F(DhtSwarm, TenThatJoinAtOneMomentKnowEachOtherWithinASecond) {
  dht_config config;
  config.upkeep_interval = 10ms; // entries are counted then
  join({}, config);
  for (int i = 0; i < 10; ++i)
    join({0}, config);
  auto know_all = [&] {
    return std::all_of(members.begin(), members.end(), [](const member& each) {
      return exported(*each.who->ctx.metrics, "waggle_dht_routing_table_entries") == 10;
    });
  };
  auto passed = 0ms;
  for (; !know_all() && passed < 10s; passed += 10ms)
    run_for(10ms);
  EXPECT_LE(passed, 300ms) << "links of 1 to 20 ms";
}

TEST_F(DhtSwarm, APeerWhoseAnnouncedPortIsClosedIsNamedToNobody) {
  join({});
  auto closed = join({0});
  auto record = members[closed].who->ctx.record;
  record.addresses = {{"nobody-listens-here", 7700}};
  network.transport_of(members[closed].who->node)->announce(record);
  run_for(1s);
  auto newcomer = join({0});
  run_for(10s);
  EXPECT_EQ(routing_entries(0), 2) << "both have a link with it";
  EXPECT_EQ(routing_entries(newcomer), 2) << "the other dialed it";
  EXPECT_EQ(
    exported(*members[newcomer].who->ctx.metrics,
             "waggle_dht_requests_total{direction=\"out\",op=\"find\",outcome=\"unreachable\""),
    0)
    << "it was not told of the peer that nobody reaches";
}

TEST_F(DhtSwarm, APeerOfAnotherRunIsNotJoinedAndNamedAsTheReason) {
  join({});
  auto stranger = join({0}, {}, "another run");
  run_for(5s);
  EXPECT_FALSE(status(stranger).bootstrapped);
  ASSERT_THAT(status(stranger).bootstrap_failures, SizeIs(1));
  EXPECT_THAT(status(stranger).bootstrap_failures[0], HasSubstr("another run"));
  EXPECT_EQ(routing_entries(0), 0);
}

TEST_F(DhtSwarm, ASplitHeals) {
  chain(6);
  std::set<net::sim_network::node_index> side{members[0].who->node, members[1].who->node,
                                              members[2].who->node};
  network.partition(side);
  run_for(60s);
  ASSERT_TRUE(store(0, "here", "1"));
  ASSERT_TRUE(store(5, "there", "2"));
  EXPECT_THAT(find(5, "here")->records, SizeIs(0));
  network.heal();
  run_for(120s);
  for (std::size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(routing_entries(i), 5) << "peer " << i;
    EXPECT_THAT(find(i, "here")->records, SizeIs(1)) << "peer " << i;
    EXPECT_THAT(find(i, "there")->records, SizeIs(1)) << "peer " << i;
  }
}

} // namespace
} // namespace waggle::testing
