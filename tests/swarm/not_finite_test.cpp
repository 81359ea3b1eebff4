// A peer of several whose model has values that are not finite, as after a fault of its memory.

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

/// Refuses passes whose loss is not finite, as LibTorch's learner does.
class checked_learner final : public learner_layer {
public:
  using learner_layer::learner_layer;

  micro_step accumulate() override {
    std::vector<float> weights(64);
    read_tensor(0, weights);
    bool finite =
      std::all_of(weights.begin(), weights.end(), [](float x) { return std::isfinite(x); });
    return finite ? below().accumulate()
                  : micro_step{std::numeric_limits<double>::quiet_NaN(), 4, false};
  }
};

class SpoiledModel : public ::testing::TestWithParam<std::tuple<index, std::size_t>>,
                     protected trainers {
protected:
  SpoiledModel() : trainers(19) {}

  void join_one() {
    auto i = models_.size();
    auto config = trainers::endless(i + 1);
    models_.push_back(std::make_shared<learner*>(nullptr));
    config.training->make_learner = [i,
                                     slot = models_.back()]() -> result<std::unique_ptr<learner>> {
      auto made = std::make_unique<checked_learner>(
        make_toy_learner({.parameters = 64, .micro_batch = 4, .data_seed = i + 1}));
      *slot = made.get();
      return std::unique_ptr<learner>{std::move(made)};
    };
    join(std::move(config));
  }
  bool is_finite(index i) const {
    std::vector<float> weights(64);
    (*models_[i])->read_tensor(0, weights);
    return std::all_of(weights.begin(), weights.end(), [](float x) { return std::isfinite(x); });
  }

  void spoil_and_expect_recovery(index spoiled) {
    ASSERT_TRUE(together()) << picture(sim);
    std::vector<training_status> before;
    for (auto i : sim.living())
      before.push_back(status_of(i));
    (*models_[spoiled])
      ->write_tensor(0, std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()));
    auto recovered = [&] {
      return status_of(spoiled).state_downloads > before[spoiled].state_downloads && together();
    };
    ASSERT_TRUE(sim.run_until(recovered, 20s)) << picture(sim);
    sim.run_for(3s);
    EXPECT_TRUE(together()) << picture(sim);
    for (auto i : sim.living()) {
      SCOPED_TRACE("peer " + std::to_string(i));
      auto s = status_of(i);
      EXPECT_TRUE(is_finite(i));
      expect_samples_accounted(s);
      EXPECT_GT(s.epoch.value(), before[i].epoch.value() + 5);
      if (i != spoiled) {
        EXPECT_EQ(s.state_downloads, before[i].state_downloads);
      }
    }
  }

  std::vector<std::shared_ptr<learner*>> models_;
};

// At several moments, because the digests of the parameters decide between two peers that differ.
TEST_P(SpoiledModel, IsReplacedByThatOfTheOthers) {
  auto [spoiled, peers] = GetParam();
  while (models_.size() < peers)
    join_one();
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
  // Of three or more, the others keep a peer that leaves its group again and again out of it, for a
  // time that doubles: 5 s for the second time, 10 s for the third.
  int moments = peers == 2 ? 8 : 3;
  for (int times = 0; times < moments && !HasFailure(); ++times) {
    SCOPED_TRACE("at " + std::to_string(sim.seconds()) + " s");
    sim.run_for(3s);
    spoil_and_expect_recovery(spoiled);
  }
  expect_rounds_kept_the_contract(sim);
}

INSTANTIATE_TEST_SUITE_P(PeerOf, SpoiledModel,
                         ::testing::Values(std::tuple{0, 3}, std::tuple{1, 3}, std::tuple{2, 3},
                                           std::tuple{0, 2}, std::tuple{1, 2}, std::tuple{1, 4}),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "Of"
                                  + std::to_string(std::get<1>(info.param));
                         });

} // namespace
} // namespace waggle::testing
