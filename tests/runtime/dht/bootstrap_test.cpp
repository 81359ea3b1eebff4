#include "runtime/dht/bootstrap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs,
  testing::UnorderedElementsAre;

const endpoint first{"first", 7700};
const endpoint second{"second", 7700};
const failure refused{ec::unreachable, "refused"};
const endpoint third{"third", 7700};
const endpoint name{"name", 7700};

/// A peer whose only address contains its number.
peer_record numbered(unsigned n) {
  auto peer = peer_at(n);
  peer.addresses = {{"peer-" + std::to_string(n), 7700}};
  return peer;
}
known_peer known(unsigned n) {
  return {numbered(n).id, numbered(n).addresses};
}
endpoint address(unsigned n) {
  return numbered(n).addresses.front();
}

struct Bootstrap : testing::Test {
  /// Advances time until the next target is due. Returns how long that took.
  milliseconds wait() {
    auto next = joins.next();
    if (!next) {
      ADD_FAILURE() << "no target is due";
      return {};
    }
    auto took = std::max(*next, now) - now;
    now = std::max(*next, now);
    return std::chrono::duration_cast<milliseconds>(took);
  }
  void join_at_name(const std::vector<endpoint>& addresses) {
    joins.join_at({name}, {}, now, {name});
    resolve(addresses);
  }
  /// Resolves the name if that is due.
  void resolve(const std::vector<endpoint>& addresses) {
    for (const auto& each : joins.unresolved(now))
      EXPECT_FALSE(joins.resolved(each, addresses, now));
  }
  void meet_ourselves_at(const endpoint& where) {
    EXPECT_THAT(joins.due(now), ElementsAre(where));
    joins.met_ourselves(where, now);
  }
  void reach(const endpoint& where, unsigned n) {
    EXPECT_THAT(joins.due(now), ElementsAre(where));
    joins.reached(where, numbered(n).id, now);
    link(n);
  }
  /// All due attempts fail.
  void fail_due() {
    for (const auto& where : joins.due(now))
      joins.failed(where, refused, now);
  }
  void link(unsigned n) { joins.connected(numbered(n), now); }
  void lose(unsigned n, ec why = ec::peer_lost) { joins.disconnected(numbered(n).id, why, now); }
  /// Connects with a link that lasts.
  void link_for_a_while(unsigned n) {
    link(n);
    now += 60s;
  }

  bootstrap::options options;
  bootstrap joins{options, random_source{5}};
  steady_time now{std::chrono::hours{1}};
};

// Pauses are jittered by a quarter.
#define EXPECT_PAUSE(pause, expected)                                                              \
  do {                                                                                             \
    auto seconds = seconds_of(pause);                                                              \
    EXPECT_GE(seconds, 0.74 * seconds_of(expected));                                               \
    EXPECT_LE(seconds, 1.26 * seconds_of(expected));                                               \
  } while (false)

// -- initial addresses ---------------------------------------------------------------------------

TEST_F(Bootstrap, WithoutAnAddressTheRunBeginsHere) {
  EXPECT_FALSE(joins.joined());
  joins.join_at({}, {}, now);
  EXPECT_TRUE(joins.joined());
  EXPECT_FALSE(joins.addresses_known());
  EXPECT_THAT(joins.due(now), IsEmpty());
  EXPECT_FALSE(joins.next());
}

TEST_F(Bootstrap, JoinsThroughAnyPeerThatAnswersAndReportsWhyOthersDidNot) {
  joins.join_at({first, second}, {}, now);
  EXPECT_TRUE(joins.addresses_known());
  EXPECT_EQ(joins.initial_addresses(), 2U);
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
  EXPECT_THAT(joins.due(now), IsEmpty()) << "already being dialled";
  EXPECT_FALSE(joins.next());
  EXPECT_TRUE(joins.failed(first, refused, now));
  EXPECT_FALSE(joins.joined());
  joins.reached(second, numbered(2).id, now);
  EXPECT_TRUE(joins.joined());
  EXPECT_THAT(joins.failures(), ElementsAre("first:7700: unreachable: refused"));
}

TEST_F(Bootstrap, EachReasonOfSeveralFailuresIsReportedOnce) {
  joins.join_at({first}, {}, now);
  for (const auto& [why, is_news] : {std::pair{refused, true},
                                     {refused, false},
                                     {{ec::wrong_run, ""}, true},
                                     {refused, false},
                                     {{ec::wrong_run, ""}, false}}) {
    (void)joins.due(now);
    EXPECT_EQ(joins.failed(first, why, now), is_news) << to_string(why);
    wait();
  }
  EXPECT_THAT(joins.failures(), ElementsAre(HasSubstr("wrong_run")));
  (void)joins.due(now);
  joins.reached(first, numbered(2).id, now);
  EXPECT_THAT(joins.failures(), IsEmpty());
  link_for_a_while(2);
  lose(2);
  wait();
  (void)joins.due(now);
  EXPECT_TRUE(joins.failed(first, refused, now)) << "it was reached in between";
}

TEST_F(Bootstrap, AnAddressThatHangsDelaysNoOther) {
  joins.join_at({first, second}, {}, now);
  EXPECT_THAT(joins.due(now), SizeIs(2)); // the first one never answers
  for (auto pause : {250ms, 500ms, 1'000ms}) {
    joins.failed(second, refused, now);
    EXPECT_PAUSE(wait(), pause);
    EXPECT_THAT(joins.due(now), ElementsAre(second));
  }
}

TEST_F(Bootstrap, BeginsTheRunSoonIfItsOnlyAddressIsItsOwn) {
  joins.join_at({first}, {}, now);
  auto began = now;
  for (unsigned i = 0; i < options.own_after; ++i) {
    EXPECT_FALSE(joins.joined());
    EXPECT_TRUE(joins.addresses_known());
    wait();
    meet_ourselves_at(first);
  }
  EXPECT_LE(now - began, 500ms);
  EXPECT_TRUE(joins.joined());
  EXPECT_FALSE(joins.addresses_known());
  EXPECT_EQ(joins.initial_addresses(), 0U);
  EXPECT_THAT(joins.failures(), IsEmpty());
  EXPECT_THAT(joins.seen().text(), HasSubstr("first:7700 is this peer itself"));
  link(2);
  EXPECT_THAT(joins.seen().text(), IsEmpty());
}

TEST_F(Bootstrap, DialsItsOnlyAddressAgainAfterMeetingItselfLessAndLessOften) {
  joins.join_at({first}, {}, now);
  for (auto pause : {0ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1'600ms, 3'200ms}) {
    EXPECT_PAUSE(wait(), pause);
    meet_ourselves_at(first);
  }
  for (int i = 0; i < 10; ++i) {
    wait();
    meet_ourselves_at(first);
  }
  EXPECT_PAUSE(wait(), 60s);
}

TEST_F(Bootstrap, AnAddressThatLeadsToItselfAndToOthersIsDialledAlsoWhileAPeerIsConnected) {
  joins.join_at({first}, {}, now);
  meet_ourselves_at(first);
  wait();
  reach(first, 2);
  EXPECT_THAT(joins.seen().text(), HasSubstr("first:7700 leads to this peer and to others"));
  EXPECT_THAT(joins.failures(), IsEmpty());
  for (auto pause : {250ms, 500ms, 1'000ms, 2'000ms}) {
    EXPECT_PAUSE(wait(), pause);
    reach(first, 2);
  }
  wait();
  meet_ourselves_at(first);
  wait();
  reach(first, 3);
  EXPECT_TRUE(joins.next()) << "there may be more";
}

TEST_F(Bootstrap, AnAddressThatGetsANewOwnerIsNotTakenForThatOfMany) {
  joins.join_at({first}, {}, now);
  (void)joins.due(now);
  joins.reached(first, numbered(2).id, now);
  link(2);
  lose(2);
  wait();
  reach(first, 3);
  EXPECT_FALSE(joins.next());
  EXPECT_THAT(joins.seen().text(), IsEmpty());
}

// All peers are given the same list, and are on it.
TEST_F(Bootstrap, AnInitialPeerBeginsTheRunOnceTheOthersFailed) {
  joins.join_at({first, second}, {}, now);
  (void)joins.due(now);
  joins.met_ourselves(first, now);
  EXPECT_FALSE(joins.joined()) << "the other one may be reachable";
  joins.failed(second, refused, now);
  EXPECT_TRUE(joins.joined());
  EXPECT_TRUE(joins.addresses_known());
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(first));
  joins.met_ourselves(first, now);
  now += 300ms;
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
}

// -- names ---------------------------------------------------------------------------------------

TEST_F(Bootstrap, DialsAllAddressesOfANameOneShortlyAfterTheOther) {
  join_at_name({first, second, third});
  EXPECT_THAT(joins.due(now), ElementsAre(first));
  EXPECT_EQ(joins.given_for(first), name);
  now += 250ms;
  EXPECT_THAT(joins.due(now), ElementsAre(second)) << "the first one is silent";
  EXPECT_THAT(joins.due(now), IsEmpty());
  joins.failed(second, refused, now);
  EXPECT_THAT(joins.due(now), ElementsAre(third)) << "at once: the second one failed";
  joins.reached(third, numbered(3).id, now);
  EXPECT_TRUE(joins.joined());
  EXPECT_THAT(joins.failures(), IsEmpty());
}

TEST_F(Bootstrap, MeetingItselfRemovesAnAddressAndNotItsName) {
  join_at_name({first, second});
  meet_ourselves_at(first);
  EXPECT_EQ(wait(), 0ms);
  EXPECT_THAT(joins.due(now), ElementsAre(second));
  EXPECT_FALSE(joins.joined());
  joins.failed(second, refused, now);
  EXPECT_TRUE(joins.joined());
  EXPECT_TRUE(joins.addresses_known()) << "the second one may come";
  EXPECT_EQ(joins.initial_addresses(), 1U);
  EXPECT_THAT(joins.failures(), ElementsAre("name:7700: second:7700: unreachable: refused"));
  for (auto began = now; now < began + 5s; wait()) {
    for (const auto& where : joins.due(now)) {
      EXPECT_EQ(where, second);
      joins.failed(where, refused, now);
    }
    resolve({first, second});
  }
  now += 60s;
  (void)joins.due(now);
  joins.reached(second, numbered(2).id, now);
  EXPECT_THAT(joins.seen().text(), IsEmpty());
}

TEST_F(Bootstrap, EachAddressOfANameIsJudgedAlone) {
  join_at_name({first, second});
  now += 250ms;
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
  EXPECT_TRUE(joins.failed(first, {ec::wrong_run, "other"}, now));
  EXPECT_THAT(joins.failures(), IsEmpty()) << "the second one may answer";
  EXPECT_TRUE(joins.failed(second, refused, now));
  EXPECT_THAT(
    joins.failures(),
    ElementsAre("name:7700: first:7700: wrong_run: other, second:7700: unreachable: refused"));
  now += 1s;
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
  joins.reached(second, numbered(2).id, now);
  link(2);
  EXPECT_THAT(joins.failures(), IsEmpty());
  joins.failed(first, {ec::wrong_run, "other"}, now);
  now += 1s;
  EXPECT_THAT(joins.due(now), ElementsAre(first)) << "the other link has no part in it";
}

TEST_F(Bootstrap, ANameIsResolvedAgainAndItsNewAddressesAreDialled) {
  joins.join_at({name}, {}, now, {name});
  EXPECT_THAT(joins.due(now), IsEmpty());
  EXPECT_THAT(joins.unresolved(now), ElementsAre(name));
  EXPECT_THAT(joins.unresolved(now), IsEmpty());
  EXPECT_TRUE(joins.resolved(name, failure{ec::unreachable, "not found"}, now));
  EXPECT_FALSE(joins.joined());
  EXPECT_THAT(joins.failures(), ElementsAre("name:7700: not found"));
  EXPECT_PAUSE(wait(), 250ms);
  EXPECT_THAT(joins.unresolved(now), ElementsAre(name));
  EXPECT_FALSE(joins.resolved(name, failure{ec::unreachable, "not found"}, now));
  wait();
  resolve({first});
  EXPECT_THAT(joins.due(now), ElementsAre(first));
  joins.failed(first, refused, now);
  now += 2s;
  resolve({second});
  EXPECT_THAT(joins.due(now), ElementsAre(second)) << "the first is no longer its address";
  joins.reached(second, numbered(2).id, now);
  link(2);
  now += 2s;
  resolve({second});
  EXPECT_PAUSE(wait(), 30s);
  resolve({third});
  EXPECT_THAT(joins.due(now), ElementsAre(third));
  lose(2);
  now += 1s;
  EXPECT_THAT(joins.due(now), ElementsAre(second)) << "a peer was connected there";
}

TEST_F(Bootstrap, ANameOfManyPeersIsDialledUntilEnoughAreConnected) {
  options.known_at_once = 2;
  joins = bootstrap{options, random_source{5}};
  join_at_name({first, second, third});
  EXPECT_THAT(joins.due(now), ElementsAre(first));
  joins.reached(first, numbered(1).id, now);
  link(1);
  now += 250ms;
  EXPECT_THAT(joins.due(now), ElementsAre(second)) << "it may be another half of the run";
  joins.reached(second, numbered(2).id, now);
  link(2);
  now += 10s;
  EXPECT_THAT(joins.due(now), IsEmpty());
  lose(2);
  now += 1s;
  EXPECT_THAT(joins.due(now), UnorderedElementsAre(second, third));
}

TEST_F(Bootstrap, DoesNotDialConnectedPeers) {
  joins.join_at({first, second}, {}, now);
  (void)joins.due(now);
  joins.reached(first, numbered(1).id, now);
  joins.reached(second, numbered(2).id, now);
  link(1);
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(second));
  joins.reached(second, numbered(2).id, now);
  link(2);
  EXPECT_FALSE(joins.next());
}

TEST_F(Bootstrap, AnInitialPeerThatSentAGoodbyeIsTriedAgain) {
  joins.join_at({first}, {}, now);
  (void)joins.due(now);
  joins.reached(first, numbered(1).id, now);
  link_for_a_while(1);
  lose(1, ec::shutting_down);
  EXPECT_PAUSE(wait(), 200ms);
  EXPECT_THAT(joins.due(now), ElementsAre(first));
}

TEST_F(Bootstrap, AnOrderlyEndOfEitherPeerIsNoNews) {
  auto dial = [this] {
    do { // the name is looked up again in between
      wait();
      (void)joins.unresolved(now);
    } while (joins.due(now).empty());
  };
  joins.join_at({first, name}, {}, now, {name});
  (void)joins.unresolved(now);
  EXPECT_FALSE(joins.resolved(name, failure{ec::shutting_down, ""}, now));
  (void)joins.due(now);
  EXPECT_FALSE(joins.failed(first, {ec::shutting_down, ""}, now)) << "this peer stops";
  dial();
  joins.reached(first, numbered(1).id, now);
  link_for_a_while(1);
  lose(1, ec::shutting_down);
  dial();
  EXPECT_FALSE(joins.failed(first, refused, now)) << "it has left";
  EXPECT_THAT(joins.failures(), SizeIs(2)) << "the status has it";
  dial();
  joins.reached(first, numbered(1).id, now);
  link_for_a_while(1);
  lose(1);
  dial();
  EXPECT_TRUE(joins.failed(first, refused, now)) << "it came back, and was lost";
}

// -- when ----------------------------------------------------------------------------------------

TEST_F(Bootstrap, PausesDoubleAreJitteredAndStayShortAtFirst) {
  joins.join_at({first}, {}, now);
  fail_due();
  for (auto pause : {250ms, 500ms, 1'000ms, 1'000ms, 1'000ms}) {
    EXPECT_PAUSE(wait(), pause);
    fail_due();
  }
}

TEST_F(Bootstrap, APeerAwayForAMinuteIsTriedEveryOtherSecond) {
  joins.join_at({first}, {}, now);
  for (auto began = now; now < began + 60s; wait())
    fail_due();
  fail_due();
  EXPECT_LE(wait(), 2'500ms);
}

TEST_F(Bootstrap, APeerAwayForLongIsTriedOnceAMinute) {
  joins.join_at({first}, {}, now);
  auto began = now;
  std::size_t attempts = 0;
  for (; now < began + std::chrono::minutes{33}; ++attempts) {
    fail_due();
    EXPECT_LE(wait(), 75s);
  }
  EXPECT_LE(attempts, 200U);
  for (int i = 0; i < 5; ++i) {
    fail_due();
    EXPECT_PAUSE(wait(), 60s);
  }
}

TEST_F(Bootstrap, PausesBeginAgainAfterALinkThatLasted) {
  joins.join_at({first}, {}, now);
  for (int i = 0; i < 30; ++i) {
    fail_due();
    wait();
  }
  (void)joins.due(now);
  joins.reached(first, numbered(1).id, now);
  link_for_a_while(1);
  lose(1);
  for (auto pause : {200ms, 250ms, 500ms}) {
    EXPECT_PAUSE(wait(), pause);
    fail_due();
  }
}

// -- peers that were lost ------------------------------------------------------------------------

TEST_F(Bootstrap, TheFirstConnectionIsTheOneThatJoins) {
  joins.join_at({first}, {}, now);
  EXPECT_TRUE(joins.connected(numbered(1), now));
  EXPECT_FALSE(joins.connected(numbered(2), now));
  lose(1);
  lose(2);
  EXPECT_TRUE(joins.joined());
}

TEST_F(Bootstrap, APeerWhoseLinkBrokeIsDialledSoonAndThenWithGrowingPauses) {
  joins.join_at({}, {}, now);
  link_for_a_while(1);
  EXPECT_FALSE(joins.next());
  lose(1);
  for (auto pause : {200ms, 200ms, 400ms, 800ms, 1'000ms, 1'000ms}) {
    EXPECT_PAUSE(wait(), pause);
    EXPECT_THAT(joins.due(now), ElementsAre(address(1)));
    joins.failed(address(1), refused, now);
  }
  link(1);
  EXPECT_FALSE(joins.next()) << "it is connected again";
}

TEST_F(Bootstrap, APeerThatSentAGoodbyeIsNotDialled) {
  joins.join_at({}, {}, now);
  link_for_a_while(1);
  lose(1);
  link_for_a_while(1);
  lose(1, ec::shutting_down);
  EXPECT_FALSE(joins.next());
}

TEST_F(Bootstrap, APeerWithoutAnAddressIsNotDialled) {
  joins.join_at({}, {}, now);
  auto client = numbered(1);
  client.addresses.clear();
  joins.connected(client, now);
  joins.disconnected(client.id, ec::peer_lost, now);
  EXPECT_FALSE(joins.next());
}

TEST_F(Bootstrap, LinksThatBreakAtOnceAreDialledLessAndLessOften) {
  joins.join_at({}, {}, now);
  link_for_a_while(1);
  for (auto pause : {200ms, 200ms, 400ms, 800ms, 1'600ms, 3'200ms, 6'400ms}) {
    lose(1);
    EXPECT_PAUSE(wait(), pause);
    EXPECT_THAT(joins.due(now), ElementsAre(address(1)));
    joins.reached(address(1), numbered(1).id, now);
    link(1);
  }
  now += 60s; // a link that lasts
  lose(1);
  EXPECT_PAUSE(wait(), 200ms);
}

TEST_F(Bootstrap, AllAddressesOfAPeerHaveTheirTurn) {
  joins.join_at({}, {}, now);
  auto peer = numbered(1);
  peer.addresses = {first, second};
  joins.connected(peer, now);
  joins.disconnected(peer.id, ec::peer_lost, now);
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(first));
  EXPECT_EQ(wait(), 250ms) << "the first one is silent";
  EXPECT_THAT(joins.due(now), ElementsAre(second));
  joins.failed(first, refused, now);
  joins.failed(second, refused, now);
  now += 1s;
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
  joins.failed(first, {ec::wrong_run, {}}, now);
  joins.met_ourselves(second, now);
  EXPECT_FALSE(joins.next()) << "neither is its address any more";
}

TEST_F(Bootstrap, OfTooManyLostPeersTheOneAwayLongestIsForgotten) {
  options.lost_max = 3;
  joins = bootstrap{options, random_source{5}};
  joins.join_at({first}, {}, now);
  for (unsigned n : {1U, 2U, 3U, 4U}) {
    link(n);
    lose(n);
    now += 1ms;
  }
  now += 5s;
  EXPECT_THAT(joins.due(now), UnorderedElementsAre(first, address(2), address(3), address(4)));
}

TEST_F(Bootstrap, LostStrangersDoNotPushOutPeersOfTheRun) {
  options.lost_max = 3;
  options.lost_strangers_max = 2;
  joins = bootstrap{options, random_source{5}};
  joins.join_at({first}, {}, now);
  auto lose_stranger = [&](unsigned n) {
    link(n);
    joins.disconnected(numbered(n).id, ec::peer_lost, now, true);
    now += 1ms;
  };
  link(1);
  lose(1);
  for (unsigned n : {11U, 12U, 13U, 14U})
    lose_stranger(n);
  link(2);
  lose(2);
  now += 5s;
  EXPECT_THAT(joins.due(now), UnorderedElementsAre(first, address(1), address(2), address(14)));
}

TEST_F(Bootstrap, AnAddressThatNowBelongsToAnotherPeerIsForgotten) {
  joins.join_at({}, {}, now);
  link_for_a_while(1);
  lose(1);
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(address(1)));
  joins.reached(address(1), numbered(2).id, now);
  EXPECT_FALSE(joins.next());
  link_for_a_while(3);
  lose(3);
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(address(3)));
  joins.failed(address(3), {ec::wrong_run, {}}, now);
  EXPECT_FALSE(joins.next());
}

// -- peers known from earlier --------------------------------------------------------------------

TEST_F(Bootstrap, KnownPeersAreTriedBesideInitialOnes) {
  joins.join_at({first}, {known(1), known(2)}, now);
  EXPECT_THAT(joins.due(now), ElementsAre(first, address(1), address(2)));
  joins.failed(first, refused, now);
  joins.failed(address(1), refused, now);
  EXPECT_FALSE(joins.joined());
  EXPECT_THAT(joins.failures(), SizeIs(1)) << "only of the addresses that the operator gave";
  joins.reached(address(2), numbered(2).id, now);
  EXPECT_TRUE(joins.joined());
}

TEST_F(Bootstrap, KnownPeersAloneAreAddressesToJoinAt) {
  joins.join_at({}, {known(1)}, now);
  EXPECT_FALSE(joins.joined());
  EXPECT_TRUE(joins.addresses_known());
  EXPECT_EQ(joins.initial_addresses(), 0U);
}

TEST_F(Bootstrap, AnAddressIsDialledOnceHoweverManyHaveIt) {
  known_peer twin{numbered(2).id, {first, second}};
  known_peer other{numbered(3).id, {second}};
  joins.join_at({first}, {twin, other}, now);
  EXPECT_THAT(joins.due(now), ElementsAre(first, second));
}

TEST_F(Bootstrap, ManyKnownPeersAreTriedAFewAtATimeUntilEnoughAreConnected) {
  options.known_at_once = 2;
  joins = bootstrap{options, random_source{5}};
  joins.join_at({}, {known(1), known(2), known(3), known(4), known(5)}, now);
  EXPECT_THAT(joins.due(now), ElementsAre(address(1), address(2)));
  link(1);
  joins.reached(address(1), numbered(1).id, now);
  EXPECT_EQ(wait(), 1s);
  EXPECT_THAT(joins.due(now), ElementsAre(address(3), address(4)));
  link(4);
  joins.reached(address(4), numbered(4).id, now);
  EXPECT_EQ(wait(), 1s);
  EXPECT_THAT(joins.due(now), IsEmpty());
  joins.failed(address(2), refused, now);
  joins.failed(address(3), refused, now);
  EXPECT_THAT(joins.due(now), IsEmpty());
  EXPECT_FALSE(joins.next()) << "those two know the others";
  now += 60s;
  lose(4);
  wait();
  EXPECT_THAT(joins.due(now), ElementsAre(address(4))) << "reached since";
}

} // namespace
} // namespace waggle
