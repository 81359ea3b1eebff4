#include "runtime/averaging/standing_group.hpp"

#include <gtest/gtest.h>

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

TEST(StandingGroup, StandsOnlyAfterARound) {
  standing_group group;
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 0));
  group.establish(two_members());
  EXPECT_TRUE(group.next(epoch_id{4}, vector_of(10), 0));
  group.dissolve();
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 0));
}

TEST(StandingGroup, AllMembersDeriveTheSameNextRound) {
  standing_group mine;
  standing_group theirs;
  mine.establish(two_members());
  theirs.establish(two_members());
  auto next = mine.next(epoch_id{4}, vector_of(10), 2);
  ASSERT_TRUE(next);
  EXPECT_EQ(next, theirs.next(epoch_id{4}, vector_of(10), 0));
  EXPECT_EQ(next->epoch, epoch_id{4});
  EXPECT_EQ(next->members, two_members().members);
  EXPECT_TRUE(validate_plan(*next));
}

TEST(StandingGroup, EveryRoundAndEpochHasAnIdOfItsOwn) {
  standing_group group;
  group.establish(two_members());
  auto first = group.next(epoch_id{4}, vector_of(10), 0);
  EXPECT_NE(first->id, two_members().id);
  EXPECT_NE(first->id, group.next(epoch_id{5}, vector_of(10), 0)->id);
  group.establish(*first);
  EXPECT_NE(first->id, group.next(epoch_id{4}, vector_of(10), 0)->id);
}

TEST(StandingGroup, DoesNotFitAnotherVectorOrAnotherNumberOfPeers) {
  standing_group group;
  group.establish(two_members());
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(11), 0));
  EXPECT_FALSE(group.next(epoch_id{4}, vector_of(10), 3));
}

TEST(StandingGroup, KnowsItsMembers) {
  standing_group group;
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
