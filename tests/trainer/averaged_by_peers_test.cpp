// Peers whose gradients are averaged by averagers follow one process with the whole batch
// (equal and unequal batches).

#include "tests/actors/averager/averaging_world.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t passes = 4;   // of a step, by all peers together
constexpr std::int64_t windows = 2; // of a pass
constexpr double rate = 1e-3;

std::unique_ptr<learner> make(const std::string& optimizer, std::int64_t micro_batch) {
  auto c = small_learner(identity_with(optimizer, {}));
  c.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  // Adam divides by the root of a small second moment: with its 1e-8, the rounding error of a
  // gradient that is almost zero could become a visible part of a step.
  c.optimizer.epsilon = 1e-6;
  c.micro_batch = micro_batch;
  return made(c);
}

class AveragedByPeers : public averaging_world, public ::testing::WithParamInterface<const char*> {
protected:
  ~AveragedByPeers() override { end_actors(); }

  /// The mean over the passes [first, last) of a step. All peers draw the windows of all passes.
  static average_vector contribution(learner& model, std::size_t first, std::size_t last) {
    average_vector what;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      model.accumulate();
      if (pass + 1 == last) {
        auto own = std::make_shared<float_vector>(model.parameter_count());
        what.weight = static_cast<double>(testing::take_mean_gradient(model, *own));
        what.values = own;
      } else if (pass < first || pass >= last) {
        model.drop_gradient();
      }
    }
    return what;
  }
};

TEST_P(AveragedByPeers, FollowOneProcessWithTheWholeBatch) {
  change_plan = [](round_plan& plan) { plan.part_elements = 1'000; };
  for (std::size_t share : {2U, 3U}) { // passes of the first peer; the second one makes the others
    auto single = make(GetParam(), windows * passes);
    std::unique_ptr<learner> models[] = {make(GetParam(), windows), make(GetParam(), windows)};
    auto first = peers.size();
    add();
    add();
    for (int step = 0; step < 5; ++step) {
      single->accumulate();
      std::vector<float> whole(single->parameter_count());
      testing::take_mean_gradient(*single, whole);
      single->apply(whole, rate);
      single->drop_gradient();
      auto one = average(first, contribution(*models[0], 0, share));
      auto two = average(first + 1, contribution(*models[1], share, passes));
      settle();
      ASSERT_TRUE(one.get() && two.get());
      ASSERT_EQ(one.get()->weight_sum, windows * passes);
      models[0]->apply(*one.get()->values, rate);
      models[1]->apply(*two.get()->values, rate);
      ASSERT_EQ(models[0]->parameters_digest(), models[1]->parameters_digest());
    }
    auto expected = parameters_of(*single);
    auto actual = parameters_of(*models[0]);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 1e-6) << share << " of " << passes << " passes";
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AveragedByPeers,
                         ::testing::Values("sgd", "adam", "adamw", "lamb"),
                         [](const auto& info) { return std::string{info.param}; });

} // namespace
} // namespace waggle::testing
