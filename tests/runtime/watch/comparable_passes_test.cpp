#include <gtest/gtest.h>

#include "runtime/watch/slow_peers.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

/// What counts as the pass of a peer beside three with passes of 0.2 s, 40 samples a second.
double counted(reported_pass odd, bool by_samples) {
  std::map<peer_id, reported_pass> all{{id_of(9), odd}};
  for (std::size_t n = 0; n < 3; ++n)
    all[id_of(n)] = {0.2, 40};
  auto out = comparable_passes(all, by_samples);
  for (std::size_t n = 0; n < 3; ++n)
    EXPECT_DOUBLE_EQ(out.at(id_of(n)), 0.2);
  return out.at(id_of(9));
}

TEST(ComparablePasses, ASlowMachineHasLongPassesAndFewSamples) {
  EXPECT_DOUBLE_EQ(counted({2, 4}, true), 2);
  EXPECT_DOUBLE_EQ(counted({2, 4}, false), 2);
}

TEST(ComparablePasses, LargerPassesAreSlowerOnlyWherePassesCount) {
  EXPECT_DOUBLE_EQ(counted({2, 40}, true), 0.2);
  EXPECT_DOUBLE_EQ(counted({2, 80}, true), 0.2);
  EXPECT_DOUBLE_EQ(counted({2, 40}, false), 2);
  EXPECT_DOUBLE_EQ(counted({2, 20}, true), 0.4) << "larger, and slower";
}

TEST(ComparablePasses, RarerPassesAreNotSlower) {
  EXPECT_DOUBLE_EQ(counted({0.2, 4}, true), 0.2);
  EXPECT_DOUBLE_EQ(counted({0.05, 4}, true), 0.05);
}

TEST(ComparablePasses, OfTwoOrOfNoneSaysNothingWrong) {
  auto two = comparable_passes({{id_of(0), {0.2, 40}}, {id_of(1), {2, 40}}}, true);
  EXPECT_DOUBLE_EQ(two[id_of(0)], 0.2);
  EXPECT_DOUBLE_EQ(two[id_of(1)], 0.2);
  EXPECT_DOUBLE_EQ(comparable_passes({{id_of(0), {0.2, 0}}}, true)[id_of(0)], 0.2);
  EXPECT_DOUBLE_EQ(
    comparable_passes({{id_of(0), {0, 1e300}}, {id_of(1), {1e6, 0}}}, true)[id_of(1)], 1e6);
  EXPECT_TRUE(comparable_passes({}, true).empty());
}

} // namespace
} // namespace waggle
