#include "runtime/allreduce/open_checks.hpp"

#include <gtest/gtest.h>

#include "runtime/core/float_vector.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

/// Part 3 is reduced by member 1.
class OpenChecks : public ::testing::Test {
protected:
  payload values(float value) const {
    return payload_of(std::make_shared<const float_vector>(parts_[3].count, value));
  }
  std::vector<open_checks::overdue_check> overdue(milliseconds at) {
    return checks_.overdue(start_ + at, 2'000ms, 8'000ms);
  }

  const round_plan plan_ = plan_for(3, 8, 4);
  const part_table parts_{plan_};
  const steady_time start_{5s};
  open_checks checks_{parts_, {aggregator::median, 1, 1}};
};

TEST_F(OpenChecks, KeepWhatIsShownUntilTheyAreClosed) {
  EXPECT_TRUE(checks_.empty());
  checks_.open(3, 1, false, start_);
  EXPECT_TRUE(checks_.is_open(3));
  EXPECT_TRUE(checks_.add(3, 0, 2, values(1), start_));
  EXPECT_EQ(checks_.add(3, 0, 2, values(1), start_).error().code, ec::duplicate_peer);
  EXPECT_TRUE(checks_.add(3, 2, 1, values(5), start_));
  EXPECT_EQ(checks_.evidence(3).present(), members_of({0, 2}));
  checks_.open(3, 1, true, start_); // as it is, but challenged
  EXPECT_EQ(checks_.evidence(3).present(), members_of({0, 2}));
  EXPECT_TRUE(checks_.is_challenged(3));
  checks_.start_over(3, start_);
  EXPECT_TRUE(checks_.evidence(3).present().empty());
  EXPECT_TRUE(checks_.is_challenged(3));
  checks_.close(3);
  EXPECT_TRUE(checks_.empty());
  EXPECT_FALSE(checks_.is_challenged(3));
}

TEST_F(OpenChecks, AreOverdueWhenNothingIsShown) {
  checks_.open(3, 1, false, start_);
  EXPECT_TRUE(overdue(1'999ms).empty());
  EXPECT_TRUE(checks_.add(3, 0, 2, values(1), start_ + 1'999ms));
  EXPECT_TRUE(overdue(3'998ms).empty());
  auto late = overdue(3'999ms);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].part, 3U);
  EXPECT_EQ(late[0].owner, 1U);
  EXPECT_FALSE(late[0].challenged);
  EXPECT_TRUE(overdue(4'000ms).empty()) << "reported once";
}

TEST_F(OpenChecks, OfOneOwnerAreShownOneAfterTheOther) {
  checks_.open(3, 1, false, start_);
  checks_.open(2, 1, false, start_);
  checks_.open(0, 0, false, start_);
  EXPECT_TRUE(checks_.add(2, 0, 2, values(1), start_ + 1'500ms));
  auto late = overdue(2'500ms);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].owner, 0U);
}

TEST_F(OpenChecks, HaveTwiceTheTimeFromTheChallengeOn) {
  checks_.open(3, 1, false, start_);
  checks_.open(3, 1, true, start_ + 1'000ms);
  checks_.open(3, 1, true, start_ + 2'000ms); // again: gives no more time
  EXPECT_TRUE(overdue(4'999ms).empty());
  auto late = overdue(5'000ms);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_TRUE(late[0].challenged);
}

TEST_F(OpenChecks, ThatAreChallengedDoNotWaitForOtherParts) {
  checks_.open(3, 1, true, start_);
  checks_.open(2, 1, true, start_ + 3'000ms);
  EXPECT_TRUE(checks_.add(2, 0, 2, values(1), start_ + 3'500ms));
  auto late = overdue(4'000ms);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].part, 3U);
}

TEST_F(OpenChecks, AreOverdueHoweverSlowlyTheyAreShown) {
  for (bool challenged : {false, true}) {
    checks_.clear();
    checks_.open(3, 1, challenged, start_);
    for (std::size_t member = 0; member < 6; ++member) {
      auto at = milliseconds{1'300 * static_cast<int>(member + 1)};
      EXPECT_TRUE(overdue(at).empty());
      EXPECT_TRUE(checks_.add(3, member, 1, values(1), start_ + at));
    }
    checks_.start_over(3, start_ + 7'900ms); // what was shown was wrong
    EXPECT_TRUE(overdue(7'999ms).empty());
    auto late = overdue(8'000ms);
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late[0].challenged, challenged);
    EXPECT_TRUE(overdue(8'001ms).empty()) << "reported once";
  }
}

} // namespace
} // namespace waggle
