// Number formats, the scale of the loss and the buffers of the gradient, on real models.

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/learner.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::mean_gradient_of, testing::parameters_of;

learner_config small(const std::string& model = "char-gpt") {
  auto c = testing::small_learner();
  c.model = model;
  return c;
}

std::unique_ptr<learner> make(const learner_config& config) {
  auto model = testing::made(config);
  model->use_vectors(vector_pool::make(4));
  return model;
}

/// Epochs of three passes, as in a run of one peer.
void train(learner& model, int epochs) {
  auto vectors = vector_pool::make(4);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (int pass = 0; pass < 3; ++pass)
      ASSERT_TRUE(model.accumulate().finite);
    auto mean = model.take_mean_vector(*vectors);
    ASSERT_EQ(mean.samples, 12U);
    model.apply(*mean.values, 1e-2);
  }
}

/// Adds `x` to all parameters.
void shift(learner& model, float x) {
  auto all = parameters_of(model);
  for (auto& value : all)
    value += x;
  for (std::size_t i = 0; model.tensors().offset(i) < all.size(); ++i)
    model.write_tensor(
      i, std::span{all}.subspan(model.tensors().offset(i), model.tensors()[i].elements()));
}

// -- the scale ------------------------------------------------------------------------------------

TEST(LossScale, WithoutAnOverflowNothingChangesBitForBit) { // F16
  for (const auto* name : {"char-gpt", "mlp"})
    for (bool reuse : {false, true}) {
      auto config = small(name);
      config.reuse_gradient_buffers = reuse;
      auto plain = make(config);
      train(*plain, 6);
      for (auto rule : {loss_scale_rule{}, constant_scale(8), constant_scale(0x1p40),
                        loss_scale_rule{.initial = 4, .growth_interval = 2}}) {
        config.loss_scale = rule;
        auto scaled = make(config);
        train(*scaled, 6);
        EXPECT_EQ(scaled->parameters_digest(), plain->parameters_digest())
          << name << " with " << rule.initial;
      }
    }
}

TEST(LossScale, NorInStrategiesThatStepWithEachPass) {
  auto train_locally = [](const learner_config& config) {
    auto model = make(config);
    for (int i = 0; i < 8; ++i) {
      model->accumulate();
      model->step_locally(1e-2);
    }
    return model->parameters_digest();
  };
  auto config = small();
  auto plain = train_locally(config);
  config.loss_scale = loss_scale_rule{.initial = 4, .growth_interval = 2};
  EXPECT_EQ(train_locally(config), plain);
}

/// An mlp whose gradient is finite, but not if it is multiplied by the largest scale.
learner_config config_that_overflows() {
  auto config = small("mlp");
  config.optimizer = identity_with("sgd", {});
  config.loss_scale = loss_scale_rule{.initial = loss_scaler::scale_max};
  return config;
}
constexpr float large = 1e10F;

TEST(LossScale, AnOverflowDropsItsMicroBatchAloneAndTheNextScaleIsSmaller) { // F16
  auto config = config_that_overflows();
  auto scaled = make(config);
  ASSERT_TRUE(scaled->accumulate().finite); // small parameters: finite even with this scale
  shift(*scaled, large);

  auto scale = loss_scaler::scale_max;
  int overflows = 0;
  auto step = scaled->accumulate();
  for (; step.overflow; step = scaled->accumulate(), ++overflows) {
    EXPECT_FALSE(step.finite);
    EXPECT_TRUE(std::isfinite(step.loss));
    EXPECT_EQ(step.samples, 4U);
    EXPECT_EQ(step.lost, 0U);
    EXPECT_EQ(step.scale, scale);
    EXPECT_EQ(scaled->accumulated_samples(), 4U) << "the epoch so far is kept";
    scale /= 2;
    ASSERT_LT(overflows, 64);
  }
  EXPECT_GT(overflows, 0);
  EXPECT_TRUE(step.finite);
  EXPECT_EQ(step.scale, scale);
  EXPECT_EQ(scaled->accumulated_samples(), 8U);

  config.loss_scale.reset();
  auto plain = make(config); // draws the same samples, and drops those of the overflows
  plain->accumulate();
  auto first = mean_gradient_of(*plain);
  shift(*plain, large);
  for (int i = 0; i < overflows; ++i) {
    EXPECT_TRUE(plain->accumulate().finite);
    plain->drop_gradient();
  }
  plain->accumulate();
  auto last = mean_gradient_of(*plain);
  auto mean = mean_gradient_of(*scaled);
  for (std::size_t i = 0; i < mean.size(); ++i)
    ASSERT_EQ(mean[i], (4 * first[i] + 4 * last[i]) / 8) << "value " << i;
}

// It cannot shrink, so the gradient counts as one that is not finite.
TEST(LossScale, AConstantScaleStaysAndIsNotBlamed) {
  auto config = config_that_overflows();
  config.loss_scale = constant_scale(loss_scaler::scale_max);
  auto model = make(config);
  shift(*model, large);
  for (int i = 0; i < 3; ++i) {
    auto step = model->accumulate();
    EXPECT_FALSE(step.finite);
    EXPECT_FALSE(step.overflow);
    EXPECT_EQ(step.scale, loss_scaler::scale_max);
  }
}

TEST(LossScale, IsNotBlamedForALossThatIsNotFinite) {
  auto config = config_that_overflows();
  auto model = make(config);
  shift(*model, 1e30F);
  auto step = model->accumulate();
  EXPECT_FALSE(step.finite);
  EXPECT_FALSE(step.overflow);
  EXPECT_EQ(model->accumulate().scale, loss_scaler::scale_max);
}

TEST(LossScale, InOneBufferAnOverflowDropsTheSumAndTheCountersMatch) {
  auto config = config_that_overflows();
  config.reuse_gradient_buffers = true;
  auto model = make(config);
  ASSERT_TRUE(model->accumulate().finite);
  ASSERT_TRUE(model->accumulate().finite);
  shift(*model, large);
  auto step = model->accumulate();
  EXPECT_TRUE(step.overflow);
  EXPECT_EQ(step.lost, 8U);
  EXPECT_EQ(model->accumulated_samples(), 0U);
  step = model->accumulate();
  EXPECT_EQ(step.scale, loss_scaler::scale_max / 2);
  EXPECT_EQ(step.lost, 0U);
}

// -- one buffer -----------------------------------------------------------------------------------

TEST(ReuseOfBuffers, GivesTheSameBytesForEqualBatches) {
  for (const auto* name : {"char-gpt", "mlp"}) {
    auto config = small(name);
    auto separate = make(config);
    config.reuse_gradient_buffers = true;
    auto reused = make(config);
    EXPECT_FALSE(separate->abilities().adds_in_place);
    EXPECT_TRUE(reused->abilities().adds_in_place);
    for (int passes = 1; passes <= 4; ++passes) { // 3: also where the divisor is no power of two
      for (int i = 0; i < passes; ++i)
        EXPECT_EQ(separate->accumulate().loss, reused->accumulate().loss);
      auto mean = mean_gradient_of(*separate);
      EXPECT_EQ(mean_gradient_of(*reused), mean) << passes << " passes of " << name;
      separate->apply(mean, 1e-2);
      reused->apply(mean, 1e-2);
      separate->drop_gradient();
      reused->drop_gradient();
    }
    train(*separate, 4);
    train(*reused, 4);
    EXPECT_EQ(separate->parameters_digest(), reused->parameters_digest());
  }
}

TEST(ReuseOfBuffers, GivesTheSameBytesWithAnOffloadedOptimizer) {
  for (const char* optimizer : {"sgd", "adamw", "lamb"}) {
    auto config = small();
    config.optimizer = identity_with(optimizer, {});
    auto plain = make(config);
    train(*plain, 4);
    config.offload_optimizer = true;
    auto offloaded = make(config);
    train(*offloaded, 4);
    config.reuse_gradient_buffers = true;
    auto reused = make(config);
    ASSERT_TRUE(reused->abilities().adds_in_place && reused->abilities().passes_beside_updates);
    train(*reused, 4);
    EXPECT_EQ(testing::save_state(*reused), testing::save_state(*offloaded)) << optimizer;
    EXPECT_EQ(testing::save_state(*reused), testing::save_state(*plain)) << optimizer;
  }
}

// As with --delay-optimizer-step: the update reads the vector that was taken while passes fill the
// next one. The rate is 0 meanwhile, so that the passes compute the same whenever they read the
// parameters.
TEST(ReuseOfBuffers, PassesBesideUpdatesAddUpAsIfTheyWereAlone) {
  auto config = small();
  auto plain = make(config);
  config.offload_optimizer = true;
  config.reuse_gradient_buffers = true;
  auto reused = make(config);
  auto vectors = vector_pool::make(4);
  for (auto* model : {plain.get(), reused.get()})
    for (int pass = 0; pass < 3; ++pass)
      model->accumulate();
  auto expected = mean_gradient_of(*plain);
  auto taken = reused->take_mean_vector(*vectors);
  constexpr int passes = 30;
  std::atomic<bool> ended{false};
  std::thread computes{[&] {
    for (int pass = 0; pass < passes; ++pass)
      EXPECT_TRUE(reused->accumulate().finite);
    ended = true;
  }};
  int updates = 0;
  do {
    reused->apply(*taken.values, 0);
    ++updates;
  } while (!ended);
  computes.join();
  EXPECT_EQ((std::vector<float>{taken.values->begin(), taken.values->end()}), expected);
  for (int i = 0; i < updates; ++i)
    plain->apply(expected, 0);
  for (int pass = 0; pass < passes; ++pass)
    plain->accumulate();
  EXPECT_EQ(reused->accumulated_samples(), 4U * passes);
  auto sum = reused->take_mean_vector(*vectors);
  EXPECT_NE(sum.values, taken.values);
  EXPECT_EQ((std::vector<float>{sum.values->begin(), sum.values->end()}), mean_gradient_of(*plain));
  plain->apply(*sum.values, 1e-2);
  reused->apply(*sum.values, 1e-2);
  EXPECT_EQ(testing::save_state(*reused), testing::save_state(*plain))
    << "after " << updates << " updates";
}

// -- bfloat16 -------------------------------------------------------------------------------------

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

TEST(Bfloat16, ComputesNearlyTheGradientOfFloat32) {
  for (const auto* name : {"char-gpt", "mlp"}) {
    auto config = small(name);
    auto exact = make(config);
    config.format = precision::bfloat16;
    auto rounded = make(config);
    auto loss = exact->accumulate().loss;
    auto near = rounded->accumulate().loss;
    EXPECT_NE(near, loss) << "it is not in use";
    EXPECT_NEAR(near, loss, 0.01 * loss);
    auto a = mean_gradient_of(*exact);
    auto b = mean_gradient_of(*rounded);
    EXPECT_NE(a, b);
    EXPECT_GT(cosine(a, b), 0.995) << name;
  }
}

TEST(Bfloat16, TrainsAndRepeatsItselfBitForBit) {
  auto config = small();
  auto exact = make(config);
  config.format = precision::bfloat16;
  auto first = make(config);
  auto second = make(config);
  auto before = first->accumulate().loss;
  for (auto* model : {exact.get(), second.get()})
    model->accumulate();
  for (auto* model : {exact.get(), first.get(), second.get()}) {
    model->drop_gradient();
    train(*model, 30);
  }
  EXPECT_EQ(first->parameters_digest(), second->parameters_digest());
  EXPECT_NE(first->parameters_digest(), exact->parameters_digest());
  auto loss = first->accumulate().loss;
  EXPECT_LT(loss, 0.8 * before);
  EXPECT_NEAR(loss, exact->accumulate().loss, 0.05 * loss);
}

TEST(Bfloat16, ParametersAndStatisticsKeepTheBitsOfFloat32) {
  auto config = small();
  config.format = precision::bfloat16;
  auto model = make(config);
  train(*model, 1);
  std::size_t fine = 0;
  for (float value : parameters_of(*model)) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    fine += (bits & 0xffffU) != 0 ? 1 : 0;
  }
  EXPECT_GT(fine, model->parameter_count() / 2);
  config.format = precision::float32;
  EXPECT_EQ(model->schema(), make(config)->schema()) << "peers may choose for themselves";
}

TEST(Bfloat16, WorksWithAScaleAndOneBuffer) {
  auto config = small();
  config.format = precision::bfloat16;
  auto plain = make(config);
  config.loss_scale = loss_scale_rule{};
  config.reuse_gradient_buffers = true;
  auto scaled = make(config);
  train(*plain, 4);
  train(*scaled, 4);
  EXPECT_EQ(plain->parameters_digest(), scaled->parameters_digest());
}

TEST(Float16, OnACpuIsRefusedInOneSentence) {
  auto config = small();
  config.format = precision::float16;
  auto usable = check_learner_config(config);
  EXPECT_EQ(usable.error().code, ec::bad_config);
  EXPECT_THAT(usable.error().detail,
              AllOf(HasSubstr("--precision float16"), HasSubstr("GPU"), HasSubstr("use bfloat16")));
}

} // namespace
} // namespace waggle
