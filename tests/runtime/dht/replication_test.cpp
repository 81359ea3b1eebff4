#include "runtime/dht/replication.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

const dht_id key{}; // distances to it are the ids themselves

std::vector<peer_record> nearest(std::initializer_list<unsigned> numbers) {
  std::vector<peer_record> out;
  for (auto number : numbers)
    out.push_back(peer_at(number));
  return out;
}

const peer_record far_away = peer_at(0xff);

TEST(Replication, WritesToTheNearestAndEndsWhenTheyAnswered) {
  replication writing{key, far_away, nearest({1, 2, 3}), 2};
  EXPECT_FALSE(writing.stored_here());
  EXPECT_EQ(writing.next(), nearest({1, 2}));
  EXPECT_TRUE(writing.next().empty());
  writing.answered(ec::none);
  EXPECT_FALSE(writing.finished());
  writing.answered(ec::none);
  EXPECT_TRUE(writing.finished());
  EXPECT_EQ(writing.result().accepted, 2U);
}

TEST(Replication, IsAReplicaItselfIfItIsAmongTheNearest) {
  replication first{key, peer_at(1), nearest({2, 3}), 2};
  EXPECT_TRUE(first.stored_here());
  EXPECT_EQ(first.next(), nearest({2})) << "one of the two replicas is ours";
  EXPECT_FALSE(first.finished()) << "our own store counts as an answer";
  replication last{key, peer_at(3), nearest({1, 2}), 3};
  EXPECT_TRUE(last.stored_here());
  replication behind{key, peer_at(3), nearest({1, 2}), 2};
  EXPECT_FALSE(behind.stored_here());
}

TEST(Replication, AClientKeepsNothing) {
  auto client = peer_at(1);
  client.client_mode = true;
  replication writing{key, client, nearest({2, 3}), 2};
  EXPECT_FALSE(writing.stored_here());
  EXPECT_EQ(writing.next(), nearest({2, 3}));
}

TEST(Replication, AloneItsOwnAnswerIsTheWholeResult) {
  replication writing{key, peer_at(1), {}, 5};
  EXPECT_TRUE(writing.next().empty());
  EXPECT_FALSE(writing.finished());
  writing.answered(ec::none);
  EXPECT_TRUE(writing.finished());
}

TEST(Replication, WithNobodyToWriteToItIsFinishedWithoutAResult) {
  auto client = peer_at(1);
  client.client_mode = true;
  replication writing{key, client, {}, 5};
  EXPECT_TRUE(writing.next().empty());
  EXPECT_TRUE(writing.finished());
  EXPECT_EQ(writing.result().accepted, 0U);
}

TEST(Replication, MoreReplicasThanPeersAreAllPeers) {
  replication writing{key, far_away, nearest({1, 2, 3}), 20};
  EXPECT_TRUE(writing.stored_here());
  EXPECT_EQ(writing.next(), nearest({1, 2, 3}));
  for (int i = 0; i < 4; ++i) { // the others and we
    EXPECT_FALSE(writing.finished());
    writing.answered(ec::none);
  }
  EXPECT_TRUE(writing.finished());
  EXPECT_EQ(writing.result().accepted, 4U);
}

TEST(Replication, APeerThatDoesNotAnswerIsReplacedByTheNextNearest) {
  replication writing{key, far_away, nearest({1, 2, 3}), 2};
  (void)writing.next();
  writing.failed();
  EXPECT_FALSE(writing.finished());
  EXPECT_EQ(writing.next(), nearest({3}));
  writing.failed();
  EXPECT_TRUE(writing.next().empty()) << "no peer is left";
  EXPECT_FALSE(writing.finished()) << "one answer is pending";
  writing.answered(ec::none);
  EXPECT_TRUE(writing.finished());
  EXPECT_EQ(writing.result().accepted, 1U);
  EXPECT_EQ(writing.result().failed, 2U);
}

TEST(Replication, APeerThatRefusesIsNotReplaced) {
  replication writing{key, far_away, nearest({1, 2, 3}), 2};
  (void)writing.next();
  writing.answered(ec::stale_record);
  EXPECT_TRUE(writing.next().empty());
  writing.answered(ec::none);
  EXPECT_TRUE(writing.finished());
  EXPECT_EQ(writing.result().rejected, 1U);
  EXPECT_EQ(writing.result().last_rejection, ec::stale_record);
}

TEST(Replication, PendingAnswersCountAsFailedWhenGivenUp) {
  replication writing{key, far_away, nearest({1, 2, 3, 4}), 3};
  (void)writing.next();
  writing.answered(ec::none);
  writing.give_up();
  EXPECT_TRUE(writing.finished());
  EXPECT_TRUE(writing.next().empty());
  EXPECT_EQ(writing.result().accepted, 1U);
  EXPECT_EQ(writing.result().failed, 2U);
}

} // namespace
} // namespace waggle
