#include "runtime/net/failure_detector.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle::net {
namespace {

const steady_time t0 = steady_time{} + 1h;

/// A detector after `n` answered pings, one per second, each late by a random time up to `jitter`.
failure_detector after(int n, milliseconds jitter = 0ms, failure_detector_options options = {}) {
  failure_detector detector{options, t0};
  random_source random{7};
  for (int i = 1; i <= n; ++i)
    detector.received(t0 + i * 1s
                      + milliseconds{random.below(static_cast<std::uint64_t>(jitter.count()) + 1)});
  return detector;
}

TEST(FailureDetector, GivesAPunctualPeerUpAfterALittleLessThanThreeIntervals) {
  auto detector = after(40);
  auto patience = detector.suspect_at() - detector.last_seen();
  EXPECT_GE(patience, 2'500ms);
  EXPECT_LE(patience, 3'000ms);
  EXPECT_FALSE(detector.suspects(detector.last_seen() + 2'500ms));
  EXPECT_TRUE(detector.suspects(detector.last_seen() + 3'000ms));
}

TEST(FailureDetector, IsNoQuickerWithANewPeer) {
  auto patience = after(0).suspect_at() - t0;
  EXPECT_GE(patience, 2'500ms);
  EXPECT_LE(patience, 3'000ms);
}

TEST(FailureDetector, IsNoQuickerAfterDenseTraffic) {
  failure_detector detector{{}, t0};
  for (int i = 1; i <= 1'000; ++i)
    detector.received(t0 + i * 1ms);
  EXPECT_GE(detector.suspect_at() - detector.last_seen(), 2'500ms)
    << "dense traffic stops without a goodbye";
}

TEST(FailureDetector, TakesNoShortIntervalForIrregularity) {
  failure_detector detector{{}, t0};
  for (int i = 1; i <= 40; ++i) {
    detector.received(t0 + i * 1s);
    if (i % 3 == 0)
      detector.received(t0 + i * 1s + 1ms);
  }
  EXPECT_LE(detector.suspect_at() - detector.last_seen(), 2'700ms);
}

TEST(FailureDetector, WaitsLongerForAPeerThatIsUnpunctual) {
  auto punctual = after(40);
  auto unpunctual = after(40, 900ms);
  EXPECT_GT(unpunctual.suspect_at() - unpunctual.last_seen(),
            punctual.suspect_at() - punctual.last_seen() + 300ms);
}

TEST(FailureDetector, NeverWaitsLongerThanItsUpperBound) {
  failure_detector detector{{}, t0};
  for (int i = 1; i <= 40; ++i)
    detector.received(t0 + i * 4s + (i % 2) * 2s);
  EXPECT_EQ(detector.suspect_at() - detector.last_seen(), 5s);
}

TEST(FailureDetector, ForgetsWhatIsOlderThanItsWindow) {
  auto detector = after(2, 900ms);
  auto last = detector.last_seen();
  for (int i = 1; i <= 32; ++i)
    detector.received(last + i * 1s);
  EXPECT_EQ(detector.suspect_at() - detector.last_seen(),
            after(40).suspect_at() - after(40).last_seen());
}

TEST(FailureDetector, SuspectsAtTheQuantileOfItsThreshold) {
  // Of the normal distribution with mean 1 s and deviation 0.3 s: 1 − 10^-8, and 0.9.
  for (auto [threshold, quantile] : {std::pair{8.0, 5.61200}, std::pair{1.0, 1.28155}}) {
    failure_detector_options options{.threshold = threshold};
    auto detector = after(40, 0ms, options);
    auto patience = detector.suspect_at() - detector.last_seen();
    EXPECT_NEAR(std::chrono::duration<double>{patience}.count(), 1 + 0.3 * quantile, 0.0006);
  }
}

TEST(FailureDetector, DoesNotCountTheTimeInWhichThisProcessWasSuspended) {
  auto detector = after(40);
  auto before = detector.suspect_at();
  detector.slept(10s);
  EXPECT_EQ(detector.suspect_at(), before + 10s);
}

TEST(FailureDetector, SaysWhatIsWrongWithItsOptions) {
  EXPECT_TRUE(check_failure_detector({}));
  failure_detector_options impatient;
  impatient.silence_max = impatient.expected;
  auto refused = check_failure_detector(impatient);
  EXPECT_EQ(refused.error().code, ec::bad_config);
  EXPECT_NE(refused.error().detail.find("ping interval"), std::string::npos);
  failure_detector_options sure{.threshold = 0};
  EXPECT_FALSE(check_failure_detector(sure));
}

} // namespace
} // namespace waggle::net
