#include "runtime/allreduce/round_weights.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

const member_set everybody = member_set::first(4);

/// As member 0, with weight 1, to which 1, 2 and 3 told theirs.
round_weights weights() {
  round_weights out{4, 0, 1};
  for (std::size_t member : {1, 2, 3})
    out.tell(member, static_cast<double>(member));
  return out;
}

TEST(RoundWeights, AddUpWhatAllReport) {
  auto w = weights();
  EXPECT_TRUE(w.report(1, everybody, 7, {1, 1, 2, 3}));
  EXPECT_TRUE(w.judge(everybody).empty());
  EXPECT_EQ(w.sum, 7);
}

TEST(RoundWeights, BlameTheMemberWhoseWeightAloneDiffers) {
  auto w = weights();
  EXPECT_TRUE(w.report(1, everybody, 9, {1, 1, 2, 5}));
  EXPECT_EQ(w.judge(everybody), members_of({3}));
}

TEST(RoundWeights, BlameTheReducerIfSeveralDifferOrOurs) {
  auto w = weights();
  EXPECT_TRUE(w.report(1, everybody, 9, {1, 1, 3, 4}));
  EXPECT_TRUE(w.report(2, everybody, 8, {2, 1, 2, 3}));
  EXPECT_EQ(w.judge(everybody), members_of({1, 2}));
}

TEST(RoundWeights, RefuseAListThatDoesNotAddUpOrChanges) {
  auto w = weights();
  EXPECT_FALSE(w.report(1, everybody, 8, {1, 1, 2, 3}));
  EXPECT_FALSE(w.report(1, everybody, 4, {1, 1, 2}));
  EXPECT_TRUE(w.report(1, everybody, 7, {1, 1, 2, 3}));
  EXPECT_FALSE(w.report(1, everybody, 8, {2, 1, 2, 3}));
}

TEST(RoundWeights, ForgetReportsOfOtherContributors) {
  auto w = weights();
  EXPECT_TRUE(w.report(1, everybody, 9, {1, 1, 3, 4}));
  w.enter(false, members_of({0, 2, 3}));
  EXPECT_TRUE(w.judge(everybody).empty()) << "it takes no part any more";
}

} // namespace
} // namespace waggle
