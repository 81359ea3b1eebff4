// Loops as peers in this process, with real sockets on free ports of the loopback interface.

#include "actors/loop/swarm.hpp"

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "actors/loop/swarm_session.hpp"
#include "runtime/config/options.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "tests/trainer/swarm_of_one.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using SwarmOfOne = testing::swarm_of_one;

TEST_F(SwarmOfOne, IsBitByBitThePlainLoopAndEndsAtItsLastEpoch) {
  constexpr std::uint64_t steps = 50;
  for (const auto& device : devices()) {
    SCOPED_TRACE(device.str());
    auto plain = line(device);
    auto own = adam(plain);
    auto ours = line(device);
    auto o = options(steps);
    o.data_dir = folder_ / device.str();
    auto swarm = join(o);
    {
      optimizer with{swarm, *ours, adam(ours)};
      for (std::uint64_t i = 0; i < steps; ++i) {
        own->zero_grad();
        loss_of(plain, i).backward();
        own->step();
        auto outcome = train(ours, with, i);
        ASSERT_EQ(outcome, i + 1 < steps ? step_outcome::stepped : step_outcome::finished) << i;
        ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << i;
        ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << i;
      }
      EXPECT_TRUE(swarm->finished());
      EXPECT_EQ(train(ours, with, steps), step_outcome::finished);
      EXPECT_TRUE(torch::equal(ours->weight, plain->weight));
    }
    auto last = swarm->status();
    EXPECT_EQ(last.epoch, steps);
    EXPECT_EQ(last.samples_offered, 4 * steps);
    EXPECT_EQ(last.samples_used, 4 * steps);
    EXPECT_EQ(last.samples_dropped, 0U);
  }
}

// The averages of a peer that is alone change nothing.
TEST_F(SwarmOfOne, StepsAtOnceWithAStrategyThatAveragesParameters) {
  constexpr std::uint64_t steps = 50;
  auto make = [](const torch::nn::Linear& m) {
    return std::make_unique<torch::optim::Adam>(m->parameters(), 1e-2);
  };
  struct setting {
    const char* strategy;
    std::map<std::string, std::string> more;
  };
  for (const auto& [strategy, more] :
       {setting{"local-updates", {{"alpha", "0.5"}}},
        setting{"local-updates", {{"average-gradients", "true"}}},
        setting{"local-updates", {{"offload-optimizer", "true"}}},
        setting{"decentralized-adam", {{"alpha", "0.5"}, {"averaging-steps-period", "2"}}}}) {
    SCOPED_TRACE(std::string{strategy} + " with " + more.begin()->first);
    bool counts_steps = more.contains("averaging-steps-period");
    auto plain = line();
    auto ours = line();
    auto own = make(plain);
    auto o = options(steps / 2);
    o.data_dir = folder_ / (strategy + more.begin()->first);
    o.strategy = strategy;
    o.target_batch_size = counts_steps ? swarm_options{}.target_batch_size : 8;
    o.more = more;
    auto swarm = join(o);
    optimizer with{swarm, *ours, make(ours)};
    std::uint64_t made = 0;
    // A round that takes longer than two steps postpones the next one.
    for (; made < 100 * steps; ++made) {
      own->zero_grad();
      loss_of(plain, made).backward();
      own->step();
      auto outcome = train(ours, with, made);
      ASSERT_TRUE(torch::equal(ours->weight, plain->weight)) << "step " << made;
      ASSERT_TRUE(torch::equal(ours->bias, plain->bias)) << "step " << made;
      if (outcome == step_outcome::finished)
        break;
      ASSERT_EQ(outcome, step_outcome::stepped) << "step " << made;
    }
    EXPECT_TRUE(swarm->finished());
    EXPECT_GE(made + 1, steps);
    EXPECT_EQ(swarm->status().samples_dropped, 0U);
  }
}

TEST_F(SwarmOfOne, AStrategyThatDoesNotSuitTheOptimizerIsRefused) {
  auto refused = [&](const std::string& strategy, const std::string& statistics) -> std::string {
    auto o = options();
    o.data_dir = folder_ / (strategy + statistics);
    o.target_batch_size = swarm_options{}.target_batch_size;
    o.strategy = strategy;
    if (!statistics.empty())
      o.more["average-opt-statistics"] = statistics;
    auto m = line();
    auto swarm = join(o);
    EXPECT_TRUE(swarm) << swarm.error().detail;
    try {
      optimizer with{swarm, *m, adam(m)}; // AdamW
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_THAT(refused("decentralized-sgd", ""), HasSubstr("is for optimizer sgd"));
  EXPECT_THAT(refused("local-updates", "momentum_buffer"),
              HasSubstr("adamw keeps exp_avg, exp_avg_sq"));
  EXPECT_EQ(refused("local-updates", "exp_avg_sq,exp_avg"), "");
  auto o = options();
  o.more["average-opt-statistics"] = "exp_avg_sq";
  EXPECT_THAT(refusal(o), HasSubstr("belongs to swarm_options::strategy local-updates"));
  o = options();
  o.strategy = "local-update";
  EXPECT_THAT(refusal(o), HasSubstr("swarm_options::strategy: 'local-update'"));
  o = options();
  o.more["alpha"] = "0.5";
  EXPECT_THAT(
    refusal(o),
    HasSubstr("swarm_options::more: alpha belongs to strategies that average parameters"));
  o.strategy = "local-updates";
  o.more["alpha"] = "1.5";
  EXPECT_THAT(refusal(o), HasSubstr("at most 1 in training"));
}

/// Stopped after any step, a loop alone ends as without the stop.
TEST_F(SwarmOfOne, GoesOnAfterAnyStepBitByBit) {
  constexpr std::uint64_t steps = 12;
  for (const char* strategy : {"collaborative", "local-updates", "diloco:steps=5"}) {
    auto o = options();
    o.strategy = strategy;
    bool by_steps = std::string_view{strategy}.find(':') != std::string_view::npos;
    o.target_batch_size = by_steps ? swarm_options{}.target_batch_size : 12; // three steps
    auto run = [&](std::uint64_t seed, std::uint64_t until) {
      auto m = line();
      if (seed != 0)
        torch::nn::init::zeros_(m->weight);
      optimizer with{join(o), *m, adam(m)};
      auto kept = with.kept();
      for (auto i = kept.empty() ? 0 : std::stoull(kept); i < until; ++i) {
        with.keep(std::to_string(i + 1));
        auto outcome = train(m, with, i);
        EXPECT_TRUE(outcome == step_outcome::held || outcome == step_outcome::stepped);
      }
      return m->weight.detach().clone();
    };
    o.data_dir = folder_ / strategy / "whole";
    auto expected = run(0, steps);
    for (std::uint64_t stop : {1, 5}) { // loop_test.cpp has more
      o.data_dir = folder_ / strategy / std::to_string(stop);
      (void)run(0, stop);
      EXPECT_TRUE(torch::equal(run(1, steps), expected)) << strategy << " stopped after " << stop;
    }
  }
}

TEST_F(SwarmOfOne, LowersTheRateOnAPlateauOfTheLossThatIsPassed) {
  auto o = options(6);
  o.learning_rate = rate_owner::run;
  o.more = {{"lr", "0.01"}, {"schedule", "plateau:patience=0,factor=0.5"}};
  auto m = line();
  auto joined = join(o);
  std::vector<double> rates;
  optimizer adam_of_run{joined, *m, adam(m)};
  for (double loss : {3.0, 2.0, 2.0, 1.0, 1.0, 1.0}) {
    adam_of_run.zero_grad();
    loss_of(m, rates.size()).backward();
    (void)adam_of_run.step(4, loss);
    rates.push_back(adam_of_run.inner().param_groups().front().options().get_lr());
  }
  EXPECT_THAT(rates, ::testing::ElementsAre(0.01, 0.01, 0.01, 0.005, 0.005, 0.0025));
}

TEST_F(SwarmOfOne, EndsInOrderWithoutASingleStep) {
  auto m = line();
  auto swarm = join(options());
  { optimizer with{swarm, *m, adam(m)}; }
  EXPECT_EQ(swarm->status().samples_offered, 0U);
}

TEST_F(SwarmOfOne, OutlivesTheHandleItWasJoinedWith) {
  auto m = line();
  std::optional<result<swarm>> swarm = join(options(3));
  optimizer with{*swarm, *m, adam(m)};
  swarm.reset();
  for (std::uint64_t i = 0; i < 3; ++i)
    EXPECT_NE(train(m, with, i), step_outcome::dropped);
}

TEST_F(SwarmOfOne, LeavesWithinASecondOrSoOfAnException) {
  auto m = line();
  steady::time_point thrown;
  auto swarm = join(options());
  try {
    optimizer with{swarm, *m, adam(m)};
    train(m, with, 0);
    thrown = steady::now();
    throw std::logic_error{"the user's"};
  } catch (const std::logic_error& e) {
    EXPECT_STREQ(e.what(), "the user's");
  }
  // The notification follows the checkpoint and has twice 0.3 s to arrive; the rest is for a busy
  // machine.
  EXPECT_LT(steady::now() - thrown, 5s);
}

TEST_F(SwarmOfOne, NonFiniteGradientsAreDroppedAndCounted) {
  auto m = line();
  auto swarm = join(options());
  optimizer with{swarm, *m, adam(m)};
  EXPECT_EQ(train(m, with, 0), step_outcome::stepped);
  m->bias.mutable_grad().fill_(std::nanf(""));
  EXPECT_EQ(with.step(4, 1.0), step_outcome::dropped);
  EXPECT_EQ(swarm->status().samples_dropped, 4U);
  EXPECT_EQ(train(m, with, 1), step_outcome::stepped);
}

TEST_F(SwarmOfOne, AGradientOverMoreSamplesThanTheTargetIsRefused) {
  for (const char* strategy : {"collaborative", "local-updates"}) {
    auto o = options();
    o.data_dir = folder_ / strategy;
    o.strategy = strategy;
    auto m = line();
    auto swarm = join(o);
    optimizer with{swarm, *m, adam(m)};
    auto before = m->weight.detach().clone();
    loss_of(m, 0).backward();
    try {
      with.step(5, 1.0);
      FAIL() << strategy;
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("over 5 samples"),
                                  HasSubstr("more than swarm_options::target_batch_size, 4")));
    }
    EXPECT_TRUE(torch::equal(m->weight, before));
    EXPECT_EQ(swarm->status().samples_offered, 0U);
    EXPECT_EQ(train(m, with, 1), step_outcome::stepped) << "as many as the target";
  }
  auto o = options();
  o.strategy = "decentralized"; // counts steps
  o.target_batch_size = swarm_options{}.target_batch_size;
  auto m = line();
  auto swarm = join(o);
  optimizer with{swarm, *m, adam(m)};
  loss_of(m, 0).backward();
  EXPECT_EQ(with.step(o.target_batch_size + 1, 1.0), step_outcome::stepped);
}

TEST_F(SwarmOfOne, ASecondOptimizerIsRefusedAndTheFirstOneTrainsOn) {
  auto m = line();
  auto swarm = join(options());
  optimizer with{swarm, *m, adam(m)};
  EXPECT_EQ(train(m, with, 0), step_outcome::stepped);
  auto other = line();
  for (auto* second : {&m, &other}) {
    try {
      optimizer refused{swarm, **second, adam(*second)};
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("already has an optimizer: call waggle::join once for each"));
    }
  }
  EXPECT_EQ(train(m, with, 1), step_outcome::stepped);
  EXPECT_EQ(swarm->status().samples_offered, 8U);
}

TEST_F(SwarmOfOne, AStepWithAnOptimizerThatChangedIsRefused) {
  auto m = line();
  auto swarm = join(options());
  optimizer with{swarm, *m, adam(m)};
  EXPECT_EQ(train(m, with, 0), step_outcome::stepped);
  auto& adamw = static_cast<torch::optim::AdamWOptions&>(with.inner().param_groups()[0].options());
  adamw.lr(1e-3);
  EXPECT_EQ(train(m, with, 1), step_outcome::stepped);
  auto before = m->weight.detach().clone();
  adamw.amsgrad(true);
  EXPECT_THROW(train(m, with, 2), std::runtime_error);
  EXPECT_TRUE(torch::equal(m->weight, before));
  EXPECT_EQ(swarm->status().samples_offered, 8U);
  adamw.amsgrad(false);
  EXPECT_EQ(train(m, with, 3), step_outcome::stepped);
}

TEST_F(SwarmOfOne, AnOptionThatALoopCannotUseIsRefusedWithWhatToDoInstead) {
  std::set<std::string> refused;
  for (const auto& option : option_table()) {
    const auto& [member, instead, in_python] = option.loops;
    if (member.empty() && instead.empty())
      continue;
    refused.insert(option.name);
    auto o = options();
    o.more[option.name] = "1";
    EXPECT_EQ(refusal(o),
              "swarm_options::more: " + option.name
                + (member.empty() ? " is not for loops: " + instead
                                  : " is a member of its own: set swarm_options::" + member));
  }
  for (const auto& hyper : hyper_parameters())
    EXPECT_EQ(refused.erase(std::string{hyper.name}), 1U) << hyper.name;
  EXPECT_THAT(refused,
              ElementsAre("announce", "data", "data-dir", "device", "devices", "duration", "epochs",
                          "from", "initial-peers", "join-timeout", "leave-within", "listen",
                          "log-level", "members", "members-list", "micro-batch", "model",
                          "no-decay", "notice-url", "optimizer", "passes", "precision", "replicas",
                          "resume", "run-id", "start-alone", "strategy", "swarm-key",
                          "target-batch-size", "threads", "weight-decay"));
}

TEST_F(SwarmOfOne, LooksForInitialPeersInTheEnvironmentIfItIsGivenNone) {
  for (const std::string variable : {"WAGGLE_INITIAL_PEERS", "INITIAL_PEERS", "PL_INITIAL_PEERS"}) {
    ::setenv(variable.c_str(), "nowhere", 1);
    auto found = refusal(options());
    auto o = options();
    o.initial_peers = {"127.0.0.1:7700"};
    auto given = refusal(o);
    ::unsetenv(variable.c_str());
    EXPECT_THAT(found, HasSubstr(variable + ": 'nowhere'"));
    EXPECT_EQ(given, "");
  }
}

TEST_F(SwarmOfOne, InvalidOptionsAreRefusedWithASentence) {
  auto o = options();
  o.more["pace"] = "1";
  EXPECT_THAT(refusal(o), HasSubstr("no option pace; the nearest is "));
  o = options();
  o.more["part-sise"] = "64KiB";
  EXPECT_EQ(refusal(o), "swarm_options::more: waggle train has no option part-sise; the nearest is "
                        "part-size");
  o = options();
  o.more["elements"] = "9"; // of waggle average
  EXPECT_THAT(refusal(o), HasSubstr("waggle train has no option elements"));
  o = options();
  o.more["micro-batch"] = "1";
  EXPECT_THAT(refusal(o),
              HasSubstr("micro-batch is not for loops: pass the number of samples to step"));
  o = options();
  o.more["lr"] = "1";
  EXPECT_THAT(refusal(o), HasSubstr("rate_owner::run"));
  o = options();
  o.more["matchmaking-time"] = "1s"; // of groups that are searched for
  EXPECT_THAT(refusal(o), HasSubstr("use swarm_options::more: groups moshpit"));
  o = options();
  o.initial_peers = {"nowhere"};
  EXPECT_THAT(refusal(o), HasSubstr("swarm_options::initial_peers: 'nowhere'"));
  o = options();
  o.target_batch_size = 0;
  EXPECT_THAT(refusal(o), HasSubstr("swarm_options::target_batch_size: '0'"));
  auto first = join(options());
  EXPECT_THAT(refusal(options()), HasSubstr("another peer uses"));
  auto m = line();
  optimizer with{first, *m, adam(m)};
  EXPECT_THROW(with.step(0, 1.0), std::invalid_argument);
}

} // namespace
} // namespace waggle
