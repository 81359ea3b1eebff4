#include "runtime/net/reachability.hpp"

#include <gtest/gtest.h>

namespace waggle::net {

namespace {

constexpr auto reached = dial_back_outcome::reached;
constexpr auto not_reached = dial_back_outcome::not_reached;
constexpr auto unknown = dial_back_outcome::unknown;

peer_id peer(unsigned char number) {
  peer_id id;
  id.bytes.fill(std::byte{number});
  return id;
}

peer_record record(unsigned char number) {
  return {.id = peer(number)};
}

struct Reachability : ::testing::Test {
  reachability reach;
  steady_time now{};

  void dialled(unsigned char number, const std::string& host) {
    reach.connected(peer(number), host, true, now);
  }
  std::vector<peer_id> due_later(milliseconds time) {
    now += time;
    return reach.due(now);
  }
};

} // namespace

TEST_F(Reachability, AsksAPeerThatWeDialledAndBelievesThatItCannotDialUs) {
  EXPECT_FALSE(reach.next());
  dialled(1, "a");
  EXPECT_TRUE(reach.due(now).empty());
  EXPECT_EQ(due_later(200ms), std::vector{peer(1)});
  EXPECT_TRUE(reach.due(now).empty());
  EXPECT_FALSE(reach.unreachable());
  reach.answered(peer(1), not_reached, now);
  EXPECT_TRUE(reach.unreachable());
}

TEST_F(Reachability, APeerThatDialledUsIsAnAnswer) {
  dialled(1, "a");
  reach.connected(peer(2), "b", false, now);
  EXPECT_TRUE(due_later(10s).empty());
  EXPECT_EQ(due_later(600s), std::vector{peer(1)});
  reach.answered(peer(1), not_reached, now);
  EXPECT_TRUE(reach.unreachable());
  reach.connected(peer(3), "c", false, now);
  EXPECT_FALSE(reach.unreachable());
}

TEST_F(Reachability, AsksThreePeersOnDifferentHosts) {
  for (unsigned char i = 1; i <= 4; ++i)
    dialled(i, "one host");
  dialled(5, "second");
  dialled(6, "third");
  EXPECT_EQ(due_later(200ms), (std::vector{peer(1), peer(5), peer(6)}));
}

TEST_F(Reachability, AsksSeveralPeersOfOneHostIfThereIsNoOther) {
  for (unsigned char i = 1; i <= 4; ++i)
    dialled(i, "one host");
  EXPECT_EQ(due_later(200ms), (std::vector{peer(1), peer(2), peer(3)}));
}

TEST_F(Reachability, OneThatReachesUsOutweighsOthers) {
  dialled(1, "a");
  dialled(2, "b");
  EXPECT_EQ(due_later(200ms).size(), 2U);
  reach.answered(peer(1), not_reached, now);
  EXPECT_FALSE(reach.unreachable());
  reach.answered(peer(2), reached, now);
  EXPECT_FALSE(reach.unreachable());
  reach.answered(peer(1), not_reached, now); // of an inquiry that has ended
  EXPECT_FALSE(reach.unreachable());
}

TEST_F(Reachability, DecidesNothingIfNobodyTried) {
  dialled(1, "a");
  EXPECT_EQ(due_later(200ms).size(), 1U);
  reach.answered(peer(1), unknown, now);
  EXPECT_FALSE(reach.unreachable());
  EXPECT_TRUE(due_later(9'999ms).empty());
  EXPECT_EQ(due_later(1ms).size(), 1U);
}

TEST_F(Reachability, AsksAgainWhetherThePortWasOpened) {
  dialled(1, "a");
  EXPECT_EQ(due_later(200ms).size(), 1U);
  reach.answered(peer(1), not_reached, now);
  EXPECT_TRUE(due_later(59'999ms).empty());
  EXPECT_EQ(due_later(1ms).size(), 1U);
  EXPECT_TRUE(reach.unreachable()); // until it is known better
  reach.answered(peer(1), reached, now);
  EXPECT_FALSE(reach.unreachable());
}

TEST_F(Reachability, APeerThatIsDialledLaterMayReachUs) {
  dialled(1, "a");
  EXPECT_EQ(due_later(200ms).size(), 1U);
  reach.answered(peer(1), not_reached, now);
  dialled(2, "b");
  EXPECT_TRUE(due_later(4'999ms).empty()); // not for each of many new links
  EXPECT_EQ(due_later(1ms).size(), 2U);
}

TEST_F(Reachability, AsksNobodyThatIsGone) {
  dialled(1, "a");
  reach.disconnected(peer(1));
  EXPECT_FALSE(reach.next());
  EXPECT_TRUE(due_later(1s).empty());
}

TEST_F(Reachability, TwoMembersWithoutALinkGoOnAsClientsUntilThereIsOne) {
  reach.connected(peer(1), "a", false, now);
  EXPECT_FALSE(reach.client());
  reach.unlinked(record(2), true, now);
  EXPECT_TRUE(reach.client());
  EXPECT_FALSE(reach.unreachable());
  EXPECT_EQ(reach.next(), now + 60s);
  EXPECT_TRUE(reach.links_due(now).empty());
  now += 60s;
  EXPECT_EQ(reach.links_due(now), std::vector{record(2)});
  EXPECT_TRUE(reach.links_due(now).empty());
  reach.connected(peer(2), "b", false, now);
  EXPECT_FALSE(reach.client());
}

TEST_F(Reachability, AMissingLinkThatStallsNoRoundIsNotNeeded) {
  reach.unlinked(record(2), false, now);
  EXPECT_FALSE(reach.client());
}

TEST_F(Reachability, AMemberWhoseLinkComesAndGoesDoesNotChangeOurModeEachTime) {
  reach.unlinked(record(2), true, now);
  reach.connected(peer(2), "", true, now); // nothing is known of its host
  EXPECT_FALSE(reach.client());
  reach.unlinked(record(2), true, now + 59s);
  EXPECT_FALSE(reach.client());
  reach.unlinked(record(2), true, now + 60s);
  EXPECT_TRUE(reach.client());
}

TEST_F(Reachability, AMemberThatNeverReturnsIsForgotten) {
  reach.unlinked(record(2), true, now);
  now += 599s;
  reach.unlinked(record(2), false, now); // still in our rounds
  now += 599s;
  EXPECT_FALSE(reach.links_due(now).empty());
  EXPECT_TRUE(reach.client());
  now += 1s;
  EXPECT_TRUE(reach.links_due(now).empty());
  EXPECT_FALSE(reach.client());
}

TEST(DialBackLimits, LimitWhatOneHostAndAllCanHaveUsDial) {
  dial_back_limits limits{{.of_host_max = 2, .all_max = 3, .within = 10s}};
  steady_time now{};
  EXPECT_FALSE(limits.take("a", 3, now));
  EXPECT_TRUE(limits.take("a", 2, now));
  EXPECT_FALSE(limits.take("a", 1, now));
  EXPECT_FALSE(limits.take("b", 2, now + 1s));
  EXPECT_TRUE(limits.take("b", 1, now + 1s));
  EXPECT_FALSE(limits.take("c", 1, now + 9s));
  EXPECT_TRUE(limits.take("a", 1, now + 10s));
}

TEST_F(Reachability, WhoMeetsAllMembersThroughItsRouterIsNoClientThoughNobodyReachesIt) {
  dialled(1, "a");
  (void)due_later(200ms);
  reach.answered(peer(1), not_reached, now);
  reach.unlinked(record(2), false, now);
  reach.unlinked(record(3), false, now);
  EXPECT_TRUE(reach.client());
  reach.punched(peer(2), now);
  EXPECT_TRUE(reach.client()) << "there is no link with the third one";
  reach.punched(peer(3), now);
  EXPECT_FALSE(reach.client());
  reach.connected(peer(3), "c", false, now); // it announces something else
  EXPECT_TRUE(reach.unreachable());
  reach.missing(peer(4), now); // a newcomer
  EXPECT_TRUE(reach.client());
  now += 10min;
  EXPECT_TRUE(reach.links_due(now).empty());
  EXPECT_FALSE(reach.client()) << "nobody has met it for so long";
  reach.disconnected(peer(2));
  EXPECT_FALSE(reach.client());
  reach.disconnected(peer(3));
  EXPECT_TRUE(reach.client());
}

} // namespace waggle::net
