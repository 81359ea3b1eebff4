// How many links a switchboard has, with whom, and which one of two is used.

#include "tests/actors/switchboard/switchboard_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(Switchboard, TwoThatDialEachOtherAtOnceEndWithOneConnectionAndLoseNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto& ann = add_peer(100 + seed);
    auto& bob = add_peer(200 + seed);
    auto ann_received = listen_at(ann);
    auto bob_received = listen_at(bob);
    auto at_ann = serve_at(ann, service_topic::matchmaking);
    auto at_bob = serve_at(bob, service_topic::matchmaking);
    serve_at(ann, service_topic::dht);
    serve_at(bob, service_topic::dht);
    // Both keep sending while connections open and close.
    std::vector<pending<peer_answer>> asked;
    constexpr int rounds = 60;
    for (int i = 0; i < rounds; ++i) {
      asked.push_back(ask_later<peer_answer>(ann.board, ping(bob.ctx.record)));
      asked.push_back(ask_later<peer_answer>(bob.board, ping(ann.ctx.record)));
      tell(ann.board, leave(bob.ctx.record, "a"));
      tell(bob.board, leave(ann.ctx.record, "b"));
      run_for(2ms);
    }
    run_for(link_config{}.unused_for + 5s);
    for (const auto& each : asked)
      EXPECT_TRUE(each.get()) << to_string(each.get().error());
    EXPECT_EQ(at_ann->events.size(), static_cast<std::size_t>(rounds));
    EXPECT_EQ(at_bob->events.size(), static_cast<std::size_t>(rounds));
    EXPECT_EQ(connections(ann), 1U);
    EXPECT_EQ(connections(bob), 1U);
    for (const auto& heard : {ann_received, bob_received}) {
      EXPECT_EQ(heard->connected.size(), 1U);
      EXPECT_TRUE(heard->disconnected.empty());
    }
  }
}

TEST_F(Switchboard, ANewerConnectionReplacesAnOlderOneOnceNobodyUsesThat) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto dht = serve_at(bob, service_topic::dht);
  auto heard = listen_at(bob);
  dht->silent = true;
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 20s));
  run_for(100ms);
  ASSERT_EQ(dht->calls.size(), 1U);
  ASSERT_TRUE(
    ask_for<peer_connected>(1s, ann.board, connect_address{bob.ctx.record.addresses.front(), 1s}));
  run_for(15s);
  EXPECT_EQ(connections(ann), 2U) << "a call is open on the older one";
  tell(dht->service, answer_kept_calls{});
  run_for(link_config{}.unused_for + 2s);
  EXPECT_TRUE(asked.get());
  EXPECT_EQ(connections(ann), 1U);
  EXPECT_EQ(connections(bob), 1U);
  EXPECT_EQ(heard->connected.size(), 1U);
  EXPECT_TRUE(heard->disconnected.empty());
}

/// A megabyte takes ten seconds.
class SwitchboardOnASlowLine : public Switchboard {
protected:
  SwitchboardOnASlowLine() : Switchboard(slow()) {}
  static net::sim_network::options slow() { return {.bytes_per_second = 100'000}; }
};

// As in the first round of two peers that found each other at the same time.
TEST_F(SwitchboardOnASlowLine, WhatWasSentOverASurplusConnectionArrives) {
  wire::part part;
  part.round.bytes[0] = std::byte{1};
  std::vector<std::byte> values(1'000'000, std::byte{7});
  part.count = static_cast<std::uint32_t>(values.size() / sizeof(float));
  constexpr std::size_t parts = 40;
  int surplus_used = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto before = network.body_bytes_delivered();
    auto& ann = add_peer(100 + seed);
    auto& bob = add_peer(200 + seed);
    auto heard = listen_at(ann);
    // Both dial; each sends over the connection that it has first.
    for (auto [from, to] : {std::pair{&ann, &bob}, std::pair{&bob, &ann}}) {
      from->ctx.rounds->finish(part.round, {}, {}); // accepts parts and drops them
      for (std::size_t i = 0; i < parts; ++i)
        tell(from->board, notify_peer{to->ctx.record, part, copy_to_payload(values)});
    }
    run_for(200ms);
    EXPECT_EQ(connections(ann), 2U) << "they did not dial each other at once";
    run_for(1min);
    EXPECT_LT(network.body_bytes_delivered() - before, parts * values.size())
      << "the link is not slow";
    surplus_used += connections(ann) == 2U;
    run_for(10min);
    EXPECT_EQ(network.body_bytes_delivered() - before, 2 * parts * values.size());
    EXPECT_EQ(connections(ann), 1U);
    EXPECT_EQ(connections(bob), 1U);
    EXPECT_TRUE(heard->disconnected.empty());
  }
  EXPECT_GT(surplus_used, 0) << "everything was sent over the other one at once";
}

TEST_F(Switchboard, APeerWhoseAddressesChangeSaysSoOverItsLinks) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto at_ann = serve_at(ann, service_topic::dht);
  auto heard = listen_at(ann);
  ASSERT_TRUE(ask_peer(bob, ann));
  ASSERT_EQ(heard->connected, std::vector{bob.ctx.record});
  auto moved = bob.ctx.record;
  moved.addresses = {{"10.0.0.2", 7700}};
  auto change = [this](const peer& who, const peer_record& now) {
    tell(caf::actor_cast<link_owner_actor>(who.board), record_changed{now});
  };
  change(bob, moved);
  run_for(100ms);
  EXPECT_EQ(heard->connected, (std::vector{bob.ctx.record, moved}));
  ASSERT_TRUE(ask_peer(bob, ann));
  EXPECT_EQ(at_ann->calls.back().from, moved) << "nobody goes on with the record of the handshake";
  change(bob, moved);
  run_for(100ms);
  EXPECT_THAT(heard->connected, SizeIs(2)) << "it is no news";
  EXPECT_TRUE(heard->disconnected.empty());
}

TEST_F(Switchboard, OnePeerGetsOnlyAFewConnections) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto heard = listen_at(ann);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(ask_for<peer_connected>(1s, bob.board,
                                        connect_address{ann.ctx.record.addresses.front(), 1s}));
    run_for(100ms);
    EXPECT_LE(connections(ann), switchboard_config{}.links_per_peer_max);
  }
  EXPECT_GT(exported(*ann.ctx.metrics, "waggle_network_refused_total{reason=\"overloaded\""), 0);
  EXPECT_TRUE(heard->disconnected.empty());
}

// The connection that both used breaks before the other one has ended.
TEST_F(Switchboard, ASurplusConnectionStaysIfItIsTheLastOne) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  std::vector<std::shared_ptr<net::link>> at_ann;
  (void)network.transport_of(ann.node)->listen({}, [&](std::shared_ptr<net::link> link) {
    at_ann.push_back(link);
    caf::anon_send(ann.board, link_arrived{std::move(link)});
  });
  auto heard = listen_at(ann);
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(ask_for<peer_connected>(1s, bob.board,
                                        connect_address{ann.ctx.record.addresses.front(), 1s}));
  run_for(1s);
  ASSERT_EQ(connections(ann), 2U);
  at_ann.back()->close({ec::peer_lost, "broken"});
  run_for(1min);
  EXPECT_EQ(connections(ann), 1U);
  EXPECT_TRUE(heard->disconnected.empty());
}

TEST_F(Switchboard, RefusesConnectionsOverItsLimit) {
  switchboard_config config{.stranger_links_max = 1};
  auto& ann = add_peer(1, config);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  auto losses = listen_at(eve);
  serve_at(ann, service_topic::dht);
  ASSERT_TRUE(ask_peer(bob, ann));
  auto refused = ask_peer(eve, ann);
  EXPECT_FALSE(refused);
  EXPECT_EQ(connected(ann), std::vector{bob.id()});
  EXPECT_EQ(connected(eve), std::vector<peer_id>{});
  EXPECT_EQ(exported(*ann.ctx.metrics, "waggle_network_refused_total{reason=\"overloaded\""), 1);
  EXPECT_EQ(losses->disconnected.at(0).why.code, ec::overloaded) << "it is told";
}

TEST_F(Switchboard, WhatItDialsAndWithWhomItAveragesHasRoomWhateverStrangersDo) {
  switchboard_config config{.links_max = 6, .stranger_links_max = 3};
  auto& ann = add_peer(1, config);
  auto& member = add_peer(2);
  auto& initial = add_peer(3);
  serve_at(ann, service_topic::dht);
  serve_at(initial, service_topic::dht);
  auto plan = plan_for(2);
  plan.members[1].peer = member.ctx.record;
  begin_round(ann.ctx, plan);
  for (std::uint64_t n = 10; n < 30; ++n)
    (void)ask_peer(add_peer(n), ann);
  EXPECT_THAT(connected(ann), SizeIs(3));
  EXPECT_TRUE(ask_for<peer_connected>(
    1s, ann.board,
    connect_address{initial.ctx.record.addresses.front(), 1s, endpoint{"initial", 1}}));
  EXPECT_TRUE(ask_peer(member, ann));
  EXPECT_THAT(connected(ann), ::testing::IsSupersetOf({member.id(), initial.id()}));
  // Also if the links of strangers had filled everything: one of them makes room.
  for (std::uint64_t n = 40; n < 46; ++n) {
    auto& stranger = add_peer(n);
    serve_at(stranger, service_topic::dht);
    EXPECT_TRUE(ask_peer(ann, stranger)) << "our own dials";
  }
  EXPECT_THAT(connected(ann), SizeIs(::testing::Le(6U)));
  EXPECT_THAT(connected(ann), ::testing::IsSupersetOf({member.id(), initial.id()}));
  // The peer at the operator's address is known, whoever dials.
  network.reset_links(ann.node, initial.node);
  run_for(1s);
  EXPECT_TRUE(ask_peer(initial, ann));
  EXPECT_GT(exported(*ann.ctx.metrics, "waggle_network_refused_total{reason=\"overloaded\""), 0);
}

TEST_F(Switchboard, WhoeverALookupFindsTakesThePlaceOfOthersThatOneFoundOnly) {
  switchboard_config config{.links_max = 8, .dialled_strangers_max = 2};
  auto& ann = add_peer(1, config);
  auto& newcomer = add_peer(2);
  serve_at(ann, service_topic::dht);
  ASSERT_TRUE(ask_peer(newcomer, ann));
  for (std::uint64_t n = 10; n < 20; ++n) {
    auto& found = add_peer(n);
    serve_at(found, service_topic::dht);
    EXPECT_TRUE(ask_peer(ann, found)) << n;
    EXPECT_THAT(connected(ann), SizeIs(::testing::Le(3U)));
  }
  EXPECT_THAT(connected(ann), ::testing::IsSupersetOf({newcomer.id(), test_peer(19).id}));
}

TEST_F(Switchboard, DialsNoMorePeersAtOnceThanAGroupHas) {
  switchboard_config config{.dials_max = 2};
  auto& ann = add_peer(1, config);
  auto ask_dead = [&](std::uint16_t seed) {
    auto record = test_peer(seed);
    record.addresses = {{"nowhere", seed}};
    return ask_later<peer_answer>(ann.board, ping(record));
  };
  auto first = ask_dead(11);
  auto second = ask_dead(12);
  auto third = ask_dead(13);
  settle();
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third.get().error().code, ec::unreachable);
  EXPECT_EQ(exported(*ann.ctx.metrics, "waggle_network_dial_errors_total{reason=\"overloaded\""),
            1);
  run_for(2s);
  auto later = ask_dead(14);
  EXPECT_FALSE(later.answered());
}

TEST_F(Switchboard, CountsEachAddressThatItTries) {
  switchboard_config config{.dials_max = 3};
  auto& ann = add_peer(1, config);
  auto ask_dead = [&](std::uint64_t seed, std::vector<endpoint> addresses) {
    auto record = test_peer(seed);
    record.addresses = std::move(addresses);
    return ask_later<peer_answer>(ann.board, ping(record, 10s));
  };
  auto refused = [&](const char* why) {
    auto name = std::string{"waggle_network_dial_errors_total{reason=\""} + why + "\"";
    return exported(*ann.ctx.metrics, name);
  };
  auto many = ask_dead(11, {{"a", 1}, {"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  run_for(1ms);
  EXPECT_FALSE(many.answered()) << "the fourth address has to wait";
  auto another = ask_dead(12, {{"e", 1}});
  settle();
  ASSERT_TRUE(another.answered());
  EXPECT_EQ(refused("overloaded"), 1);
  run_for(1'500ms);
  ASSERT_TRUE(many.answered());
  EXPECT_THAT(many.get().error().detail, HasSubstr("d:1"));
}

TEST_F(Switchboard, TriesAnAddressOfManyNamesOnce) {
  auto& ann = add_peer(1);
  auto& silent = add_peer(2);
  network.partition({silent.node});
  auto ask_as = [&](std::uint64_t seed) {
    auto record = test_peer(seed);
    record.addresses = silent.ctx.record.addresses;
    return ask_later<peer_answer>(ann.board, ping(record, 10s));
  };
  auto first = ask_as(11);
  run_for(4s);
  auto second = ask_as(12);
  EXPECT_FALSE(first.answered());
  run_for(1'500ms);
  EXPECT_EQ(first.get().error().code, ec::timeout);
  EXPECT_EQ(second.get().error().code, ec::timeout) << "of the first, for which it has waited";
  auto third = ask_as(13);
  settle();
  EXPECT_EQ(third.get().error().code, ec::unreachable) << "not dialled";
  run_for(5s);
  auto fourth = ask_as(14);
  settle();
  EXPECT_FALSE(fourth.answered()) << "that was long ago";
}

TEST_F(Switchboard, DialsOnlyAnnouncedAddressesThatItMay) {
  switchboard_config config{.announced_addresses = net::dial_policy{{{"0.0.0.0", 7700}}}};
  auto& ann = add_peer(1, config);
  auto& bob = add_peer(2); // has a name
  serve_at(bob, service_topic::dht);
  EXPECT_EQ(ask_peer(ann, bob).error().code, ec::unreachable);
  auto named = bob.ctx.record.addresses.front();
  EXPECT_EQ(ask_for<peer_connected>(1s, ann.board, connect_address{named, 1s}).error().code,
            ec::unreachable);
  EXPECT_TRUE(ask_for<peer_connected>(1s, ann.board, connect_address{named, 1s, named}))
    << "the operator named it";
}

} // namespace
} // namespace waggle::testing
