#include "runtime/training/averaged_tensors.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/float_vector.hpp"
#include "runtime/core/random.hpp"
#include "runtime/training/pending_changes.hpp"
#include "runtime/training/tensor_store.hpp"
#include "tests/support/strategies.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using kind = state_tensor::kind;
using testing::collaborative, ::testing::ElementsAre, ::testing::HasSubstr, testing::local_updates;

const state_table adam{std::vector<state_tensor>{
  {"a", {2}, kind::parameter},
  {"b", {3}, kind::parameter},
  {"exp_avg/a", {2}, kind::statistic},
  {"exp_avg/b", {3}, kind::statistic},
  {"exp_avg_sq/a", {2}, kind::square},
  {"exp_avg_sq/b", {3}, kind::square},
}};

lane averaging(std::vector<std::string> statistics) {
  return local_updates({}, std::move(statistics)).averages;
}

TEST(AveragedTensors, AreTheParametersAndTheStatisticsThatAreNamed) {
  auto plain = averaged_tensors::of(adam, averaging({}));
  EXPECT_THAT((*plain)->indices(), ElementsAre(0, 1));
  EXPECT_EQ((*plain)->value_count(), 5U);
  EXPECT_EQ((*plain)->infos()->front().role, tensor_role::parameter);

  auto both = averaged_tensors::of(adam, averaging({"exp_avg_sq"}));
  EXPECT_THAT((*both)->indices(), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ((*both)->value_count(), 10U);
  EXPECT_EQ((*both)->infos()->back().role, tensor_role::optimizer);
  EXPECT_EQ((*both)->infos()->back().key, "exp_avg_sq/b");

  auto gradient = averaged_tensors::of(adam, collaborative(1).averages);
  EXPECT_EQ((*gradient)->infos()->front().role, tensor_role::gradient);
}

TEST(AveragedTensors, ProgressIsAGradientOfManySteps) {
  auto progress = averaged_tensors::of(adam, find_strategy("diloco")->make({}).averages);
  auto gradient = averaged_tensors::of(adam, collaborative(1).averages);
  ASSERT_TRUE(progress.ok() && gradient.ok());
  EXPECT_EQ((*progress)->value_count(), (*gradient)->value_count());
  EXPECT_EQ((*progress)->infos()->front().role, tensor_role::gradient);
}

TEST(AveragedTensors, EndWithTheStepsIfTheRoundCountsThem) {
  auto counting = averaging({});
  counting.counts_steps = true;
  auto averaged = averaged_tensors::of(adam, counting);
  EXPECT_EQ((*averaged)->tensor_value_count(), 5U);
  EXPECT_EQ((*averaged)->value_count(), 5U + step_values);
  EXPECT_TRUE((*averaged)->counts_steps());
  EXPECT_EQ((*averaged)->infos()->back().role, tensor_role::metric);
  EXPECT_EQ((*averaged)->infos()->back().elements, step_values);
  // They belong to no tensor, so no change is made to them.
  std::vector<float> values(9, 1.0F);
  std::vector<float> mean(9, 3.0F);
  std::vector<float> snapshot(9, 2.0F);
  (*averaged)->add_change(values, mean, snapshot);
  EXPECT_THAT(values, ElementsAre(2, 2, 2, 2, 2, 1, 1, 1, 1));
}

TEST(AveragedTensors, EndWithTheBuffersWhateverIsAveraged) {
  state_table normalized{std::vector<state_tensor>{
    {"a", {2}, kind::parameter},
    {"momentum_buffer/a", {2}, kind::statistic},
    {"running_var", {3}, kind::buffer},
  }};
  for (const auto& lane : {averaging({}), collaborative(1).averages}) {
    auto averaged = averaged_tensors::of(normalized, lane);
    EXPECT_THAT((*averaged)->indices(), ElementsAre(0, 2));
    EXPECT_EQ((*averaged)->value_count(), 5U);
    EXPECT_EQ((*averaged)->infos()->back().role, tensor_role::buffer);
  }
  EXPECT_FALSE(averaged_tensors::of(normalized, averaging({"running_var"})).ok())
    << "it is no statistic";
}

TEST(AveragedTensors, MetricsFollowGradientsOnlyAndAreNoBuffers) {
  state_table measured{std::vector<state_tensor>{
    {"a", {2}, kind::parameter}, {"running_var", {3}, kind::buffer}, {"loss", {}, kind::metric}}};
  EXPECT_EQ(measured.buffer_count(), 3U);
  EXPECT_EQ(measured.metric_count(), 1U);
  auto gradient = averaged_tensors::of(measured, collaborative(1).averages);
  EXPECT_THAT((*gradient)->indices(), ElementsAre(0, 1, 2));
  EXPECT_EQ((*gradient)->infos()->back().role, tensor_role::metric);
  EXPECT_THAT((*averaged_tensors::of(measured, averaging({})))->indices(), ElementsAre(0, 1));
  EXPECT_EQ(averaged_tensors::buffers_of(measured)->value_count(), 3U);
  auto read = read_state_table(as_byte_span(measured.header({}, 0) + std::string(6 * 4, '\0')));
  EXPECT_EQ(read->tensors(), measured.tensors());
}

const state_table with_gradient{
  std::vector<state_tensor>{{"a", {2}, kind::parameter},
                            {"momentum_buffer/a", {2}, kind::statistic},
                            {"running_var", {3}, kind::buffer},
                            {"gradient/a", {2}, kind::gradient}}};

TEST(AveragedTensors, GradientsOfTheLastStepAreTheEndIfTheyAreAveraged) {
  auto with = averaging({"momentum_buffer"});
  with.gradients = true;
  auto averaged = averaged_tensors::of(with_gradient, with);
  EXPECT_THAT((*averaged)->indices(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ((*averaged)->infos()->back().role, tensor_role::gradient);
  EXPECT_EQ((*averaged)->value_count(), 9U);
  EXPECT_EQ((*averaged)->model_value_count(), 7U);
  auto without = averaged_tensors::of(with_gradient, averaging({}));
  EXPECT_THAT((*without)->indices(), ElementsAre(0, 2));
  EXPECT_EQ((*without)->model_value_count(), 5U);
  with.statistics.clear();
  auto none = averaged_tensors::of(state_table{{{"a", {2}, kind::parameter}}}, with);
  EXPECT_THAT(none.error().detail, HasSubstr("--average-gradients"));
}

// The change of a gradient is for the next step, unless a round comes first.
TEST(AveragedTensors, AChangeReplacesAGradientThatIsStillTheSameAndNoOther) {
  auto with = averaging({});
  with.gradients = true;
  auto averaged = *averaged_tensors::of(with_gradient, with);
  std::vector<float> mean{0, 0, 1, 1, 1, 5, 6};
  std::vector<float> snapshot{0, 0, 1, 1, 1, 0, 7};
  auto values = snapshot;
  averaged->add_change(values, mean, snapshot);
  EXPECT_EQ(values, mean);
  values = {1, 1, 1, 1, 1, 0, 8}; // a step later, one value of the gradient is 0 again
  averaged->add_change(values, mean, snapshot);
  EXPECT_THAT(values, ElementsAre(1, 1, 1, 1, 1, 0, 8));
}

TEST(AveragedTensors, AChangeOfAGradientLeavesTheStepsBehindItAlone) {
  auto with = averaging({});
  with.gradients = with.counts_steps = true;
  auto averaged = *averaged_tensors::of(with_gradient, with);
  ASSERT_EQ(averaged->value_count(), 7U + step_values);
  float_vector snapshot(averaged->value_count(), 1);
  float_vector mean(averaged->value_count(), 2);
  auto values = snapshot;
  std::fill(values.begin() + 7, values.end(), 3.0F);
  auto expected = mean;
  std::fill(expected.begin() + 7, expected.end(), 3.0F);
  averaged->add_change(values, mean, snapshot);
  EXPECT_EQ(values, expected);
}

TEST(AveragedTensors, NameWhatTheOptimizerKeeps) {
  auto unknown = averaged_tensors::of(adam, averaging({"momentum_buffer"}));
  EXPECT_THAT(unknown.error().detail, HasSubstr("it keeps exp_avg, exp_avg_sq"));
  state_table sgd{std::vector<state_tensor>{{"a", {2}, kind::parameter}}};
  EXPECT_THAT(averaged_tensors::of(sgd, averaging({"exp_avg"})).error().detail,
              HasSubstr("it keeps none"));
}

TEST(AveragedTensors, AddTheChangeToWhatWasLearnedMeanwhile) {
  auto model = testing::make_toy_learner({.parameters = 2});
  auto averaged = *averaged_tensors::of(model->tensors(), averaging({"momentum_buffer"}));
  model->write_tensor(0, std::vector<float>{-1, 5});
  model->write_tensor(1, std::vector<float>{1, 2});
  float_vector values(4);
  EXPECT_EQ(model->copy_tensors(averaged->indices(), values), 0U);
  std::vector<float> mean{10, 5, 3, 3};
  std::vector<float> snapshot{0, 5, 1, 2};
  averaged->add_change(values, mean, snapshot);
  EXPECT_THAT(values, ElementsAre(9, 5, 3, 3)); // 0, local −1, average +10 → 9
  model->add_change(averaged->indices(), mean, snapshot);
  float_vector after(4);
  EXPECT_EQ(model->copy_tensors(averaged->indices(), after), 1U);
  EXPECT_EQ(after, values);
}

// Vector instructions give the bits of `changed`, also at the end, for equal values, and where
// something is not finite.
TEST(AveragedTensors, AChangeOfManyValuesIsThatOfEach) {
  random_source random{3};
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F, -0.0F, inf, -inf, std::nanf(""), 1e-45F, 1e30F};
  auto some = [&] {
    return random.below(4) == 0 ? special[random.below(std::size(special))]
                                : static_cast<float>(random.unit() - 0.5);
  };
  for (bool square : {false, true}) {
    std::vector<float> values(1003), mean(1003), snapshot(1003);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = some();
      mean[i] = some();
      snapshot[i] = random.below(3) == 0 ? values[i] : some();
    }
    auto expected = values;
    for (std::size_t i = 0; i < values.size(); ++i)
      expected[i] = changed(values[i], mean[i], snapshot[i], square);
    change_values(values, mean, snapshot, square ? change_rule::square : change_rule::difference);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(std::bit_cast<std::uint32_t>(values[i])
                    == std::bit_cast<std::uint32_t>(expected[i])
                  || (std::isnan(values[i]) && std::isnan(expected[i])))
        << i << ": " << values[i] << " instead of " << expected[i];
  }
}

// It was 1 in the snapshot, has decayed to 0.9 since, and the mean is 0.05: the change alone would
// make it negative, and 0 would make the next step infinitely long.
TEST(AveragedTensors, KeepSquaresPositive) {
  auto averaged = *averaged_tensors::of(
    state_table{{{"x", {1}, kind::parameter}, {"exp_avg_sq/x", {1}, kind::square}}},
    averaging({"exp_avg_sq"}));
  std::vector<float> values{0.5F, 0.9F};
  averaged->add_change(values, std::vector<float>{-5, 0.05F}, std::vector<float>{0, 1});
  EXPECT_FLOAT_EQ(values[0], -4.5F);
  EXPECT_FLOAT_EQ(values[1], 0.05F);
  averaged->add_change(values, std::vector<float>{0, 2}, std::vector<float>{0, 0.05F});
  EXPECT_FLOAT_EQ(values[1], 2.0F);
}

// Two rounds end while one pass runs: their changes wait for the end of the pass.
TEST(PendingChanges, ASnapshotContainsThoseThatAreStillToBeAdded) {
  auto model = testing::make_toy_learner({.parameters = 1});
  auto averaged = *averaged_tensors::of(model->tensors(), averaging({}));
  auto shared = [](float x) { return std::make_shared<const float_vector>(1, x); };
  model->write_tensor(0, std::vector<float>{0});
  pending_changes pending;
  auto snapshot = [&] {
    float_vector values(1);
    pending.complete(*averaged, *model->copy_tensors(averaged->indices(), values), values);
    return values[0];
  };
  EXPECT_EQ(snapshot(), 0);
  pending.add(shared(5), shared(0)); // the other peer is at 10
  EXPECT_EQ(snapshot(), 5);
  pending.add(shared(6), shared(5)); // it has moved to 7
  EXPECT_EQ(snapshot(), 6);
  model->add_change(averaged->indices(), std::vector<float>{5}, std::vector<float>{0});
  EXPECT_EQ(snapshot(), 6) << "one of them was added";
  model->add_change(averaged->indices(), std::vector<float>{6}, std::vector<float>{5});
  EXPECT_EQ(snapshot(), 6);
}

} // namespace
} // namespace waggle
