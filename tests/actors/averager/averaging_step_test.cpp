// Our vector in one round, without actors.

#include "actors/averaging/averaging_step.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

/// A step whose values a lossy codec changes, in a round with one other member.
struct ErrorsOfAStep : ::testing::Test {
  ErrorsOfAStep() {
    plan.codecs = {{elements, codec_id::float16}};
    step.plan = plan;
    step.what.values = std::make_shared<float_vector>(elements, 1.0F / 3);
    step.what.weight = 1;
    step.begin_sending(&feedback, {}, *vectors);
  }
  /// What the next round adds to its values.
  std::vector<float> residual_after(const round_report& report) {
    step.settle(feedback, report, self());
    return {feedback.residual().begin(), feedback.residual().end()};
  }
  [[nodiscard]] const peer_id& self() const { return plan.members.front().peer.id; }

  static constexpr std::size_t elements = 8;
  std::shared_ptr<vector_pool> vectors = vector_pool::make(1);
  error_feedback feedback;
  round_plan plan = plan_for(2, elements / 2);
  averaging_step step;
};

TEST_F(ErrorsOfAStep, AreSentNextIfItCounted) {
  round_report report{.contributors = {self()}, .values = step.what.values};
  auto residual = residual_after(report);
  ASSERT_EQ(residual.size(), elements);
  EXPECT_NE(residual.front(), 0);
}

TEST_F(ErrorsOfAStep, AreNoneIfItFailed) {
  EXPECT_TRUE(residual_after({}).empty());
}

TEST_F(ErrorsOfAStep, AreSentNextIfOnlyTheOthersMayHaveCommittedIt) {
  step.held = plan;
  step.plan.reset(); // the next attempt has found nobody
  EXPECT_EQ(residual_after({}).size(), elements);
}

TEST_F(ErrorsOfAStep, AreNoneIfItWeighedNothing) {
  step.held = plan;
  step.what.weight = 0;
  EXPECT_TRUE(residual_after({}).empty());
}

} // namespace
} // namespace waggle
