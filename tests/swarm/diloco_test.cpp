// The outer steps of DiLoCo in a simulated swarm, through all actors.

#include <algorithm>
#include <array>

#include "runtime/training/learner_layer.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t parameters = 64;

constexpr std::uint64_t micro_batch = 4;

/// Each of its steps lowers each parameter by `by`, whatever the samples are.
class falling_learner final : public learner_layer {
public:
  falling_learner(std::unique_ptr<learner> below, float by)
    : learner_layer(std::move(below)), by_(by) {}

  void step_locally(double /*lr*/) override {
    learner_layer::step_locally(0);
    auto values = values_now();
    for (auto& value : values)
      value -= by_;
    below().write_tensor(0, values);
  }
  [[nodiscard]] std::vector<float> values_now() const {
    std::vector<float> values(parameters);
    below().read_tensor(0, values);
    return values;
  }

private:
  const float by_;
};

/// Three peers that end after `rounds` rounds. Their steps lower the parameters by `falls`.
struct diloco_swarm : trainers {
  diloco_swarm(void (*set)(training_config&), std::uint64_t rounds, std::array<float, 3> falls)
    : trainers(3) {
    const mode how{"", set, true};
    for (std::size_t i = 0; i < models.size(); ++i) {
      auto config = with_mode(how, i + 1, rounds);
      config.training->training.min_peers = models.size();
      auto make = [i, by = falls[i], this]() -> result<std::unique_ptr<learner>> {
        auto made = std::make_unique<falling_learner>(
          make_toy_learner(
            {.parameters = parameters, .micro_batch = micro_batch, .data_seed = i + 1}),
          by);
        models[i] = made.get();
        start = made->values_now();
        return std::unique_ptr<learner>{std::move(made)};
      };
      config.training->make_learner = config.training->training.strategy.learners(make);
      join(std::move(config));
    }
    EXPECT_TRUE(sim.run_until([this] { return all_finished(); }, 60s)) << picture(sim);
    sim.run_for(1s); // the last update is applied after its epoch has ended
    expect_rounds_kept_the_contract(sim);
  }
  void expect_fall(double expected, double tolerance) const {
    for (const auto* model : models) {
      auto found = model->values_now();
      for (std::size_t k = 0; k < found.size(); ++k)
        EXPECT_NEAR(start[k] - found[k], expected, tolerance) << k;
    }
  }

  std::array<falling_learner*, 3> models{};
  std::vector<float> start;
};

TEST(DilocoSwarm, ItsOuterStepsAreThoseOfNesterov) {
  const double expected[] = {1.33, 3.227, 5.6343}; // Nesterov, Δ = 1 three times
  for (std::uint64_t rounds = 1; rounds <= 3; ++rounds) {
    SCOPED_TRACE(rounds);
    diloco_swarm swarm{[](training_config& c) { local(c, "diloco:steps=1"); }, rounds, {1, 1, 1}};
    swarm.expect_fall(expected[rounds - 1], 1e-4);
  }
}

TEST(DilocoSwarm, WithOuterRateOneAndNoMomentumItTakesTheMeanOfThePeers) {
  const std::array<float, 3> falls{1, 2, 6};
  diloco_swarm swarm{
    [](training_config& c) { local(c, "diloco:steps=4,outer-rate=1,outer-momentum=0"); }, 1, falls};
  double fall = 0;
  double samples = 0;
  for (std::size_t i = 0; i < falls.size(); ++i) {
    auto used = static_cast<double>(swarm.status_of(i).samples_used);
    EXPECT_GT(used, 0);
    fall += used * falls[i] * used / micro_batch;
    samples += used;
  }
  swarm.expect_fall(fall / samples, 1e-5);
}

} // namespace
} // namespace waggle::testing
