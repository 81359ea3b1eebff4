// Options that contradict or need each other.

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/runtime/config/flags.hpp"

using namespace waggle;
using ::testing::AllOf, ::testing::ContainsRegex, ::testing::ElementsAre, ::testing::HasSubstr,
  ::testing::IsEmpty;

namespace {

/// "epochs=3 schedule=step:every=30" as a command line has it.
settings written(const std::string& options) {
  std::map<std::string, std::string> values;
  std::istringstream words{options};
  for (std::string word; words >> word;)
    values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return flags(values);
}

std::string refused(const std::string& options) {
  return refusal(written(options));
}

result<run_options> with(const std::string& options) {
  return resolve({}, {}, written(options));
}

/// Options, and those that the refusal has to name, or other words in it.
struct refused_row {
  std::string options;
  std::vector<std::string> named;
};

void expect_refused(const std::vector<refused_row>& rows,
                    const std::function<std::string(const std::string&)>& said = refused) {
  for (const auto& [options, named] : rows) {
    auto sentence = said(options);
    for (const auto& each : named)
      EXPECT_THAT(sentence, HasSubstr(each)) << options;
    EXPECT_THAT(sentence,
                ContainsRegex("(leave|raise|lower|use|set|write|put|needs|must|keeps|default) "))
      << options << " is refused without a way out";
  }
}

std::string refused_in_training(const std::string& options) {
  auto resolved = with(options);
  EXPECT_TRUE(resolved) << options;
  auto usable = check_training_options(*resolved);
  return usable ? std::string{} : usable.error().detail;
}

const std::vector<refused_row> rows{
  {"client-mode=true", {"--client-mode needs --initial-peers"}},
  {"client-mode=true initial-peers=a:1 announce=b:2", {"--announce", "--client-mode"}},
  {"client-mode=true initial-peers=a:1 auxiliary=true", {"--auxiliary", "--client-mode"}},
  {"auxiliary=true micro-batch=4", {"--auxiliary and --micro-batch"}},
  {"auxiliary=true micro-batch=8", {"--auxiliary and --micro-batch"}}, // the default, but set
  {"auxiliary=true error-feedback=true", {"--auxiliary", "--error-feedback"}},
  {"auxiliary=true replicas=2", {"--auxiliary", "--replicas"}},
  {"codec=sparse2 aggregator=median faulty-max=1", {"--codec sparse2", "--aggregator median"}},
  {"codec=size:100,none,sparse2 aggregator=trimmed_mean faulty-max=1",
   {"trimmed_mean", "median_norm"}},
  {"codec=sparse2 aggregator=median_norm faulty-max=1 check-sums=1",
   {"--codec sparse2", "leave out --check-sums"}},
  {"codec=sparse2 low-rank=4", {"--codec sparse2", "--low-rank"}},
  // Sizes
  {"micro-batch=64 target-batch-size=32", {"--micro-batch 64", "--target-batch-size 32"}},
  {"replicas=9 micro-batch=8 target-batch-size=64", {"--micro-batch 8 times --replicas 9"}},
  {"min-peers=5 micro-batch=8 target-batch-size=39",
   {"--target-batch-size 39", "one pass of --micro-batch 8", "--min-peers 5", "raise it to 40"}},
  {"strategy=local-updates min-peers=33 micro-batch=8", {"raise it to 264"}},
  {"min-peers=5 target-batch-size=4", {"one sample of each", "raise it to 5"}},
  {"min-peers=5 target-group-size=4", {"--min-peers is larger than --target-group-size"}},
  {"min-group-size=5 target-group-size=4", {"--min-group-size is larger than --target-group-size"}},
  {"min-contributors=5 target-group-size=4",
   {"--min-contributors is larger than --target-group-size"}},
  {"expected-peers=5 target-group-size=4", {"--expected-peers is larger than --target-group-size"}},
  {"width=30 heads=4", {"--heads 4 must divide --width 30"}},
  {"wait-for-peers=1s", {"--wait-for-peers needs --min-peers"}},
  // Times
  {"matchmaking-time=60s averaging-timeout=60s", {"--matchmaking-time", "--averaging-timeout"}},
  {"request-timeout=2m", {"--request-timeout", "--averaging-timeout"}},
  {"allreduce-timeout=2m", {"--allreduce-timeout", "--averaging-timeout"}},
  {"allreduce-timeout=9s", {"--allreduce-timeout", "--stall-timeout"}},
  {"min-refresh-period=3s max-refresh-period=2s", {"--min-refresh-period", "--max-refresh-period"}},
  {"kill-after=5s peers=1", {"--kill-after needs --peers"}},
  {"kill-after=10s duration=10s", {"--kill-after", "--duration"}},
  {"join-after=11s duration=10s", {"--join-after", "--duration"}},
  {"groups=moshpit strategy=local-updates matchmaking-time=2500ms averaging-timeout=5s",
   {"--averaging-timeout 5s", "--groups moshpit", "--matchmaking-time, 5s"}},
  // Schedules
  {"schedule=warmup-cosine", {"--schedule", "--epochs"}},
  {"epochs=3 warmup-epochs=4", {"--warmup-epochs", "--epochs", "--lr"}},
  {"schedule=linear:epochs=5/cosine", {"--schedule", "--epochs"}},
  {"schedule=plateau/constant", {"--schedule", "put it last"}},
  {"schedule=plateau:floor=0.1", {"--schedule", "above --lr"}},
  {"strategy=local-updates average-state-every=5 epochs=12",
   {"--epochs 12", "--average-state-every 5", "use --epochs 15"}},
  {"strategy=local-updates average-state-every=1000000 target-batch-size=1099511627776",
   {"--average-state-every", "--target-batch-size"}},
  // The epochs of --epochs are averages then, so they are no length for a schedule.
  {"strategy=decentralized total-steps-in-epoch=5000 epochs=200 schedule=cosine",
   {"--total-steps-in-epoch", "--epochs", "write cosine:epochs=N"}},
  // Optimizers
  {"momentum=0.9", {"--momentum belongs to --optimizer sgd (0), sgdw (0)", "muon (0.95)"}},
  {"optimizer=lion epsilon=1e-6", {"--epsilon belongs to --optimizer"}},
  {"optimizer=sgd nesterov=true", {"--nesterov", "--momentum"}},
  {"optimizer=sgd nesterov=true momentum=0.9 dampening=0.1", {"--nesterov and --dampening"}},
  {"optimizer=muon momentum=0", {"--momentum 0 needs --nesterov false"}},
  {"no-decay=vectors", {"--no-decay vectors needs --weight-decay"}},
  {"precision=float16 loss-scale=off", {"--precision float16 needs --loss-scale"}},
  {"strategy=decentralized-sgd optimizer=adamw", {"is for --optimizer sgd"}},
  {"strategy=local-updates average-opt-statistics=momentum",
   {"--average-opt-statistics", "adamw keeps exp_avg, exp_avg_sq"}},
  {"strategy=local-updates average-opt-statistics=exp_avg,exp_avg_sqr",
   {"--average-opt-statistics exp_avg_sqr", "the nearest is exp_avg_sq"}},
  {"strategy=local-updates average-opt-statistics=exp_avg,exp_avg", {"names exp_avg twice"}},
  {"strategy=local-updates optimizer=sgd average-opt-statistics=momentum_buffer", {"keeps none"}},
  // Devices
  {"devices=cuda:0,cuda:1 replicas=1", {"--devices names 2", "--replicas uses only 1 of them"}},
  {"devices=cpu device=cpu", {"--devices and --device exclude"}},
  {"replicas=2 delay-optimizer-step=true",
   {"--delay-optimizer-step", "--replicas", "use --delay-grad-averaging"}},
  {"delay-optimizer-step=true offload-optimizer=false",
   {"--delay-optimizer-step", "--offload-optimizer false"}},
  // Aggregators. Krum needs 2f + 3 contributors, and a group has at most 64.
  {"aggregator=krum faulty-max=31",
   {"--aggregator krum", "--faulty-max 31", "needs 65 contributors; there are 64"}},
  {"aggregator=krum faulty-max=3 target-group-size=8", {"needs 9 contributors; there are 8"}},
  {"aggregator=mean faulty-max=1",
   {"--aggregator mean", "--faulty-max 1", "use trimmed_mean, median"}},
  {"aggregator=krum", {"--aggregator krum", "--faulty-max 0", "set "}},
  {"check-sums=0.5", {"--check-sums needs --faulty-max"}},
  {"low-rank=4 aggregator=median", {"--low-rank and --aggregator"}},
  {"low-rank=4 strategy=diloco:steps=8,fragments=2", {"--low-rank and the fragments"}},
  {"min-compression-ratio=0.6", {"--min-compression-ratio needs --low-rank"}},
  {"groups=moshpit strategy=local-updates max-epoch-difference=0",
   {"--groups moshpit needs --max-epoch-difference 1 or more"}},
  // Passes
  {"passes=3 epochs=9", {"--passes and --epochs"}},
  {"passes=3 aggregator=median faulty-max=1", {"--passes and --aggregator"}},
  {"passes=3 low-rank=4", {"--passes and --low-rank"}},
  {"passes=3 replicas=2", {"--passes and --replicas"}},
  {"passes=3 delay-grad-averaging=true", {"--passes and --delay-grad-averaging"}},
  {"passes=3 delay-optimizer-step=true", {"--passes and --delay-optimizer-step"}},
  {"passes=3 reuse-grad-buffers=true", {"--passes and --reuse-grad-buffers"}},
  // Numbers of strategies
  {"strategy=daso:warmup=0", {"between 1 and 1048576"}},
  {"strategy=daso:warmup=30,cooldown=11", {"warmup and cooldown together"}},
  {"strategy=daso:stability=1", {"and 0.9999; the default"}},
  {"strategy=daso:stability=0", {"and 0.9999; the default"}},
  {"strategy=daso:max-skips=3", {"less than local-skip-factor"}},
  {"strategy=daso:epochs=0", {"between 1 and"}},
  {"strategy=diloco:steps=5,overlap=5", {"lower overlap"}},
  {"strategy=diloco:steps=8,fragments=2,overlap=4", {"lower overlap"}},
  {"strategy=diloco:steps=100,fragments=7", {"use fragments=5"}},
  {"strategy=diloco:steps=100,fragments=9", {"use fragments=10"}},
  {"strategy=diloco:steps=65,fragments=40", {"use fragments=13"}},
  {"strategy=diloco:steps=8,fragments=2 passes=3", {"--passes and the fragments"}},
  {"strategy=diloco:steps=8,fragments=2 codec=list:float16,none", {"use map:"}},
  {"strategy=diloco:steps=100,fragments=0", {"fragments"}},
  {"strategy=diloco:steps=100,fragments=65", {"fragments"}},
  // What a schedule counts
  {"schedule-unit=epochs strategy=diloco", {"--schedule-unit epochs belongs to --strategy daso"}},
  {"schedule-unit=batches", {"--schedule-unit batches belongs to strategies", "use rounds"}},
  {"schedule-unit=rounds strategy=decentralized total-steps-in-epoch=50",
   {"--schedule-unit and --total-steps-in-epoch"}},
  {"strategy=daso:epochs=12 warmup-epochs=13", {"larger than the 12 epochs of --schedule"}},
  {"strategy=daso:endless=1 schedule=cosine", {"--schedule cosine needs its length"}},
};

const std::vector<std::string> accepted{
  "client-mode=true initial-peers=a:1", "initial-peers=a:1 auxiliary=true", "auxiliary=true",
  "auxiliary=false micro-batch=4",
  "auxiliary=true min-peers=5 target-batch-size=4", // the four others hold it
  "min-peers=5 micro-batch=8 target-batch-size=40",
  "strategy=decentralized-adam min-peers=64 micro-batch=8", // an epoch has so many steps
  "min-refresh-period=2s max-refresh-period=2s", "model=mlp width=30",
  "optimizer=sgd momentum=0.9 nesterov=yes", "momentum=auto",
  "optimizer=muon momentum=0 nesterov=false", "precision=float16 loss-scale=1024",
  "precision=bfloat16 loss-scale=dynamic", "reuse-grad-buffers=true delay-grad-averaging=true",
  "delay-optimizer-step=true offload-optimizer=true", "no-decay=vectors weight-decay=0.1",
  "schedule=linear:epochs=5/cosine:epochs=95", "schedule=step:every=30",
  "schedule=warmup-cosine epochs=10 warmup-epochs=10", "schedule=plateau delay-grad-averaging=true",
  "schedule=plateau delay-optimizer-step=true", "schedule=plateau warmup-epochs=9 low-rank=2",
  "schedule=linear:epochs=5/plateau:cooldown=2", "strategy=local-updates average-state-every=5",
  "strategy=decentralized total-steps-in-epoch=5000",
  "strategy=decentralized total-steps-in-epoch=5000 epochs=200 schedule=cosine:epochs=40",
  "strategy=decentralized total-steps-in-epoch=5000 epochs=200 schedule=step:every=30",
  // epochs of steps, too
  "strategy=decentralized total-steps-in-epoch=5000 epochs=200 schedule=step:every=30 "
  "warmup-epochs=300",
  "strategy=decentralized optimizer=adagrad averaging-steps-period=3 average-opt-statistics=sum",
  "strategy=local-updates delay-state-averaging=false average-opt-statistics=exp_avg_sq "
  "max-epoch-difference=3",
  "kill-after=5s join-after=9s duration=10s", "allreduce-timeout=11s",
  "averaging-timeout=1s matchmaking-time=100ms", "aggregator=krum faulty-max=30",
  "check-sums=0.125", // the default, as in a join line
  "aggregator=median faulty-max=1 check-sums=1",
  "codec=sparse2 aggregator=median_norm faulty-max=1 check-sums=0.125",
  "low-rank=4 min-compression-ratio=0.6 delay-grad-averaging=true codec=float16",
  "strategy=daso:epochs=12 schedule=cosine warmup-epochs=3", // of 12 epochs of daso
  "strategy=daso:epochs=12,batches=50 schedule=cosine schedule-unit=batches warmup-epochs=500",
  "strategy=diloco:steps=50 schedule=cosine schedule-unit=batches epochs=4 warmup-epochs=150",
  "passes=3 codec=uniform8 schedule=plateau", "strategy=daso:warmup=20,cooldown=20",
  "strategy=diloco:steps=50 optimizer=muon error-feedback=true codec=float16",
  "strategy=local-updates groups=moshpit target-group-size=8 min-peers=65", // more than a group has
  "strategy=local-updates groups=moshpit auxiliary=true",
  "strategy=local-updates groups=moshpit matchmaking-time=2499ms averaging-timeout=5s",
  "strategy=local-updates matchmaking-time=4s averaging-timeout=5s", // waggle average begins then
};

} // namespace

TEST(Combinations, ThatCannotWorkAreRefusedWithTheOptionToChange) {
  expect_refused(rows);
}

TEST(Combinations, ThatWorkAreAccepted) {
  for (const auto& options : accepted)
    EXPECT_EQ(refused(options), "") << options;
}

// A value for each option that only some strategies use.
TEST(Combinations, AStrategyRefusesTheOptionsOfOthersAndSaysWhatItDoesInstead) {
  const std::map<std::string, std::string> values{{"groups", "moshpit"},
                                                  {"delay-state-averaging", "false"},
                                                  {"average-opt-statistics", "none"},
                                                  {"average-gradients", "true"},
                                                  {"target-batch-size", "512"},
                                                  {"average-state-every", "2"},
                                                  {"max-epoch-difference", "3"},
                                                  {"averaging-steps-period", "3"},
                                                  {"averaging-time-period", "2s"},
                                                  {"total-steps-in-epoch", "9"},
                                                  {"passes", "3"},
                                                  {"low-rank", "4"},
                                                  {"delay-grad-averaging", "true"},
                                                  {"reuse-grad-buffers", "true"},
                                                  {"delay-optimizer-step", "true"}};
  for (const auto& row : strategy_table()) {
    for (const auto& [option, value] : values) {
      auto said = refused("strategy=" + std::string{row.name} + " " + option + "=" + value);
      if (row.uses(option))
        EXPECT_EQ(said, "") << row.name;
      else
        EXPECT_THAT(said, AllOf(HasSubstr("--" + option + " belongs to --strategy "),
                                HasSubstr(std::string{row.name} + " averages ")));
    }
    for (auto option : row.options)
      EXPECT_TRUE(values.contains(std::string{option})) << option << " has no value in this test";
  }
}

TEST(Combinations, PlateauNeedsTheLossOfTheSwarm) {
  for (const auto& row : strategy_table()) {
    auto said = refused("schedule=plateau:patience=3 strategy=" + std::string{row.name});
    if (row.steps_each_pass())
      EXPECT_THAT(
        said, AllOf(HasSubstr("--schedule plateau"), HasSubstr("use --strategy collaborative")));
    else
      EXPECT_EQ(said, "");
  }
}

TEST(Combinations, BucketsAreRefusedWithWhatNeedsTheWholeGradient) {
  EXPECT_EQ(refused_in_training("strategy=data-parallel:buckets=1"), "");
  for (std::string option :
       {"low-rank=4", "error-feedback=true codec=float16", "delay-grad-averaging=true",
        "delay-optimizer-step=true", "reuse-grad-buffers=true", "replicas=2", "passes=2"}) {
    EXPECT_EQ(refused_in_training("strategy=data-parallel " + option), "");
    expect_refused({{"strategy=data-parallel:buckets=1 " + option,
                     {"--" + option.substr(0, option.find('=')) + " exclude each other"}}},
                   refused_in_training);
  }
}

TEST(Combinations, TrainingHasNoUseForWhatOtherCommandsAllow) {
  expect_refused({{"model=net.safetensors", {"read by waggle plan alone"}},
                  {"alpha=0.5", {"--alpha belongs to strategies that average parameters"}},
                  {"strategy=local-updates alpha=0", {"--alpha must be more than 0"}},
                  {"group-bits=01", {"--group-bits", "use --groups moshpit"}},
                  {"matchmaking-time=1s", {"--matchmaking-time", "use --groups moshpit"}},
                  {"min-group-size=3", {"--min-group-size", "--min-peers"}}},
                 refused_in_training);
  EXPECT_EQ(refused_in_training("strategy=local-updates alpha=0.5"), "");
  EXPECT_EQ(refused_in_training("strategy=local-updates groups=moshpit matchmaking-time=1s"), "");
}

TEST(Combinations, ASparseCodecIsForProgressOrWithErrorFeedback) {
  expect_refused({{"codec=sparse2", {"--strategy collaborative", "use --error-feedback 0.95"}},
                  {"codec=sparse2 strategy=local-updates error-feedback=true",
                   {"--strategy local-updates", "use --strategy diloco"}}},
                 refused_in_training);
  for (const auto* fits : {"codec=sparse2 error-feedback=0.9", "codec=sparse2 auxiliary=true",
                           "codec=sparse2 strategy=diloco error-feedback=false",
                           "codec=sparse2 aggregator=median_norm faulty-max=1 strategy=diloco"})
    EXPECT_EQ(refused_in_training(fits), "");
}

TEST(Combinations, ErrorFeedbackIsOnWhereProgressIsSparse) {
  auto kept = [](const std::string& options) { return with(options)->averaging.error_feedback; };
  EXPECT_EQ(kept("strategy=diloco codec=sparse2"), 0.95);
  EXPECT_EQ(kept("strategy=diloco codec=sparse2 auxiliary=true"), 0);
  EXPECT_EQ(kept("strategy=diloco codec=sparse2 error-feedback=false"), 0);
  EXPECT_EQ(kept("strategy=diloco codec=sparse2 error-feedback=true"), 1);
  EXPECT_EQ(kept("strategy=diloco codec=e3m0"), 0);
  EXPECT_EQ(kept("codec=float16 error-feedback=0.5"), 0.5);
  EXPECT_EQ(refused("error-feedback=1.5").empty(), false);
}

TEST(Combinations, AnAuxiliaryMayHaveTheRunFileOfThePeersThatTrain) {
  settings file{{"micro-batch", {"300", "run.toml:1"}},
                {"target-batch-size", {"256", "run.toml:2"}},
                {"error-feedback", {"true", "run.toml:3"}}};
  auto auxiliary = flags({{"auxiliary", "true"}});
  auto options = resolve(file, {}, auxiliary);
  EXPECT_FALSE(options->given.contains("micro-batch"));
  EXPECT_EQ(options->averaging.error_feedback, 0);
  EXPECT_TRUE(resolve(file, auxiliary, {})) << "from the environment";
  EXPECT_FALSE(resolve(file, flags({{"micro-batch", "4"}}), auxiliary));
  EXPECT_FALSE(resolve(file, auxiliary, flags({{"micro-batch", "4"}})));
  EXPECT_FALSE(resolve(file, {}, {})) << "a peer that trains uses it";
  file["micro-batch"].value = "4";
  EXPECT_TRUE(resolve(file, {}, {}));
  EXPECT_EQ(resolve(file, {}, {})->averaging.error_feedback, 1);
  file["auxiliary"] = {"true", "run.toml:4"};
  EXPECT_FALSE(resolve(file, {}, {})) << "the file is the auxiliary's own";
}

TEST(Combinations, ADefaultMicroBatchLeavesRoomForEachPeerWithWhichTrainingBegins) {
  EXPECT_EQ(with("min-peers=32 target-batch-size=256")->micro_batch, 8U);
  EXPECT_EQ(with("min-peers=33 target-batch-size=256")->micro_batch, 7U);
  EXPECT_EQ(with("min-peers=5 target-batch-size=5")->micro_batch, 1U);
}

TEST(Combinations, AShortTimeToAverageShortensWhatNobodySet) {
  auto search = [](const std::string& options) {
    return with(options)->matchmaking.min_matchmaking_time;
  };
  EXPECT_EQ(search(""), 3s);
  EXPECT_EQ(search("averaging-timeout=9s"), 3s);
  EXPECT_EQ(search("averaging-timeout=1500ms"), 500ms);
  EXPECT_EQ(search("averaging-timeout=1500ms strategy=local-updates groups=moshpit"), 500ms);
  EXPECT_EQ(search("averaging-timeout=3s matchmaking-time=2s"), 2s);
  auto question = [](const std::string& options) {
    return with(options)->matchmaking.request_timeout;
  };
  EXPECT_EQ(question(""), 2s);
  EXPECT_EQ(question("averaging-timeout=3s"), 500ms);
  EXPECT_EQ(question("matchmaking-time=1s"), 500ms);
  EXPECT_EQ(question("matchmaking-time=2s request-timeout=2s"), 2s) << "as it is set";
}

TEST(Combinations, ASentenceNamesOptionsAsItsReaderWritesThem) {
  auto say = [](option_writer who) {
    return as_written("use --epochs 3, --run-id, --lr, --micro-batch, --other or `waggle train "
                      "--lr 1` --",
                      who);
  };
  EXPECT_EQ(say(option_writer::command_line), "use --epochs 3, --run-id, --lr, --micro-batch, "
                                              "--other or `waggle train --lr 1` --");
  EXPECT_EQ(say(option_writer::cpp_loop),
            "use swarm_options::max_epochs 3, swarm_options::run, swarm_options::more: lr, "
            "micro-batch, --other or `waggle train --lr 1` --");
  EXPECT_EQ(say(option_writer::python_loop),
            "use epochs 3, run, lr, micro_batch, --other or `waggle train --lr 1` --");
}

TEST(Options, TheScaleOfTheLoss) {
  auto scale = [](const std::string& options) -> std::optional<double> {
    auto rule = with(options)->scale_rule();
    return rule ? std::optional{rule->initial} : std::nullopt;
  };
  EXPECT_EQ(scale("precision=float32 loss-scale=auto"), std::nullopt);
  EXPECT_EQ(scale("precision=bfloat16 loss-scale=auto"), std::nullopt);
  EXPECT_EQ(scale("precision=float16 loss-scale=auto"), 65536);
  EXPECT_EQ(scale("precision=float32 loss-scale=dynamic"), 65536);
  EXPECT_EQ(scale("precision=bfloat16 loss-scale=off"), std::nullopt);
  EXPECT_EQ(scale("precision=float32 loss-scale=1024"), 1024);
  auto constant = with("loss-scale=1024");
  EXPECT_EQ(constant->scale_rule()->growth, 1);
  EXPECT_EQ(constant->scale_rule()->back_off, 1);
}

TEST(Options, AStrategyMayHaveARateAnOptimizerAndACodecOfItsOwn) {
  EXPECT_EQ(with("")->lr, 3e-3);
  EXPECT_EQ(with("strategy=decentralized-adam")->lr, 3e-3);
  EXPECT_EQ(with("strategy=decentralized-sgd")->lr, 0.1) << "as its help says";
  EXPECT_EQ(with("strategy=decentralized-sgd lr=0.003")->lr, 3e-3);
  EXPECT_EQ(with("strategy=decentralized-adam")->optimizer, "adam");
  EXPECT_EQ(with("strategy=daso")->averaging.codec, codec_id::bfloat16);
  EXPECT_EQ(with("strategy=daso codec=none")->averaging.codec, codec_id::none);
  EXPECT_EQ(with("strategy=diloco")->averaging.codec, codec_id::none);
}

TEST(Options, WhatAStrategyIsMadeOf) {
  EXPECT_EQ(with("low-rank=4")->how.coding, (lane_coding{4, 0.5}));
  EXPECT_EQ(with("strategy=diloco:steps=50")->strategy.numbers().front(), 50);
  EXPECT_TRUE(with("strategy=local-updates average-gradients=true")->how.average_gradients);
  EXPECT_FALSE(with("")->how.average_gradients);
  auto statistics = [](const std::string& more) {
    return averaged_statistics_of(*with("strategy=decentralized-adam " + more));
  };
  EXPECT_THAT(statistics(""), ElementsAre("exp_avg_sq"));
  EXPECT_THAT(statistics("average-opt-statistics=none"), IsEmpty());
  EXPECT_THAT(statistics("average-opt-statistics=exp_avg,exp_avg_sq"),
              ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(statistics("amsgrad=true"), ElementsAre("max_exp_avg_sq"));
}

TEST(Options, InManyGroupsTheNumberOfBitsFollowsTheSwarm) {
  EXPECT_FALSE(elastic_bits(*with("")));
  EXPECT_TRUE(elastic_bits(*with("strategy=local-updates groups=moshpit")));
  EXPECT_FALSE(elastic_bits(*with("strategy=local-updates groups=moshpit group-bits=01")));
  EXPECT_TRUE(elastic_bits(*with("group-bits=auto")));
}

TEST(Options, WhoAveragesParametersWithoutTheOptimizersSquaresIsTold) {
  auto told = [](const std::string& options) { return unaveraged_squares(*with(options)); };
  for (std::string strategy : {"strategy=decentralized", "strategy=local-updates"}) {
    EXPECT_THAT(told(strategy + " optimizer=adam"),
                HasSubstr("--average-opt-statistics exp_avg_sq on all"));
    EXPECT_THAT(told(strategy + " optimizer=rmsprop"),
                HasSubstr("but not square_avg, by which rmsprop"));
    EXPECT_EQ(told(strategy + " optimizer=adam average-opt-statistics=exp_avg_sq"), "");
    EXPECT_EQ(told(strategy + " optimizer=adam average-opt-statistics=none"), "") << "it is meant";
    EXPECT_EQ(told(strategy + " optimizer=sgd"), "");
  }
  EXPECT_EQ(told("strategy=decentralized-adam"), "") << "averages them by default";
  EXPECT_EQ(told("optimizer=adam"), "");
}
