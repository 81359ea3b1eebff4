// The guarantees of every learner (runtime/training/learner.hpp), tested on the toy learner.

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

TEST(Learner, ConstructionIsReproducibleAndTakesNoStep) {
  auto a = make_toy_learner({});
  auto b = make_toy_learner({});
  EXPECT_EQ(a->parameters_digest(), b->parameters_digest());
  EXPECT_EQ(a->schema(), b->schema());
  EXPECT_EQ(a->accumulated_samples(), 0U);
  EXPECT_EQ(mean_gradient_of(*a), std::vector<float>(a->parameter_count(), 0.0F));
  auto before = a->parameters_digest();
  a->accumulate();
  EXPECT_EQ(a->parameters_digest(), before);
}

TEST(Learner, UnequalMicroBatchesWeighTheirSamples) {
  toy_options small{.micro_batch = 2};
  toy_options large{.micro_batch = 8};
  auto a = make_toy_learner(small);
  for (int i = 0; i < 4; ++i)
    a->accumulate();
  auto b = make_toy_learner(large);
  b->accumulate(); // the same eight samples at once
  EXPECT_EQ(a->accumulated_samples(), b->accumulated_samples());
  EXPECT_EQ(mean_gradient_of(*a), mean_gradient_of(*b));
}

TEST(Learner, AStateMakesTheNextStepEqualBitForBit) {
  auto donor = make_toy_learner({});
  for (int i = 0; i < 3; ++i) {
    donor->accumulate();
    donor->apply(mean_gradient_of(*donor), 0.1);
    donor->drop_gradient();
  }
  auto joiner = make_toy_learner({.init_seed = 99, .data_seed = 5});
  ASSERT_NE(joiner->parameters_digest(), donor->parameters_digest());
  ASSERT_TRUE(testing::load_state(*joiner, testing::save_state(*donor)).ok());
  EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
  std::vector<float> gradient(donor->parameter_count(), 0.5F);
  donor->apply(gradient, 0.1); // momentum acts here, too
  joiner->apply(gradient, 0.1);
  EXPECT_EQ(joiner->parameters_digest(), donor->parameters_digest());
}

TEST(Learner, AStateOfTheWrongLengthChangesNothing) {
  auto a = make_toy_learner({});
  auto before = a->parameters_digest();
  auto state = testing::save_state(*a);
  EXPECT_FALSE(testing::load_state(*a, byte_span{state}.first(state.size() - 1)).ok());
  EXPECT_EQ(a->parameters_digest(), before);
}

TEST(Learner, TheLossFalls) {
  auto a = make_toy_learner({});
  double first = 0;
  double last = 0;
  for (int k = 0; k < 60; ++k) {
    double loss = 0;
    for (int i = 0; i < 8; ++i)
      loss += a->accumulate().loss / 8;
    (k == 0 ? first : last) = loss;
    a->apply(mean_gradient_of(*a), 0.1);
    a->drop_gradient();
  }
  EXPECT_LT(last, 0.1 * first);
}

} // namespace
} // namespace waggle::testing
