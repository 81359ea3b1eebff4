#include "runtime/net/narrow_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle::net {
namespace {

using ::testing::IsEmpty, ::testing::SizeIs;
using width = narrow_paths::width;

const steady_time t0{1h};
const endpoint at_1{"10.0.0.1", 7700}, at_2{"10.0.0.2", 7700};

bool suspect(narrow_paths& paths, const std::string& host, const endpoint& where,
             steady_time when) {
  (void)paths.ended_stuck(host, when - 1s);
  paths.opened(host, where);
  return paths.ended_stuck(host, when);
}

TEST(NarrowPaths, TwoLinksThatGotStuckMakeAHostSuspected) {
  narrow_paths paths;
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.2", t0));
  EXPECT_FALSE(paths.contains("10.0.0.1", t0));
  paths.opened("10.0.0.1", at_1);
  paths.opened("10.0.0.2", at_2);
  EXPECT_TRUE(paths.ended_stuck("10.0.0.1", t0 + 30s));
  EXPECT_TRUE(paths.contains("10.0.0.1", t0 + 30s)) << "a link may use small segments meanwhile";
  EXPECT_FALSE(paths.found()) << "nobody is told yet";
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0 + 31s)) << "it is suspected already";
  EXPECT_FALSE(paths.contains("10.0.0.2", t0 + 31s));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.2", t0 + 2min)) << "too long after the first";
  paths.opened("10.0.0.2", at_2);
  EXPECT_TRUE(paths.ended_stuck("10.0.0.2", t0 + 2min + 1s));
}

TEST(NarrowPaths, AProbeDecidesAndDecidesAgain) {
  narrow_paths paths;
  ASSERT_TRUE(suspect(paths, "10.0.0.1", at_1, t0));
  auto due = paths.due(t0);
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].second, at_1);
  EXPECT_THAT(paths.due(t0 + 4s), IsEmpty());
  paths.probed("10.0.0.1", width::unknown);
  ASSERT_THAT(paths.due(t0 + 5s), SizeIs(1));
  paths.probed("10.0.0.1", width::narrow);
  EXPECT_EQ(paths.found(), "10.0.0.1");
  EXPECT_TRUE(paths.contains("10.0.0.1", t0 + 59min));
  ASSERT_THAT(paths.due(t0 + 10s), SizeIs(1));
  EXPECT_THAT(paths.due(t0 + 29s), IsEmpty());
  ASSERT_THAT(paths.due(t0 + 30s), SizeIs(1));
  paths.probed("10.0.0.1", width::unknown);
  EXPECT_TRUE(paths.found()) << "its machine may be off";
  paths.probed("10.0.0.1", width::wide);
  EXPECT_FALSE(paths.found()) << "the path was mended";
  EXPECT_FALSE(paths.any());
}

TEST(NarrowPaths, TwoShortCutsAreForgottenAsSoonAsALargeMessagePasses) {
  narrow_paths paths;
  ASSERT_TRUE(suspect(paths, "10.0.0.1", at_1, t0));
  ASSERT_THAT(paths.due(t0), SizeIs(1));
  paths.probed("10.0.0.1", width::wide);
  EXPECT_FALSE(paths.contains("10.0.0.1", t0));
  EXPECT_FALSE(paths.found());
}

TEST(NarrowPaths, WhoNeverAnswersAProbeIsForgottenAfterAMinute) {
  narrow_paths paths;
  ASSERT_TRUE(suspect(paths, "10.0.0.1", at_1, t0));
  EXPECT_THAT(paths.due(t0 + 59s), SizeIs(1));
  EXPECT_THAT(paths.due(t0 + 60s), IsEmpty());
  EXPECT_FALSE(paths.any());
}

TEST(NarrowPaths, WhoIsCutOffLosesAllLinksAndMakesNone) {
  narrow_paths paths;
  paths.opened("10.0.0.1", at_1);
  paths.opened("10.0.0.1", at_1);
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0 + 1s)) << "the other one of the two";
  EXPECT_FALSE(paths.contains("10.0.0.1", t0 + 1s));
  paths.opened("10.0.0.1", std::nullopt);
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0 + 2s)) << "it listens nowhere, so nothing is told";
  paths.opened("10.0.0.1", at_1);
  EXPECT_TRUE(paths.ended_stuck("10.0.0.1", t0 + 30s)) << "it is back, and it happens again";
}

TEST(NarrowPaths, RemembersABoundedNumberOfHosts) {
  narrow_paths paths;
  for (std::size_t i = 0; i < 2 * narrow_paths::hosts_max; ++i)
    (void)paths.ended_stuck(std::to_string(i), t0);
  EXPECT_FALSE(paths.ended_stuck("late", t0));
  EXPECT_FALSE(paths.ended_stuck("late", t0 + 1s)) << "no room until the others are forgotten";
  EXPECT_FALSE(paths.ended_stuck("late", t0 + 2min));
  paths.opened("late", at_1);
  EXPECT_TRUE(paths.ended_stuck("late", t0 + 2min + 1s));
}

} // namespace
} // namespace waggle::net
