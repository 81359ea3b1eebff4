// How a router brings two other peers together, and meets one itself.

#include "tests/actors/dht_router/dht_router_fixture.hpp"

namespace waggle::testing {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DhtPunching : public DhtRouter {
protected:
  void SetUp() override {
    dht_config with;
    with.reach.may_become_client = true;
    with.punching.dial = [this](const net::dial_target& to, milliseconds,
                                std::function<void(failure)> done) {
      dials.push_back(to);
      ended.push_back(std::move(done));
    };
    world->answer = [this](const call_peer& asked) -> result<wire::response> {
      if (const auto* wanted = std::get_if<wire::introduce>(&asked.what)) {
        questions.emplace_back(asked.to.id, wanted->peer);
        return wire::response{wire::introduced{outcome}};
      }
      if (std::holds_alternative<wire::dial_back>(asked.what))
        return wire::response{wire::dialled_back{ec::unreachable}};
      return polite(asked);
    };
    start(with);
  }

  /// With sockets: the peer is seen at `there`, and sees us at our port 50000.
  void link_at(std::uint64_t seed, const endpoint& there, bool outbound) {
    auto made = std::make_shared<hosted_link>(test_peer(seed), there.host, outbound);
    made->between = net::socket_ends{{"192.168.1.10", 50'000}, there};
    links[test_peer(seed).id] = made;
    ctx.links->set(test_peer(seed).id, made);
    connect(seed);
  }
  void note_by(std::uint64_t by, std::uint64_t of, const endpoint& where, std::uint32_t wait = 0) {
    tell(router, inbound_event{
                   test_peer(by), wire::punch_note{test_peer(of).id, where, wait}, {}, nullptr});
  }
  ec asks(std::uint64_t by, std::uint64_t of, const std::string& host = "203.0.113.1") {
    return asked_by_peer<wire::introduced>(wire::introduce{test_peer(of).id}, by, host).outcome;
  }
  double refused(const std::string& why) const {
    return exported(*ctx.metrics, "waggle_network_refused_total{reason=\"" + why + "\"");
  }

  ec outcome = ec::none;
  std::vector<std::pair<peer_id, peer_id>> questions; // who is asked, for whom
  std::vector<net::dial_target> dials;
  std::vector<std::function<void(failure)>> ended;
};

TEST_F(DhtPunching, TellsTwoPeersThatHaveDialledItToDialEachOtherWhereItSeesThem) {
  link_at(2, {"203.0.113.1", 40'002}, false);
  link_at(3, {"203.0.113.2", 40'003}, false);
  EXPECT_EQ(asks(2, 3), ec::none);
  auto to_two = links.at(test_peer(2).id)->all<wire::punch_note>();
  auto to_three = links.at(test_peer(3).id)->all<wire::punch_note>();
  ASSERT_THAT(to_two, SizeIs(1));
  ASSERT_THAT(to_three, SizeIs(1));
  EXPECT_EQ(to_two[0].peer, test_peer(3).id);
  EXPECT_EQ(to_two[0].where, (endpoint{"203.0.113.2", 40'003}));
  EXPECT_EQ(to_three[0].where, (endpoint{"203.0.113.1", 40'002}));
  EXPECT_EQ(asks(3, 2), ec::rate_limited);
  EXPECT_EQ(asks(2, 4), ec::not_found) << "a peer without a link";
  link_at(5, {"203.0.113.5", 7700}, true);
  EXPECT_EQ(asks(2, 5), ec::unreachable) << "we have dialled it, so others can";
  EXPECT_EQ(asks(6, 2), ec::overloaded) << "who asks has no link";
}

TEST_F(DhtPunching, AsksAPeerThatItHasDialledAndDialsAtTheMomentFromThatLinksPort) {
  link_at(2, {"203.0.113.9", 7700}, true);
  link_at(4, {"203.0.113.4", 40'004}, false);
  tell(router, member_unlinked{test_peer(3), false});
  EXPECT_THAT(questions, ElementsAre(std::pair{test_peer(2).id, test_peer(3).id}));
  tell(router, member_unlinked{test_peer(3), false});
  EXPECT_THAT(questions, SizeIs(1)) << "not after each round";
  note_by(2, 3, {"203.0.113.3", 40'003}, 50);
  EXPECT_THAT(dials, IsEmpty());
  pass(50ms);
  ASSERT_THAT(dials, SizeIs(1));
  EXPECT_EQ(dials[0].where, (endpoint{"203.0.113.3", 40'003}));
  EXPECT_EQ(dials[0].from, (endpoint{"192.168.1.10", 50'000}));
  EXPECT_EQ(dials[0].expected, test_peer(3).id);
  EXPECT_EQ(dials[0].answers, ctx.record.id > test_peer(3).id) << "one of the two";
  ended[0]({});
  pass(1ms);
  link_at(3, {"203.0.113.3", 40'003}, true);
  EXPECT_THAT(text_of(status().punches), HasSubstr("passes the routers of both"));
  disconnect(3, ec::peer_lost);
  ctx.links->erase(test_peer(3).id);
  note_by(2, 3, {"203.0.113.3", 40'003});
  pass(1s);
  EXPECT_THAT(dials, SizeIs(1)) << "once in ten minutes";
}

TEST_F(DhtPunching, SaysWhatHelpsIfNoLinkComes) {
  link_at(2, {"203.0.113.9", 7700}, true);
  note_by(2, 3, {"203.0.113.3", 40'003});
  note_by(2, 4, {"203.0.113.4", 40'004});
  pass(1ms);
  ASSERT_THAT(ended, SizeIs(2));
  ended[0]({ec::timeout, "no link within 4000 ms"});
  ended[1]({}); // connected, and then silent
  pass(1s);
  EXPECT_THAT(status().punches, SizeIs(1));
  EXPECT_THAT(text_of(status().punches), HasSubstr("open or forward the port"));
  pass(6s);
  EXPECT_THAT(status().punches, SizeIs(2));
  link_at(3, {"203.0.113.3", 7700}, true); // later, in another way
  EXPECT_THAT(status().punches, SizeIs(2));
}

TEST_F(DhtPunching, NobodyHasItDialAThirdHost) {
  link_at(2, {"203.0.113.9", 7700}, true);
  link_at(4, {"203.0.113.4", 40'004}, false);
  note_by(4, 3, {"203.0.113.3", 40'003}); // it dialled us: we did not choose it
  note_by(5, 3, {"203.0.113.3", 40'003}); // no link
  note_by(2, 3, {"127.0.0.1", 22});
  note_by(2, 3, {"169.254.1.1", 80});
  note_by(2, 3, {"0.0.0.0", 22});
  note_by(2, 3, {"router.example", 80});
  note_by(2, 2, {"203.0.113.3", 40'003});
  note_by(2, 1, {"203.0.113.3", 40'003}); // this peer
  pass(1s);
  EXPECT_THAT(dials, IsEmpty());
  EXPECT_EQ(refused("protocol_violation"), 8);
  for (std::uint64_t i = 10; i < 40; ++i)
    note_by(2, i, {"203.0.113." + std::to_string(i), 40'000});
  pass(1s);
  EXPECT_THAT(dials, SizeIs(16)) << "as many as one host may have us dial in any way";
  EXPECT_EQ(refused("rate_limited"), 14);
}

TEST_F(DhtPunching, APeerThatItHasMetLikeThatBringsItToNobody) {
  link_at(2, {"203.0.113.9", 7700}, true);
  note_by(2, 3, {"203.0.113.3", 40'003});
  pass(1ms);
  ASSERT_THAT(ended, SizeIs(1));
  ended[0]({});
  link_at(3, {"203.0.113.3", 40'003}, true); // a stranger may have asked for this
  note_by(3, 5, {"203.0.113.5", 22});
  pass(1s);
  EXPECT_THAT(dials, SizeIs(1));
  EXPECT_EQ(refused("protocol_violation"), 1);
  tell(router, member_unlinked{test_peer(6), false});
  EXPECT_THAT(questions, ElementsAre(std::pair{test_peer(2).id, test_peer(6).id}));
}

TEST_F(DhtPunching, AsksThoseInTurnThatMayBeLinkedWithBoth) {
  outcome = ec::not_found;
  for (std::uint64_t i = 2; i < 9; ++i)
    link_at(i, {"203.0.113." + std::to_string(i), 7700}, true);
  tell(router, member_unlinked{test_peer(20), false});
  EXPECT_THAT(questions, SizeIs(4));
  pass(61s);
  tell(router, member_unlinked{test_peer(20), false});
  EXPECT_THAT(questions, SizeIs(8)) << "one of them may be linked with it now";
}

} // namespace waggle::testing
