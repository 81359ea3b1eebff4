#include "runtime/training/averaged_tensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/float_vector.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using kind = state_tensor::kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const state_table adam{std::vector<state_tensor>{
  {"a", {2}, kind::parameter},
  {"b", {3}, kind::parameter},
  {"exp_avg/a", {2}, kind::statistic},
  {"exp_avg/b", {3}, kind::statistic},
  {"exp_avg_sq/a", {2}, kind::square},
  {"exp_avg_sq/b", {3}, kind::square},
}};

lane averaging(std::vector<std::string> statistics) {
  return local_updates(own_steps(1), std::move(statistics)).lanes.front();
}

TEST(AveragedTensors, AreTheParametersAndTheStatisticsThatAreNamed) {
  auto plain = averaged_tensors::of(adam, averaging({}));
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT((*plain)->indices(), ElementsAre(0, 1));
  EXPECT_EQ((*plain)->value_count(), 5U);
  EXPECT_EQ((*plain)->infos()->front().role, tensor_role::parameter);

  auto both = averaged_tensors::of(adam, averaging({"exp_avg_sq"}));
  ASSERT_TRUE(both.ok());
  EXPECT_THAT((*both)->indices(), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ((*both)->value_count(), 10U);
  EXPECT_EQ((*both)->infos()->back().role, tensor_role::optimizer);
  EXPECT_EQ((*both)->infos()->back().key, "exp_avg_sq/b");

  auto gradient = averaged_tensors::of(adam, collaborative(1).lanes.front());
  ASSERT_TRUE(gradient.ok());
  EXPECT_EQ((*gradient)->infos()->front().role, tensor_role::gradient);
}

TEST(AveragedTensors, NameWhatTheOptimizerKeeps) {
  auto unknown = averaged_tensors::of(adam, averaging({"momentum_buffer"}));
  ASSERT_FALSE(unknown.ok());
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
  averaged->add_change(*model, std::vector<float>{10, 5, 3, 3}, std::vector<float>{0, 5, 1, 2});
  float_vector values(4);
  model->copy_tensors(averaged->indices(), values);
  EXPECT_THAT(values, ElementsAre(9, 5, 3, 3)); // 0, local −1, average +10 → 9
}

/// Two tensors: a parameter and a square of it.
class squares final : public local_learner {
public:
  squares() : table_({{"x", {1}, kind::parameter}, {"exp_avg_sq/x", {1}, kind::square}}) {}
  const state_table& tensors() const override { return table_; }
  digest schema() const override { return {}; }
  micro_step accumulate() override { return {}; }
  void apply(std::span<const float>, double) override {}
  void step_locally(double) override {}
  void copy_tensors(std::span<const std::size_t>, std::span<float>) const override {}
  void read_tensor(std::size_t which, std::span<float> out) const override { out[0] = x[which]; }
  void write_tensor(std::size_t which, std::span<const float> in) override { x[which] = in[0]; }
  std::uint64_t optimizer_steps() const override { return 0; }
  void set_optimizer_steps(std::uint64_t) override {}
  std::uint64_t take_mean_gradient(std::span<float>) override { return 0; }
  std::uint64_t drop_gradient() override { return 0; }
  std::uint64_t accumulated_samples() const override { return 0; }

  float x[2] = {0.5F, 0.9F};

private:
  state_table table_;
};

// It was 1 in the snapshot, has decayed to 0.9 since, and the mean is 0.05: the change alone would
// make it negative, and its root NaN.
TEST(AveragedTensors, KeepSquaresNonNegative) {
  squares model;
  auto averaged = *averaged_tensors::of(model.tensors(), averaging({"exp_avg_sq"}));
  averaged->add_change(model, std::vector<float>{-5, 0.05F}, std::vector<float>{0, 1});
  EXPECT_FLOAT_EQ(model.x[0], -4.5F);
  EXPECT_EQ(model.x[1], 0.0F);
}

} // namespace
} // namespace waggle
