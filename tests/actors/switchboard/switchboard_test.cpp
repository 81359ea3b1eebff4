#include "actors/switchboard.hpp"

#include <gmock/gmock.h>

#include "tests/support/network_test.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const endpoint nowhere{"nowhere", 1};

class Switchboard : public network_test {
protected:
  using network_test::network_test;

  /// A service of `who` that answers and records its calls.
  std::shared_ptr<received_by_service> serve_at(const peer& who, service_topic topic) {
    auto book = std::make_shared<received_by_service>();
    tell(who.board, serve{topic, spawn(recording_service, book)});
    return book;
  }
  std::shared_ptr<received_by_listener> listen_at(const peer& who) {
    auto book = std::make_shared<received_by_listener>();
    tell(who.board, listen_links{spawn(recording_link_listener, book)});
    return book;
  }
  static call_peer ping(const peer_record& whom, milliseconds timeout = 3s) {
    return {whom, wire::dht_ping{}, timeout};
  }
  static notify_peer leave(const peer_record& whom, std::string prefix) {
    return {whom, wire::leave_group{std::move(prefix)}, {}};
  }
  result<peer_answer> ask_peer(const peer& from, const peer& to) {
    return ask_for<peer_answer>(10s, from.board, ping(to.ctx.record));
  }
  std::size_t connections(const peer& who) {
    auto n = exported(*who.ctx.metrics, "waggle_network_connections{");
    return static_cast<std::size_t>(n);
  }
  std::vector<peer_id> connected(const peer& who) {
    std::vector<peer_id> ids;
    auto all = ask<connected_peers>(who.board, get_connected_peers{});
    if (all)
      for (const auto& p : all->peers)
        ids.push_back(p.id);
    return ids;
  }
};

// -- dialling ------------------------------------------------------------------------------------

TEST_F(Switchboard, DialsAPeerThatIsAskedAndKeepsTheLink) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto dht = serve_at(bob, service_topic::dht);
  auto answer = ask_peer(ann, bob);
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->from, bob.id());
  EXPECT_EQ(dht->calls.at(0).from.id, ann.id());
  EXPECT_EQ(dht->calls.at(0).from.addresses, ann.ctx.record.addresses);
  ASSERT_TRUE(ask_peer(ann, bob));
  EXPECT_EQ(connections(ann), 1U);
  EXPECT_EQ(connected(bob), std::vector{ann.id()});
}

TEST_F(Switchboard, TriesAllAddressesInTurn) {
  auto& ann = add_peer(1);
  auto& eve = add_peer(3);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  auto record = bob.ctx.record;
  auto right = record.addresses.front();
  record.addresses = {nowhere, eve.ctx.record.addresses.front(), right};
  auto answer = ask_for<peer_answer>(10s, ann.board, ping(record));
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->from, bob.id());
  EXPECT_EQ(connected(eve), std::vector<peer_id>{}) << "another peer has that address";
}

TEST_F(Switchboard, FailsWithTheReasonOfTheLastAddress) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& other_run = add_peer(3, {}, "another run");
  auto& eve = add_peer(4);
  network.crash(bob.node);
  auto record = bob.ctx.record;
  auto closed = record.addresses.front();
  const std::pair<endpoint, ec> cases[] = {
    {closed, ec::unreachable},
    {nowhere, ec::unreachable},
    {other_run.ctx.record.addresses.front(), ec::wrong_run},
    {eve.ctx.record.addresses.front(), ec::bad_signature},
    {ann.ctx.record.addresses.front(), ec::duplicate_identity},
  };
  for (const auto& [last, expected] : cases) {
    record.addresses = {nowhere, last};
    auto answer = ask_for<peer_answer>(10s, ann.board, ping(record));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, expected) << to_string(answer.error());
    EXPECT_THAT(answer.error().detail, HasSubstr(to_string(last)));
  }
}

TEST_F(Switchboard, CannotReachAPeerWithoutAnAddress) {
  auto& ann = add_peer(1);
  auto nobody = test_peer(2);
  nobody.addresses.clear();
  auto answer = ask<peer_answer>(ann.board, ping(nobody));
  EXPECT_EQ(answer.error().code, ec::unreachable);
  tell(ann.board, leave(nobody, "dropped"));
  EXPECT_EQ(ask<peer_answer>(ann.board, ping(test_peer(2), 0ms)).error().code, ec::timeout);
}

TEST_F(Switchboard, EverythingThatWaitsForOneDialGoesOverItsLinkInOrder) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto dht = serve_at(bob, service_topic::dht);
  auto groups = serve_at(bob, service_topic::matchmaking);
  std::vector<pending<peer_answer>> asked;
  for (int i = 0; i < 10; ++i) {
    asked.push_back(ask_later<peer_answer>(ann.board, ping(bob.ctx.record)));
    tell(ann.board, leave(bob.ctx.record, std::to_string(i)));
  }
  run_for(1s);
  for (const auto& each : asked)
    EXPECT_TRUE(each.get());
  ASSERT_EQ(groups->events.size(), 10U);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(std::get<wire::leave_group>(groups->events[i].what).prefix, std::to_string(i));
  EXPECT_EQ(connections(ann), 1U);
}

TEST_F(Switchboard, RefusesWhatIsTooMuchToWait) {
  switchboard_config config;
  config.waiting_max = 2;
  auto& ann = add_peer(1, config);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  auto first = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  auto second = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  auto third = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third.get().error().code, ec::overloaded);
  run_for(1s);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

// Each caller has its own timeout.
TEST_F(Switchboard, EachCallThatWaitsForADialHasItsOwnDeadline) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({ann.node});
  auto patient = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 4s));
  auto hasty = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 500ms));
  run_for(499ms);
  EXPECT_FALSE(hasty.answered());
  run_for(1ms);
  ASSERT_TRUE(hasty.answered());
  EXPECT_EQ(hasty.get().error().code, ec::timeout);
  EXPECT_FALSE(patient.answered());
  run_for(4s);
  ASSERT_TRUE(patient.answered());
  EXPECT_EQ(patient.get().error().code, ec::timeout);
}

TEST_F(Switchboard, ACallThatJoinsAnImpatientDialStillGetsItsTime) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({ann.node});
  auto record = bob.ctx.record;
  auto address = record.addresses.front();
  record.addresses = {address, address};
  auto hasty = ask_later<peer_answer>(ann.board, ping(record, 500ms));
  auto patient = ask_later<peer_answer>(ann.board, ping(record, 4s));
  run_for(400ms);
  network.heal();
  run_for(3s);
  EXPECT_EQ(hasty.get().error().code, ec::timeout);
  EXPECT_TRUE(patient.get()) << "the second address was not tried";
}

TEST_F(Switchboard, UsesTheConnectionThatThePeerMakesWhileWeDial) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({bob.node});
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 4s));
  run_for(10ms);
  network.heal(); // our dial is lost nevertheless
  ASSERT_TRUE(
    ask_for<peer_connected>(1s, bob.board, connect_address{ann.ctx.record.addresses.front(), 1s}));
  run_for(200ms);
  ASSERT_TRUE(asked.answered()) << "it waits for its own dial";
  EXPECT_TRUE(asked.get());
}

// -- one link per peer ---------------------------------------------------------------------------

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
  static net::sim_network::options slow() {
    net::sim_network::options options;
    options.bytes_per_second = 100'000;
    return options;
  }
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
  switchboard_config config;
  config.stranger_links_max = 1;
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
  switchboard_config config;
  config.links_max = 6;
  config.stranger_links_max = 3;
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
    1s, ann.board, connect_address{initial.ctx.record.addresses.front(), 1s, true}));
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

TEST_F(Switchboard, DialsNoMorePeersAtOnceThanAGroupHas) {
  switchboard_config config;
  config.dials_max = 2;
  auto& ann = add_peer(1, config);
  auto ask_dead = [&](std::uint64_t seed) {
    auto record = test_peer(seed);
    record.addresses = {nowhere};
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

TEST_F(Switchboard, DialsOnlyAnnouncedAddressesThatItMay) {
  switchboard_config config;
  config.announced_addresses = net::dial_policy{{{"0.0.0.0", 7700}}};
  auto& ann = add_peer(1, config);
  auto& bob = add_peer(2); // has a name
  serve_at(bob, service_topic::dht);
  EXPECT_EQ(ask_peer(ann, bob).error().code, ec::unreachable);
  auto named = bob.ctx.record.addresses.front();
  EXPECT_EQ(ask_for<peer_connected>(1s, ann.board, connect_address{named, 1s}).error().code,
            ec::unreachable);
  EXPECT_TRUE(ask_for<peer_connected>(1s, ann.board, connect_address{named, 1s, true}))
    << "the operator named it";
}

// -- two processes with one identity ------------------------------------------------------------

class SwitchboardOfAnIdentity : public Switchboard {
protected:
  /// A process with the identity of the second peer, connected to `ann`, which notifies `heard`.
  peer& process() {
    auto& made = add_peer(2);
    connect(made);
    return made;
  }
  void connect(peer& who) {
    EXPECT_TRUE(ask_for<peer_connected>(1s, who.board,
                                        connect_address{ann.ctx.record.addresses.front(), 1s}));
    run_for(50ms);
  }

  peer& ann = add_peer(1);
  std::shared_ptr<received_by_listener> heard = listen_at(ann);
};

TEST_F(SwitchboardOfAnIdentity, TheSecondIsRefusedWhileTheFirstLives) {
  for (bool serves : {false, true}) { // a refusal is a sign of life, too
    SCOPED_TRACE(serves);
    auto& first = process();
    if (serves)
      serve_at(first, service_topic::dht);
    auto before = heard->connected.size();
    auto& second = add_peer(2);
    auto received_by_second = listen_at(second);
    connect(second);
    run_for(1s);
    ASSERT_EQ(received_by_second->disconnected.size(), 1U);
    EXPECT_EQ(received_by_second->disconnected[0].why.code, ec::duplicate_identity);
    EXPECT_THAT(received_by_second->disconnected[0].why.detail,
                HasSubstr("another process uses this identity: give each its own --data-dir"));
    EXPECT_EQ(connected(second), std::vector<peer_id>{});
    EXPECT_EQ(connected(first), std::vector{ann.id()});
    EXPECT_EQ(connections(ann), 1U);
    EXPECT_EQ(heard->connected.size(), before);
    EXPECT_EQ(heard->disconnected.size(), before - 1);
    network.crash(first.node);
    run_for(100ms);
  }
  EXPECT_EQ(
    exported(*ann.ctx.metrics, "waggle_network_refused_total{reason=\"duplicate_identity\""), 2);
}

TEST_F(SwitchboardOfAnIdentity, APeerThatWasStartedAgainWaitsForTheSilenceOfItsOldLinkOnly) {
  auto& first = process();
  network.crash(first.node, true);
  auto& second = add_peer(2);
  auto dht = serve_at(second, service_topic::dht);
  connect(second);
  EXPECT_EQ(heard->connected.size(), 1U) << "the old link may still be alive";
  run_for(switchboard_config{}.identity_timeout);
  ASSERT_EQ(heard->disconnected.size(), 1U);
  EXPECT_EQ(heard->disconnected[0].why.code, ec::peer_lost);
  EXPECT_EQ(heard->connected.size(), 2U) << "listeners are notified again";
  EXPECT_EQ(connected(second), std::vector{ann.id()});
  ASSERT_TRUE(ask_peer(ann, second));
  EXPECT_EQ(dht->calls.size(), 1U);
  run_for(1min);
  EXPECT_EQ(heard->disconnected.size(), 1U);
  EXPECT_EQ(connections(ann), 1U);
}

TEST_F(SwitchboardOfAnIdentity,
       APeerThatWasStartedAgainComesInAtOnceWhenItsOldLinkIsKnownToBeDead) {
  auto& first = process();
  network.crash(first.node);
  run_for(50ms);
  auto& second = process();
  EXPECT_EQ(heard->connected.size(), 2U);
  network.crash(second.node, true);
  auto& third = process();
  EXPECT_EQ(heard->connected.size(), 2U);
  network.reset_links(ann.node, second.node); // while it is asked
  run_for(50ms);
  EXPECT_EQ(heard->connected.size(), 3U);
  EXPECT_EQ(heard->disconnected.size(), 2U);
  run_for(2s); // the request has timed out; it was for the earlier link
  EXPECT_EQ(connected(third), std::vector{ann.id()});
  EXPECT_EQ(heard->disconnected.size(), 2U);
}

TEST_F(SwitchboardOfAnIdentity, OnlyTheNewestOfThoseThatWaitIsKept) {
  auto& first = process();
  network.crash(first.node, true);
  auto& second = process();
  auto& third = process();
  run_for(switchboard_config{}.identity_timeout + 100ms);
  EXPECT_EQ(connected(second), std::vector<peer_id>{});
  EXPECT_EQ(connected(third), std::vector{ann.id()});
  EXPECT_EQ(connections(ann), 1U);
}

TEST_F(SwitchboardOfAnIdentity, WhoeverWaitsIsSentAwayAtTheEnd) {
  auto& first = process();
  network.crash(first.node, true);
  auto& second = process();
  tell(ann.board, hang_up{});
  run_for(100ms);
  EXPECT_EQ(connected(second), std::vector<peer_id>{});
  run_for(2s);
  EXPECT_EQ(heard->connected.size(), 1U);
}

// -- bootstrap dials -----------------------------------------------------------------------------

TEST_F(Switchboard, TellsWhoLivesAtAnAddress) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto up =
    ask_for<peer_connected>(1s, ann.board, connect_address{bob.ctx.record.addresses.front(), 1s});
  ASSERT_TRUE(up) << to_string(up.error());
  EXPECT_EQ(up->peer.id, bob.id());
  EXPECT_EQ(connected(ann), std::vector{bob.id()});
}

TEST_F(Switchboard, TellsWhyNobodyIsReachedAtAnAddress) {
  auto& ann = add_peer(1);
  auto& other_run = add_peer(2, {}, "another run");
  const std::pair<endpoint, ec> cases[] = {
    {nowhere, ec::unreachable},
    {other_run.ctx.record.addresses.front(), ec::wrong_run},
    {ann.ctx.record.addresses.front(), ec::duplicate_identity},
  };
  for (const auto& [where, expected] : cases) {
    auto up = ask_for<peer_connected>(1s, ann.board, connect_address{where, 1s});
    ASSERT_FALSE(up);
    EXPECT_EQ(up.error().code, expected);
    EXPECT_THAT(up.error().detail, HasSubstr(to_string(where)));
  }
  network.partition({ann.node});
  auto slow = ask_later<peer_connected>(
    ann.board, connect_address{other_run.ctx.record.addresses.front(), 800ms});
  run_for(799ms);
  EXPECT_FALSE(slow.answered());
  run_for(2ms);
  EXPECT_EQ(slow.get().error().code, ec::timeout);
}

// -- routing -------------------------------------------------------------------------------------

TEST_F(Switchboard, RoutesByTopicAlsoToServicesThatComeLater) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto early = ask_peer(ann, bob);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, ec::not_ready) << "no service is registered yet";
  auto dht = serve_at(bob, service_topic::dht);
  auto state = serve_at(bob, service_topic::state);
  ASSERT_TRUE(ask_peer(ann, bob));
  ASSERT_TRUE(ask_for<peer_answer>(1s, ann.board, call_peer{bob.ctx.record, wire::open_state{}}));
  EXPECT_EQ(dht->calls.size(), 1U);
  EXPECT_EQ(state->calls.size(), 1U);
  wire::join_group join;
  join.self = ann.ctx.record;
  auto unserved = ask_for<peer_answer>(1s, ann.board, call_peer{bob.ctx.record, join});
  EXPECT_EQ(unserved.error().code, ec::not_ready);
}

TEST_F(Switchboard, PassesARefusalAndItsReasonOn) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->answer = failure{ec::rate_limited, "slowly"};
  EXPECT_EQ(ask_peer(ann, bob).error(), (failure{ec::rate_limited, "slowly"}));
}

TEST_F(Switchboard, ACallToAServiceThatNeverAnswersEndsAtItsDeadline) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->silent = true;
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 2s));
  run_for(1'900ms);
  EXPECT_FALSE(asked.answered());
  run_for(200ms);
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::timeout);
}

// -- listeners -----------------------------------------------------------------------------------

TEST_F(Switchboard, TellsListenersOnceWhoCameAndWhoWentAndWhy) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  auto& joe = add_peer(4);
  auto heard = listen_at(ann);
  for (auto* other : {&bob, &eve, &joe})
    ASSERT_TRUE(ask_for<peer_connected>(1s, other->board,
                                        connect_address{ann.ctx.record.addresses.front(), 1s}));
  auto late = listen_at(ann);
  EXPECT_EQ(heard->connected.size(), 3U);
  EXPECT_EQ(late->connected.size(), 3U) << "it is notified of connected peers";
  network.crash(bob.node);
  network.crash(eve.node, true);
  tell(joe.board, hang_up{});
  run_for(10s);
  for (const auto& book : {heard, late}) {
    ASSERT_EQ(book->disconnected.size(), 3U);
    std::map<peer_id, ec> reasons;
    for (const auto& gone : book->disconnected)
      reasons[gone.peer] = gone.why.code;
    EXPECT_EQ(reasons[bob.id()], ec::peer_lost);
    EXPECT_EQ(reasons[eve.id()], ec::timeout);
    EXPECT_EQ(reasons[joe.id()], ec::shutting_down);
  }
  EXPECT_EQ(connected(ann), std::vector<peer_id>{});
  EXPECT_EQ(connections(ann), 0U);
}

TEST_F(Switchboard, HearsOfAPeerAgainWhenItComesBack) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto heard = listen_at(ann);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  network.reset_links(ann.node, bob.node);
  run_for(1s);
  EXPECT_EQ(heard->disconnected.size(), 1U);
  ASSERT_TRUE(ask_peer(ann, bob));
  EXPECT_EQ(heard->connected.size(), 2U);
}

TEST_F(Switchboard, OpenCallsEndWhenThePeerIsLost) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->silent = true;
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 10s));
  run_for(500ms);
  network.crash(bob.node);
  run_for(500ms);
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::peer_lost);
}

// -- shutdown ------------------------------------------------------------------------------------

TEST_F(Switchboard, AfterHangingUpItNeitherDialsNorAccepts) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  serve_at(ann, service_topic::dht);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  auto under_way = ask_later<peer_answer>(ann.board, ping(eve.ctx.record));
  tell(ann.board, hang_up{});
  run_for(1s);
  ASSERT_TRUE(under_way.answered());
  EXPECT_EQ(under_way.get().error().code, ec::shutting_down);
  EXPECT_EQ(connected(ann), std::vector<peer_id>{});
  EXPECT_EQ(connected(bob), std::vector<peer_id>{});
  EXPECT_EQ(connected(eve), std::vector<peer_id>{});
  EXPECT_EQ(ask_peer(ann, bob).error().code, ec::unreachable);
  EXPECT_EQ(ask<peer_connected>(ann.board, connect_address{bob.ctx.record.addresses.front(), 1s})
              .error()
              .code,
            ec::shutting_down);
  EXPECT_FALSE(ask_peer(bob, ann));
}

TEST_F(Switchboard, TakesItsLinksAlongWhenItEnds) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto heard = listen_at(bob);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  caf::anon_send_exit(ann.board, caf::exit_reason::user_shutdown);
  run_for(1s);
  EXPECT_FALSE(alive(ann.board));
  ASSERT_EQ(heard->disconnected.size(), 1U);
  EXPECT_EQ(connected(bob), std::vector<peer_id>{});
}

} // namespace
} // namespace waggle::testing
