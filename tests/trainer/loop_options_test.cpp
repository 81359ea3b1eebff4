// What a loop that is alone computes with the options that change where and with what its optimizer
// steps.

#include "tests/trainer/swarm_of_one.hpp"

namespace waggle {
namespace {

using ::testing::AnyOf;
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
  EXPECT_TRUE(offloaded.inner().state().empty()) << "the statistics are in host memory";
  EXPECT_TRUE(swarm->finished());
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

TEST_F(LoopOptions, AMasterCopyResumesFromACheckpointAndTheModuleWithIt) {
  for (const char* option : {"offload-optimizer", "delay-optimizer-step"}) {
    auto o = with({{option, "true"}});
    o.data_dir = folder_ / option;
    torch::Tensor left;
    {
      auto m = line();
      auto swarm = join(o);
      optimizer first{swarm, *m, adam(m)};
      for (std::uint64_t i = 0; i < 5; ++i)
        train(m, first, i);
      left = m->weight;
    } // the updates that were being made are in the module now
    auto m = line();
    auto swarm = join(o);
    optimizer second{swarm, *m, adam(m)};
    EXPECT_EQ(train(m, second, 0), step_outcome::synced) << option;
    EXPECT_TRUE(torch::equal(m->weight, left)) << option;
  }
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

// Powers of two round nothing.
TEST_F(LoopOptions, AScaleOfTheLossChangesNoBitUnlessAGradientOverflows) {
  for (const char* strategy : {"collaborative", "local-updates"})
    for (const char* option : {"1024", "dynamic"}) {
      constexpr std::uint64_t steps = 20;
      auto plain = line();
      auto own = adam(plain);
      auto ours = line();
      auto o = with({{"loss-scale", option}});
      o.data_dir = folder_ / (std::string{strategy} + option);
      o.strategy = strategy;
      auto swarm = join(o);
      optimizer scaling{swarm, *ours, adam(ours)};
      for (std::uint64_t i = 0; i < steps; ++i) {
        own->zero_grad();
        loss_of(plain, i).backward();
        own->step();
        scaling.zero_grad();
        auto loss = loss_of(ours, i);
        auto scaled = scaling.scaled(loss);
        EXPECT_EQ(scaled.item<float>(),
                  loss.item<float>() * (std::string_view{option} == "1024" ? 1024 : 65536));
        scaled.backward();
        EXPECT_EQ(scaling.step(4, loss), step_outcome::stepped);
        ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << strategy << ", step " << i;
        ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << strategy << ", step " << i;
      }
    }
}

TEST_F(LoopOptions, AScaleThatOverflowsShrinksAndIsKeptForTheNextStart) {
  auto large = [](torch::nn::Linear& m, std::uint64_t i) { return loss_of(m, i) * 1e36; };
  auto sgd = [](const torch::nn::Linear& m) {
    return std::make_unique<torch::optim::SGD>(m->parameters(), 1e-36);
  };
  auto train_large = [&](torch::nn::Linear& m, optimizer& scaling, std::uint64_t i) {
    scaling.zero_grad();
    auto loss = large(m, i);
    scaling.scaled(loss).backward();
    return scaling.step(4, loss);
  };
  auto o = with({{"loss-scale", "dynamic"}});
  {
    auto m = line();
    auto swarm = join(o);
    optimizer scaling{swarm, *m, sgd(m)};
    auto before = m->weight.detach().clone();
    std::uint64_t dropped = 0;
    for (; train_large(m, scaling, 0) == step_outcome::dropped; ++dropped) {
      ASSERT_LT(dropped, 20U);
      ASSERT_TRUE(torch::equal(m->weight, before));
    }
    EXPECT_EQ(dropped, 8U) << "from 2^16 to 2^8: 2^9 times 1e36 is no float32";
    EXPECT_FALSE(torch::equal(m->weight, before));
    EXPECT_EQ(swarm->status().samples_dropped, 4 * dropped);
    EXPECT_EQ(swarm->status().samples_used, 4U);
  }
  auto m = line();
  auto swarm = join(o);
  optimizer scaling{swarm, *m, sgd(m)};
  EXPECT_EQ(train_large(m, scaling, 0), step_outcome::synced);
  EXPECT_EQ(train_large(m, scaling, 0), step_outcome::stepped) << "without an overflow";
}

TEST_F(LoopOptions, AGradientOfALossThatWasNotScaledIsRefused) {
  auto m = line();
  auto swarm = join(with({{"loss-scale", "dynamic"}}));
  optimizer scaling{swarm, *m, adam(m)};
  EXPECT_THAT(thrown_by([&] { train(m, scaling, 0); }),
              HasSubstr("call backward on optimizer::scaled(loss)"));
  EXPECT_EQ(swarm->status().samples_offered, 0U);
}

TEST_F(LoopOptions, NamedTensorsAndAFollowedSchedulerAreThePlainLoop) {
  for (const char* strategy : {"collaborative", "local-updates"}) {
    auto o = options();
    o.strategy = strategy;
    o.data_dir += strategy;
    auto plain = line();
    auto own = adam(plain);
    torch::optim::StepLR own_rates{*own, 3, 0.5};
    auto ours = line();
    optimizer with{join(o), named_tensors{{"w", ours->weight}, {"b", ours->bias}}, adam(ours)};
    with.follow([](auto& of) { return std::make_unique<torch::optim::StepLR>(of, 3, 0.5); });
    for (std::uint64_t i = 0; i < 10; ++i) {
      own->zero_grad();
      loss_of(plain, i).backward();
      own->step();
      own_rates.step();
      ASSERT_EQ(train(ours, with, i), step_outcome::stepped);
      if (o.strategy == "collaborative") {
        ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << i;
        ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << i;
      }
    }
    // That of the tenth update, before which LibTorch's StepLR has made nine steps. A local update
    // does not wait for the rounds before it, so it may have the rate of an earlier one.
    auto rate = [&] { return with.inner().param_groups().front().options().get_lr(); };
    for (std::uint64_t i = 10; o.strategy != "collaborative" && rate() > 1e-2 / 4; ++i) {
      ASSERT_LT(i, 100'000U) << "the rate stays " << rate();
      ASSERT_EQ(train(ours, with, i), step_outcome::stepped);
    }
    EXPECT_EQ(rate(), 1e-2 / 4);
  }
  auto m = line();
  EXPECT_THAT(thrown_by([&] {
                named_tensors twice{{"w", m->weight}, {"w", m->bias}};
                optimizer with{join(options()), twice, adam(m)};
              }),
              HasSubstr("parameter w is there twice"));
  auto of_run = with({{"lr", "0.1"}});
  of_run.learning_rate = rate_owner::run;
  EXPECT_THAT(thrown_by([&] {
                optimizer with{join(of_run), *m, adam(m)};
                with.follow(
                  [](auto& of) { return std::make_unique<torch::optim::StepLR>(of, 3, 0.5); });
              }),
              HasSubstr("the run owns the rate"));
}

TEST_F(LoopOptions, FollowedSchedulersCountTheUpdatesOfTheRunWhateverTheOptimizerCounted) {
  auto sgd = [](torch::nn::Linear& m) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<torch::optim::SGD>(m->parameters(),
                                               torch::optim::SGDOptions{0.1}.momentum(0.9));
  };
  auto adamw = [](torch::nn::Linear& m) { return adam(m); };
  auto plain_steps = [](torch::nn::Linear& m, torch::optim::Optimizer& with, std::uint64_t from,
                        std::uint64_t count) {
    for (auto i = from; i < from + count; ++i) {
      with.zero_grad();
      loss_of(m, i).backward();
      with.step();
    }
  };
  for (bool counts : {false, true}) {
    auto make = [&](torch::nn::Linear& m) { return counts ? adamw(m) : sgd(m); };
    auto o = options();
    o.data_dir += counts ? "adamw" : "sgd";
    auto plain = line();
    auto own = make(plain);
    plain_steps(plain, *own, 0, 12);
    torch::optim::StepLR own_fives{*own, 5, 0.5};
    torch::optim::StepLR own_threes{*own, 3, 0.9};
    std::uint64_t done = 12;
    for (int start = 0; start < 2; ++start) {
      auto ours = line();
      auto of_ours = make(ours);
      plain_steps(ours, *of_ours, 0, 12);
      optimizer with{join(o), *ours, std::move(of_ours)};
      with.follow([](auto& of) { return std::make_unique<torch::optim::StepLR>(of, 5, 0.5); });
      with.follow([](auto& of) { return std::make_unique<torch::optim::StepLR>(of, 3, 0.9); });
      (void)with.kept(); // loads the checkpoint of the first start
      for (auto end = done + 8; done < end; ++done) {
        plain_steps(plain, *own, done, 1);
        own_fives.step();
        own_threes.step();
        ASSERT_EQ(train(ours, with, done), step_outcome::stepped);
        ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << counts << ", step " << done;
      }
    }
  }
}

TEST_F(LoopOptions, GradientsAddUpInTheModuleBetweenTwoUpdates) {
  auto o = with({{"reuse-grad-buffers", "true"}});
  o.target_batch_size = 8;
  auto plain = line();
  auto own = adam(plain);
  auto ours = line();
  optimizer reuses{join(o), *ours, adam(ours)};
  for (std::uint64_t i = 0; i < 10; i += 2) {
    own->zero_grad();
    loss_of(plain, i).backward();
    loss_of(plain, i + 1).backward();
    for (auto& p : plain->parameters())
      p.mutable_grad().mul_(0.5);
    own->step();
    EXPECT_EQ(train(ours, reuses, i), step_outcome::held);
    EXPECT_EQ(train(ours, reuses, i + 1), step_outcome::stepped);
    ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << i;
    ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << i;
  }
  EXPECT_EQ(train(ours, reuses, 10), step_outcome::held);
  EXPECT_THAT(thrown_by([&] { reuses.step(3, 0.0); }),
              HasSubstr("over 3 samples, and the one before it over 4"));
  EXPECT_EQ(train(ours, reuses, 11), step_outcome::dropped) << "what was refused is in the sum";
  EXPECT_EQ(train(ours, reuses, 12), step_outcome::held);
  EXPECT_THAT(refusal(with({{"reuse-grad-buffers", "true"}, {"loss-scale", "dynamic"}})),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal(with({{"reuse-grad-buffers", "true"}, {"delay-grad-averaging", "true"}})),
              HasSubstr("both write .grad"));
  auto elsewhere = with({{"reuse-grad-buffers", "true"},
                         {"delay-grad-averaging", "true"},
                         {"offload-optimizer", "true"}});
  elsewhere.data_dir += "elsewhere"; // the loop above still uses the other one
  EXPECT_EQ(refusal(elsewhere), "");
}

TEST_F(LoopOptions, WhatADelayedLoopCannotDoIsRefusedWithWhatToDoInstead) {
  auto o = with({{"delay-optimizer-step", "true"}});
  auto m = line();
  EXPECT_THAT(thrown_by([&] {
                optimizer delayed{join(o), *m, adam(m), {{"teacher", torch::zeros({2})}}};
              }),
              HasSubstr("not for running statistics and extra tensors, such as teacher"));
  o.strategy = "local-updates";
  EXPECT_THAT(refusal(o), HasSubstr("belongs to swarm_options::strategy collaborative"));
  o = with({{"average-gradients", "true"}});
  EXPECT_THAT(refusal(o), HasSubstr("swarm_options::more: average-gradients belongs to"));
}

} // namespace
} // namespace waggle
