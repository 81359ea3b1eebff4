#include "runtime/progress/throughput.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(Throughput, MatchesTheReferenceValues) {
  throughput speed{0.1};
  speed.update(10, 1);
  EXPECT_NEAR(speed.samples_per_second(), 10.0, 1e-9);
  speed.update(10, 2);
  EXPECT_NEAR(speed.samples_per_second(), 6.5517, 1e-4);
}

TEST(Throughput, TheNewestMeasurementWeighsAsMuchAsItIsGiven) {
  throughput half{0.5};
  half.update(10, 1);
  half.update(10, 2);
  EXPECT_NEAR(half.samples_per_second(), 6, 1e-9);
  throughput last{1};
  last.update(10, 1);
  last.update(10, 2);
  EXPECT_NEAR(last.samples_per_second(), 5, 1e-9);
}

TEST(Throughput, IsNotKnownBeforeTheFirstSample) {
  throughput speed;
  speed.update(0, 5);
  EXPECT_EQ(speed.samples_per_second(), 0);
}

TEST(Throughput, StaysFiniteWhenNoTimePassed) {
  throughput speed;
  speed.update(8, 0);
  EXPECT_TRUE(std::isfinite(speed.samples_per_second()));
}

TEST(Throughput, ConvergesToASteadyRateFromAnyStart) {
  throughput speed{0.1};
  speed.update(1, 100);
  for (int i = 0; i < 300; ++i)
    speed.update(4, 0.5);
  EXPECT_NEAR(speed.samples_per_second(), 8, 1e-6);
}

} // namespace
} // namespace waggle
