// The effect of the pass policy on whole epochs: their sums, the time lost, and the effect of
// stopped and slow peers on the others.

#include "tests/runtime/training/epoch_simulation.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace waggle {
namespace {

constexpr std::uint64_t micro = 8;

enum class speeds { equal, up_to_half, one_slow };

/// Peers that need about `epoch` seconds for the target. A peer of full speed needs `passes`
/// passes.
epoch_simulation::options swarm(double epoch, std::size_t n, std::size_t passes, speeds mix) {
  epoch_simulation::options result;
  auto pass = epoch / static_cast<double>(passes);
  double samples_per_second = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double slower = 1;
    if (mix == speeds::up_to_half)
      slower = 1 + static_cast<double>(i) / static_cast<double>(n - 1);
    else if (mix == speeds::one_slow && i == n - 1)
      slower = 2.5 * static_cast<double>(passes); // a pass lasts 2.5 epochs
    result.peers.push_back({pass * slower, micro});
    samples_per_second += micro / (pass * slower);
  }
  result.target = static_cast<std::uint64_t>(std::lround(samples_per_second * epoch));
  return result;
}

struct sums {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t most = 0;
};

sums sums_of(const epoch_simulation& run) {
  sums result;
  for (const auto& epoch : run.epochs()) {
    result.least = std::min(result.least, epoch.samples);
    result.most = std::max(result.most, epoch.samples);
  }
  return result;
}

TEST(EpochSimulation, SumsLieBetweenTheTargetAndOneMicroBatchPerPeerMore) {
  constexpr std::size_t epochs = 300;
  for (double epoch : {0.020, 0.080, 0.400})
    for (std::size_t n : {2, 4, 8})
      for (std::size_t passes : {1, 2, 4, 8})
        for (auto mix : {speeds::equal, speeds::up_to_half, speeds::one_slow}) {
          auto how = swarm(epoch, n, passes, mix);
          how.seed = 100 * n + 10 * passes + static_cast<std::size_t>(mix);
          SCOPED_TRACE(testing::Message()
                       << 1e3 * epoch << " ms, " << n << " peers, " << passes << " passes, mix "
                       << static_cast<int>(mix) << ", seed " << how.seed);
          epoch_simulation run{how};
          run.run(epochs);
          ASSERT_EQ(run.epochs().size(), epochs);
          auto sums = sums_of(run);
          EXPECT_GE(sums.least, how.target);
          EXPECT_LE(sums.most, how.target + n * micro);
          auto times = run.times();
          EXPECT_LT(times.waiting, 0.26 * times.all);
          if (epoch >= 0.4) {
            EXPECT_LT(times.waiting, 0.15 * times.all);
          }
        }
}

TEST(EpochSimulation, WithoutThePolicyShortPassesGoFarBeyond) {
  auto how = swarm(0.020, 8, 8, speeds::equal);
  how.always_begin = true;
  epoch_simulation run{how};
  run.run(500);
  EXPECT_GT(sums_of(run).most, how.target + 12 * micro);
}

TEST(EpochSimulation, StandsErrorsOfTheClocks) {
  for (std::size_t passes : {1, 2, 4, 8}) {
    auto how = swarm(0.020, 8, passes, speeds::equal);
    how.clock_error = 0.003;
    SCOPED_TRACE(passes);
    epoch_simulation run{how};
    run.run(500);
    ASSERT_EQ(run.epochs().size(), 500U);
    EXPECT_GE(sums_of(run).least, how.target);
    EXPECT_LE(sums_of(run).most, how.target + 8 * micro);
  }
}

// One pass of every peer per step, as in data-parallel training: the only time lost is waiting for
// the slowest pass of each step, and no gradient comes from older parameters.
TEST(EpochSimulation, EqualPeersWithOnePassPerEpochComputeNothingStale) {
  for (std::size_t n : {2, 4, 8}) {
    auto how = swarm(0.400, n, 1, speeds::equal);
    SCOPED_TRACE(n);
    epoch_simulation run{how};
    run.run(1000);
    auto sums = sums_of(run);
    EXPECT_EQ(sums.least, how.target);
    EXPECT_EQ(sums.most, how.target);
    auto times = run.times();
    EXPECT_EQ(times.stale, 0U);
    auto peers = static_cast<double>(n);
    auto slowest = how.jitter * (peers - 1)
                   / (peers + 1); // expected maximum of n uniform passes, above the mean
    EXPECT_LT(times.waiting / times.all, slowest + 0.02);
    how.always_begin = true;
    epoch_simulation hasty{how};
    hasty.run(1000);
    EXPECT_GT(hasty.times().stale, hasty.times().passes / 4);
  }
}

TEST(EpochSimulation, AStoppedPeerDelaysTheOthersByAFewPassesAtMost) {
  bool delayed = false;
  for (std::size_t n : {2, 4, 8})
    for (std::size_t passes : {1, 2, 4})
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        auto how = swarm(0.080, n, passes, speeds::equal);
        how.seed = seed;
        SCOPED_TRACE(testing::Message() << n << " peers, " << passes << " passes, seed " << seed);
        epoch_simulation run{how};
        run.run(50);
        run.run_for(0.004 * static_cast<double>(seed + 1)); // anywhere in the next epoch
        auto before = run.epochs().size();
        run.stop(0);
        run.run(before + 60);
        ASSERT_EQ(run.epochs().size(), before + 60);
        double usual = 0;
        for (std::size_t i = before + 1; i < before + 60; ++i)
          usual = std::max(usual, run.epochs()[i].seconds);
        auto with_stop = run.epochs()[before].seconds;
        auto pass = how.peers[0].pass * (1 + how.jitter);
        EXPECT_LT(with_stop, usual + late_after * pass + 2 * how.delay_max);
        delayed |= with_stop > usual + pass;
      }
  EXPECT_TRUE(delayed) << "no peer ever waited for another: this test shows nothing";
}

TEST(EpochSimulation, ASlowPeerSlowsNoOtherAndItsSamplesCount) {
  epoch_simulation::options fast{.peers = {{0.0107, 16}, {0.0107, 16}}};
  epoch_simulation without{fast};
  without.run(1000);
  for (double slow_pass : {0.2, 2.0}) {
    SCOPED_TRACE(slow_pass);
    auto how = fast;
    how.peers.push_back({slow_pass, 16});
    epoch_simulation with{how};
    with.run(1000);
    EXPECT_LT(with.now(), without.now() / 0.95);
    EXPECT_GT(static_cast<double>(with.passes(2)) * slow_pass, 0.93 * with.now());
    EXPECT_LE(sums_of(with).most, how.target + 3 * 16);
  }
}

} // namespace
} // namespace waggle
