// Peers whose clocks differ: they are told so, and refused beyond the limit. Clocks that are set.

#include <gmock/gmock.h>

#include "tests/support/test_context.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Clocks : ::testing::Test {
  double offset_of(index i) {
    return exported(*swarm.sim[i].node.ctx.metrics, "waggle_clock_skew_seconds");
  }
  std::vector<std::string> refusals_at(index i) {
    auto status =
      swarm.sim.first_event<dht_status, subscribe_dht_status>(swarm.sim[i].node.parts.dht);
    return status ? status->bootstrap_failures : std::vector<std::string>{};
  }

  /// The peers that train, as `i` counts them.
  std::uint32_t counted_at(index i) {
    auto seen =
      swarm.sim.first_event<swarm_progress, subscribe_progress>(swarm.sim[i].node.parts.tracker);
    return seen ? seen->num_peers : 0;
  }

  trainers swarm{7};
  std::vector<index> honest{swarm.add(trainers::endless(1), {}),
                            swarm.add(trainers::endless(2), {0}),
                            swarm.add(trainers::endless(3), {0})};
};

TEST_F(Clocks, APeerWhoseClockIsAMinuteOffIsRefusedByAllAndTheRunGoesOn) {
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(honest); }, 60s));
  auto late = trainers::endless(4);
  late.training->training.join_timeout = 600s;
  auto odd = swarm.sim.start(late, honest, nullptr, -60s);
  auto before = swarm.status_of(0).epoch;
  swarm.sim.run_for(20s);
  EXPECT_GT(swarm.status_of(0).epoch.value(), before.value() + 10);
  EXPECT_TRUE(swarm.together(honest)) << picture(swarm.sim);
  EXPECT_EQ(swarm.status_of(odd).steps, 0U) << "it must not train a model of its own unnoticed";
  auto refused = HasSubstr("the clock there is 60.0 s ahead of the clock here");
  EXPECT_THAT(refusals_at(odd), ElementsAre(refused, refused, refused));
  EXPECT_NEAR(offset_of(odd), 60, 1);
  for (auto i : honest)
    EXPECT_NEAR(offset_of(i), 0, 0.5) << "one voice among three does not move the median";
}

TEST_F(Clocks, APeerWhoseClockIsASecondOffTrainsWithTheOthers) {
  auto odd = swarm.sim.start(trainers::endless(4), {0}, nullptr, 1s);
  EXPECT_TRUE(swarm.sim.run_until(
    [&] {
      return swarm.together({0, 1, 2, odd});
    },
    60s))
    << picture(swarm.sim);
  EXPECT_NEAR(offset_of(odd), -1, 0.1);
}

TEST_F(Clocks, PeersGoOnAndCountRightWhenAClockIsSet) {
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(honest); }, 60s));
  auto downloads = swarm.status_of(1).state_downloads;
  for (auto by : {120s, -3'720s, 7'200s}) { // from right to 120 s ahead, an hour behind, ahead
    swarm.sim.set_clock(1, by);
    auto before = swarm.status_of(1).epoch;
    for (int i = 0; i < 35; ++i) { // for longer than reports count
      swarm.sim.run_for(2s);
      for (auto peer : honest)
        ASSERT_EQ(counted_at(peer), 3U) << peer << ", " << 2 * i << " s after " << by.count();
    }
    EXPECT_TRUE(swarm.together(honest)) << picture(swarm.sim);
    EXPECT_GT(swarm.status_of(1).epoch.value(), before.value() + 100);
  }
  EXPECT_EQ(swarm.status_of(1).state_downloads, downloads);
  auto late = swarm.add(trainers::endless(4), {1});
  EXPECT_TRUE(swarm.sim.run_until(
    [&] {
      return swarm.together({0, 1, 2, late});
    },
    60s))
    << picture(swarm.sim);
  EXPECT_NEAR(offset_of(1), -3'600, 1) << "of the machine's clock, so that somebody sets it";
}

TEST_F(Clocks, AClockThatIsSetRightIsFollowed) {
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(honest); }, 60s));
  auto late = trainers::endless(4);
  late.training->training.join_timeout = 600s;
  auto odd = swarm.sim.start(late, honest, nullptr, -60s);
  swarm.sim.run_for(20s);
  ASSERT_FALSE(swarm.together({0, 1, 2, odd}));
  swarm.sim.set_clock(odd, 60s);
  EXPECT_TRUE(swarm.sim.run_until(
    [&] {
      return swarm.together({0, 1, 2, odd});
    },
    90s))
    << picture(swarm.sim);
}

} // namespace
} // namespace waggle::testing
