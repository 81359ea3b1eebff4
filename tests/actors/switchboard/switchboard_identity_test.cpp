// Two processes with one identity.

#include "tests/actors/switchboard/switchboard_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
                HasSubstr("another process uses this identity: give each its own data folder"));
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

} // namespace
} // namespace waggle::testing
