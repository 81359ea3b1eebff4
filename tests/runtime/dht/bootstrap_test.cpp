#include "runtime/dht/bootstrap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const endpoint first{"first", 7700};
const endpoint second{"second", 7700};
const failure refused{ec::unreachable, "refused"};

struct Bootstrap : testing::Test {
  /// Every address of an attempt fails; the pause until the next one.
  std::optional<milliseconds> fail_all(const std::vector<endpoint>& dialled, bool alone = true) {
    for (const auto& where : dialled)
      joins.failed(where, refused);
    EXPECT_FALSE(joins.dialling());
    return joins.pause(alone, random);
  }

  bootstrap joins{{1s, 60s, 3}};
  random_source random{5};
};

// -- initial addresses ---------------------------------------------------------------------------

TEST_F(Bootstrap, WithoutAnAddressTheRunBeginsHere) {
  EXPECT_FALSE(joins.joined());
  joins.join_at({});
  EXPECT_TRUE(joins.joined());
  EXPECT_THAT(joins.dial(), IsEmpty());
}

TEST_F(Bootstrap, JoinsThroughWhoeverAnswersAndSaysWhyOthersDidNot) {
  joins.join_at({first, second});
  EXPECT_THAT(joins.dial(), ElementsAre(first, second));
  EXPECT_TRUE(joins.failed(first, refused));
  EXPECT_TRUE(joins.dialling());
  EXPECT_FALSE(joins.joined());
  joins.reached(second, peer_at(2).id);
  EXPECT_FALSE(joins.dialling());
  EXPECT_TRUE(joins.joined());
  EXPECT_THAT(joins.failures(), ElementsAre("first:7700: unreachable: refused"));
}

TEST_F(Bootstrap, OnlyTheFirstOfSeveralFailuresIsNews) {
  joins.join_at({first});
  (void)joins.dial();
  EXPECT_TRUE(joins.failed(first, refused));
  (void)joins.dial();
  EXPECT_FALSE(joins.failed(first, {ec::wrong_run, ""}));
  EXPECT_THAT(joins.failures(), ElementsAre(testing::HasSubstr("wrong_run")));
  (void)joins.dial();
  joins.reached(first, peer_at(2).id);
  EXPECT_THAT(joins.failures(), IsEmpty());
  (void)joins.dial();
  EXPECT_TRUE(joins.failed(first, refused)) << "it was there in between";
}

TEST_F(Bootstrap, ItsOwnAddressIsNobodyToWaitFor) {
  joins.join_at({first});
  (void)joins.dial();
  EXPECT_FALSE(joins.failed(first, {ec::duplicate_identity, ""}));
  EXPECT_TRUE(joins.joined());
  EXPECT_THAT(joins.failures(), IsEmpty());
  EXPECT_THAT(joins.dial(), IsEmpty());
}

TEST_F(Bootstrap, DialsNobodyItIsConnectedTo) {
  joins.join_at({first, second});
  (void)joins.dial();
  joins.reached(first, peer_at(1).id);
  joins.reached(second, peer_at(2).id);
  joins.connected(peer_at(1).id);
  EXPECT_THAT(joins.look_in(), ElementsAre(second));
  joins.reached(second, peer_at(2).id);
  joins.connected(peer_at(2).id);
  EXPECT_THAT(joins.look_in(), IsEmpty());
  joins.disconnected(peer_at(1).id);
  EXPECT_THAT(joins.look_in(), ElementsAre(first));
}

// -- when ----------------------------------------------------------------------------------------

TEST_F(Bootstrap, PausesDoubleWithinTheirBoundsAndAreJitteredByAQuarter) {
  joins.join_at({first});
  auto dialled = joins.dial();
  for (double seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    auto pause = fail_all(dialled);
    ASSERT_TRUE(pause);
    EXPECT_GE(seconds_of(*pause), 0.74 * seconds);
    EXPECT_LE(seconds_of(*pause), 1.26 * seconds);
    dialled = joins.retry();
    EXPECT_THAT(dialled, SizeIs(1));
  }
}

TEST_F(Bootstrap, PausesBeginAgainOnceSomebodyIsKnown) {
  joins.join_at({first});
  (void)fail_all(joins.dial());
  (void)fail_all(joins.retry());
  EXPECT_FALSE(fail_all(joins.retry(), false)) << "no need to hurry";
  auto pause = fail_all(joins.dial());
  ASSERT_TRUE(pause);
  EXPECT_LE(seconds_of(*pause), 1.26);
}

TEST_F(Bootstrap, OneRetryIsDueAtATime) {
  joins.join_at({first});
  EXPECT_TRUE(fail_all(joins.dial()));
  EXPECT_FALSE(fail_all(joins.dial())) << "the first is still to come";
  auto dialled = joins.retry();
  EXPECT_THAT(dialled, SizeIs(1));
  EXPECT_THAT(joins.retry(), IsEmpty()) << "an attempt is under way";
  EXPECT_TRUE(fail_all(dialled));
}

TEST_F(Bootstrap, LooksInOnlyAfterItJoinedAndBetweenAttempts) {
  joins.join_at({first});
  EXPECT_THAT(joins.look_in(), IsEmpty()) << "not joined: retries are for that";
  joins.connected(peer_at(7).id);
  EXPECT_THAT(joins.look_in(), SizeIs(1));
  EXPECT_THAT(joins.look_in(), IsEmpty()) << "under way";
  ASSERT_TRUE(fail_all({first}));
  EXPECT_THAT(joins.look_in(), IsEmpty()) << "a retry is due";
  EXPECT_THAT(joins.retry(), SizeIs(1));
}

// -- peers ---------------------------------------------------------------------------------------

TEST_F(Bootstrap, TheFirstConnectionIsTheOneThatJoins) {
  joins.join_at({first});
  EXPECT_TRUE(joins.connected(peer_at(1).id));
  EXPECT_FALSE(joins.connected(peer_at(2).id));
  EXPECT_TRUE(joins.any_connected());
  joins.disconnected(peer_at(1).id);
  joins.disconnected(peer_at(2).id);
  EXPECT_FALSE(joins.any_connected());
  EXPECT_TRUE(joins.joined());
}

TEST_F(Bootstrap, LostPeersHaveTheirTurnsUntilTheyAreBack) {
  EXPECT_FALSE(joins.next_lost());
  joins.lost(peer_at(1));
  joins.lost(peer_at(2));
  for (unsigned expected : {1U, 2U, 1U})
    EXPECT_EQ(joins.next_lost(), peer_at(expected));
  joins.connected(peer_at(2).id);
  EXPECT_EQ(joins.next_lost(), peer_at(1));
  EXPECT_EQ(joins.next_lost(), peer_at(1));
}

TEST_F(Bootstrap, OfTooManyLostPeersTheOldestIsForgotten) {
  for (unsigned i : {1U, 2U, 3U, 4U})
    joins.lost(peer_at(i));
  for (unsigned expected : {2U, 3U, 4U, 2U})
    EXPECT_EQ(joins.next_lost(), peer_at(expected));
}

} // namespace
} // namespace waggle
