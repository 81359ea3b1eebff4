#include "runtime/averaging/bandwidth_estimator.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

/// A link that carries at most `rate` bytes per second, one packet after the other.
struct line {
  bandwidth_estimator meter;
  steady_time now = steady_time{} + 1h;

  void carry(bool outbound, double rate, double seconds, double share = 1) {
    constexpr double packet = 4 * 1024;
    auto gap = std::chrono::duration_cast<steady_time::duration>(
      std::chrono::duration<double>(packet / rate / share));
    for (auto end = now
                    + std::chrono::duration_cast<steady_time::duration>(
                      std::chrono::duration<double>(seconds));
         now < end; now += gap)
      meter.carried(outbound, static_cast<std::uint64_t>(packet), now);
  }
  void pause(milliseconds how_long) { now += how_long; }
  double known() { return meter.bytes_per_second(now).value_or(0); }
};

TEST(BandwidthEstimator, KnowsNothingBeforeAFewBursts) {
  line l;
  EXPECT_FALSE(l.meter.bytes_per_second(l.now));
  l.carry(false, 12.5e6, 0.3);
  l.pause(1s);
  l.carry(false, 12.5e6, 0.3);
  l.pause(1s);
  EXPECT_EQ(l.known(), 0);
  l.carry(false, 12.5e6, 0.3);
  l.pause(1s);
  EXPECT_NEAR(l.known(), 12.5e6, 0.5e6);
}

TEST(BandwidthEstimator, WaitingForOthersDoesNotLowerTheEstimate) {
  line l;
  for (int round = 0; round < 5; ++round) {
    l.carry(false, 12.5e6, 0.2, 0.1); // a slow peer
    l.carry(false, 12.5e6, 0.3);
    l.carry(false, 12.5e6, 0.3, 0.05);
    l.pause(300ms);
  }
  EXPECT_NEAR(l.known(), 12.5e6, 1e6);
}

TEST(BandwidthEstimator, BurstsThatOnlyWaitDoNotLowerTheEstimate) {
  line l;
  for (int round = 0; round < 5; ++round) {
    l.carry(true, 12.5e6, 0.4);
    l.carry(true, 12.5e6, 4, 0.08);
    l.pause(300ms);
  }
  EXPECT_NEAR(l.known(), 12.5e6, 1e6);
}

TEST(BandwidthEstimator, TheSlowerDirectionCounts) {
  line l;
  for (int round = 0; round < 4; ++round) {
    l.carry(false, 12.5e6, 0.5);
    l.carry(true, 1.25e6, 2);
    l.pause(300ms);
  }
  EXPECT_NEAR(l.known(), 1.25e6, 0.1e6);
}

TEST(BandwidthEstimator, BytesThatOnlyFillBuffersDoNotCount) {
  line l;
  for (int round = 0; round < 4; ++round) {
    l.meter.carried(true, 400'000, l.now);
    l.carry(true, 3e6, 1);
    l.pause(300ms);
  }
  EXPECT_NEAR(l.known(), 3e6, 0.2e6);
}

TEST(BandwidthEstimator, AlsoMeasuresTrafficWithoutPauses) {
  line l;
  l.carry(false, 12.5e6, 5);
  EXPECT_NEAR(l.known(), 12.5e6, 0.5e6);
}

TEST(BandwidthEstimator, SmallBurstsDoNotCount) {
  line l;
  for (int round = 0; round < 50; ++round) {
    l.carry(false, 12.5e6, 0.005); // 64 KiB
    l.carry(true, 12.5e6, 0.005);
    l.pause(300ms);
  }
  EXPECT_EQ(l.known(), 0);
}

TEST(BandwidthEstimator, SlowLinksAreMeasuredOverLongerStretches) {
  line l;
  l.carry(false, 50e3, 40);
  l.pause(1s);
  EXPECT_EQ(l.known(), 0) << "64 KiB take longer than a burst may last";
  line faster;
  faster.carry(false, 125e3, 40);
  EXPECT_NEAR(faster.known(), 125e3, 15e3);
}

TEST(BandwidthEstimator, AnnouncesNoSmallChanges) {
  line l;
  l.carry(false, 12.5e6, 5);
  auto before = l.known();
  random_source chance{7};
  for (int round = 0; round < 200; ++round) {
    l.carry(false, 12.5e6 * (0.9 + 0.2 * chance.unit()), 0.3);
    l.pause(300ms);
    EXPECT_EQ(l.known(), before) << "round " << round;
  }
  for (int round = 0; round < 30; ++round) {
    l.carry(false, 3e6, 0.5);
    l.pause(300ms);
  }
  EXPECT_NEAR(l.known(), 3e6, 0.25 * 3e6);
}

TEST(BandwidthEstimator, ForgetsOldBursts) {
  line l;
  l.carry(false, 12.5e6, 5);
  EXPECT_GT(l.known(), 0);
  l.pause(11min);
  EXPECT_FALSE(l.meter.bytes_per_second(l.now));
}

} // namespace
} // namespace waggle
