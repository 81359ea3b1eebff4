#include "runtime/core/time_outs.hpp"

#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;

const steady_time t0{};

TEST(TimeOuts, DoubleWithEachOffenceUpToTheLongest) {
  time_outs outs{{1s, 5s, 8}};
  EXPECT_FALSE(outs.holds(id_of(1), t0));
  EXPECT_EQ(outs.add(id_of(1), t0), 1s);
  EXPECT_TRUE(outs.holds(id_of(1), t0 + 999ms));
  EXPECT_FALSE(outs.holds(id_of(1), t0 + 1s));
  EXPECT_FALSE(outs.holds(id_of(2), t0));
  EXPECT_EQ(outs.add(id_of(1), t0 + 1s), 2s);
  EXPECT_EQ(outs.add(id_of(1), t0 + 3s), 4s);
  EXPECT_EQ(outs.add(id_of(1), t0 + 7s), 5s);
  EXPECT_EQ(outs.add(id_of(2), t0 + 7s), 1s);
  EXPECT_EQ(outs.count(t0 + 7s), 2U);
}

TEST(TimeOuts, BeginAnewAfterALongTimeWithoutOffence) {
  time_outs outs{{1s, 60s, 8}};
  (void)outs.add(id_of(1), t0);
  EXPECT_EQ(outs.add(id_of(1), t0 + 1s), 2s); // until 3 s
  EXPECT_EQ(outs.add(id_of(1), t0 + 3s + 8s), 1s);
}

TEST(TimeOuts, AreBounded) {
  time_outs outs{{1s, 60s, 2}};
  (void)outs.add(id_of(1), t0);
  (void)outs.add(id_of(1), t0);
  (void)outs.add(id_of(2), t0);
  (void)outs.add(id_of(3), t0);
  EXPECT_EQ(outs.count(t0), 2U);
  EXPECT_TRUE(outs.holds(id_of(1), t0));
  EXPECT_TRUE(outs.holds(id_of(3), t0));
}

} // namespace
} // namespace waggle
