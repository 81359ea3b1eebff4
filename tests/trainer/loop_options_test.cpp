// What a loop that is alone computes with the options that change where and with what its optimizer
// steps.

#include <cmath>

#include "tests/trainer/swarm_of_one.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

class LoopOptions : public testing::swarm_of_one {
protected:
  [[nodiscard]] swarm_options with(std::map<std::string, std::string> more,
                                   std::uint64_t max_epochs = 0) const {
    auto o = options(max_epochs);
    o.more = std::move(more);
    return o;
  }
  static std::string thrown_by(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  }
};

TEST_F(LoopOptions, InHostMemoryItIsBitByBitThePlainLoopWhateverItsSchedulerDoes) {
  constexpr std::uint64_t steps = 20;
  auto plain = line();
  auto own = adam(plain);
  torch::optim::StepLR own_rates{*own, 3, 0.5};
  auto ours = line();
  auto swarm = join(with({{"offload-optimizer", "true"}}, steps));
  ASSERT_TRUE(swarm) << swarm.error().detail;
  optimizer offloaded{swarm, *ours, adam(ours)};
  torch::optim::StepLR rates{offloaded.inner(), 3, 0.5};
  for (std::uint64_t i = 0; i < steps; ++i) {
    own->zero_grad();
    loss_of(plain, i).backward();
    own->step();
    own_rates.step();
    EXPECT_NE(train(ours, offloaded, i), step_outcome::held);
    rates.step();
    ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << i;
    ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << i;
  }
  EXPECT_TRUE(swarm->finished());
}

// The averages of a peer that is alone change nothing.
TEST_F(LoopOptions, WithLocalStepsTheyChangeNoBitOfALoopThatIsAlone) {
  for (const char* option : {"average-gradients", "offload-optimizer"}) {
    constexpr std::uint64_t steps = 30;
    auto plain = line();
    auto own = adam(plain);
    auto ours = line();
    auto o = with({{option, "true"}}, steps / 2);
    o.data_dir = folder_ / option;
    o.strategy = "local-updates";
    o.target_batch_size = 8;
    auto swarm = join(o);
    ASSERT_TRUE(swarm) << swarm.error().detail;
    optimizer stepping{swarm, *ours, adam(ours)};
    // A round that takes longer than two steps postpones the next one.
    for (std::uint64_t made = 0; made < 100 * steps; ++made) {
      own->zero_grad();
      loss_of(plain, made).backward();
      own->step();
      auto outcome = train(ours, stepping, made);
      ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << option << ", step " << made;
      ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << option << ", step " << made;
      if (outcome == step_outcome::finished)
        break;
    }
    EXPECT_TRUE(swarm->finished()) << option;
  }
}

// Which updates a gradient misses depends on time. So each pass notes the parameters that it has
// used, and a plain optimizer makes the same updates with the same gradients.
TEST_F(LoopOptions, ADelayedUpdateIsThatOfThePlainOptimizerWithAGradientThatMissesAtMostOne) {
  constexpr std::uint64_t steps = 60;
  for (bool run_owns_rate : {false, true}) {
    auto o = with({{"delay-optimizer-step", "true"}}, steps);
    o.data_dir = folder_ / (run_owns_rate ? "run" : "own");
    if (run_owns_rate) {
      o.learning_rate = rate_owner::run;
      o.more["lr"] = "0.01";
    }
    auto ours = line();
    auto swarm = join(o);
    ASSERT_TRUE(swarm) << swarm.error().detail;
    struct pass {
      torch::Tensor weight, gradient, bias_gradient;
    };
    std::vector<pass> passes;
    {
      optimizer delayed{swarm, *ours, adam(ours)};
      for (auto outcome = step_outcome::held; outcome != step_outcome::finished;) {
        delayed.zero_grad();
        auto loss = loss_of(ours, passes.size());
        loss.backward();
        passes.push_back(
          {ours->weight.detach().clone(), ours->weight.grad().clone(), ours->bias.grad().clone()});
        outcome = delayed.step(4, loss);
        ASSERT_NE(outcome, step_outcome::synced);
        ASSERT_NE(outcome, step_outcome::dropped);
      }
      EXPECT_TRUE(swarm->finished());
    }
    ASSERT_GE(passes.size(), steps);
    auto plain = line();
    auto own = adam(plain);
    std::vector<torch::Tensor> after{plain->weight.detach().clone()}; // each update
    for (std::uint64_t i = 0; i < steps; ++i) {
      plain->weight.mutable_grad() = passes[i].gradient;
      plain->bias.mutable_grad() = passes[i].bias_gradient;
      own->step();
      after.push_back(plain->weight.detach().clone());
    }
    for (std::uint64_t i = 1; i < steps; ++i)
      EXPECT_TRUE(torch::equal(passes[i].weight, after[i])
                  || torch::equal(passes[i].weight, after[i - 1]))
        << "pass " << i;
    EXPECT_TRUE(torch::equal(ours->weight, plain->weight)) << "the module has the last update";
    EXPECT_TRUE(torch::equal(ours->bias, plain->bias));
    EXPECT_EQ(swarm->status().samples_used, 4 * steps);
  }
}

TEST_F(LoopOptions, ADelayedLoopResumesFromItsCheckpoint) {
  torch::Tensor left;
  {
    auto m = line();
    auto swarm = join(with({{"delay-optimizer-step", "true"}}));
    optimizer delayed{swarm, *m, adam(m)};
    for (std::uint64_t i = 0; i < 5; ++i)
      train(m, delayed, i);
    left = m->weight;
  } // the updates that were being made are in the module now
  auto m = line();
  auto swarm = join(with({{"delay-optimizer-step", "true"}}));
  optimizer delayed{swarm, *m, adam(m)};
  EXPECT_EQ(train(m, delayed, 0), step_outcome::synced);
  EXPECT_TRUE(torch::equal(m->weight, left));
}

TEST_F(LoopOptions, ADelayedLoopWritesTheRateOfTheRunIntoItsOptimizer) {
  auto o = with({{"delay-optimizer-step", "true"}, {"lr", "0.125"}}, 4);
  o.learning_rate = rate_owner::run;
  auto m = line();
  auto swarm = join(o);
  optimizer delayed{swarm, *m, adam(m)};
  for (std::uint64_t i = 0; train(m, delayed, i) != step_outcome::finished; ++i) {
  }
  EXPECT_EQ(delayed.inner().param_groups().front().options().get_lr(), 0.125);
}

TEST_F(LoopOptions, WhatADelayedLoopCannotDoIsRefusedWithWhatToDoInstead) {
  auto o = with({{"delay-optimizer-step", "true"}});
  {
    auto m = line();
    auto swarm = join(o);
    optimizer delayed{swarm, *m, adam(m)};
    train(m, delayed, 0);
    delayed.inner().param_groups().front().options().set_lr(1);
    EXPECT_THAT(thrown_by([&] { train(m, delayed, 1); }),
                HasSubstr("set learning_rate = rate_owner::run"));
  }
  auto m = line();
  EXPECT_THAT(thrown_by([&] {
                optimizer delayed{join(o), *m, adam(m), {{"teacher", torch::zeros({2})}}};
              }),
              HasSubstr("not for running statistics and extra tensors, such as teacher"));
  o.strategy = "local-updates";
  EXPECT_THAT(refusal(o), HasSubstr("belongs to --strategy collaborative"));
  o = with({{"average-gradients", "true"}});
  EXPECT_THAT(refusal(o), HasSubstr("--average-gradients belongs to"));
}

} // namespace
} // namespace waggle
