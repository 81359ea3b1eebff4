// Peers whose processors round updates differently: their parameters go apart bit by bit.

#include <cmath>

#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

/// Each update ends with other last bits than on a peer of another `kind`.
class rounding_learner final : public learner_layer {
public:
  rounding_learner(const toy_options& options, std::uint64_t kind, std::uint64_t shown)
    : learner_layer(make_toy_learner(options)), kind_(kind), shown_(shown) {}

  [[nodiscard]] std::uint64_t rounding() const override { return shown_; }
  void apply(std::span<const float> gradient, double lr) override {
    below().apply(gradient, lr);
    std::vector<float> weights(64);
    read_tensor(0, weights);
    for (std::size_t i = kind_; i < weights.size(); i += 8)
      weights[i] = std::nextafter(weights[i], kind_ % 2 == 0 ? 2.0F : -2.0F);
    write_tensor(0, weights);
  }

private:
  const std::uint64_t kind_;
  const std::uint64_t shown_;
};

struct RoundingPeers : ::testing::Test, protected trainers {
  RoundingPeers() : trainers(31) { sim.keep_log_lines(); }

  /// @param shown what it knows of how it rounds.
  index join(std::uint64_t kind, std::uint64_t shown) {
    auto seed = sim.size() + 1;
    auto config = trainers::endless(seed);
    config.training->make_learner = [=]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<rounding_learner>(
        toy_options{.parameters = 64, .micro_batch = 4, .data_seed = seed}, kind, shown)};
    };
    return trainers::join(std::move(config));
  }
  std::uint64_t downloads() {
    std::uint64_t all = 0;
    for (auto i : sim.living())
      all += status_of(i).state_downloads;
    return all;
  }
};

TEST_F(RoundingPeers, TrainOnWithoutDownloadsAndSaySoOnce) {
  join(1, 1);
  join(2, 2);
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 20s)) << picture(sim);
  auto before = downloads();
  auto epoch = status_of(0).epoch.value();
  sim.run_for(20s);
  EXPECT_TRUE(together()) << picture(sim);
  EXPECT_GT(status_of(0).epoch.value(), epoch + 40);
  EXPECT_EQ(downloads(), before);
  for (auto i : sim.living()) {
    EXPECT_EQ(status_of(i).differing_peers, 0U);
    EXPECT_EQ(lines_with(i, "differ from ours"), 0U);
    EXPECT_EQ(lines_with(i, "rounds updates differently"), 1U);
    expect_samples_accounted(status_of(i));
  }
}

TEST_F(RoundingPeers, OfWhomNobodyKnowsDownloadForEver) {
  join(1, 1);
  join(2, 1);
  ASSERT_TRUE(sim.run_until([&] { return downloads() > 0; }, 20s)) << picture(sim);
  auto before = downloads();
  sim.run_for(20s);
  EXPECT_GT(downloads(), before + 3);
  EXPECT_EQ(lines_with(0, "rounds updates differently"), 0U);
}

TEST_F(RoundingPeers, GiveTheirStateToANewcomerAlthoughNoTwoOfThemAgree) {
  for (std::uint64_t kind : {1U, 2U, 3U, 4U})
    join(kind, kind);
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 30s)) << picture(sim);
  sim.run_for(2s);
  auto before = downloads();
  auto last = join(5, 1);
  EXPECT_TRUE(sim.run_until([&] { return together(); }, 20s)) << picture(sim);
  sim.run_for(5s);
  EXPECT_EQ(status_of(last).state_downloads, 1U);
  EXPECT_EQ(downloads(), before + 1);
  EXPECT_EQ(lines_with(last, "is not asked for"), 0U) << "nobody is a liar";
}

} // namespace
} // namespace waggle::testing
