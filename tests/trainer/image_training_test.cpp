#include <cmath>

#include <gtest/gtest.h>

#include "runtime/training/layers.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/trainer/image_folder.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

namespace {

learner_config cnn_on(const image_folder& images) {
  learner_config c;
  c.model = "cnn";
  c.layers = 1;
  c.width = 16;
  c.data = images.path.string();
  c.eval_data = images.path.string();
  c.micro_batch = 20;
  c.device = "cpu";
  return c;
}

void train(learner& model, int steps) {
  float_vector mean(model.gradient_count());
  for (int i = 0; i < steps; ++i) {
    auto step = model.accumulate();
    ASSERT_EQ(step.why.code, ec::none) << step.why.detail;
    ASSERT_EQ(testing::take_mean_gradient(model, mean), step.samples);
    model.apply(mean, 1e-2);
  }
}

const std::atomic<bool> go_on{false};

std::string refusal(const learner_config& config) {
  auto fits = check_learner_config(config);
  return fits ? "" : fits.error().detail;
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(ImageTraining, ACnnLearnsImagesThatItHasNotSeen) {
  image_folder images;
  auto config = cnn_on(images);
  auto made = make_torch_learner(config);
  auto judge = make_evaluator(config);
  auto before = (*judge)->measure(weights_of(**made), go_on);
  EXPECT_EQ(before->samples, 100u);
  EXPECT_LT(before->accuracy, 0.4);
  EXPECT_NEAR(before->loss, std::log(10.0), 1);
  train(**made, 100);
  auto after = (*judge)->measure(weights_of(**made), go_on);
  EXPECT_GT(after->accuracy, 0.95);
  EXPECT_LT(after->loss, 0.3);
}

// The same weights give the same numbers, also when there is something else to measure between.
TEST(ImageTraining, AnEvaluationDependsOnTheWeightsAloneAndStopsWhenItIsTold) {
  image_folder images{200, 600};
  auto config = cnn_on(images);
  auto made = make_torch_learner(config);
  auto judge = make_evaluator(config);
  auto first = weights_of(**made);
  auto once = (*judge)->measure(first, go_on);
  train(**made, 3);
  ASSERT_TRUE((*judge)->measure(weights_of(**made), go_on));
  auto again = (*judge)->measure(first, go_on);
  EXPECT_EQ(once->loss, again->loss);
  EXPECT_EQ(once->accuracy, again->accuracy);
  const std::atomic<bool> stop{true};
  EXPECT_EQ((*judge)->measure(first, stop).error().code, ec::shutting_down);
}

TEST(ImageTraining, TextIsMeasuredByBytes) {
  learner_config config;
  config.model = "mlp";
  config.context = 8;
  config.width = 8;
  config.eval_data = "synthetic";
  config.device = "cpu";
  image_folder folder; // for its life time only
  {
    std::ofstream out{folder.path / "text"};
    for (int i = 0; i < 50; ++i)
      out << "abcdefgh";
  }
  config.data = config.eval_data = (folder.path / "text").string();
  auto made = make_torch_learner(config);
  auto judge = make_evaluator(config);
  train(**made, 100);
  auto found = (*judge)->measure(weights_of(**made), go_on);
  EXPECT_EQ(found->samples, 49u); // 400 bytes; windows of 9 with a byte of overlap
  EXPECT_EQ(found->accuracy, 1);
}

TEST(ImageTraining, ModelAndDataMustFit) {
  image_folder images;
  auto config = cnn_on(images);
  EXPECT_EQ(refusal(config), "");
  config.data = "synthetic";
  config.eval_data.clear();
  EXPECT_SAYS(refusal(config), "--model cnn learns images, and --data synthetic is text");
  config = cnn_on(images);
  config.model = "mlp";
  EXPECT_SAYS(refusal(config), "--model mlp learns text or tokens, and --data ");
  EXPECT_SAYS(refusal(config), " is images of 1 × 8 × 8: use --model cnn");
  config = cnn_on(images);
  config.layers = 4;
  EXPECT_SAYS(refusal(config), "--layers 4 is too many for images of 1 × 8 × 8");
  config = cnn_on(images);
  config.eval_data = "synthetic";
  EXPECT_SAYS(refusal(config), "--eval-data synthetic has text, and --data");
}

TEST(ImageTraining, ALearnerContinuesInTheImagesWhereItWas) {
  image_folder images;
  auto config = cnn_on(images);
  auto first = make_torch_learner(config);
  auto second = make_torch_learner(config);
  ASSERT_TRUE((*first)->abilities().resumes);
  (*first)->accumulate();
  auto loss = (*first)->accumulate().loss;
  ASSERT_TRUE((*second)->load_position([&] {
    auto third = make_torch_learner(config);
    (*third)->accumulate();
    return (*third)->position();
  }()));
  EXPECT_EQ((*second)->accumulate().loss, loss);
}

// The gradient of a pass is that of all images, however it is cut into batches.
TEST(ImageTraining, APassOfDealtSamplesHasEachImageOnce) {
  image_folder images;
  auto gradient = [&](std::int64_t batch) {
    auto config = cnn_on(images);
    config.micro_batch = batch;
    auto samples = count_samples(config);
    EXPECT_TRUE(samples);
    EXPECT_EQ(*samples, 200U);
    peer_id alone;
    config.draws = std::make_shared<sample_draws>(alone, *samples, "run");
    auto dealt = config.draws->ledger();
    dealt.end_epoch({}, 0, std::vector{alone});
    EXPECT_TRUE(config.draws->follow(dealt));
    auto model = *with_ledger([config] { return make_torch_learner(config); }, config.draws)();
    while (model->has_samples())
      EXPECT_GT(model->accumulate().samples, 0U);
    auto mean = model->take_mean_vector(*vector_pool::make(1));
    EXPECT_EQ(mean.samples, 200U);
    return *mean.values;
  };
  auto one = gradient(200);
  auto many = gradient(7);
  ASSERT_EQ(one.size(), many.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    ASSERT_NEAR(one[i], many[i], 1e-5) << i;
}

TEST(ImageTraining, SamplesOfAnotherNumberThanCountedAreRefused) {
  image_folder images;
  auto config = cnn_on(images);
  config.draws = std::make_shared<sample_draws>(peer_id{}, *count_samples(config) + 1, "run");
  EXPECT_SAYS(make_torch_learner(config).error().detail, "has another number of samples");
}

} // namespace

} // namespace waggle
