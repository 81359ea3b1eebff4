#include "runtime/core/windowed_rate.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

const steady_time t0{1h};

TEST(WindowedRate, IsThatFromLumpToLumpAtAnyMomentBetween) {
  windowed_rate rate;
  EXPECT_FALSE(rate.per_second(t0));
  rate.begin(t0);
  EXPECT_FALSE(rate.per_second(t0 + 1s)) << "nothing has come";
  for (int i = 1; i <= 100; ++i)
    rate.add(512, t0 + i * 700ms);
  for (auto later : {0ms, 300ms, 699ms, 1300ms})
    EXPECT_NEAR(*rate.per_second(t0 + 70s + later), 512 / 0.7, 1e-6) << later.count();
}

TEST(WindowedRate, FallsWhenNothingComesAndForgetsWhatIsLongAgo) {
  windowed_rate rate;
  rate.begin(t0);
  for (int i = 1; i <= 60; ++i)
    rate.add(100, t0 + i * 1s);
  EXPECT_NEAR(*rate.per_second(t0 + 62s), 100, 1e-6);
  EXPECT_NEAR(*rate.per_second(t0 + 92s), 50, 2) << "half a minute of nothing";
  for (int i = 1; i <= 40; ++i)
    rate.add(10, t0 + 200s + i * 1s);
  EXPECT_NEAR(*rate.per_second(t0 + 240s), 10, 1e-6);
}

TEST(WindowedRate, LumpsMayBeLongerThanTheWindowOrComeThousandTimesASecond) {
  windowed_rate slow;
  slow.begin(t0);
  for (int i = 1; i <= 5; ++i)
    slow.add(600, t0 + i * 60s);
  EXPECT_NEAR(*slow.per_second(t0 + 350s), 10, 1e-6);
  windowed_rate quick;
  quick.begin(t0);
  for (int i = 1; i <= 90'000; ++i)
    quick.add(4, t0 + i * 1ms);
  EXPECT_NEAR(*quick.per_second(t0 + 90s), 4000, 1e-6);
  windowed_rate at_once;
  at_once.begin(t0);
  at_once.add(4, t0);
  EXPECT_FALSE(at_once.per_second(t0));
  at_once.add(4, t0 - 5s);
  EXPECT_FALSE(at_once.per_second(t0 + 9s)) << "a clock that went back gives no rate";
}

} // namespace
} // namespace waggle
