#include <gtest/gtest.h>

#include "runtime/allreduce/round_report.hpp"

namespace waggle {
namespace {

round_report committed(double weight_sum) {
  return {.outcome = round_outcome::complete,
          .group_size = 3,
          .weight_sum = weight_sum,
          .allreduce_seconds = 1};
}

TEST(ReportOfTwo, HasTheCostOfBothAndTheSizeOfTheFirst) {
  auto second = committed(5);
  second.group_size = 2;
  second.allreduce_seconds = 2;
  auto both = report_of_two(committed(8), second);
  EXPECT_EQ(both.group_size, 3U);
  EXPECT_EQ(both.allreduce_seconds, 3);
  EXPECT_EQ(both.weight_sum, 5) << "of those whose samples are in the result";
  EXPECT_EQ(both.outcome, round_outcome::complete);
}

TEST(ReportOfTwo, SaysWhyTheFirstOneShrank) {
  auto first = committed(8);
  first.outcome = round_outcome::shrunk;
  first.why = {ec::peer_lost, "gone"};
  EXPECT_EQ(report_of_two(first, committed(5)).why.code, ec::peer_lost);
  EXPECT_EQ(report_of_two(first, committed(5)).outcome, round_outcome::shrunk);
  auto second = committed(5);
  second.outcome = round_outcome::shrunk;
  second.why = {ec::timeout, "late"};
  EXPECT_EQ(report_of_two(first, second).why.code, ec::timeout) << "the later reason";
}

// Each member would use its own first vector instead, and the results would differ.
TEST(ReportOfTwo, WithoutAFirstMeanThereIsNone) {
  EXPECT_EQ(report_of_two(committed(0), committed(5)).weight_sum, 0);
  EXPECT_EQ(report_of_two(committed(5), committed(0)).weight_sum, 0);
}

} // namespace
} // namespace waggle
