// Whether other peers reach this one: what a router asks, answers, and does about it.

#include "tests/actors/dht_router/dht_router_fixture.hpp"

namespace waggle::testing {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class DhtReach : public DhtRouter {
protected:
  void SetUp() override {
    dht_config with;
    with.reach.may_become_client = true;
    with.reach.announce = [this](peer_record self) { announced.push_back(std::move(self)); };
    world->answer = [this](const call_peer& asked) -> result<wire::response> {
      if (const auto* wanted = std::get_if<wire::dial_back>(&asked.what)) {
        asked_ports = wanted->ports;
        return wire::response{wire::dialled_back{outcome}};
      }
      return polite(asked);
    };
    start(with);
  }

  /// The peers that others are told of.
  std::vector<peer_record> named(std::uint64_t asker = 9) {
    return asked_by_peer<wire::dht_found>(wire::dht_find{{dht_id{}}, true}, asker)
      .answers.at(0)
      .nearest;
  }

  ec outcome = ec::unreachable;
  std::vector<std::uint16_t> asked_ports;
  std::vector<peer_record> announced;
};

TEST_F(DhtReach, APeerThatNobodyReachesBecomesAClientAndSaysHowToEndThat) {
  link(2, "10.0.0.2", true);
  pass(1s);
  EXPECT_EQ(asked_ports, std::vector<std::uint16_t>{7700});
  EXPECT_TRUE(ctx.is_client());
  EXPECT_EQ(ctx.mode(member_mode::node), member_mode::client);
  EXPECT_EQ(ctx.mode(member_mode::auxiliary), member_mode::auxiliary);
  ASSERT_THAT(announced, SizeIs(1));
  EXPECT_TRUE(announced[0].client_mode);
  EXPECT_THAT(announced[0].addresses, IsEmpty());
  auto joining = status();
  EXPECT_THAT(text_of(joining.notices), HasSubstr("no other peer reaches this one"));
  EXPECT_THAT(text_of(joining.notices), HasSubstr("peer-1:7700"));
  EXPECT_THAT(text_of(joining.notices), HasSubstr("announce an address that others reach"));
  outcome = ec::none; // the port was opened
  pass(61s);
  EXPECT_FALSE(ctx.is_client());
  EXPECT_THAT(text_of(status().notices), IsEmpty());
  ASSERT_THAT(announced, SizeIs(2));
  EXPECT_EQ(announced[1], ctx.record);
}

TEST_F(DhtReach, AnnouncesTodaysAddressesSoonAfterTheNetworkHasChanged) {
  std::vector<endpoint> now{{"127.0.0.1", 7700}};
  std::vector<peer_record> heard;
  dht_config with;
  with.reach.read_addresses = [&] { return now; };
  with.reach.announce = [&](peer_record self) { heard.push_back(std::move(self)); };
  world->connect = [](const endpoint&) -> result<peer_record> {
    return failure{ec::unreachable, "refused"};
  };
  start(with);
  tell(router, bootstrap_from{{}, {}});
  ASSERT_THAT(heard, SizeIs(1)) << "those of its start are others";
  EXPECT_EQ(heard.back().addresses, now);
  now = {{"10.0.0.1", 7700}, {"fd00::1", 7700}};
  pass(10s);
  ASSERT_THAT(heard, SizeIs(2));
  EXPECT_EQ(heard.back().addresses, now);
  EXPECT_EQ(ctx.own_record().addresses, now);
  now = {{"10.0.0.2", 7700}};
  pass(2s);
  EXPECT_THAT(heard, SizeIs(2)) << "nothing tells of the change yet";
  tell(router, bootstrap_from{{{"10.0.0.9", 7700}}, {}}); // a dial fails
  EXPECT_THAT(heard, SizeIs(3));
  EXPECT_EQ(ctx.own_record().addresses, now);
}

TEST_F(DhtReach, APathThatLosesLargePacketsIsSaidSoonThoughNoLinkEnds) {
  outcome = ec::none;
  link(2, "10.0.0.2", true);
  pass(1s);
  EXPECT_THAT(text_of(status().notices), IsEmpty());
  ctx.reach->set_narrow_path("10.0.0.2");
  pass(11s);
  EXPECT_THAT(text_of(status().notices), HasSubstr("small messages pass to and from 10.0.0.2"));
  EXPECT_FALSE(ctx.is_client());
  ctx.reach->set_narrow_path(std::nullopt);
  pass(11s);
  EXPECT_THAT(text_of(status().notices), IsEmpty()) << "large ones pass again";
}

TEST_F(DhtReach, AMemberWithoutALinkMakesThisPeerAClientUntilThereIsOne) {
  tell(router, member_unlinked{test_peer(2)});
  EXPECT_TRUE(ctx.is_client());
  EXPECT_THAT(text_of(status().notices), HasSubstr(short_name(test_peer(2).id)));
  EXPECT_THAT(text_of(status().notices), HasSubstr("do not reach each other"));
  auto asked = world->calls.size();
  pass(61s);
  EXPECT_GT(world->calls.size(), asked) << "it is dialled again";
  EXPECT_TRUE(ctx.is_client());
  link(2, "10.0.0.2", false);
  EXPECT_FALSE(ctx.is_client());
  EXPECT_THAT(text_of(status().notices), IsEmpty());
}

TEST_F(DhtReach, DialsAPeerBackWhereItSeesItAndWhereItAnnouncesTheSamePort) {
  std::vector<endpoint> dialled;
  world->connect = [&](const endpoint& where) -> result<peer_record> {
    dialled.push_back(where);
    if (where.port == 7701)
      return test_peer(2);
    return failure{ec::unreachable, "refused"};
  };
  auto answer = [&](std::vector<std::uint16_t> ports, std::uint64_t seed, const std::string& host) {
    return asked_by_peer<wire::dialled_back>(wire::dial_back{std::move(ports)}, seed, host).outcome;
  };
  EXPECT_EQ(answer({7700}, 2, "10.0.0.2"), ec::unreachable);
  EXPECT_EQ(answer({7700, 7701}, 2, "10.0.0.2"), ec::none);
  EXPECT_EQ(dialled, (std::vector<endpoint>{{"10.0.0.2", 7700},
                                            {"peer-2", 7700},
                                            {"10.0.0.2", 7700},
                                            {"10.0.0.2", 7701},
                                            {"peer-2", 7700}}));
  EXPECT_EQ(answer({7701}, 3, "10.0.0.3"), ec::unreachable) << "another peer answered";
  EXPECT_EQ(answer({7701}, 4, ""), ec::overloaded) << "its host is not known";
}

TEST_F(DhtReach, APeerIsReachedThatListensOnOneAddressAndDialsFromAnother) {
  world->connect = [](const endpoint& where) -> result<peer_record> {
    if (where == test_peer(2).addresses.at(0))
      return test_peer(2);
    return failure{ec::unreachable, "refused"};
  };
  auto answer = [&](std::vector<std::uint16_t> ports) {
    return asked_by_peer<wire::dialled_back>(wire::dial_back{std::move(ports)}, 2, "10.0.0.2")
      .outcome;
  };
  EXPECT_EQ(answer({7700}), ec::none);
  EXPECT_EQ(answer({7701}), ec::unreachable) << "it asks for another port: the one of its router";
  auto dials = world->dials.size();
  auto usual = test_peer(2);
  usual.addresses.push_back({"10.0.0.2", 7700});
  EXPECT_TRUE(
    ask<outbound_answer>(router, inbound_call{usual, wire::dial_back{{7700}}, "10.0.0.2"}));
  EXPECT_THAT(world->dials, SizeIs(dials + 1)) << "it announces where we see it: that is tried";
}

TEST_F(DhtReach, APeerThatDialledUsIsNamedToOthersOnceItWasReachedWhereItAnnounces) {
  link(2, "10.0.0.2", false); // nobody listens at peer-2:7700
  EXPECT_THAT(named(), IsEmpty());
  EXPECT_THAT(world->dials, SizeIs(1));
  world->connect = [](const endpoint& where) -> result<peer_record> {
    return test_peer(where.host == "peer-3" ? 3 : 4);
  };
  asked_by_peer<wire::dht_pong>(wire::dht_ping{}, 2);
  EXPECT_THAT(world->dials, SizeIs(1)) << "not at each sign of life";
  link(5, "10.0.0.5", false); // another peer answers there
  EXPECT_THAT(named(), IsEmpty());
  link(3, "10.0.0.3", false);
  ASSERT_THAT(named(), SizeIs(1));
  EXPECT_EQ(named()[0].id, test_peer(3).id);
  world->connect = [](const endpoint&) { return result<peer_record>{test_peer(2)}; };
  pass(61s);
  asked_by_peer<wire::dht_pong>(wire::dht_ping{}, 2); // its port was opened
  EXPECT_THAT(named(), SizeIs(2));
  EXPECT_EQ(routing_entries(), 4) << "we ask all of them, and who asked";
}

TEST_F(DhtReach, WhoCannotBeDialledIsToldOfAPeerThatJoinsLater) {
  auto client = test_peer(2);
  client.addresses.clear();
  client.client_mode = true;
  auto to_client = std::make_shared<hosted_link>(client, "10.0.0.2", false);
  ctx.links->set(client.id, to_client);
  tell(router, peer_connected{client});
  world->connect = [](const endpoint&) { return result<peer_record>{test_peer(3)}; };
  link(3, "10.0.0.3", false);
  ASSERT_THAT(to_client->notes(), SizeIs(1));
  EXPECT_EQ(to_client->notes()[0].peer, test_peer(3));
  asked_by_peer<wire::dht_pong>(wire::dht_ping{}, 3);
  EXPECT_THAT(to_client->notes(), SizeIs(1)) << "once";
  EXPECT_THAT(links.at(test_peer(3).id)->notes(), IsEmpty()) << "it finds the others itself";
}

TEST_F(DhtReach, DialsAPeerThatOneThatItHasDialledTellsItOf) {
  auto told_by = [&](std::uint64_t by, std::uint64_t of) {
    world->calls.clear();
    tell(router, inbound_event{test_peer(by), wire::reach_note{test_peer(of)}, {}, nullptr});
    pass(2s);
    return std::ranges::count_if(world->calls,
                                 [&](const call_peer& c) { return c.to == test_peer(of); });
  };
  link(2, "10.0.0.2", true);
  link(3, "10.0.0.3", false);
  EXPECT_EQ(told_by(2, 4), 1);
  EXPECT_EQ(told_by(3, 5), 0) << "a peer that came to us could have us dial anybody";
  EXPECT_EQ(told_by(2, 3), 0) << "there is a link";
  for (std::uint64_t i = 6; i < 12; ++i)
    link(i, "10.0.0." + std::to_string(i), true);
  EXPECT_EQ(told_by(2, 4), 0) << "these links are enough to find the others";
}

TEST_F(DhtReach, LooksItselfUpAgainWhenItsAddressesHaveChanged) {
  std::vector<endpoint> now{{"127.0.0.1", 7700}};
  dht_config with;
  with.reach.read_addresses = [&] { return now; };
  start(with);
  tell(router, bootstrap_from{{}, {}});
  link(2, "10.0.0.2", true);
  pass(2s);
  world->calls.clear();
  now = {{"10.0.0.1", 7700}};
  link(3, "10.0.0.3", false); // perhaps the network is another one
  pass(1s);
  EXPECT_EQ(ctx.own_record().addresses, now);
  EXPECT_TRUE(std::ranges::any_of(world->calls, [&](const call_peer& c) {
    const auto* find = std::get_if<wire::dht_find>(&c.what);
    return find != nullptr && find->nodes_only && find->keys[0] == dht_id_of(ctx.record.id);
  }));
}

TEST_F(DhtReach, APeerThatBecomesAClientIsNamedToNobody) {
  world->connect = [](const endpoint&) { return result<peer_record>{test_peer(2)}; };
  link(2, "10.0.0.2", false);
  EXPECT_THAT(named(), SizeIs(1));
  auto client = test_peer(2);
  client.addresses.clear();
  client.client_mode = true;
  ctx.links->set_record(client);
  tell(router, peer_connected{client});
  EXPECT_THAT(named(), IsEmpty());
}

TEST_F(DhtReach, WhatAPeerAnnouncesIsNotReplacedByWhatWasSaidOfItBefore) {
  world->connect = [](const endpoint&) { return result<peer_record>{test_peer(3)}; };
  link(3, "10.0.0.3", false);
  auto before = test_peer(3);
  before.addresses = {{"127.0.0.1", 7700}};
  tell(router, peer_connected{before}); // it was under way, as answers to pings are
  EXPECT_THAT(named(), Contains(test_peer(3)));
}

TEST_F(DhtReach, WhoIsReachedOnlyWhereItDoesNotAnnounceIsNamedToNobody) {
  world->connect = [](const endpoint& where) -> result<peer_record> {
    return where.host == "10.0.0.2" ? result<peer_record>{test_peer(2)}
                                    : failure{ec::unreachable, "refused"};
  };
  link(2, "10.0.0.2", false); // announces peer-2:7700
  EXPECT_EQ(asked_by_peer<wire::dialled_back>(wire::dial_back{{7700}}, 2, "10.0.0.2").outcome,
            ec::none);
  EXPECT_THAT(named(), IsEmpty());
}

TEST_F(DhtReach, APeerThatCameBackIsTriedAtOnce) {
  link(2, "10.0.0.2", false);
  EXPECT_THAT(named(), IsEmpty());
  disconnect(2, ec::shutting_down);
  world->connect = [](const endpoint&) { return result<peer_record>{test_peer(2)}; };
  link(2, "10.0.0.2", false);
  EXPECT_THAT(named(), SizeIs(1));
}

TEST_F(DhtReach, APeerThatAnnouncesOtherAddressesIsTriedThereAtOnce) {
  world->hangs_at = {"peer-2", 7700};
  link(2, "10.0.0.2", false);
  world->connect = [](const endpoint& where) -> result<peer_record> {
    return where.port == 7800 ? result<peer_record>{test_peer(2)} : failure{ec::unreachable, ""};
  };
  auto moved = test_peer(2);
  auto announce = [&] {
    ctx.links->set_record(moved);
    EXPECT_TRUE(ask<outbound_answer>(router, inbound_call{moved, wire::dht_ping{}, {}}).ok());
  };
  moved.addresses = {{"peer-2", 7799}, {"peer-2", 7800}};
  announce();
  EXPECT_THAT(named(), SizeIs(1));
  moved.addresses = {{"peer-2", 7801}};
  announce();
  EXPECT_THAT(named(), IsEmpty()) << "nobody listens there";
  pass(3s); // and the first dial has ended
  EXPECT_THAT(named(), IsEmpty());
}

TEST_F(DhtReach, OnlyAddressesThatAreDialledCountAsTried) {
  world->connect = [](const endpoint& where) -> result<peer_record> {
    return test_peer(std::stoull(where.host.substr(5))); // "peer-N"
  };
  constexpr std::size_t peers = 20;
  for (std::uint64_t i = 2; i < 2 + peers; ++i) { // of one host, reached at the first of eight
    auto peer = test_peer(i);
    for (std::uint16_t port = 7701; port < 7708; ++port)
      peer.addresses.push_back({peer.addresses[0].host, port});
    ctx.links->set(peer.id, std::make_shared<hosted_link>(peer, "10.0.0.2", false));
    tell(router, peer_connected{peer});
  }
  EXPECT_THAT(world->dials, SizeIs(peers));
}

TEST_F(DhtReach, PeersBehindOneRouterAreNamedToEachOther) {
  link(2, "10.0.0.2", false); // nobody reaches these three
  link(3, "10.0.0.2", false);
  link(4, "10.0.0.4", false);
  ASSERT_THAT(named(3), SizeIs(1));
  EXPECT_EQ(named(3)[0].id, test_peer(2).id);
  EXPECT_THAT(named(4), IsEmpty());
  EXPECT_THAT(named(), IsEmpty());
}

TEST_F(DhtReach, ALookupIsAnsweredOnceItIsKnownWhetherOthersReachTheAsker) {
  world->hangs_at = {"peer-2", 7700};
  link(2, "10.0.0.2", false);
  auto lookup = ask_later<outbound_answer>(
    router, inbound_call{test_peer(2), wire::dht_find{{dht_id{}}, true}, {}});
  auto read = ask_later<outbound_answer>(
    router, inbound_call{test_peer(2), wire::dht_find{{dht_id{}}, false}, {}});
  EXPECT_TRUE(read.answered()) << "records do not wait";
  EXPECT_FALSE(lookup.answered());
  pass(2s); // the dial's limit
  EXPECT_TRUE(lookup.answered());
}

TEST_F(DhtReach, DialsBackOnlySoOften) {
  std::size_t tried = 0;
  for (int i = 0; i < 100; ++i)
    tried += asked_by_peer<wire::dialled_back>(wire::dial_back{{7700}}, 2, "10.0.0.2").outcome
             != ec::overloaded;
  EXPECT_EQ(tried, net::dial_back_limits::options{}.of_host_max);
  EXPECT_THAT(world->dials, SizeIs(2 * tried)) << "at its host, and as often where it announces";
}

TEST_F(DhtReach, AnnouncesThePortThatItsRouterMapsOnceItWasDialledBackThere) {
  std::vector<std::uint16_t> wanted;
  std::function<void(const result<endpoint>&)> mapped;
  dht_config with;
  with.reach.may_become_client = true;
  with.reach.announce = [this](peer_record self) { announced.push_back(std::move(self)); };
  with.reach.map_port = [&](std::uint16_t port, std::function<void(const result<endpoint>&)> told) {
    wanted.push_back(port);
    mapped = std::move(told);
  };
  start(with);
  link(2, "203.0.113.2", true);
  pass(1s);
  EXPECT_EQ(wanted, std::vector<std::uint16_t>{7700});
  EXPECT_TRUE(ctx.is_client());
  mapped(failure{ec::unreachable, "no router answers"});
  pass(1s);
  EXPECT_THAT(text_of(status().notices), HasSubstr("asked to pass connections on: no router"));
  endpoint outside{"198.51.100.7", 7'800};
  mapped(outside);
  pass(1s);
  EXPECT_EQ(asked_ports, std::vector<std::uint16_t>{7'800}) << "alone, to tell what is reached";
  EXPECT_TRUE(ctx.is_client()) << "nobody reaches it there";
  pass(61s);
  EXPECT_EQ(asked_ports, (std::vector<std::uint16_t>{7'700, 7'800}));
  outcome = ec::none;
  pass(61s);
  EXPECT_FALSE(ctx.is_client());
  EXPECT_EQ(ctx.own_record().addresses.front(), outside);
  EXPECT_EQ(announced.back().addresses.front(), outside);
  mapped(endpoint{"198.51.100.7", 7'801}); // it was started again
  outcome = ec::unreachable;
  pass(1s);
  EXPECT_THAT(ctx.own_record().addresses, Not(Contains(outside)));
  mapped(failure{ec::unreachable, "no router answers"});
  outcome = ec::none;
  pass(61s);
  EXPECT_EQ(ctx.own_record().addresses, ctx.record.addresses);
  EXPECT_THAT(wanted, SizeIs(1)) << "it goes on by itself";
}

} // namespace waggle::testing
