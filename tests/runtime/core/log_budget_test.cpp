#include "runtime/core/log_budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty;

const steady_time start{};

TEST(LogBudget, LimitsTheLinesOfAKindAndSaysHowManyWereLeftOut) {
  log_budget budget{{.lines = 3, .window = 60s}};
  int lines = 0;
  int remarks = 0;
  for (int i = 0; i < 1000; ++i) {
    auto verdict = budget.take("links", start + i * 1ms);
    lines += verdict.log ? 1 : 0;
    remarks += verdict.remark.empty() ? 0 : 1;
  }
  EXPECT_EQ(lines, 3);
  EXPECT_EQ(remarks, 1) << "that further lines are left out";
  auto next = budget.take("links", start + 60s);
  EXPECT_TRUE(next.log);
  EXPECT_THAT(next.remark, HasSubstr("997 more lines"));
  EXPECT_THAT(budget.take("links", start + 61s).remark, IsEmpty());
}

TEST(LogBudget, CountsEachKindByItself) {
  log_budget budget{{.lines = 1, .window = 60s}};
  EXPECT_TRUE(budget.take("links", start).log);
  EXPECT_FALSE(budget.take("links", start).log);
  EXPECT_TRUE(budget.take("clocks", start).log) << "a flood of one kind does not hide another";
}

TEST(LogBudget, AllowsTheSameAgainInTheNextWindow) {
  log_budget budget{{.lines = 2, .window = 60s}};
  for (int minute = 0; minute < 5; ++minute)
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(budget.take("links", start + minute * 60s + i * 1s).log, i < 2) << minute;
}

} // namespace
} // namespace waggle
