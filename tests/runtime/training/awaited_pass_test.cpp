#include "runtime/training/awaited_pass.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(AwaitedPass, GivesWhatItsEndGotOnce) {
  awaited_pass pass;
  EXPECT_FALSE(pass.wanted());
  pass.want(nullptr);
  pass.begin();
  EXPECT_TRUE(pass.wanted() && pass.began());
  EXPECT_FALSE(pass.ended());
  pass.end({0.5, 3});
  EXPECT_FALSE(pass.wanted() || pass.began());
  EXPECT_TRUE(pass.ended());
  auto result = pass.take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->samples, 3U);
  EXPECT_FALSE(pass.take());
}

TEST(AwaitedPass, IsNotWantedOnceNobodyWaits) {
  awaited_pass pass;
  pass.want(nullptr);
  EXPECT_FALSE(pass.take());
  EXPECT_FALSE(pass.wanted());
}

TEST(AwaitedPass, AsksWhetherItIsDueFromItsBeginUntilItIsAndNoMore) {
  int asked = 0;
  learner::early_gradient when{[&asked] { return ++asked == 2; }, {}};
  awaited_pass pass;
  pass.want(&when);
  EXPECT_FALSE(pass.due_early()) << "it has not begun";
  EXPECT_EQ(asked, 0);
  pass.begin();
  EXPECT_FALSE(pass.due_early());
  EXPECT_TRUE(pass.due_early());
  EXPECT_FALSE(pass.due_early());
  EXPECT_EQ(asked, 2);
  pass.want(&when);
  (void)pass.take();
  EXPECT_FALSE(pass.due_early()) << "who wanted it is gone, and `when` with it";
  EXPECT_EQ(asked, 2);
}

TEST(AwaitedPass, WasOfferedEarlyUntilNobodyWaits) {
  awaited_pass pass;
  EXPECT_FALSE(pass.early());
  pass.offer_early();
  pass.end({});
  EXPECT_TRUE(pass.early());
  (void)pass.take();
  EXPECT_FALSE(pass.early());
}

} // namespace
} // namespace waggle
