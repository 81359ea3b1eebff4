// The outer steps of DiLoCo in a simulated swarm, through all actors.

#include <algorithm>

#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t parameters = 64;

/// Each of its steps lowers each parameter by one, whatever the samples are.
class falling_learner final : public learner_layer {
public:
  using learner_layer::learner_layer;

  void step_locally(double /*lr*/) override {
    learner_layer::step_locally(0);
    auto values = values_now();
    for (auto& value : values)
      value -= 1;
    below().write_tensor(0, values);
  }
  [[nodiscard]] std::vector<float> values_now() const {
    std::vector<float> values(parameters);
    below().read_tensor(0, values);
    return values;
  }
};

/// Three peers that have made `rounds` rounds, each as soon as the fastest has made a step.
struct diloco_swarm : trainers {
  explicit diloco_swarm(std::uint64_t rounds) : trainers(3) {
    const mode how{"", [](training_config& c) { local(c, "diloco:steps=1"); }, true};
    for (std::size_t i = 0; i < models.size(); ++i) {
      auto config = with_mode(how, i + 1, rounds);
      config.training->training.min_peers = models.size();
      auto make = [i, this]() -> result<std::unique_ptr<learner>> {
        auto made = std::make_unique<falling_learner>(
          make_toy_learner({.parameters = parameters, .data_seed = i + 1}));
        models[i] = made.get();
        start = made->values_now();
        return std::unique_ptr<learner>{std::move(made)};
      };
      config.training->make_learner = with_strategy(make, config.training->training.strategy);
      add(std::move(config), i == 0 ? std::vector<index>{} : std::vector<index>{0});
    }
  }
  bool ended() {
    return std::ranges::all_of(
      sim.living(), [&](index i) { return status_of(i).phase == trainer_phase::finished; });
  }

  std::array<falling_learner*, 3> models{};
  std::vector<float> start;
};

TEST(DilocoSwarm, ItsOuterStepsAreThoseOfNesterov) {
  const double expected[] = {-1.33, -3.227, -5.6343}; // spec/optimizer.md §8, Δ = 1 three times
  for (std::uint64_t rounds = 1; rounds <= 3; ++rounds) {
    diloco_swarm swarm{rounds};
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.ended(); }, 60s)) << picture(swarm.sim);
    swarm.sim.run_for(1s); // the last update is applied after its epoch has ended
    expect_rounds_kept_the_contract(swarm.sim);
    for (const auto* model : swarm.models) {
      auto found = model->values_now();
      for (std::size_t k = 0; k < found.size(); ++k)
        EXPECT_NEAR(found[k] - swarm.start[k], expected[rounds - 1], 1e-4) << "round " << rounds;
    }
  }
}

} // namespace
} // namespace waggle::testing
