// Options that contradict or need each other.

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/runtime/config/flags.hpp"

using namespace waggle;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Combinations, ThatCannotWorkAreRefusedWithWhatToChange) {
  EXPECT_THAT(refusal({{"client-mode", "true"}}), HasSubstr("--initial-peers"));
  EXPECT_EQ(refusal({{"client-mode", "true"}, {"initial-peers", "a:1"}, {"announce", "b:2"}}),
            "--client-mode and --announce exclude each other: other peers do not dial a client; "
            "leave out --announce, or --client-mode if they can reach that address");
  EXPECT_EQ(refusal({{"micro-batch", "64"}, {"target-batch-size", "32"}}),
            "--micro-batch 64 is larger than --target-batch-size 32: one pass would end more than "
            "one epoch; lower the first, or raise the second");
  EXPECT_THAT(refusal({{"matchmaking-time", "60s"}, {"averaging-timeout", "60s"}}),
              HasSubstr("--averaging-timeout"));
  EXPECT_THAT(refusal({{"width", "30"}, {"heads", "4"}}),
              HasSubstr("--heads 4 must divide --width 30"));
  EXPECT_THAT(refusal({{"schedule", "warmup-cosine"}}), HasSubstr("--epochs"));
  EXPECT_EQ(refusal({{"epochs", "3"}, {"warmup-epochs", "4"}}),
            "--warmup-epochs is larger than --epochs: the run would end before the rate has "
            "reached --lr; lower the first, or raise the second");
  EXPECT_THAT(refusal({{"schedule", "linear:epochs=5/cosine"}}), HasSubstr("--epochs"));
  EXPECT_EQ(refusal({{"momentum", "0.9"}}),
            "--momentum belongs to --optimizer sgd (0), sgdw (0), rmsprop (0), lars (0.9) and muon "
            "(0.95); adamw does not use it; leave it out");
  EXPECT_THAT(refusal({{"optimizer", "lion"}, {"epsilon", "1e-6"}}), HasSubstr("lion does not"));
  EXPECT_THAT(refusal({{"optimizer", "sgd"}, {"nesterov", "true"}}), HasSubstr("--momentum"));
  EXPECT_THAT(
    refusal(
      {{"optimizer", "sgd"}, {"nesterov", "true"}, {"momentum", "0.9"}, {"dampening", "0.1"}}),
    HasSubstr("exclude each other"));
  EXPECT_EQ(
    refusal({{"optimizer", "muon"}, {"momentum", "0"}}),
    "--momentum 0 needs --nesterov false with --optimizer muon, which looks one step of the "
    "momentum ahead by default");
  EXPECT_THAT(refusal({{"no-decay", "vectors"}}), HasSubstr("--weight-decay"));
  EXPECT_EQ(refusal({{"precision", "float16"}, {"loss-scale", "off"}}),
            "--precision float16 needs --loss-scale: small gradients would become 0; use auto");
  EXPECT_THAT(refusal({{"kill-after", "5s"}, {"peers", "1"}}), HasSubstr("--peers"));
  EXPECT_THAT(refusal({{"kill-after", "10s"}, {"duration", "10s"}}), HasSubstr("--duration"));
  EXPECT_THAT(refusal({{"join-after", "11s"}, {"duration", "10s"}}), HasSubstr("--duration"));
}

TEST(Combinations, BucketsAreRefusedWithWhatNeedsTheWholeGradient) {
  auto check = [](std::string_view strategy, std::map<std::string, std::string> given) {
    given.emplace("strategy", strategy);
    auto options = resolve({}, {}, flags(given));
    EXPECT_TRUE(options) << options.error().detail;
    auto usable = check_training_options(*options);
    return usable ? std::string{} : usable.error().detail;
  };
  EXPECT_EQ(check("data-parallel:buckets=1", {}), "");
  for (const auto& [option, value] :
       std::map<std::string, std::string>{{"low-rank", "4"},
                                          {"error-feedback", "true"},
                                          {"delay-grad-averaging", "true"},
                                          {"delay-optimizer-step", "true"},
                                          {"reuse-grad-buffers", "true"},
                                          {"replicas", "2"},
                                          {"passes", "2"}}) {
    std::map<std::string, std::string> given{{option, value}, {"codec", "float16"}};
    if (option == "reuse-grad-buffers" || option == "low-rank")
      given.erase("codec");
    EXPECT_EQ(check("data-parallel", given), "") << option;
    EXPECT_THAT(check("data-parallel:buckets=1", given),
                AllOf(HasSubstr("--" + option + " exclude each other"), HasSubstr("leave out")));
  }
}

TEST(Combinations, SizesThatNoGroupHasAreRefusedWithAWayOut) {
  for (const char* name : {"min-peers", "min-group-size", "min-contributors", "expected-peers"})
    EXPECT_THAT(refusal({{name, "5"}, {"target-group-size", "4"}}),
                AllOf(StartsWith("--" + std::string{name} + " is larger than --target-group-size"),
                      EndsWith("; lower the first, or raise the second")));
}

TEST(Combinations, AnAuxiliaryIsNoClient) {
  EXPECT_EQ(refusal({{"client-mode", "true"}, {"initial-peers", "a:1"}, {"auxiliary", "true"}}),
            "--client-mode and --auxiliary exclude each other: an auxiliary reduces for other "
            "peers, which have to reach it; leave out --auxiliary, or --client-mode if they can");
  EXPECT_EQ(refusal({{"initial-peers", "a:1"}, {"auxiliary", "true"}}), "");
}

TEST(Combinations, AnAuxiliaryHasNoMicroBatchAndNothingToSend) {
  const char* excluded =
    "--auxiliary and --micro-batch exclude each other: an auxiliary makes no passes, it only "
    "reduces for the others; leave out --micro-batch, or --auxiliary";
  EXPECT_EQ(refusal({{"auxiliary", "true"}, {"micro-batch", "4"}}), excluded);
  EXPECT_EQ(refusal({{"auxiliary", "true"}, {"micro-batch", "8"}}), excluded)
    << "the default, but set";
  EXPECT_EQ(refusal({{"auxiliary", "false"}, {"micro-batch", "4"}}), "");
  EXPECT_THAT(refusal({{"auxiliary", "true"}, {"error-feedback", "true"}}),
              HasSubstr("--auxiliary and --error-feedback exclude each other"));
  EXPECT_EQ(refusal({{"auxiliary", "true"}}), "");
}

TEST(Combinations, AnAuxiliaryMayHaveTheRunFileOfThePeersThatTrain) {
  settings file{{"micro-batch", {"300", "run.toml:1"}},
                {"target-batch-size", {"256", "run.toml:2"}},
                {"error-feedback", {"true", "run.toml:3"}}};
  auto auxiliary = flags({{"auxiliary", "true"}});
  auto options = resolve(file, {}, auxiliary);
  ASSERT_TRUE(options) << options.error().detail;
  EXPECT_FALSE(options->given.contains("micro-batch"));
  EXPECT_FALSE(options->error_feedback);
  EXPECT_TRUE(resolve(file, auxiliary, {})) << "from the environment";
  EXPECT_FALSE(resolve(file, flags({{"micro-batch", "4"}}), auxiliary));
  EXPECT_FALSE(resolve(file, auxiliary, flags({{"micro-batch", "4"}})));
  EXPECT_FALSE(resolve(file, {}, {})) << "a peer that trains uses it";
  file["micro-batch"].value = "4";
  EXPECT_TRUE(resolve(file, {}, {}));
  EXPECT_TRUE(resolve(file, {}, {})->error_feedback);
  file["auxiliary"] = {"true", "run.toml:4"};
  EXPECT_FALSE(resolve(file, {}, {})) << "the file is the auxiliary's own";
}

TEST(Combinations, TheTargetBatchHoldsAPassOfEachPeerWithWhichTrainingBegins) {
  EXPECT_EQ(refusal({{"min-peers", "5"}, {"micro-batch", "8"}, {"target-batch-size", "39"}}),
            "--target-batch-size 39 does not hold one pass of --micro-batch 8 of each of the "
            "--min-peers 5, with which training begins: raise it to 40, or lower one of the "
            "others");
  EXPECT_EQ(refusal({{"min-peers", "5"}, {"micro-batch", "8"}, {"target-batch-size", "40"}}), "");
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"min-peers", "33"}, {"micro-batch", "8"}}),
              HasSubstr("raise it to 264"));
  EXPECT_THAT(refusal({{"min-peers", "5"}, {"target-batch-size", "4"}}), HasSubstr("raise it to 5"))
    << "no pass is that small";
  EXPECT_EQ(
    refusal({{"strategy", "decentralized-adam"}, {"min-peers", "64"}, {"micro-batch", "8"}}), "")
    << "an epoch has so many steps";
  EXPECT_EQ(refusal({{"auxiliary", "true"}, {"min-peers", "5"}, {"target-batch-size", "4"}}), "")
    << "the four others hold it";
}

TEST(Combinations, ADefaultMicroBatchLeavesRoomForEachPeerWithWhichTrainingBegins) {
  auto micro_batch = [](const std::string& peers, const std::string& target) {
    auto options = resolve({}, {}, flags({{"min-peers", peers}, {"target-batch-size", target}}));
    return options ? options->micro_batch : 0;
  };
  EXPECT_EQ(micro_batch("32", "256"), 8U);
  EXPECT_EQ(micro_batch("33", "256"), 7U);
  EXPECT_EQ(micro_batch("5", "5"), 1U);
}

TEST(Combinations, APeriodHasItsLimitsInOrder) {
  EXPECT_THAT(refusal({{"min-refresh-period", "3s"}, {"max-refresh-period", "2s"}}),
              HasSubstr("--min-refresh-period is longer than --max-refresh-period: lower"));
  EXPECT_EQ(refusal({{"min-refresh-period", "2s"}, {"max-refresh-period", "2s"}}), "");
}

TEST(Combinations, AnAggregatorWithTooManyFaultyMembersIsRefusedWithAWayOut) {
  // Krum needs 2f + 3 contributors, and a group has at most 64.
  EXPECT_THAT(refusal({{"aggregator", "krum"}, {"faulty-max", "31"}}),
              AllOf(HasSubstr("--aggregator krum"), HasSubstr("--faulty-max 31"),
                    HasSubstr("needs 65 contributors; there are 64")));
  EXPECT_EQ(refusal({{"aggregator", "krum"}, {"faulty-max", "30"}}), "");
  EXPECT_THAT(refusal({{"aggregator", "krum"}, {"faulty-max", "3"}, {"target-group-size", "8"}}),
              HasSubstr("needs 9 contributors; there are 8"));
  EXPECT_THAT(refusal({{"aggregator", "mean"}, {"faulty-max", "1"}}),
              AllOf(HasSubstr("--aggregator mean"), HasSubstr("--faulty-max 1"),
                    HasSubstr("use trimmed_mean, median")));
  EXPECT_THAT(
    refusal({{"aggregator", "krum"}}),
    AllOf(HasSubstr("--aggregator krum"), HasSubstr("--faulty-max 0"), HasSubstr("set ")));
}

TEST(Combinations, ThatWorkArePassed) {
  EXPECT_EQ(refusal({{"client-mode", "true"}, {"initial-peers", "a:1"}}), "");
  EXPECT_EQ(refusal({{"model", "mlp"}, {"width", "30"}}), "");
  EXPECT_EQ(refusal({{"optimizer", "sgd"}, {"momentum", "0.9"}, {"nesterov", "yes"}}), "");
  EXPECT_EQ(refusal({{"momentum", "auto"}}), "");
  EXPECT_EQ(refusal({{"optimizer", "muon"}, {"momentum", "0"}, {"nesterov", "false"}}), "");
  EXPECT_EQ(refusal({{"precision", "float16"}, {"loss-scale", "1024"}}), "");
  EXPECT_EQ(refusal({{"precision", "bfloat16"}, {"loss-scale", "dynamic"}}), "");
  EXPECT_EQ(refusal({{"reuse-grad-buffers", "true"}, {"delay-grad-averaging", "true"}}), "");
  EXPECT_EQ(refusal({{"no-decay", "vectors"}, {"weight-decay", "0.1"}}), "");
  EXPECT_EQ(refusal({{"schedule", "linear:epochs=5/cosine:epochs=95"}}), "");
  EXPECT_EQ(refusal({{"schedule", "step:every=30"}}), "");
  EXPECT_EQ(refusal({{"schedule", "warmup-cosine"}, {"epochs", "10"}, {"warmup-epochs", "10"}}),
            "");
  EXPECT_EQ(refusal({{"kill-after", "5s"}, {"join-after", "9s"}, {"duration", "10s"}}), "");
}

TEST(Options, TheLimitsOfARoundFitIntoEachOther) {
  EXPECT_EQ(refusal({{"allreduce-timeout", "11s"}}), "");
  EXPECT_THAT(refusal({{"request-timeout", "2m"}}), HasSubstr("--averaging-timeout"));
  EXPECT_EQ(refusal({{"averaging-timeout", "1s"}, {"matchmaking-time", "100ms"}}), "");
  EXPECT_EQ(refusal({{"allreduce-timeout", "2m"}}),
            "--allreduce-timeout is longer than --averaging-timeout, which ends the round first: "
            "lower the first, or raise the second");
  EXPECT_THAT(refusal({{"allreduce-timeout", "9s"}}), HasSubstr("--stall-timeout"));
}

TEST(Options, TheScaleOfTheLoss) {
  auto scale = [](std::string precision, std::string text) -> std::optional<double> {
    auto options = resolve({}, {}, flags({{"precision", precision}, {"loss-scale", text}}));
    EXPECT_TRUE(options) << precision << " " << text;
    auto rule = loss_scale_of(*options);
    return rule ? std::optional{rule->initial} : std::nullopt;
  };
  EXPECT_EQ(scale("float32", "auto"), std::nullopt);
  EXPECT_EQ(scale("bfloat16", "auto"), std::nullopt);
  EXPECT_EQ(scale("float16", "auto"), 65536);
  EXPECT_EQ(scale("float32", "dynamic"), 65536);
  EXPECT_EQ(scale("bfloat16", "off"), std::nullopt);
  EXPECT_EQ(scale("float32", "1024"), 1024);
  auto constant = resolve({}, {}, flags({{"loss-scale", "1024"}}));
  EXPECT_EQ(loss_scale_of(*constant)->growth, 1);
  EXPECT_EQ(loss_scale_of(*constant)->back_off, 1);
  for (const char* text : {"3", "0", "-2", "0.5", "1e30"})
    EXPECT_THAT(refusal({{"loss-scale", text}}), HasSubstr("power of two")) << text;
  EXPECT_THAT(refusal({{"loss-scale", "large"}}), HasSubstr("auto, dynamic, off"));
}

TEST(Options, AStrategyRefusesWhatItDoesNotUse) {
  for (const char* name : {"local-updates", "decentralized-sgd"})
    EXPECT_THAT(refusal({{"strategy", name}, {"reuse-grad-buffers", "true"}}),
                AllOf(HasSubstr("--reuse-grad-buffers"), HasSubstr("--strategy collaborative"),
                      HasSubstr("leave it out")));
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"delay-grad-averaging", "true"}}),
              HasSubstr("belongs to --strategy collaborative"));
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"delay-optimizer-step", "true"}}),
              HasSubstr("--delay-optimizer-step belongs to --strategy collaborative"));
  EXPECT_EQ(refusal({{"delay-optimizer-step", "true"}, {"offload-optimizer", "true"}}), "");
  EXPECT_EQ(refusal({{"delay-grad-averaging", "true"}, {"delay-optimizer-step", "false"}}), "");
  EXPECT_THAT(refusal({{"delay-optimizer-step", "true"}, {"offload-optimizer", "false"}}),
              HasSubstr("leave out --offload-optimizer false"));
  EXPECT_THAT(refusal({{"delay-state-averaging", "false"}}),
              HasSubstr("belongs to --strategy local-updates, decentralized, decentralized-sgd or "
                        "decentralized-adam: with collaborative, all peers hold equal parameters"));
  EXPECT_THAT(refusal({{"average-opt-statistics", "exp_avg_sq"}}), HasSubstr("local-updates"));
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"averaging-steps-period", "4"}}),
              HasSubstr("local-updates averages every --target-batch-size samples"));
  EXPECT_THAT(refusal({{"strategy", "decentralized-sgd"}, {"target-batch-size", "64"}}),
              HasSubstr("averages every --averaging-steps-period"));
  EXPECT_THAT(
    refusal({{"strategy", "local-updates"}, {"average-opt-statistics", "exp_avg,exp_avg"}}),
    HasSubstr("names exp_avg twice"));
  EXPECT_THAT(refusal({{"wait-for-peers", "3s"}}), HasSubstr("needs --min-peers"));
  EXPECT_THAT(refusal({{"min-peers", "65"}}), HasSubstr("larger than --target-group-size"));
  EXPECT_THAT(refusal({{"strategy", "decentralized-sgd"}, {"optimizer", "adamw"}}),
              HasSubstr("is for --optimizer sgd"));
  EXPECT_EQ(refusal({{"strategy", "decentralized"},
                     {"optimizer", "adagrad"},
                     {"averaging-steps-period", "3"},
                     {"average-opt-statistics", "sum"}}),
            "");
  EXPECT_THAT(refusal({{"strategy", "decentralised-sgd"}}),
              HasSubstr("the nearest is decentralized-sgd"));
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"average-opt-statistics", "momentum"}}),
              HasSubstr("adamw keeps exp_avg, exp_avg_sq"));
  EXPECT_THAT(
    refusal({{"strategy", "local-updates"}, {"average-opt-statistics", "exp_avg,exp_avg_sqr"}}),
    EndsWith("-statistics exp_avg_sqr: adamw keeps exp_avg, exp_avg_sq; the nearest is "
             "exp_avg_sq"));
  EXPECT_THAT(refusal({{"strategy", "local-updates"},
                       {"optimizer", "sgd"},
                       {"average-opt-statistics", "momentum_buffer"}}),
              EndsWith("sgd keeps none"));
  EXPECT_EQ(refusal({{"strategy", "local-updates"},
                     {"delay-state-averaging", "false"},
                     {"average-opt-statistics", "exp_avg_sq"},
                     {"max-epoch-difference", "3"}}),
            "");
}

TEST(Options, AStrategyForOneOptimizerMayHaveARateOfItsOwn) {
  auto rate = [](const std::map<std::string, std::string>& given) {
    return resolve({}, {}, flags(given))->lr;
  };
  EXPECT_EQ(rate({}), 3e-3);
  EXPECT_EQ(rate({{"strategy", "decentralized-adam"}}), 3e-3);
  EXPECT_EQ(rate({{"strategy", "decentralized-sgd"}}), 0.1) << "as its help says";
  EXPECT_EQ(rate({{"strategy", "decentralized-sgd"}, {"lr", "0.003"}}), 3e-3);
}

TEST(Options, AnEpochOfTheScheduleIsCountedInOneWay) {
  EXPECT_EQ(refusal({{"strategy", "local-updates"}, {"average-state-every", "5"}}), "");
  EXPECT_EQ(refusal({{"strategy", "decentralized"}, {"total-steps-in-epoch", "5000"}}), "");
  EXPECT_THAT(refusal({{"average-state-every", "5"}}),
              AllOf(HasSubstr("--average-state-every belongs to --strategy local-updates"),
                    HasSubstr("leave it out")));
  EXPECT_THAT(refusal({{"strategy", "decentralized-sgd"}, {"average-state-every", "5"}}),
              HasSubstr("averages every --averaging-steps-period; set that instead"));
  for (const char* name : {"collaborative", "local-updates"})
    EXPECT_THAT(refusal({{"strategy", name}, {"total-steps-in-epoch", "5000"}}),
                AllOf(HasSubstr("--total-steps-in-epoch belongs to --strategy decentralized"),
                      HasSubstr("--target-batch-size samples")));
  EXPECT_THAT(
    refusal({{"strategy", "local-updates"}, {"average-state-every", "5"}, {"epochs", "12"}}),
    AllOf(HasSubstr("--epochs 12 is no multiple of --average-state-every 5"),
          HasSubstr("use --epochs 15")));
  EXPECT_THAT(refusal({{"strategy", "local-updates"},
                       {"average-state-every", "1000000"},
                       {"target-batch-size", "1099511627776"}}),
              HasSubstr("lower one of them"));
}

// The epochs of --epochs are averages then, so they are no length for a schedule.
TEST(Options, AScheduleThatCountsStepsNeedsALengthOfItsOwn) {
  auto said = [](const std::string& schedule, const std::string& warmup = "0") {
    return refusal({{"strategy", "decentralized"},
                    {"total-steps-in-epoch", "5000"},
                    {"epochs", "200"},
                    {"schedule", schedule},
                    {"warmup-epochs", warmup}});
  };
  EXPECT_THAT(said("cosine"), AllOf(HasSubstr("--total-steps-in-epoch"), HasSubstr("--epochs"),
                                    HasSubstr("write cosine:epochs=N")));
  EXPECT_EQ(said("cosine:epochs=40"), "");
  EXPECT_EQ(said("step:every=30"), "");
  EXPECT_EQ(said("step:every=30", "300"), ""); // epochs of steps, too
}

TEST(Options, PlateauNeedsTheLossOfTheSwarm) {
  for (const auto& row : strategy_table()) {
    std::string name{row.name};
    auto optimizer = row.optimizer.empty() ? std::string{"adamw"} : std::string{row.optimizer};
    auto said =
      refusal({{"strategy", name}, {"schedule", "plateau:patience=3"}, {"optimizer", optimizer}});
    if (row.steps_each_pass())
      EXPECT_THAT(said, AllOf(HasSubstr("--schedule plateau"), HasSubstr("--strategy " + name),
                              HasSubstr("use --strategy collaborative")));
    else
      EXPECT_EQ(said, "");
  }
  EXPECT_EQ(refusal({{"schedule", "plateau"}, {"delay-grad-averaging", "true"}}), "");
  EXPECT_EQ(refusal({{"schedule", "plateau"}, {"delay-optimizer-step", "true"}}), "");
  EXPECT_EQ(refusal({{"schedule", "plateau"}, {"warmup-epochs", "9"}, {"low-rank", "2"}}), "");
  EXPECT_EQ(refusal({{"schedule", "linear:epochs=5/plateau:cooldown=2"}}), "");
  EXPECT_THAT(refusal({{"schedule", "plateau/constant"}}), HasSubstr("put it last"));
  EXPECT_THAT(refusal({{"schedule", "plateau:floor=0.1"}}), HasSubstr("above --lr"));
}

TEST(Options, SumsAreCheckedWhereMembersMayLie) {
  EXPECT_THAT(refusal({{"check-sums", "0.5"}}), HasSubstr("needs --faulty-max"));
  EXPECT_EQ(refusal({{"check-sums", "0.125"}}), "") << "the default, as in a join line";
  EXPECT_EQ(refusal({{"aggregator", "median"}, {"faulty-max", "1"}, {"check-sums", "1"}}), "");
}

TEST(Options, LowRankIsForMeansOfGradients) {
  EXPECT_THAT(refusal({{"strategy", "local-updates"}, {"low-rank", "4"}}),
              HasSubstr("--low-rank belongs to --strategy collaborative"));
  EXPECT_THAT(refusal({{"low-rank", "4"}, {"aggregator", "median"}}),
              HasSubstr("--low-rank and --aggregator median exclude each other"));
  EXPECT_THAT(refusal({{"min-compression-ratio", "0.6"}}), HasSubstr("needs --low-rank"));
  EXPECT_THAT(refusal({{"low-rank", "-1"}}), HasSubstr("--low-rank"));
  EXPECT_THAT(refusal({{"low-rank", "4"}, {"min-compression-ratio", "0"}}),
              HasSubstr("nothing would be saved"));
  EXPECT_THAT(refusal({{"low-rank", "4"}, {"min-compression-ratio", "1"}}),
              HasSubstr("never that small"));
  EXPECT_EQ(refusal({{"low-rank", "4"},
                     {"min-compression-ratio", "0.6"},
                     {"delay-grad-averaging", "true"},
                     {"codec", "float16"}}),
            "");
  settings low{{"low-rank", {"4", "--low-rank"}}};
  auto options = resolve({}, {}, low);
  ASSERT_TRUE(options);
  EXPECT_EQ(strategy_settings_of(*options).coding, (lane_coding{4, 0.5}));
}

TEST(Options, PassesAreCountedWhereEachUpdateSaysWhichSamplesItHas) {
  EXPECT_EQ(refusal({{"passes", "3"}, {"codec", "uniform8"}, {"schedule", "plateau"}}), "");
  for (const auto& row : strategy_table()) {
    auto said = refusal({{"passes", "3"}, {"strategy", std::string{row.name}}});
    EXPECT_EQ(said.empty(), row.name == "collaborative" || row.name == "data-parallel") << said;
  }
  for (auto [option, value] :
       {std::pair{"strategy", "local-updates"}, std::pair{"epochs", "9"},
        std::pair{"aggregator", "median"}, std::pair{"low-rank", "4"}, std::pair{"replicas", "2"},
        std::pair{"delay-grad-averaging", "true"}, std::pair{"delay-optimizer-step", "true"},
        std::pair{"reuse-grad-buffers", "true"}})
    EXPECT_THAT(refusal({{"passes", "3"}, {option, value}}),
                AllOf(HasSubstr("--passes and --" + std::string{option}),
                      HasSubstr("exclude each other"), HasSubstr("--strategy collaborative")));
}

TEST(Options, AveragedGradientsAreForStrategiesThatAverageParameters) {
  for (const auto& row : strategy_table()) {
    std::string name{row.name};
    auto said = refusal({{"strategy", name}, {"average-gradients", "true"}});
    if (row.averages_parameters)
      EXPECT_EQ(said, "");
    else
      EXPECT_THAT(said,
                  ::testing::AllOf(HasSubstr("--average-gradients belongs to --strategy "
                                             "local-updates, decentralized"),
                                   HasSubstr("--strategy " + name), HasSubstr("leave it out")));
  }
  settings given{{"strategy", {"local-updates", "--strategy"}},
                 {"average-gradients", {"true", "--average-gradients"}}};
  EXPECT_TRUE(strategy_settings_of(*resolve({}, {}, given)).average_gradients);
  EXPECT_FALSE(strategy_settings_of({}).average_gradients);
}

TEST(Options, DasoHasNumbersOfItsOwnAndTravelsInBfloat16) {
  auto with = [](const char* text, settings others = {}) {
    others.insert({"strategy", {text, "--strategy"}});
    return resolve({}, {}, others);
  };
  auto said = [&](const char* text) {
    auto options = with(text);
    return options ? std::string{} : options.error().detail;
  };
  EXPECT_EQ(with("daso")->codec, "bfloat16");
  EXPECT_EQ(with("daso", {{"codec", {"none", "--codec"}}})->codec, "none");
  EXPECT_EQ(with("diloco")->codec, "none");
  for (auto [text, cure] :
       {std::array{"daso:warmup=0", "between 1 and 1048576"},
        std::array{"daso:warmup=30,cooldown=11", "warmup and cooldown together"},
        std::array{"daso:stability=1", "and 0.9999; the default"},
        std::array{"daso:stability=0", "and 0.9999; the default"},
        std::array{"daso:max-skips=3", "less than local-skip-factor"},
        std::array{"daso:skips=3", "max-skips"}, std::array{"daso:epochs=0", "between 1 and"}})
    EXPECT_THAT(said(text), HasSubstr(cure)) << text;
  EXPECT_EQ(said("daso:warmup=20,cooldown=20"), "");
  for (auto [name, value, cure] :
       {std::array{"target-batch-size", "64", "daso:epochs=N"},
        std::array{"averaging-time-period", "2s", "daso:epochs=N"},
        std::array{"delay-grad-averaging", "true", "leave it out"},
        std::array{"reuse-grad-buffers", "true", "leave it out"},
        std::array{"delay-optimizer-step", "true", "needs the step before it"},
        std::array{"groups", "moshpit", "share one anchor"}}) {
    auto refused = with("daso", {{name, {value, std::string{"--"} + name}}});
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().detail, HasSubstr(cure)) << name;
  }
}

TEST(Options, DilocoHasNumbersOfItsOwn) {
  auto with = [](settings others) {
    others.insert({"strategy", {"diloco:steps=50", "--strategy"}});
    return resolve({}, {}, others);
  };
  auto said = [&](const char* name, const char* value) {
    auto options = with({{name, {value, std::string{"--"} + name}}});
    return options ? std::string{} : options.error().detail;
  };
  for (auto [name, value, cure] :
       {std::array{"target-batch-size", "64", "diloco:steps=N"},
        std::array{"averaging-steps-period", "3", "diloco:steps=N"},
        std::array{"total-steps-in-epoch", "9", "leave it out"},
        std::array{"average-state-every", "2", "diloco:steps=N"},
        std::array{"delay-grad-averaging", "true", "diloco:overlap=N"},
        std::array{"delay-optimizer-step", "true", "needs the step before it"},
        std::array{"reuse-grad-buffers", "true", "leave it out"},
        std::array{"average-gradients", "true", "leave it out"},
        std::array{"average-opt-statistics", "exp_avg_sq", "leave it out"},
        std::array{"groups", "moshpit", "share one anchor"}})
    EXPECT_THAT(said(name, value), HasSubstr(cure)) << name;
  for (auto [name, value] :
       {std::array{"low-rank", "4"}, std::array{"max-epoch-difference", "3"},
        std::array{"averaging-time-period", "2s"}, std::array{"codec", "float16"},
        std::array{"optimizer", "muon"}, std::array{"error-feedback", "true"}})
    EXPECT_EQ(said(name, value), "") << name;
  EXPECT_THAT(refusal({{"strategy", "diloco:steps=5,overlap=5"}}), HasSubstr("lower overlap"));
  auto options = with({});
  ASSERT_TRUE(options);
  EXPECT_EQ(strategy_settings_of(*options).numbers.front(), 50);
}

TEST(Options, ManyGroupsAreForStrategiesThatAverageParameters) {
  EXPECT_THAT(refusal({{"groups", "moshpit"}}),
              ::testing::AllOf(HasSubstr("--groups moshpit belongs to --strategy local-updates"),
                               HasSubstr("use --groups one")));
  EXPECT_EQ(refusal({{"groups", "moshpit"},
                     {"strategy", "local-updates"},
                     {"target-group-size", "8"},
                     {"min-peers", "65"}}),
            "")
    << "the run may have more peers than a group";
  EXPECT_EQ(refusal({{"groups", "moshpit"}, {"strategy", "local-updates"}, {"auxiliary", "true"}}),
            "");
  EXPECT_THAT(
    refusal({{"groups", "moshpit"}, {"strategy", "local-updates"}, {"max-epoch-difference", "0"}}),
    HasSubstr("--max-epoch-difference 1 or more"));
}

TEST(Options, ASearchForAGroupLeavesTimeToAverage) {
  auto with = [](const char* groups, const char* search, const char* round) {
    return refusal({{"groups", groups},
                    {"strategy", "local-updates"},
                    {"matchmaking-time", search},
                    {"averaging-timeout", round}});
  };
  EXPECT_EQ(with("moshpit", "2500ms", "5s"),
            "--averaging-timeout 5s leaves no time to average with --groups moshpit, where the "
            "search for a group may take twice the --matchmaking-time, 5s: raise the first, or "
            "lower the second");
  EXPECT_EQ(with("moshpit", "2499ms", "5s"), "");
  EXPECT_EQ(with("one", "4s", "5s"), "") << "of waggle average, whose search begins a round";
}

TEST(Options, InManyGroupsTheNumberOfBitsFollowsTheSwarm) {
  run_options options;
  EXPECT_FALSE(elastic_bits(options));
  options.groups = "moshpit";
  EXPECT_TRUE(elastic_bits(options));
  options.group_bits = "01";
  EXPECT_FALSE(elastic_bits(options));
  options.groups = "one";
  options.group_bits = "auto";
  EXPECT_TRUE(elastic_bits(options));
}

TEST(Options, WhoAveragesParametersWithoutTheOptimizersSquaresIsTold) {
  auto told = [](const std::string& strategy, const std::string& optimizer,
                 const std::string& statistics = {}) {
    settings flags{{"strategy", {strategy, "--strategy"}},
                   {"optimizer", {optimizer, "--optimizer"}}};
    if (!statistics.empty())
      flags["average-opt-statistics"] = {statistics, "--average-opt-statistics"};
    auto options = resolve({}, {}, flags);
    EXPECT_TRUE(options.ok()) << strategy << " " << optimizer;
    return options.ok() ? unaveraged_squares(*options) : "refused";
  };
  for (const char* strategy : {"decentralized", "local-updates"}) {
    EXPECT_THAT(told(strategy, "adam"), HasSubstr("--average-opt-statistics exp_avg_sq on all"));
    EXPECT_THAT(told(strategy, "rmsprop"), HasSubstr("but not square_avg, by which rmsprop"));
    EXPECT_EQ(told(strategy, "adam", "exp_avg_sq"), "");
    EXPECT_EQ(told(strategy, "adam", "none"), "") << "it is meant";
    EXPECT_EQ(told(strategy, "sgd"), "");
  }
  EXPECT_EQ(told("decentralized-adam", "adam"), "") << "averages them by default";
  EXPECT_EQ(told("collaborative", "adam"), "");
}

TEST(Options, AStrategyForOneOptimizerChoosesIt) {
  settings adam{{"strategy", {"decentralized-adam", "--strategy"}}};
  auto options = resolve({}, {}, adam);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->optimizer, "adam");
  EXPECT_THAT(strategy_settings_of(*options).statistics, ::testing::ElementsAre("exp_avg_sq"));
  adam["average-opt-statistics"] = {"none", "--average-opt-statistics"};
  EXPECT_TRUE(strategy_settings_of(*resolve({}, {}, adam)).statistics.empty());
  adam["average-opt-statistics"] = {"exp_avg,exp_avg_sq", "--average-opt-statistics"};
  EXPECT_THAT(strategy_settings_of(*resolve({}, {}, adam)).statistics,
              ::testing::ElementsAre("exp_avg", "exp_avg_sq"));
  adam.erase("average-opt-statistics");
  adam["amsgrad"] = {"true", "--amsgrad"};
  EXPECT_THAT(strategy_settings_of(*resolve({}, {}, adam)).statistics,
              ::testing::ElementsAre("max_exp_avg_sq"));
}
