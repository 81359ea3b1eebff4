#include "runtime/net/narrow_paths.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

const steady_time t0{1h};

TEST(NarrowPaths, TwoLinksThatGotStuckAreNeeded) {
  narrow_paths paths;
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.2", t0));
  EXPECT_FALSE(paths.contains("10.0.0.1", t0));
  paths.opened("10.0.0.1");
  paths.opened("10.0.0.2");
  EXPECT_TRUE(paths.ended_stuck("10.0.0.1", t0 + 30s));
  EXPECT_TRUE(paths.contains("10.0.0.1", t0 + 30s));
  EXPECT_FALSE(paths.contains("10.0.0.1", t0 + 2h)) << "it may have been mended";
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0 + 31s)) << "it is found once";
  EXPECT_FALSE(paths.contains("10.0.0.2", t0 + 31s));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.2", t0 + 2min)) << "too long after the first";
  paths.opened("10.0.0.2");
  EXPECT_TRUE(paths.ended_stuck("10.0.0.2", t0 + 2min + 1s));
}

TEST(NarrowPaths, WhoIsCutOffLosesAllLinksAndMakesNone) {
  narrow_paths paths;
  paths.opened("10.0.0.1");
  paths.opened("10.0.0.1");
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0));
  EXPECT_FALSE(paths.ended_stuck("10.0.0.1", t0 + 1s)) << "the other one of the two";
  EXPECT_FALSE(paths.contains("10.0.0.1", t0 + 1s));
  paths.opened("10.0.0.1");
  EXPECT_TRUE(paths.ended_stuck("10.0.0.1", t0 + 30s)) << "it is back, and it happens again";
}

TEST(NarrowPaths, RemembersABoundedNumberOfHosts) {
  narrow_paths paths;
  for (std::size_t i = 0; i < 2 * narrow_paths::hosts_max; ++i)
    (void)paths.ended_stuck(std::to_string(i), t0);
  EXPECT_FALSE(paths.ended_stuck("late", t0));
  EXPECT_FALSE(paths.ended_stuck("late", t0 + 1s)) << "no room until the others are forgotten";
  EXPECT_FALSE(paths.ended_stuck("late", t0 + 2min));
  paths.opened("late");
  EXPECT_TRUE(paths.ended_stuck("late", t0 + 2min + 1s));
}

} // namespace
} // namespace waggle::net
