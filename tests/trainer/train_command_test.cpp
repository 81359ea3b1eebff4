// Every option of `waggle train` arrives where it has its effect.

#include "trainer/train_command.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/program/node_options.hpp"
#include "runtime/training/loss_scaler.hpp"
#include "tests/support/options_with.hpp"

namespace waggle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::options_with;
using ::testing::StartsWith;

node_config trainer_with(const std::map<std::string, std::string>& values) {
  auto options = options_with(values);
  auto config = node_config_from(options, "folder");
  add_training(config, options, {}, "folder");
  return config;
}

TEST(TrainCommand, OptionsOfTheLearnerArrive) {
  auto c = learner_from(options_with({{"model", "mlp"},
                                      {"layers", "3"},
                                      {"width", "24"},
                                      {"heads", "6"},
                                      {"context", "48"},
                                      {"data", "texts"},
                                      {"micro-batch", "5"},
                                      {"optimizer", "sgd"},
                                      {"momentum", "0.75"},
                                      {"weight-decay", "0.125"},
                                      {"no-decay", "vectors"},
                                      {"device", "cuda:1"},
                                      {"offload-optimizer", "true"},
                                      {"precision", "bfloat16"},
                                      {"loss-scale", "1024"},
                                      {"reuse-grad-buffers", "true"},
                                      {"threads", "2"}}),
                        {});
  EXPECT_EQ(c.model, "mlp");
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.width, 24);
  EXPECT_EQ(c.heads, 6);
  EXPECT_EQ(c.context, 48);
  EXPECT_EQ(c.data, std::filesystem::absolute("texts").string());
  EXPECT_EQ(c.micro_batch, 5);
  EXPECT_EQ(c.optimizer.kind, "sgd");
  EXPECT_EQ(c.optimizer.momentum, 0.75);
  EXPECT_EQ(c.optimizer.weight_decay, 0.125);
  EXPECT_FALSE(c.optimizer.decay_vectors);
  EXPECT_EQ(c.device, "cuda:1");
  EXPECT_TRUE(c.offload_optimizer);
  EXPECT_EQ(c.format, precision::bfloat16);
  ASSERT_TRUE(c.scale_rule().has_value());
  EXPECT_EQ(c.scale_rule()->initial, 1024);
  EXPECT_TRUE(c.reuse_gradient_buffers);
  EXPECT_EQ(c.threads, 2);
  EXPECT_EQ(c.replicas, 1);
  c = learner_from(options_with({{"devices", "cpu,cuda:1"}, {"replicas", "3"}}), {});
  EXPECT_EQ(c.replicas, 3);
  EXPECT_EQ(c.devices, (std::vector<std::string>{"cpu", "cuda:1"}));
}

TEST(TrainCommand, PeersOfARunBeginWithOneModelAndDrawTheirOwnSamples) {
  auto options = options_with({{"run-id", "birds"}});
  auto one = *peer_id::from_raw(std::string(32, '1'));
  auto other = *peer_id::from_raw(std::string(32, '2'));
  EXPECT_EQ(learner_from(options, one).init_seed, learner_from(options, other).init_seed);
  EXPECT_NE(learner_from(options, one).data_seed, learner_from(options, other).data_seed);
  EXPECT_NE(learner_from(options, one).init_seed,
            learner_from(options_with({{"run-id", "bees"}}), one).init_seed);
  EXPECT_NE(learner_from(options, one).data_seed,
            learner_from(options_with({{"run-id", "birds"}, {"seed", "3"}}), one).data_seed);
  EXPECT_EQ(learner_from(options, one).data_seed, learner_from(options, one).data_seed);
}

TEST(TrainCommand, ADelayedOptimizerStepNeedsTheSecondCopyOfTheParameters) {
  EXPECT_TRUE(learner_from(options_with({{"delay-optimizer-step", "true"}}), {}).offload_optimizer);
  EXPECT_FALSE(learner_from({}, {}).offload_optimizer);
}

TEST(TrainCommand, OptionsOfTheTrainerArrive) {
  auto c = trainer_with({{"target-batch-size", "1234"},
                         {"epochs", "55"},
                         {"target-group-size", "9"},
                         {"strategy", "local-updates"},
                         {"delay-state-averaging", "false"},
                         {"average-opt-statistics", "exp_avg"},
                         {"average-gradients", "true"},
                         {"max-epoch-difference", "4"},
                         {"alpha", "0.5"},
                         {"groups", "moshpit"},
                         {"lr", "0.25"},
                         {"warmup-epochs", "6"},
                         {"step-interval", "7ms"},
                         {"join-timeout", "8s"},
                         {"start-alone", "false"},
                         {"on-split", "pause"},
                         {"averaging-timeout", "70s"},
                         {"load-state-timeout", "80s"},
                         {"min-peers", "2"},
                         {"wait-for-peers", "90s"},
                         {"checkpoint-interval", "11s"}});
  ASSERT_TRUE(c.training.has_value());
  const auto& t = c.training->training;
  EXPECT_EQ(t.target_batch_size, 1234U);
  EXPECT_EQ(t.max_epochs, 55U);
  EXPECT_EQ(t.group_size_max, 9U);
  EXPECT_EQ(t.strategy, "local-updates");
  EXPECT_FALSE(t.how.delay_state);
  EXPECT_EQ(t.how.statistics, std::vector<std::string>{"exp_avg"});
  EXPECT_TRUE(t.how.average_gradients);
  EXPECT_EQ(t.epoch_difference_max, 4U);
  EXPECT_EQ(t.averaging_alpha, 0.5);
  EXPECT_TRUE(t.many_groups);
  EXPECT_EQ(t.schedule.peak, 0.25);
  EXPECT_EQ(t.schedule.warmup_epochs, 6U);
  EXPECT_EQ(t.step_interval, 7ms);
  EXPECT_EQ(t.join_timeout, 8s);
  EXPECT_FALSE(t.may_start_alone);
  EXPECT_FALSE(t.continue_on_split);
  EXPECT_EQ(t.averaging_timeout, 70s);
  EXPECT_EQ(t.sync_timeout, 80s);
  EXPECT_EQ(t.min_peers, 2U);
  EXPECT_EQ(t.wait_for_peers, 90s);
  EXPECT_EQ(t.checkpoint_interval, 11s);
  EXPECT_TRUE(t.checkpoints.has_value());
  EXPECT_FALSE(t.auxiliary);
  ASSERT_TRUE(c.averaging.has_value());
  EXPECT_EQ(c.averaging->averaging.kind, "params");
  EXPECT_EQ(c.averaging->averaging.round.deadline, 70s);
}

/// Why `waggle train` refuses these options; empty if it accepts them.
std::string refusal(const std::map<std::string, std::string>& values) {
  auto usable = check_training_options(options_with(values));
  return usable ? std::string{} : usable.error().detail;
}

TEST(TrainCommand, OptionsOfTheSearchForAGroupAreRefusedInOneGroup) {
  for (auto [name, value] :
       {std::pair{"matchmaking-time", "1s"}, {"min-group-size", "3"}, {"group-bits", "01"}}) {
    EXPECT_THAT(refusal({{name, value}}), AllOf(StartsWith("--" + std::string{name} + " is for "),
                                                HasSubstr("use --groups moshpit")));
    EXPECT_EQ(refusal({{"strategy", "local-updates"}, {"groups", "moshpit"}, {name, value}}), "");
  }
  EXPECT_THAT(refusal({{"min-group-size", "3"}}), HasSubstr("--min-peers"));
  EXPECT_EQ(refusal({{"matchmaking-time", "3s"}, {"min-group-size", "2"}}), "") << "the defaults";
}

TEST(TrainCommand, OptionsOfAveragedGradientsArrive) {
  auto c = trainer_with({{"delay-grad-averaging", "true"},
                         {"delay-optimizer-step", "true"},
                         {"low-rank", "4"},
                         {"min-compression-ratio", "0.375"},
                         {"resume", "false"},
                         {"auxiliary", "true"}});
  const auto& t = c.training->training;
  EXPECT_TRUE(t.how.delay_gradients);
  EXPECT_TRUE(t.delay_optimizer_step);
  EXPECT_EQ(t.how.coding, (lane_coding{4, 0.375}));
  EXPECT_FALSE(t.checkpoints.has_value());
  EXPECT_TRUE(t.auxiliary);
  EXPECT_FALSE(t.many_groups);
  EXPECT_EQ(c.averaging->matchmaking.mode, member_mode::auxiliary);
  EXPECT_EQ(c.averaging->averaging.kind, "gradients");
}

TEST(TrainCommand, RoundsAreCountedAsWhatTheyAverage) {
  auto kind = [](const std::map<std::string, std::string>& values) {
    return trainer_with(values).averaging->averaging.kind;
  };
  EXPECT_EQ(kind({}), "gradients");
  for (const char* strategy :
       {"local-updates", "decentralized", "decentralized-sgd", "decentralized-adam"})
    EXPECT_EQ(kind({{"strategy", strategy}}), "params") << strategy;
  EXPECT_EQ(kind({{"strategy", "local-updates"}, {"groups", "moshpit"}}), "params");
  for (const char* strategy : {"diloco", "daso"})
    EXPECT_EQ(kind({{"strategy", strategy}}), "progress") << strategy;
}

TEST(TrainCommand, OptionsOfRoundsThatCountStepsArrive) {
  auto c = trainer_with({{"strategy", "decentralized-sgd"},
                         {"averaging-steps-period", "13"},
                         {"averaging-time-period", "14s"},
                         {"total-steps-in-epoch", "15"}});
  const auto& t = c.training->training;
  EXPECT_EQ(t.how.steps_period, 13U);
  EXPECT_EQ(t.how.time_period, 14s);
  EXPECT_EQ(t.how.steps_in_epoch, 15U);
}

TEST(TrainCommand, EpochsBetweenTwoAveragesMakeTheRoundLonger) {
  auto c = trainer_with({{"strategy", "local-updates"},
                         {"target-batch-size", "100"},
                         {"average-state-every", "4"},
                         {"epochs", "20"}});
  const auto& t = c.training->training;
  EXPECT_EQ(t.how.epochs_per_round, 4U);
  EXPECT_EQ(t.target_batch_size, 400U);
  EXPECT_EQ(t.max_epochs, 5U);
}

TEST(TrainCommand, ALearnerKeepsTheGradientThatIsAveraged) {
  auto last_tensor = [](const char* averages) {
    auto c = trainer_with({{"strategy", "local-updates"},
                           {"average-gradients", averages},
                           {"max-gradient-norm", "1"},
                           {"model", "mlp"},
                           {"width", "8"},
                           {"layers", "1"},
                           {"device", "cpu"}});
    auto learner = c.training->make_learner();
    EXPECT_TRUE(learner.ok());
    return (*learner)->tensors().tensors().back().what;
  };
  EXPECT_EQ(last_tensor("true"), state_tensor::kind::gradient);
  EXPECT_NE(last_tensor("false"), state_tensor::kind::gradient);
}

TEST(TrainCommand, TheGradientIsClippedAtTheGivenNorm) {
  auto tiny = [](const std::string& norm) {
    auto c = trainer_with({{"model", "mlp"},
                           {"width", "8"},
                           {"layers", "1"},
                           {"device", "cpu"},
                           {"optimizer", "sgd"},
                           {"max-gradient-norm", norm}});
    auto learner = c.training->make_learner();
    EXPECT_TRUE(learner.ok());
    return std::move(*learner);
  };
  auto moved = [](learner& by) {
    std::vector<float> before(static_cast<std::size_t>(by.tensors()[0].elements()));
    auto after = before;
    by.read_tensor(0, before);
    std::vector<float> gradient(by.gradient_count(), 1.0F);
    by.apply(gradient, 1);
    by.read_tensor(0, after);
    return static_cast<double>(before[0]) - after[0];
  };
  auto free = tiny("0");
  auto clipped = tiny("0.5");
  EXPECT_NEAR(moved(*free), 1, 1e-6);
  EXPECT_NEAR(moved(*clipped), 0.5 / std::sqrt(static_cast<double>(clipped->gradient_count())),
              1e-6);
}

} // namespace
} // namespace waggle
