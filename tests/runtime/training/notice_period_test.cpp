#include "runtime/training/notice_period.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

constexpr steady_time start{1h};

TEST(LeaveNotice, IsFromASecondToAnHour) {
  for (auto within : {milliseconds{1s}, milliseconds{25s}, milliseconds{1h}})
    EXPECT_TRUE(leave_notice::check(within)) << within.count();
  for (auto within : {0ms, -1ms, 999ms, milliseconds{1h} + 1ms, milliseconds{24h}}) {
    leave_notice notice;
    auto refused = notice.give(within);
    ASSERT_FALSE(refused) << within.count();
    EXPECT_NE(refused.error().detail.find("from 1 s, which a goodbye takes, to 3600 s"),
              std::string::npos)
      << refused.error().detail;
    EXPECT_FALSE(notice.within());
  }
}

TEST(LeaveNotice, TheShortestCounts) {
  leave_notice notice;
  EXPECT_TRUE(notice.give(25s));
  EXPECT_TRUE(notice.give(60s));
  EXPECT_EQ(notice.within(), 25s);
  EXPECT_TRUE(notice.give(5s));
  EXPECT_EQ(notice.within(), 5s);
}

class NoticePeriod : public ::testing::Test {
protected:
  NoticePeriod() { EXPECT_TRUE(period.begin(25s, start)); }
  notice_period period;
};

TEST_F(NoticePeriod, EndsAtOnceIfNothingIsPending) {
  EXPECT_TRUE(period.ends({}, start));
  EXPECT_TRUE(period.ended());
}

TEST_F(NoticePeriod, LastsAsLongAsSamplesAreInNoUpdate) {
  EXPECT_FALSE(period.ends({.samples = 8}, start));
  EXPECT_FALSE(period.ends({.samples = 8, .round_runs = true}, start + 5s));
  EXPECT_FALSE(period.ends({.round_runs = true}, start + 6s)); // its update is not applied yet
  EXPECT_TRUE(period.ends({}, start + 7s));
  EXPECT_TRUE(period.ends({.samples = 8}, start + 8s)) << "it has left";
}

TEST_F(NoticePeriod, WaitsForThePassThatRunsAndForANewcomerThatNeedsTheState) {
  EXPECT_FALSE(period.ends({.pass_runs = true}, start));
  EXPECT_FALSE(period.ends({.only_donor = true}, start));
  EXPECT_FALSE(period.ends({.hands_over = true}, start + 22s));
  EXPECT_FALSE(period.ends({.samples = 8, .alone = true, .only_donor = true}, start + 20s));
}

TEST_F(NoticePeriod, KeepsTimeForTheGoodbye) {
  unfinished_work all{
    .samples = 8, .pass_runs = true, .round_runs = true, .only_donor = true, .hands_over = true};
  EXPECT_FALSE(period.ends(all, start + 22999ms));
  EXPECT_EQ(period.left(start + 22s), 1s);
  EXPECT_TRUE(period.ends(all, start + 23s));
  notice_period shorter;
  shorter.begin(5s, start);
  EXPECT_FALSE(shorter.ends(all, start + 3999ms));
  EXPECT_TRUE(shorter.ends(all, start + 4s));
}

TEST_F(NoticePeriod, OfAPeerAloneLastsUntilARoundOfItsOwnWouldHaveBegun) {
  EXPECT_FALSE(period.ends({.samples = 8, .alone = true}, start + 999ms));
  EXPECT_TRUE(period.ends({.samples = 8, .alone = true}, start + 1s));
}

TEST_F(NoticePeriod, BecomesShorterAndNeverLonger) {
  EXPECT_FALSE(period.begin(25s, start + 10s));
  EXPECT_FALSE(period.ends({.samples = 8}, start + 22s));
  EXPECT_FALSE(period.begin(5s, start + 10s));
  EXPECT_TRUE(period.ends({.samples = 8}, start + 22s));
}

TEST_F(NoticePeriod, HurriesIfTheNextRoundIsInTheSecondHalf) {
  EXPECT_FALSE(period.hurries(11.5, start));
  EXPECT_TRUE(period.hurries(11.6, start));
  EXPECT_TRUE(period.hurries(std::nullopt, start)) << "nobody knows";
  EXPECT_FALSE(period.hurries(-3, start + 11s)) << "it is late, and may come";
  EXPECT_TRUE(period.hurries(-3, start + 15s)) << "it may not";
}

} // namespace
} // namespace waggle
