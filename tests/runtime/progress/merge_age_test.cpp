#include "runtime/progress/merge_age.hpp"

#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

struct MergeAge : ::testing::Test {
  merge_age age{2};
  merge_age::others others;

  MergeAge() {
    work(1, 100);
    work(2, 100);
    work(3, 100);
  }
  void work(unsigned who, std::uint64_t samples, bool known = true) {
    others[id_of(who)] = {samples, known};
  }
  void grow(unsigned who) { others[id_of(who)].work += 10; }
  bool outdated(std::uint64_t epoch) { return age.is_outdated(epoch_id{epoch}, others); }
};

TEST_F(MergeAge, IsNeverOutdatedWithinTheTolerance) {
  age.merged(epoch_id{5});
  for (std::uint64_t epoch = 5; epoch <= 7; ++epoch) {
    grow(1);
    grow(2);
    EXPECT_FALSE(outdated(epoch));
  }
}

TEST_F(MergeAge, BeyondItTheGrowthOfTwoOthersDecides) {
  EXPECT_FALSE(outdated(2));
  grow(1);
  grow(2);
  EXPECT_FALSE(outdated(3)) << "this may be from the epochs before";
  EXPECT_FALSE(outdated(4));
  grow(1);
  grow(1);
  EXPECT_FALSE(outdated(4)) << "a mean has two members";
  grow(3);
  EXPECT_TRUE(outdated(4));
  EXPECT_EQ(age.averaging(), (std::set{id_of(1), id_of(3)})) << "whose states are new";
  EXPECT_FALSE(outdated(4)) << "a download was begun; if it fails, they must go on again";
}

TEST_F(MergeAge, AMergeBeginsAnew) {
  EXPECT_FALSE(outdated(3));
  age.merged(epoch_id{4});
  grow(1);
  grow(2);
  EXPECT_FALSE(outdated(5));
  EXPECT_FALSE(outdated(7));
  grow(1);
  grow(2);
  EXPECT_TRUE(outdated(7));
  age.merged(epoch_id{7});
  EXPECT_TRUE(age.averaging().empty());
}

TEST_F(MergeAge, WhoeverWasAwayBeginsAnew) {
  EXPECT_FALSE(outdated(3));
  others.erase(id_of(1));
  grow(2);
  EXPECT_FALSE(outdated(3));
  work(1, 500);
  EXPECT_FALSE(outdated(3));
  grow(1);
  EXPECT_TRUE(outdated(3));
}

TEST_F(MergeAge, StrangersAloneDoNotDecideForWhoeverKnowsSomebody) {
  work(2, 100, false);
  work(3, 100, false);
  EXPECT_FALSE(outdated(3));
  grow(2);
  grow(3);
  EXPECT_FALSE(outdated(3));
  grow(1);
  EXPECT_TRUE(outdated(3));
}

TEST_F(MergeAge, AStrangerToAllBelievesTwo) {
  for (unsigned who : {1U, 2U, 3U})
    work(who, 100, false);
  EXPECT_FALSE(outdated(3));
  grow(2);
  EXPECT_FALSE(outdated(3));
  grow(3);
  EXPECT_TRUE(outdated(3));
}

TEST_F(MergeAge, AStateOfALaterEpochIsNew) {
  age.merged(epoch_id{9});
  EXPECT_FALSE(outdated(3));
  grow(1);
  grow(2);
  EXPECT_FALSE(outdated(3));
}

} // namespace
} // namespace waggle
