#include "runtime/config/fault_point.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using moment = fault_point::moment;

TEST(FaultPoint, NamesAMomentAndHowOftenItIsPassed) {
  EXPECT_EQ(*parse_fault_point("sent:7"), (fault_point{moment::sent, 7}));
  EXPECT_EQ(*parse_fault_point("received:1"), (fault_point{moment::received, 1}));
  EXPECT_EQ(*parse_fault_point("result:96"), (fault_point{moment::result, 96}));
  EXPECT_EQ(*parse_fault_point("prepared"), (fault_point{moment::prepared, 1}));
  EXPECT_EQ(*parse_fault_point("committed"), (fault_point{moment::committed, 1}));
}

TEST(FaultPoint, RefusesAnythingElseWithASentence) {
  for (const auto* text : {"", "sent", "sent:", "sent:x", "sent:-1", "prepared:2", "later:3"})
    EXPECT_FALSE(parse_fault_point(text)) << text;
  EXPECT_THAT(parse_fault_point("later:3").error().detail, ::testing::HasSubstr("received:K"));
  EXPECT_THAT(parse_fault_point("sent:0").error().detail, ::testing::HasSubstr("counts from 1"));
}

} // namespace
} // namespace waggle
