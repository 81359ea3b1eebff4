#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/training/layers.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

TEST(Clipping, TheFactorShortensWhatIsTooLongAndNothingElse) {
  std::vector<float> gradient{3, 0, 0, 0, 0, 0, 0, 0, 0, -4};
  EXPECT_EQ(clip_factor(gradient, 5), 1.0);
  EXPECT_EQ(clip_factor(gradient, 6), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(gradient, 1), 0.2);
  EXPECT_EQ(clip_factor({}, 1), 1.0);
  EXPECT_EQ(clip_factor(std::vector<float>(9), 1), 1.0);
}

TEST(Clipping, AGradientThatOverflowsAFloatIsShortenedAndOneThatIsNotFiniteIsLeftAlone) {
  std::vector<float> large(100, 1e38F);
  EXPECT_NEAR(clip_factor(large, 1) * 1e39, 1, 1e-6);
  large[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(clip_factor(large, 1), 1.0);
}

TEST(Clipping, ALearnerTakesTheStepOfTheShortenedGradient) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{testing::make_toy_learner({})};
  };
  auto plain = std::move(*toy());
  auto unlimited = std::move(*clipped(toy, 0)());
  auto limited = std::move(*clipped(toy, 2)());
  limited->use_vectors(vector_pool::make(1));
  std::vector<float> gradient(plain->parameter_count(), 4.0F);
  std::vector<float> shorter(plain->parameter_count());
  auto factor = clip_factor(gradient, 2);
  for (std::size_t i = 0; i < shorter.size(); ++i)
    shorter[i] = gradient[i] * static_cast<float>(factor);
  for (int step = 0; step < 3; ++step) {
    limited->apply(gradient, 0.1);
    plain->apply(shorter, 0.1);
    EXPECT_EQ(testing::save_state(*limited), testing::save_state(*plain));
  }
  unlimited->apply(gradient, 0.1);
  EXPECT_NE(unlimited->parameters_digest(), limited->parameters_digest());
}

TEST(Clipping, OnlyUpdatesAreClippedNotWhatALearnerContributes) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{testing::make_toy_learner({})};
  };
  auto plain = std::move(*toy());
  auto limited = std::move(*clipped(toy, 1e-9)());
  plain->accumulate();
  limited->accumulate();
  std::vector<float> a(plain->parameter_count());
  std::vector<float> b(a.size());
  EXPECT_EQ(testing::take_mean_gradient(*plain, a), testing::take_mean_gradient(*limited, b));
  EXPECT_EQ(a, b);
}

TEST(Clipping, ALocalStepTakesTheShortenedGradientOfItsMicroBatch) {
  auto toy = []() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{testing::make_toy_learner({})};
  };
  auto plain = testing::make_toy_learner({});
  auto limited = std::move(*clipped(toy, 0.01)());
  plain->accumulate();
  limited->accumulate();
  std::vector<float> gradient(plain->parameter_count());
  testing::take_mean_gradient(*plain, gradient);
  auto factor = clip_factor(gradient, 0.01);
  ASSERT_LT(factor, 1);
  for (auto& g : gradient)
    g *= static_cast<float>(factor);
  plain->apply(gradient, 0.1);
  limited->step_locally(0.1);
  EXPECT_EQ(limited->parameters_digest(), plain->parameters_digest());
  EXPECT_EQ(limited->accumulated_samples(), 0U);
}

} // namespace
} // namespace waggle
