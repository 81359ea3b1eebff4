// Extra auxiliaries, which join groups beside their members.

#include <gmock/gmock.h>

#include "tests/runtime/matchmaking/search_fixture.hpp"
#include "tests/runtime/matchmaking/search_swarm.hpp"

namespace waggle {
namespace {

struct ExtraAuxiliaries : ::testing::Test {
  group_search make(const group_search::seeker& self) {
    return {self, opts, now.steady + 30s, random_source{1}};
  }
  [[nodiscard]] swarm_time early() const { return now.swarm - 1s; }
  [[nodiscard]] swarm_time late() const { return now.swarm + 1h; }
  void pass(milliseconds time) {
    now.steady += time;
    now.swarm += time;
  }

  group_search::options opts{.target_group_size = 2};
  group_search::moment now{steady_time{1h}, swarm_time{500'000h}};
  static constexpr auto never = swarm_time::max();
};

TEST_F(ExtraAuxiliaries, JoinBesideTheMembers) {
  auto search = make(seeker(1));
  (void)search.start(now);
  auto joined = search.on_join(extra(8), never, now);
  EXPECT_EQ(joined.code, ec::none);
  EXPECT_TRUE(joined.then.empty()) << "the group is not complete";
  auto complete = search.on_join(seeker(2), late(), now);
  EXPECT_EQ(complete.code, ec::none);
  auto begun = all<group_search::begin>(complete.then);
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(begun[0].followers.size(), 2U);
}

TEST_F(ExtraAuxiliaries, AsManyAsMembersMayJoin) {
  auto search = make(seeker(1));
  (void)search.start(now);
  EXPECT_EQ(search.on_join(extra(7), never, now).code, ec::none);
  EXPECT_EQ(search.on_join(extra(7), never, now).code, ec::duplicate_peer);
  EXPECT_EQ(search.on_join(extra(8), never, now).code, ec::none);
  EXPECT_EQ(search.on_join(extra(9), never, now).code, ec::group_full);
  EXPECT_EQ(search.on_join(seeker(2), late(), now).code, ec::none) << "a member has its place";
}

TEST_F(ExtraAuxiliaries, ARoundHasALimitForAllAndMembersComeFirst) {
  opts.members_max = opts.target_group_size = 3;
  auto search = make(seeker(1));
  (void)search.start(now);
  EXPECT_EQ(search.on_join(extra(7), never, now).code, ec::none);
  EXPECT_EQ(search.on_join(extra(8), never, now).code, ec::none);
  EXPECT_EQ(search.on_join(extra(9), never, now).code, ec::group_full);
  for (unsigned member : {2, 3}) {
    auto joined = search.on_join(seeker(member), late(), now);
    EXPECT_EQ(joined.code, ec::none);
    EXPECT_EQ(count<group_search::disband>(joined.then), 1U) << "an auxiliary makes room";
    EXPECT_EQ(count<group_search::begin>(joined.then), member == 3 ? 1U : 0U);
  }
}

TEST_F(ExtraAuxiliaries, BeginWithAtMostAsManyMembers) {
  opts.target_group_size = 8;
  auto search = make(seeker(1));
  (void)search.start(now);
  for (unsigned n : {11, 12, 13, 14})
    EXPECT_EQ(search.on_join(extra(n), never, now).code, ec::none);
  (void)search.on_join(seeker(2), late(), now);
  pass(opts.min_matchmaking_time);
  auto expired = search.on_time(now);
  EXPECT_EQ(count<group_search::disband>(expired), 2U);
  auto begun = all<group_search::begin>(expired);
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(begun[0].followers.size(), 3U);
}

TEST_F(ExtraAuxiliaries, AskAllInTurn) {
  auto search = make(extra(1));
  for (unsigned n : {2, 3, 4})
    search.candidate(peer(n), {});
  EXPECT_EQ(asked(search.start(now)), 2U);
  EXPECT_EQ(asked(search.on_answer(peer(2).id, ec::not_looking, {}, now)), 3U);
  pass(10 * opts.retry); // peer 2 may be asked again
  EXPECT_EQ(asked(search.on_answer(peer(3).id, ec::not_looking, {}, now)), 4U);
}

TEST_F(ExtraAuxiliaries, CountTowardNoMinimum) {
  opts.target_group_size = 4;
  auto search = make(seeker(1));
  (void)search.start(now);
  (void)search.on_join(extra(8), never, now);
  pass(opts.min_matchmaking_time);
  auto expired = search.on_time(now);
  EXPECT_EQ(count<group_search::begin>(expired), 0U);
  EXPECT_EQ(count<group_search::disband>(expired), 1U);
  (void)search.on_join(extra(8), never, now);
  (void)search.on_join(seeker(2), late(), now);
  pass(opts.min_matchmaking_time);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1U);
}

TEST_F(ExtraAuxiliaries, AreNotWaitedForAndDelayNoPair) {
  auto search = make(seeker(2));
  search.candidate(peer(1), {});
  EXPECT_EQ(asked(search.start(now)), 1U);
  (void)search.on_join(extra(8), never, now);
  EXPECT_TRUE(search.on_join(seeker(3), late(), now).then.empty()) << "peer 1 may lead this pair";
  pass(opts.answer_wait);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1U);
}

TEST_F(ExtraAuxiliaries, NeverDeclareOrLead) {
  opts.target_group_size = 1;
  opts.min_group_size = 1;
  auto search = make(extra(1));
  search.candidate(peer(2), late());
  auto begun = search.start(now);
  EXPECT_EQ(count<group_search::declare>(begun), 0U);
  EXPECT_EQ(count<group_search::begin>(begun), 0U);
  auto asks = all<group_search::ask>(begun);
  ASSERT_EQ(asks.size(), 1U) << "also a peer that ranks behind it";
  EXPECT_EQ(asks[0].expiration, never);
  (void)search.on_answer(peer(2).id, ec::not_looking, {}, now);
  pass(opts.min_matchmaking_time);
  auto expired = search.on_time(now);
  EXPECT_EQ(count<group_search::begin>(expired), 0U);
  EXPECT_EQ(count<group_search::declare>(expired), 0U);
}

TEST_F(ExtraAuxiliaries, AskWhoeverAsksThem) {
  auto search = make(extra(1));
  EXPECT_EQ(asked(search.start(now)), 0U);
  auto answer = search.on_join(seeker(5), late(), now);
  EXPECT_EQ(answer.code, ec::bad_expiration);
  EXPECT_EQ(asked(answer.then), 5U);
  EXPECT_EQ(search.on_join(extra(6), never, now).code, ec::not_a_leader) << "nor do they pair up";
  (void)search.on_answer(peer(5).id, ec::none, {}, now);
  EXPECT_EQ(search.on_join(seeker(4), early(), now).code, ec::bad_expiration);
  EXPECT_TRUE(search.on_begin(peer(5).id));
}

TEST_F(ExtraAuxiliaries, GoWithTheirLeaderToTheOneThatItFollows) {
  auto search = make(extra(1));
  search.candidate(peer(5), late());
  (void)search.start(now);
  (void)search.on_answer(peer(5).id, ec::none, {}, now);
  EXPECT_EQ(asked(search.on_disband(peer(5).id, peer(4), now)), 4U);
}

} // namespace

namespace testing {
namespace {

/// Peers in pairs, and extra auxiliaries that search all the time.
TEST(ExtraAuxiliariesOfASwarm, EveryPairIsAsWithoutThem) {
  std::size_t with_auxiliary = 0;
  std::size_t pairs = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    for (std::size_t auxiliaries : {1, 2}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      conditions given{
        .peers = 4 + auxiliaries, .extra = auxiliaries, .delay_max = seed % 3 == 0 ? 20ms : 2ms};
      given.options.target_group_size = 2;
      swarm s{seed, given};
      s.run();
      expect_contract(s, given);
      for (std::size_t i = 0; i < 4; ++i) {
        const auto& m = s.members()[i];
        ASSERT_TRUE(m.formed) << "peer " << i << ": " << to_string(*m.failed);
        EXPECT_LT(m.formed->leader, 4U) << "an auxiliary leads";
        if (m.formed->leader != i)
          continue;
        ++pairs;
        with_auxiliary += m.formed->members.size() > 2 ? 1 : 0;
      }
    }
  EXPECT_GT(with_auxiliary, pairs / 3);
}

} // namespace
} // namespace testing
} // namespace waggle
