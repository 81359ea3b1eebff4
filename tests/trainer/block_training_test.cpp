// Learners of lines of JSON, which are dealt by blocks.

#include <cmath>
#include <fstream>
#include <numeric>

#include "runtime/training/layers.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/trainer/small_learner.hpp"

namespace waggle {

namespace {

using testing::made;
using testing::small_learner;

class BlockTraining : public ::testing::Test {
protected:
  /// Blocks have 32 · 13 bytes: some have several lines, some none.
  BlockTraining() {
    std::ofstream out{scratch_.path() / "a.jsonl"};
    for (int i = 0; i < 40; ++i)
      out << R"({"text": "line )" << i << ' '
          << std::string(i % 9 == 8 ? 1500 : i, char('a' + i % 26)) << "\"}\n";
  }
  [[nodiscard]] learner_config config(std::int64_t batch = 4) const {
    auto c = small_learner();
    c.data = (scratch_.path() / "*.jsonl").string();
    c.micro_batch = batch;
    return c;
  }
  /// All blocks of a pass, dealt to this peer.
  static std::shared_ptr<sample_draws> draws_of(const learner_config& c) {
    peer_id alone;
    auto draws = std::make_shared<sample_draws>(alone, *count_samples(c), "run");
    auto dealt = draws->ledger();
    dealt.end_epoch({}, 0, std::vector{alone});
    EXPECT_TRUE(draws->follow(dealt));
    return draws;
  }
  testing::scratch_folder scratch_;
};

TEST_F(BlockTraining, APassHasEachBlockOnceHoweverItIsCutIntoBatches) {
  std::uint64_t weight = 0;
  auto gradient = [&](std::int64_t batch) {
    auto c = config(batch);
    c.draws = draws_of(c);
    auto model = *with_ledger([c] { return make_torch_learner(c); }, c.draws)();
    std::uint64_t samples = 0;
    while (model->has_samples())
      samples += model->accumulate().samples;
    EXPECT_EQ(c.draws->ahead(), 0U);
    auto mean = model->take_mean_vector(*vector_pool::make(1));
    EXPECT_EQ(mean.samples, samples);
    EXPECT_TRUE(weight == 0 || weight == samples) << "which do not depend on the batch";
    weight = samples;
    return *mean.values;
  };
  auto one = gradient(5000);
  auto many = gradient(3);
  EXPECT_GT(weight, 500U);
  ASSERT_EQ(one.size(), many.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    ASSERT_NEAR(one[i], many[i], 1e-5) << i;
}

TEST_F(BlockTraining, ABlockWithoutTextWeighsAsASampleWithoutAGradient) {
  std::ofstream{scratch_.path() / "a.jsonl"} << std::string(1000, '\n');
  auto c = config();
  c.draws = draws_of(c);
  auto model = *with_ledger([c] { return make_torch_learner(c); }, c.draws)();
  auto step = model->accumulate();
  EXPECT_TRUE(step.finite);
  EXPECT_EQ(step.samples, 3U);
  EXPECT_TRUE(std::isnan(step.loss)) << "it has none";
  EXPECT_FALSE(model->has_samples());
  auto mean = model->take_mean_vector(*vector_pool::make(1));
  auto values = std::span{*mean.values}.first(model->parameter_count());
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 0.0);
}

TEST_F(BlockTraining, APassWeighsAtMostAsAnUpdate) {
  auto c = config();
  c.pass_weight_max = 5;
  c.draws = draws_of(c);
  auto model = *with_ledger([c] { return make_torch_learner(c); }, c.draws)();
  for (std::uint64_t samples = 1; model->has_samples(); samples = model->accumulate().samples)
    EXPECT_TRUE(samples > 0 && samples <= 5);
}

TEST_F(BlockTraining, BlocksAreDrawnAtRandomWhereNobodyDealsThem) {
  auto first = made(config());
  auto second = made(config());
  first->accumulate();
  auto position = first->position();
  auto step = first->accumulate();
  EXPECT_GT(step.samples, 0U);
  ASSERT_TRUE(second->load_position(position));
  EXPECT_EQ(second->accumulate().loss, step.loss);
}

TEST_F(BlockTraining, AnEvaluationIsOverAllLines) {
  auto c = config();
  c.eval_data = (scratch_.path() / "a.jsonl").string();
  auto model = made(c);
  auto evaluate = make_evaluator(c);
  auto found = (*evaluate)->measure(weights_of(*model), false);
  EXPECT_GT(found->samples, 500U);
  EXPECT_GT(found->loss, 0);
}

TEST_F(BlockTraining, CopiesOfTheModelAreRefused) {
  auto c = config();
  c.replicas = 2;
  EXPECT_FALSE(check_learner_config(c));
  c.replicas = 1;
  EXPECT_TRUE(check_learner_config(c));
}

} // namespace

} // namespace waggle
