#include "runtime/averaging/bandwidth_meter.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace waggle {
namespace {

class BandwidthMeter : public testing::Test {
protected:
  void transfer(double bytes_per_second, std::uint64_t bytes = 1_MiB) {
    meter.update(bytes, static_cast<double>(bytes) / bytes_per_second, now);
  }
  [[nodiscard]] double known() const { return meter.bytes_per_second(now).value_or(-1); }

  bandwidth_meter meter;
  steady_time now{1000h};
};

TEST_F(BandwidthMeter, KnowsNothingBeforeAFewTransfers) {
  EXPECT_FALSE(meter.bytes_per_second(now));
  transfer(1e6);
  transfer(1e6);
  EXPECT_FALSE(meter.bytes_per_second(now));
  transfer(1e6);
  EXPECT_NEAR(known(), 1e6, 1) << "right from the start, although the average begins at zero";
}

TEST_F(BandwidthMeter, FollowsTheRecurrenceOfTheSpec) {
  double s = 0;
  const double rates[]{1e6, 5e6, 2e6, 9e6, 1e6, 3e6};
  for (double rate : rates) {
    transfer(rate);
    s = 0.1 / rate + 0.9 * s;
  }
  EXPECT_NEAR(known(), (1 - std::pow(0.9, 6)) / s, 1);
}

TEST_F(BandwidthMeter, FollowsAConnectionThatChanges) {
  for (int i = 0; i < 50; ++i)
    transfer(1e7);
  for (int i = 0; i < 50; ++i)
    transfer(1e6);
  EXPECT_NEAR(known(), 1e6, 1e4);
}

TEST_F(BandwidthMeter, OneLuckyBurstHidesNothing) {
  for (int i = 0; i < 20; ++i)
    transfer(1e6);
  transfer(1e9);
  EXPECT_LT(known(), 1.2e6);
}

TEST_F(BandwidthMeter, IgnoresTransfersThatCannotTell) {
  for (int i = 0; i < 5; ++i) {
    transfer(1e12, 256_KiB - 1);
    transfer(1e12); // over in a microsecond: it only reached a buffer
    meter.update(1_MiB, 0, now);
    meter.update(1_MiB, -1, now);
    meter.update(1_MiB, std::numeric_limits<double>::quiet_NaN(), now);
    meter.update(1_MiB, std::numeric_limits<double>::infinity(), now);
  }
  EXPECT_FALSE(meter.bytes_per_second(now));
}

TEST_F(BandwidthMeter, ForgetsWhatIsOldAndMeasuresAnew) {
  for (int i = 0; i < 10; ++i)
    transfer(1e6);
  now += 10min;
  EXPECT_TRUE(meter.bytes_per_second(now));
  now += 1ms;
  EXPECT_FALSE(meter.bytes_per_second(now));
  transfer(8e6);
  EXPECT_FALSE(meter.bytes_per_second(now)) << "one transfer is no measurement";
  transfer(8e6);
  transfer(8e6);
  EXPECT_NEAR(known(), 8e6, 1) << "nothing is left of what it was long ago";
}

TEST_F(BandwidthMeter, AnEndlesslySlowTransferIsStillANumber) {
  for (int i = 0; i < 3; ++i)
    meter.update(1_MiB, 1e300, now);
  EXPECT_GT(known(), 0);
}

} // namespace
} // namespace waggle
