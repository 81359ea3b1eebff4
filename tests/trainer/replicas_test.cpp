// Several replicas in one peer are one replica that makes their passes one after another.

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/training/learner.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {
namespace {

using testing::mean_gradient_of;

constexpr std::int64_t count = 3;

std::unique_ptr<learner> make(std::int64_t replicas, bool reuse = false, bool offload = false) {
  auto c = testing::small_learner();
  c.micro_batch = 6; // no power of two: dividing by it rounds
  c.replicas = replicas;
  c.reuse_gradient_buffers = reuse;
  c.offload_optimizer = offload;
  return testing::made(c);
}

/// As many samples as one pass of all replicas. Returns their mean loss.
double passes_in_turn(learner& single) {
  double loss = 0;
  for (std::int64_t i = 0; i < count; ++i)
    loss += single.accumulate().loss;
  return loss / count;
}

TEST(Replicas, GiveTheBytesOfOneThatMakesTheirPassesOneAfterAnother) {
  for (bool reuse : {false, true})
    for (bool offload : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "reuse " << reuse << ", offload " << offload);
      auto several = make(count, reuse, offload);
      auto single = make(1, reuse, offload);
      EXPECT_EQ(several->schema(), single->schema()) << "peers may differ";
      for (int update = 0; update < 3; ++update) {
        for (int pass = 0; pass < 2; ++pass) {
          auto step = several->accumulate();
          EXPECT_EQ(step.samples, 18U);
          EXPECT_DOUBLE_EQ(step.loss, passes_in_turn(*single));
        }
        EXPECT_EQ(several->accumulated_samples(), 36U);
        auto mean = mean_gradient_of(*several);
        EXPECT_EQ(mean, mean_gradient_of(*single));
        several->apply(mean, 1e-2);
        single->apply(mean, 1e-2);
        EXPECT_EQ(several->taken_position(), single->taken_position());
      }
      EXPECT_EQ(testing::save_state(*several), testing::save_state(*single));
    }
}

TEST(Replicas, StepTogetherWithTheMeanOfAllWhereAPeerStepsByItself) {
  auto several = make(count);
  auto single = make(1);
  for (int step = 0; step < 3; ++step) {
    several->accumulate();
    passes_in_turn(*single);
    several->step_locally(1e-2);
    single->step_locally(1e-2);
  }
  EXPECT_EQ(testing::save_state(*several), testing::save_state(*single));
}

TEST(Replicas, DropAPassTogetherIfItIsNotFiniteInOneOfThem) {
  auto several = make(count);
  several->accumulate();
  std::vector<float> push(several->parameter_count(), -1e30F);
  several->apply(push, 1e10);
  auto step = several->accumulate();
  EXPECT_FALSE(step.finite);
  EXPECT_EQ(step.samples, 18U);
  EXPECT_EQ(several->accumulated_samples(), 18U) << "of the first pass";
  for (float value : mean_gradient_of(*several))
    ASSERT_TRUE(std::isfinite(value));
}

} // namespace
} // namespace waggle
