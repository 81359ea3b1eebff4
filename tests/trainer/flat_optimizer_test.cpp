#include "trainer/flat_optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/mean_gradient.hpp"
#include "trainer/plain_loop.hpp"

namespace waggle {

namespace {

using testing::mean_gradient_of;

struct rule {
  std::string optimizer;
  double momentum = 0;
  double weight_decay = 0;
};
std::string name_of(const rule& r) {
  return r.optimizer + (r.momentum > 0 ? "WithMomentum" : "")
         + (r.weight_decay > 0 ? "WithWeightDecay" : "");
}
void PrintTo(const rule& r, std::ostream* out) {
  *out << name_of(r);
}

/// Compares our optimizer with LibTorch's on the same gradients.
class AgainstTorch : public ::testing::TestWithParam<rule> {};

torch::Tensor noise(std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn({257}, generator);
}

std::unique_ptr<torch::optim::Optimizer> reference(const learner_config& c, torch::Tensor parameter,
                                                   double lr) {
  namespace optim = torch::optim;
  std::vector<torch::Tensor> all{std::move(parameter)};
  auto betas = std::make_tuple(c.beta1, c.beta2);
  if (c.optimizer == "sgd")
    return std::make_unique<optim::SGD>(
      all, optim::SGDOptions(lr).momentum(c.momentum).weight_decay(c.weight_decay));
  if (c.optimizer == "adam")
    return std::make_unique<optim::Adam>(
      all, optim::AdamOptions(lr).betas(betas).eps(c.epsilon).weight_decay(c.weight_decay));
  return std::make_unique<optim::AdamW>(
    all, optim::AdamWOptions(lr).betas(betas).eps(c.epsilon).weight_decay(c.weight_decay));
}

TEST_P(AgainstTorch, TakesTheSameSteps) {
  learner_config config;
  config.optimizer = GetParam().optimizer;
  config.momentum = GetParam().momentum;
  config.weight_decay = GetParam().weight_decay;
  config.beta1 = 0.8;
  config.beta2 = 0.95;
  constexpr double lr = 0.01;
  auto ours = noise(1);
  auto theirs = ours.clone();
  theirs.set_requires_grad(true);
  theirs.mutable_grad() = torch::zeros_like(ours);
  flat_optimizer optimizer{config, ours};
  auto torch_optimizer = reference(config, theirs, lr);
  for (std::uint64_t step = 0; step < 20; ++step) {
    auto gradient = noise(100 + step);
    {
      torch::NoGradGuard guard;
      theirs.mutable_grad().copy_(gradient);
    }
    optimizer.step(ours, gradient, lr);
    torch_optimizer->step();
    ASSERT_TRUE(torch::allclose(ours, theirs.detach(), 1e-5, 1e-6)) << "step " << step;
  }
  EXPECT_EQ(optimizer.steps(), 20u);
}

INSTANTIATE_TEST_SUITE_P(AllRules, AgainstTorch,
                         ::testing::Values(rule{"sgd"}, rule{"sgd", 0.9}, rule{"sgd", 0.9, 0.1},
                                           rule{"adam"}, rule{"adam", 0, 0.1}, rule{"adamw"},
                                           rule{"adamw", 0, 0.1}),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(AgainstTorch, AStepOfALongVectorIsThatOfItsPieces) {
  learner_config config;
  config.optimizer = GetParam().optimizer;
  config.momentum = GetParam().momentum;
  config.weight_decay = GetParam().weight_decay;
  constexpr std::int64_t cut = 700'000; // not at a boundary of the optimizer's own slices
  auto generator = at::detail::createCPUGenerator(5);
  auto whole = torch::randn({1'000'003}, generator);
  auto head = whole.narrow(0, 0, cut).clone();
  auto tail = whole.narrow(0, cut, whole.numel() - cut).clone();
  flat_optimizer of_whole{config, whole};
  flat_optimizer of_head{config, head};
  flat_optimizer of_tail{config, tail};
  for (int step = 0; step < 3; ++step) {
    auto gradient = torch::randn({whole.numel()}, generator);
    of_whole.step(whole, gradient, 0.01);
    of_head.step(head, gradient.narrow(0, 0, cut), 0.01);
    of_tail.step(tail, gradient.narrow(0, cut, tail.numel()), 0.01);
    ASSERT_TRUE(torch::equal(whole, torch::cat({head, tail}))) << "step " << step;
  }
}

TEST(FlatOptimizer, KeepsNoStatisticsItDoesNotNeed) {
  auto count = [](const char* name, double momentum) {
    learner_config config;
    config.optimizer = name;
    config.momentum = momentum;
    return flat_optimizer{config, torch::zeros({3})}.statistics().size();
  };
  EXPECT_EQ(count("sgd", 0), 0u);
  EXPECT_EQ(count("sgd", 0.9), 1u);
  EXPECT_EQ(count("adam", 0), 2u);
  EXPECT_EQ(count("adamw", 0), 2u);
}

// The plain loop is the baseline for the speed of a peer, so it must do the same work.
TEST(PlainLoop, FollowsTheTrajectoryOfALearner) {
  for (const auto& row : optimizer_table()) {
    learner_config config;
    config.layers = 1;
    config.width = 16;
    config.heads = 2;
    config.context = 12;
    config.micro_batch = 4;
    config.optimizer = row.name;
    config.device = "cpu";
    auto loop = run_plain_loop(config, 10, 1e-2, 4); // 12 samples per step: whole micro-batches
    ASSERT_TRUE(loop) << loop.error().detail;
    EXPECT_EQ(loop->optimizer_steps, 4u);
    EXPECT_EQ(loop->micro_steps, 12u);
    EXPECT_GT(loop->seconds, 0);
    auto model = make_torch_learner(config);
    ASSERT_TRUE(model);
    double loss = 0;
    for (int step = 0; step < 5; ++step) { // including the warm-up
      for (int pass = 0; pass < 3; ++pass)
        loss = (*model)->accumulate().loss;
      (*model)->apply(mean_gradient_of(**model), 1e-2);
      (*model)->drop_gradient();
    }
    EXPECT_NEAR(loop->last_loss, loss, 1e-3) << row.name;
  }
}

TEST(PlainLoop, RefusesWhatALearnerRefuses) {
  learner_config config;
  config.data = "/nowhere/at/all";
  auto loop = run_plain_loop(config, 10, 1e-2, 1);
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().code, ec::bad_config);
}

TEST(Cuda, LearnerOnTheGpuFollowsTheOneOnTheCpu) {
  if (!torch::cuda::is_available())
    GTEST_SKIP() << "this machine, or this LibTorch, has no CUDA";
  learner_config config;
  config.device = "cuda";
  auto gpu = make_torch_learner(config);
  config.device = "cpu";
  auto cpu = make_torch_learner(config);
  ASSERT_TRUE(gpu && cpu);
  EXPECT_EQ((*gpu)->parameters_digest(), (*cpu)->parameters_digest());
  for (int step = 0; step < 3; ++step) {
    EXPECT_NEAR((*gpu)->accumulate().loss, (*cpu)->accumulate().loss, 1e-3);
    auto gradient = mean_gradient_of(**cpu);
    for (auto* model : {gpu->get(), cpu->get()}) {
      model->apply(gradient, 1e-3);
      model->drop_gradient();
    }
  }
  EXPECT_TRUE((*cpu)->load_state((*gpu)->save_state(0)));
}

TEST(Cuda, IsRefusedWithASentenceWhereThereIsNone) {
  if (torch::cuda::is_available())
    GTEST_SKIP() << "this machine has CUDA";
  learner_config config;
  config.device = "cuda";
  auto checked = check_learner_config(config);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().detail.find("--device cuda"), std::string::npos);
  config.device = "auto";
  EXPECT_TRUE(check_learner_config(config));
}

} // namespace

} // namespace waggle
