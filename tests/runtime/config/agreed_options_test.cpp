#include "runtime/config/agreed_options.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Pair;

using values = std::map<std::string, std::string>;

run_options options_with(const values& given) {
  settings flags;
  for (const auto& [name, value] : given)
    flags[name] = {value, "--" + name};
  auto options = resolve({}, {}, flags);
  EXPECT_TRUE(options) << options.error().detail;
  return options ? *options : run_options{};
}

run_agreement training(const values& given) {
  auto agreement = training_agreement(options_with(given), 2);
  EXPECT_TRUE(agreement) << agreement.error().detail;
  return agreement ? *agreement : run_agreement{};
}

run_agreement averaging(const values& given) {
  auto agreement = averaging_agreement(options_with(given), 2);
  EXPECT_TRUE(agreement) << agreement.error().detail;
  return agreement ? *agreement : run_agreement{};
}

std::string difference(const values& here, const values& there) {
  return disagreement(training(here), training(there)).value_or("");
}

/// "name=value" of each field, one per line.
std::string text_of(const run_agreement& agreement) {
  std::string all;
  for (const auto& field : agreement.fields())
    all += field.name + "=" + field.value + "\n";
  return all;
}

// Another default, or another spelling of one, keeps peers of two versions apart.
TEST(AgreedOptions, TheDefaultsOfARunAreThese) {
  const std::string averages = "codec=none\n"
                               "group-bits=0 bits\n"
                               "aggregator=mean\n"
                               "faulty-max=0\n"
                               "check-sums=0.125\n"
                               "trust-members=false\n"
                               "min-vector-size=0\n"
                               "part-size=auto\n"
                               "target-group-size=64\n"
                               "min-contributors=1\n";
  EXPECT_EQ(text_of(training({})), "protocol=2\n"
                                   "strategy=collaborative\n"
                                   "delay-grad-averaging=false\n"
                                   "low-rank=0\n"
                                   "min-compression-ratio=0.5\n"
                                   "delay-state-averaging=true\n"
                                   "average-state-every=1\n"
                                   "averaging-steps-period=10\n"
                                   "averaging-time-period=0\n"
                                   "total-steps-in-epoch=0\n"
                                   "average-opt-statistics=none\n"
                                   "average-gradients=false\n"
                                   "groups=one\n"
                                   "target-batch-size=256\n"
                                   "epochs=0\n"
                                   "passes=0\n"
                                   "layers=2\n"
                                   "width=64\n"
                                   "heads=4\n"
                                   "context=64\n"
                                   "optimizer=adamw\n"
                                   "lr=0.003\n"
                                   "schedule=constant\n"
                                   "warmup-epochs=0\n"
                                   "schedule-unit=rounds\n"
                                   "weight-decay=0\n"
                                   "no-decay=none\n"
                                   "max-gradient-norm=0\n"
                                   "momentum=0\n"
                                   "dampening=0\n"
                                   "nesterov=false\n"
                                   "beta1=0.9\n"
                                   "beta2=0.999\n"
                                   "epsilon=1e-08\n"
                                   "amsgrad=false\n"
                                   "smoothing=0.99\n"
                                   "centered=false\n"
                                   "trust=0.001\n"
                                   "model=char-gpt\n"
                                   "loss=cross-entropy\n"
                                   "data=synthetic\n"
                                   "token-type=uint16\n"
                                   "classes=0\n"
                                     + averages);
  EXPECT_EQ(text_of(averaging({})),
            "protocol=2\nstrategy=average\n" + averages + "elements=1048576\n");
}

TEST(AgreedOptions, EachThatShapesTheTrainingIsCompared) {
  const std::vector<values> others = {
    {{"strategy", "local-updates"}},
    {{"delay-grad-averaging", "true"}},
    {{"low-rank", "4"}},
    {{"low-rank", "4"}, {"min-compression-ratio", "0.25"}},
    {{"target-batch-size", "512"}},
    {{"epochs", "7"}},
    {{"passes", "7"}},
    {{"model", "mlp"}},
    {{"layers", "3"}},
    {{"width", "128"}},
    {{"heads", "2"}},
    {{"context", "65"}},
    {{"loss", "mse"}},
    {{"token-type", "uint32"}},
    {{"classes", "10"}},
    {{"optimizer", "adam"}},
    {{"lr", "0.0030000001"}}, // beyond six decimals
    {{"weight-decay", "0.1"}},
    {{"beta1", "0.8"}},
    {{"amsgrad", "true"}},
    {{"max-gradient-norm", "1"}},
    {{"schedule", "step:every=30"}},
    {{"codec", "float16"}},
    {{"aggregator", "median"}},
    {{"min-contributors", "2"}},
    {{"target-group-size", "8"}},
    {{"min-vector-size", "9"}},
    {{"group-bits", "auto"}},
    {{"group-bits", "01"}},
    {{"part-size", "64KiB"}},
  };
  for (const auto& other : others) {
    const auto& name = other.begin()->first;
    EXPECT_THAT(difference({}, other), HasSubstr(name + " is ")) << name;
  }
  EXPECT_THAT(difference({{"aggregator", "krum"}, {"faulty-max", "1"}},
                         {{"aggregator", "krum"}, {"faulty-max", "2"}}),
              HasSubstr("faulty-max is 1 here and 2 there"));
  EXPECT_THAT(difference({{"epochs", "9"}}, {{"epochs", "9"}, {"schedule", "warmup-cosine"}}),
              HasSubstr("schedule is constant here and warmup-cosine there"));
  EXPECT_THAT(difference({{"epochs", "9"}}, {{"epochs", "9"}, {"warmup-epochs", "3"}}),
              HasSubstr("warmup-epochs is 0 here and 3 there"));
  EXPECT_THAT(difference({{"optimizer", "sgd"}}, {{"optimizer", "sgd"}, {"momentum", "0.9"}}),
              HasSubstr("momentum is 0 here and 0.9 there"));
}

TEST(AgreedOptions, EachThatOneStrategyUsesIsComparedBetweenItsPeers) {
  const values averages{{"strategy", "local-updates"}};
  const values counts{{"strategy", "decentralized"}};
  struct pair {
    const values& both;
    const char* name;
    const char* here; // the default
    const char* there;
  };
  for (auto [both, name, here, there] :
       {pair{averages, "average-opt-statistics", "none", "exp_avg"},
        pair{averages, "delay-state-averaging", "true", "false"},
        pair{averages, "average-gradients", "false", "true"},
        pair{averages, "groups", "one", "moshpit"}, pair{averages, "average-state-every", "1", "3"},
        pair{counts, "total-steps-in-epoch", "0", "5000"},
        pair{counts, "averaging-steps-period", "10", "20"},
        pair{counts, "averaging-time-period", "0", "7s"}}) {
    auto other = both;
    other[name] = there;
    auto said = difference(both, other);
    EXPECT_THAT(said,
                HasSubstr(std::string{name} + " is " + here + " here and " + there + " there"));
  }
  EXPECT_THAT(difference({{"strategy", "local-updates"}, {"average-opt-statistics", "exp_avg"}},
                         {{"strategy", "local-updates"}, {"average-opt-statistics", "exp_avg_sq"}}),
              HasSubstr("average-opt-statistics is exp_avg here and exp_avg_sq there"));
}

TEST(AgreedOptions, WhatIsAPeersOwnIsNotCompared) {
  values own{{"listen", "127.0.0.1:0"},
             {"bandwidth", "1MiB"},
             {"micro-batch", "4"},
             {"device", "cpu"},
             {"precision", "bfloat16"},
             {"loss-scale", "dynamic"},
             {"reuse-grad-buffers", "true"},
             {"threads", "3"},
             {"replicas", "2"},
             {"from", "run.wgl"},
             {"step-interval", "1s"},
             {"averaging-timeout", "9s"},
             {"matchmaking-time", "1s"},
             {"stall-timeout", "2s"},
             {"error-feedback", "true"},
             {"shared-memory", "false"},
             {"seed", "4"},
             {"resume", "false"},
             {"log-level", "debug"}};
  values reducer{{"auxiliary", "true"}}; // has no micro-batch
  for (const auto& set : {own, reducer}) {
    EXPECT_EQ(difference({}, set), "");
    EXPECT_FALSE(sets_agreed(options_with(set)));
  }
  EXPECT_TRUE(sets_agreed(options_with({{"lr", "0.1"}})));
}

TEST(AgreedOptions, AValueHasOneSpelling) {
  EXPECT_EQ(difference({{"lr", "3e-3"}}, {{"lr", "0.00300"}}), "");
  EXPECT_EQ(
    difference({{"schedule", "step:every=30"}}, {{"schedule", "step:factor=0.10,every=3e1"}}), "");
  EXPECT_EQ(difference({{"schedule", "plateau"}}, {{"schedule", "plateau:patience=10,eps=1e-8"}}),
            "");
  EXPECT_THAT(difference({{"schedule", "plateau"}}, {{"schedule", "plateau:patience=9"}}),
              HasSubstr("patience=10"));
  EXPECT_EQ(
    difference({{"epochs", "20"}, {"warmup-epochs", "5"}, {"schedule", "cosine"}},
               {{"epochs", "20"}, {"warmup-epochs", "5"}, {"schedule", "cosine:epochs=15"}}),
    "");
  EXPECT_EQ(difference({{"beta1", "0.9"}}, {{"beta1", "auto"}}), "");
  EXPECT_EQ(difference({{"part-size", "64KiB"}}, {{"part-size", "65536"}}), "");
  EXPECT_EQ(difference({{"group-bits", "01"}}, {{"group-bits", "10"}}), "")
    << "each peer chooses its first bucket itself";
}

TEST(AgreedOptions, OfADataSetTheFilesCountAndNotTheirPath) {
  testing::scratch_folder scratch;
  const auto& folder = scratch.path();
  for (const char* name : {"a", "b", "c"}) {
    std::filesystem::create_directory(folder / name);
    std::ofstream{folder / name / "text"} << std::string(*name == 'c' ? 300 : 200, 'x');
  }
  auto at = [&](const char* name) { return values{{"data", (folder / name).string()}}; };
  EXPECT_EQ(difference(at("a"), at("b")), "");
  EXPECT_THAT(difference(at("a"), at("c")),
              HasSubstr("data is text of 200 bytes here and text of 300 bytes there"));
  EXPECT_THAT(difference(at("a"), {}), HasSubstr("and synthetic there"));
  // A peer without the data knows the path that others are sent, and leaves the rest of the
  // identity to them.
  EXPECT_EQ(difference(at("none"), at("a")), "");
  EXPECT_THAT(options_of(training(at("none"))),
              ElementsAre(Pair("data", (folder / "none").string())));
}

TEST(AgreedOptions, LeadBackToTheCommandLineWithoutDefaultsAndWithoutAPeersOwn) {
  EXPECT_THAT(options_of(training({})), IsEmpty());
  EXPECT_THAT(options_of(training({{"lr", "3e-3"}, {"width", "64"}, {"micro-batch", "2"}})),
              IsEmpty());
  auto some =
    training({{"lr", "1e-4"}, {"codec", "float16"}, {"part-size", "1MiB"}, {"bandwidth", "1MiB"}});
  EXPECT_THAT(options_of(some),
              ElementsAre(Pair("lr", "1e-4"), Pair("codec", "float16"), Pair("part-size", "1MiB")));
  EXPECT_EQ(options_of(training({{"optimizer", "muon"}, {"schedule", "step:every=9"}})),
            (std::vector<std::pair<std::string, std::string>>{{"optimizer", "muon"},
                                                              {"schedule", "step:every=9"},
                                                              {"momentum", "0.95"},
                                                              {"nesterov", "true"}}));
  values again;
  for (const auto& [name, value] : options_of(some))
    again[name] = value;
  EXPECT_EQ(training(again), some);
}

// A strategy may have defaults of its own, which what everybody else has by default changes.
TEST(AgreedOptions, LeadBackToTheCommandLineOfAStrategyWithItsOwnDefaults) {
  for (const auto& given :
       {values{{"strategy", "decentralized-sgd"}},
        values{{"strategy", "decentralized-sgd"}, {"lr", "0.003"}},
        values{{"strategy", "decentralized-sgd"}, {"lr", "0.1"}},
        values{{"strategy", "daso"}, {"codec", "none"}}, values{{"strategy", "daso"}}}) {
    auto run = training(given);
    values joins;
    for (const auto& [name, value] : options_of(run))
      joins[name] = value;
    EXPECT_EQ(disagreement(training(joins), run).value_or(""), "");
  }
}

TEST(AgreedOptions, WhatAPeerMadeUpReachesNoCommandLine) {
  run_agreement made_up;
  for (auto field : {agreed_field{"lr", "1", "fast"},
                     {"identity", "x", "x"},
                     {"nothing", "x", "x"},
                     {"epochs", "3", "3"}})
    ASSERT_TRUE(made_up.add(field));
  EXPECT_THAT(options_of(made_up), ElementsAre(Pair("epochs", "3")));
}

TEST(AgreedOptions, TrainersAndAveragersDoNotLink) {
  auto why = disagreement(training({}), averaging({}));
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, HasSubstr("strategy is collaborative here and average there"));
  EXPECT_THAT(disagreement(averaging({}), averaging({{"elements", "9"}})).value_or(""),
              HasSubstr("elements is 1048576 here and 9 there"));
  EXPECT_FALSE(disagreement(averaging({}), averaging({{"weight", "9"}, {"lr", "9"}})));
}

TEST(AgreedOptions, ThoseThatAreTooLongToSendAreRefusedAtTheStart) {
  run_options options;
  options.data = std::string(5'000, 'd');
  options.given["data"] = options.data;
  auto agreement = training_agreement(options, 2);
  EXPECT_EQ(agreement.error().code, ec::bad_config);
  EXPECT_THAT(agreement.error().detail, HasSubstr("--data"));
}

TEST(Resolve, ADefaultMicroBatchFitsTheTarget) {
  EXPECT_EQ(options_with({{"target-batch-size", "4"}}).micro_batch, 4U);
  EXPECT_EQ(options_with({{"target-batch-size", "400"}}).micro_batch, run_options{}.micro_batch);
}

} // namespace
} // namespace waggle
