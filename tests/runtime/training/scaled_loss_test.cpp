#include <gtest/gtest.h>

#include "runtime/training/layers.hpp"
#include "runtime/training/learner.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

constexpr loss_scale_rule after_two_updates{1024, 2, 0.5, 2};

result<std::unique_ptr<learner>> toy() {
  return std::unique_ptr<learner>{testing::make_toy_learner({})};
}

TEST(ScaledLoss, GrowsWithTheUpdatesOfItsLearnerAndIsItsOwnState) {
  auto scale = std::make_shared<loss_scaler>(after_two_updates);
  auto model = std::move(*clipped(with_loss_scale(toy, scale), 1e-9)());
  std::vector<float> gradient(model->parameter_count(), 1.0F);
  model->apply(gradient, 0.1);
  EXPECT_EQ(scale->scale(), 1024);
  auto kept = model->own_state();
  model->apply(gradient, 0.1);
  EXPECT_EQ(scale->scale(), 2048);
  auto restarted = std::make_shared<loss_scaler>(after_two_updates);
  auto next = std::move(*with_loss_scale(toy, restarted)());
  ASSERT_TRUE(next->load_own_state(model->own_state()));
  EXPECT_EQ(restarted->scale(), 2048);
  ASSERT_TRUE(next->load_own_state(kept));
  next->apply(gradient, 0.1);
  EXPECT_EQ(restarted->scale(), 2048) << "the second of two updates";
  EXPECT_FALSE(next->load_own_state("another"));
}

TEST(ScaledLoss, CountsTheStepsOfALearnerThatStepsLocally) {
  auto scale = std::make_shared<loss_scaler>(after_two_updates);
  auto model = std::move(*with_loss_scale(toy, scale)());
  for (int i = 0; i < 3; ++i)
    model->step_locally(0.1); // without a gradient, there is no step
  EXPECT_EQ(scale->scale(), 1024);
  for (int i = 0; i < 2; ++i) {
    model->accumulate();
    model->step_locally(0.1);
  }
  EXPECT_EQ(scale->scale(), 2048);
}

TEST(ScaledLoss, WithoutAScaleALearnerIsLeftAsItIs) {
  EXPECT_EQ(std::move(*with_loss_scale(toy, nullptr)())->own_state(), "");
}

} // namespace
} // namespace waggle
