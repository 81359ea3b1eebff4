#include "runtime/averaging/persistent_group.hpp"

#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

codec_plan vector_of(std::uint64_t elements) {
  return {{elements, codec_id::none}};
}

round_plan two_members() {
  round_plan plan;
  plan.id.bytes.fill(std::byte{7});
  plan.prefix = "vector";
  plan.epoch = epoch_id{3};
  plan.members.resize(2);
  plan.members[1].peer.id.bytes.fill(std::byte{9});
  plan.elements = 10;
  plan.part_elements = 4;
  plan.shares = {5, 5};
  plan.codecs = vector_of(10);
  plan.gathered.resize(2);
  return plan;
}

TEST(PersistentGroup, StandsOnlyAfterARound) {
  persistent_group group;
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 0));
  group.establish(two_members());
  EXPECT_TRUE(group.next(epoch_id{4}, vector_of(10), 0));
  group.dissolve();
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 0));
}

TEST(PersistentGroup, AllMembersDeriveTheSameNextRound) {
  persistent_group mine;
  persistent_group theirs;
  mine.establish(two_members());
  theirs.establish(two_members());
  auto next = mine.next(epoch_id{4}, vector_of(10), 2);
  ASSERT_TRUE(next);
  EXPECT_EQ(next, theirs.next(epoch_id{4}, vector_of(10), 0));
  EXPECT_EQ(next->epoch, epoch_id{4});
  EXPECT_EQ(next->members, two_members().members);
  EXPECT_TRUE(validate_plan(*next));
}

TEST(PersistentGroup, EveryRoundAndEpochHasAnIdOfItsOwn) {
  persistent_group group;
  group.establish(two_members());
  auto first = group.next(epoch_id{4}, vector_of(10), 0);
  EXPECT_NE(first->id, two_members().id);
  EXPECT_NE(first->id, group.next(epoch_id{5}, vector_of(10), 0)->id);
  group.establish(*first);
  EXPECT_NE(first->id, group.next(epoch_id{4}, vector_of(10), 0)->id);
}

TEST(PersistentGroup, DoesNotFitAnotherVectorOrAnotherNumberOfPeers) {
  persistent_group group;
  group.establish(two_members());
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(11), 0));
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 3));
}

// -- changing bandwidths --------------------------------------------------------------------------

constexpr double fast = 12e6;
constexpr double slow = 3e6;
constexpr std::uint64_t elements = 1U << 20U;

/// A round of four members with equal shares.
round_plan four_members() {
  auto plan = plan_for(4, elements / 4, part_size{}.largest);
  plan.epoch = epoch_id{3};
  return plan;
}

partition_terms leading(member_bandwidths lines) {
  partition_terms terms;
  terms.bandwidths = std::move(lines);
  return terms;
}

TEST(PersistentGroup, RepartitionsTheNextRoundForASlowLink) {
  persistent_group leader;
  persistent_group member;
  leader.agree_on(four_members(), leading(member_bandwidths(4, fast)));
  member.agree_on(four_members(), {});
  auto first = four_members();
  // While the first round runs.
  auto how = leader.on_bandwidth(first, first.members[3].peer.id, slow);
  ASSERT_TRUE(how);
  EXPECT_EQ(how->shares[3], 0U);
  EXPECT_LT(how->part_elements, first.part_elements);
  EXPECT_TRUE(member.on_partition(first.id, first, *how, 1));
  leader.establish(first);
  member.establish(first);
  auto next = leader.next(epoch_id{4}, first.codecs, 4);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->shares, how->shares);
  EXPECT_EQ(next->part_elements, how->part_elements);
  EXPECT_EQ(next->members, first.members);
  EXPECT_TRUE(validate_plan(*next));
  EXPECT_EQ(next, member.next(epoch_id{4}, first.codecs, 0));
  // The following rounds use the same partition.
  leader.establish(*next);
  auto third = leader.next(epoch_id{5}, first.codecs, 4);
  EXPECT_EQ(third->shares, how->shares);
  EXPECT_FALSE(leader.replaced(epoch_id{5}));
}

TEST(PersistentGroup, RoundsByTheOldDivisionHaveAnotherId) {
  persistent_group knows;
  persistent_group late;
  knows.agree_on(four_members(), {});
  late.agree_on(four_members(), {});
  auto first = four_members();
  vector_partition how{{elements, 0, 0, 0}, 8192};
  ASSERT_TRUE(knows.on_partition(first.id, first, how, 1));
  knows.establish(first);
  late.establish(first);
  auto old = late.next(epoch_id{4}, first.codecs, 4);
  EXPECT_NE(knows.next(epoch_id{4}, first.codecs, 4)->id, old->id);
  EXPECT_EQ(knows.replaced(epoch_id{4}), old->id);
  EXPECT_FALSE(late.replaced(epoch_id{4}));
  // It receives the partition after it has begun the round.
  ASSERT_TRUE(late.on_partition(first.id, *old, how, 1));
  EXPECT_EQ(late.next(epoch_id{4}, first.codecs, 4), knows.next(epoch_id{4}, first.codecs, 4));
  // Different partitions give different rounds.
  auto once = knows.next(epoch_id{4}, first.codecs, 4)->id;
  how.part_elements = 16'384;
  ASSERT_TRUE(knows.on_partition(first.id, first, how, 1));
  auto twice = knows.next(epoch_id{4}, first.codecs, 4)->id;
  how.shares = {0, elements, 0, 0};
  ASSERT_TRUE(knows.on_partition(first.id, first, how, 1));
  auto thrice = knows.next(epoch_id{4}, first.codecs, 4)->id;
  EXPECT_EQ((std::set<round_id>{old->id, once, twice, thrice}.size()), 4U);
}

TEST(PersistentGroup, DoesNotAnnounceSmallChanges) {
  persistent_group leader;
  leader.agree_on(four_members(), leading(member_bandwidths(4, fast)));
  auto plan = four_members();
  EXPECT_FALSE(leader.on_bandwidth(plan, plan.members[2].peer.id, fast * 0.97));
  EXPECT_FALSE(leader.on_bandwidth(plan, plan.members[2].peer.id, fast * 1.08));
  auto how = leader.on_bandwidth(plan, plan.members[3].peer.id, slow);
  ASSERT_TRUE(how);
  EXPECT_FALSE(leader.on_bandwidth(plan, plan.members[3].peer.id, slow * 0.97))
    << "compared with the bandwidth announced before";
  EXPECT_TRUE(leader.on_bandwidth(plan, plan.members[3].peer.id, fast))
    << "a change back is announced, too";
}

TEST(PersistentGroup, ADeclaredBandwidthStays) {
  persistent_group leader;
  member_bandwidths known(4, fast);
  known[3] = {fast, true};
  leader.agree_on(four_members(), leading(known));
  EXPECT_FALSE(leader.on_bandwidth(four_members(), four_members().members[3].peer.id, slow));
}

TEST(PersistentGroup, OnlyTheLeaderDivides) {
  persistent_group member;
  member.agree_on(four_members(), {});
  EXPECT_FALSE(member.on_bandwidth(four_members(), four_members().members[3].peer.id, slow));
}

TEST(PersistentGroup, AMemberThatNeverReducesRefusesAShare) {
  persistent_group leader;
  leader.agree_on(four_members(), leading({fast, fast, fast, 0.0}));
  auto plan = four_members();
  plan.shares = {elements / 2, elements / 4, elements / 4, 0};
  EXPECT_FALSE(leader.on_bandwidth(plan, plan.members[3].peer.id, fast * 10));
  EXPECT_FALSE(leader.on_bandwidth(plan, {}, fast)) << "not one of the members";
  auto how = leader.on_bandwidth(plan, plan.members[1].peer.id, slow);
  ASSERT_TRUE(how);
  EXPECT_EQ(how->shares[3], 0U);
}

TEST(PersistentGroup, EndsWithADivisionThatIsRefused) {
  partition_terms never;
  never.reduces = false;
  partition_terms fixed;
  fixed.parts.chosen = false;
  auto plan = four_members();
  plan.shares = {elements, 0, 0, 0};
  const vector_partition good{{elements / 2, 0, elements / 2, 0}, 8192};
  auto with = [&](auto&& change) {
    auto how = good;
    change(how);
    return how;
  };
  const std::vector<std::tuple<const char*, partition_terms, vector_partition>> refused{
    {"does not cover", {}, with([](vector_partition& how) { how.shares[0] -= 1; })},
    {"too few shares", {}, with([](vector_partition& how) { how.shares.pop_back(); })},
    {"no parts", {}, with([](vector_partition& how) { how.part_elements = 0; })},
    {"tiny parts", {}, with([](vector_partition& how) { how.part_elements = 8191; })},
    {"large parts", {}, with([](vector_partition& how) { how.part_elements <<= 5U; })},
    {"another fixed size", fixed, good},
    {"we never reduce", never,
     with([](vector_partition& how) { std::swap(how.shares[1], how.shares[2]); })}};
  for (const auto& [why, terms, how] : refused) {
    persistent_group member;
    member.agree_on(four_members(), terms);
    auto valid = member.on_partition(plan.id, plan, how, 1);
    ASSERT_FALSE(valid) << why;
    EXPECT_EQ(valid.error().code, ec::protocol_violation) << why;
    member.establish(plan);
    EXPECT_FALSE(member.next(epoch_id{4}, plan.codecs, 4)) << why;
  }
  persistent_group member;
  member.agree_on(four_members(), {});
  EXPECT_TRUE(member.on_partition(plan.id, plan, good, 1));
}

TEST(PersistentGroup, ADivisionAfterAnotherRoundDoesNotCount) {
  persistent_group member;
  member.agree_on(four_members(), {});
  auto plan = four_members();
  ASSERT_TRUE(member.on_partition(plan.id, plan, {{elements, 0, 0, 0}, 8192}, 1));
  plan.id.bytes[0] = std::byte{1};
  member.establish(plan);
  EXPECT_EQ(member.next(epoch_id{4}, plan.codecs, 4)->shares, plan.shares);
}

TEST(PersistentGroup, KnowsItsMembers) {
  persistent_group group;
  auto plan = two_members();
  EXPECT_FALSE(group.contains(plan.members[1].peer.id));
  group.establish(plan);
  EXPECT_TRUE(group.contains(plan.members[1].peer.id));
  peer_id stranger;
  stranger.bytes.fill(std::byte{1});
  EXPECT_FALSE(group.contains(stranger));
}

} // namespace
} // namespace waggle
