#include "runtime/net/socket_tuning.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

using std::chrono::microseconds;

/// A connection that sends 500 packets between two samples.
struct line {
  loss_watch watch;
  loss_watch::sample count{0, 0, microseconds{20'500}, microseconds{20'000}};

  bool sends(std::uint32_t lost, microseconds rtt) {
    count.sent += 500;
    count.retransmitted += lost;
    count.rtt = rtt;
    return watch.update(count);
  }
};

TEST(LossWatch, FindsALinkThatLosesPacketsWithoutAQueue) {
  line lossy;
  EXPECT_FALSE(lossy.sends(3, microseconds{20'500}));
  EXPECT_FALSE(lossy.sends(3, microseconds{20'500}));
  EXPECT_FALSE(lossy.sends(3, microseconds{21'000}));
  EXPECT_TRUE(lossy.sends(3, microseconds{20'800}));
  EXPECT_TRUE(lossy.sends(0, microseconds{20'800})) << "the finding is kept";
}

TEST(LossWatch, TakesLossBehindAQueueForCongestion) {
  line full;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(full.sends(20, microseconds{65'000}));
}

TEST(LossWatch, IgnoresRareLosses) {
  line good;
  for (int i = 0; i < 100; ++i)
    EXPECT_FALSE(good.sends(i == 50 ? 2 : 0, microseconds{20'500}));
}

TEST(LossWatch, WaitsUntilEnoughWasSent) {
  line idle;
  for (int i = 0; i < 10; ++i) {
    idle.count.sent += 1;
    idle.count.retransmitted += 1;
    EXPECT_FALSE(idle.watch.update(idle.count));
  }
}

TEST(LossWatch, CountersMayWrap) {
  line old;
  old.count.sent = ~0U - 700;
  old.count.retransmitted = ~0U - 4;
  EXPECT_FALSE(old.sends(3, microseconds{20'500}));
  EXPECT_FALSE(old.sends(3, microseconds{20'500}));
  EXPECT_FALSE(old.sends(3, microseconds{20'500}));
  EXPECT_TRUE(old.sends(3, microseconds{20'500}));
}

TEST(SocketTuning, AnInvalidSocketIsIgnored) {
  socket_tuning tuning{"auto"};
  tuning.begin(-1);
  tuning.follow(-1, 64 * 1024, steady_time{} + std::chrono::seconds{10});
  tuning.follow(-1, 1024 * 1024, steady_time{} + std::chrono::seconds{20});
}

} // namespace
} // namespace waggle::net
