#include "runtime/config/options.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/strategy.hpp"

using namespace waggle;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

settings flags(std::initializer_list<std::pair<const std::string, std::string>> values) {
  settings found;
  for (const auto& [name, value] : values)
    found[name] = {value, "--" + name};
  return found;
}

/// Why these flags are refused; empty if they are accepted.
std::string refusal(std::initializer_list<std::pair<const std::string, std::string>> values) {
  auto options = resolve({}, {}, flags(values));
  if (options)
    return {};
  EXPECT_EQ(options.error().code, ec::bad_config);
  EXPECT_EQ(options.error().detail.find('\n'), std::string::npos) << "more than one sentence";
  return options.error().detail;
}

} // namespace

TEST(OptionTable, NamesEveryOptionOnceAndSaysWhatItDoes) {
  std::set<std::string> names;
  for (const auto& spec : option_table()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " is there twice";
    EXPECT_TRUE(spec.help.ends_with(".")) << spec.name << " is not explained in a sentence";
    EXPECT_FALSE(spec.group.empty()) << spec.name;
    EXPECT_EQ(spec.name.find('_'), std::string::npos) << spec.name;
  }
}

TEST(OptionTable, AValueThatIsReadBackStaysTheSame) {
  settings documented;
  for (const auto& spec : option_table())
    if (!spec.default_text.empty())
      documented[spec.name] = {spec.default_text, "the table"};
  auto set = resolve({}, {}, documented);
  ASSERT_TRUE(set) << set.error().detail;
  for (const auto& spec : option_table())
    EXPECT_EQ(spec.get(*set), spec.default_text) << spec.name;
}

TEST(OptionTable, EveryOptionSetsItsOwnField) {
  // The options with a single valid value, or with a value that no other option may have.
  std::map<std::string, std::string> values{
    {"run-id", "birds"},
    {"strategy", "local-updates"},
    {"performance-ema-alpha", "0.25"},
    {"data-dir", "/d"},
    {"listen", "[::1]:5"},
    {"announce", "b:2"},
    {"initial-peers", "a:1,b:2"},
    {"identity", "/k.pem"},
    {"checkpoint", "/c.wgl"},
    {"data", "/text"},
    {"device", "cuda:3"},
    {"congestion", "bbr"},
    {"group-bits", "0110"},
    {"gather", "hello"},
    {"log-level", "warn"},
    {"log-format", "json"},
    {"model", "mlp"},
    {"optimizer", "sgd"},
    {"lr", "0.25"},
    {"schedule", "step:every=30,factor=0.5"},
    {"weight-decay", "0.25"},
    {"momentum", "0.25"},
    {"dampening", "0.25"},
    {"nesterov", "true"},
    {"beta1", "0.25"},
    {"beta2", "0.25"},
    {"epsilon", "0.25"},
    {"amsgrad", "true"},
    {"smoothing", "0.25"},
    {"centered", "true"},
    {"trust", "0.25"},
    {"no-decay", "vectors"},
    {"max-gradient-norm", "0.25"},
    {"min-compression-ratio", "0.25"},
    {"precision", "bfloat16"},
    {"loss-scale", "1024"},
    {"on-split", "pause"},
    {"groups", "moshpit"},
    {"aggregator", "krum"},
    {"check-sums", "0.25"},
    {"codec", "float16"},
    {"part-size", "8192"},
    {"weight", "0.25"},
    {"alpha", "0.25"},
    {"fault", "stop"},
  };
  for (const auto& spec : option_table()) {
    auto value = values.contains(spec.name)     ? values[spec.name]
                 : spec.value_name == "TIME"    ? "1234ms"
                 : spec.default_text == "true"  ? "false"
                 : spec.default_text == "false" ? "true"
                                                : "13";
    run_options options;
    auto before = options;
    if (spec.name == "json" || spec.name == "fault-at")
      continue; // they have no text
    ASSERT_TRUE(spec.set(options, value)) << spec.name;
    EXPECT_EQ(spec.get(options), value) << spec.name;
    for (const auto& other : option_table())
      if (other.name != spec.name) {
        EXPECT_EQ(other.get(options), other.get(before))
          << spec.name << " also sets " << other.name;
      }
  }
}

TEST(Resolve, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  settings file{{"lr", {"0.1", "run.toml:1"}},
                {"epochs", {"1", "run.toml:2"}},
                {"width", {"128", "run.toml:3"}}};
  settings environment{{"lr", {"0.2", "WAGGLE_LR"}}, {"epochs", {"2", "WAGGLE_EPOCHS"}}};
  auto options = resolve(file, environment, flags({{"lr", "0.3"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->lr, 0.3);
  EXPECT_EQ(options->epochs, 2U);
  EXPECT_EQ(options->width, 128U);
  EXPECT_EQ(options->layers, run_options{}.layers);
}

TEST(Resolve, RemembersWhatWasSetForTheJoinLine) {
  auto options = resolve({{"width", {"128", "run.toml:3"}}}, {}, flags({{"lr", "3e-4"}}));
  ASSERT_TRUE(options);
  EXPECT_EQ(options->given, (std::map<std::string, std::string>{{"lr", "3e-4"}, {"width", "128"}}));
}

TEST(Resolve, BlamesThePlaceThatIsWrong) {
  auto wrong = resolve({}, {{"lr", {"fast", "WAGGLE_LR"}}}, {});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().detail, "WAGGLE_LR: 'fast' is no finite number");
  wrong = resolve({{"lr", {"fast", "run.toml:7"}}}, {}, {});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().detail, HasSubstr("run.toml:7"));
}

TEST(Resolve, AWrongValueThatIsOverruledDoesNotMatter) {
  EXPECT_TRUE(resolve({{"lr", {"fast", "run.toml:7"}}}, {}, flags({{"lr", "1"}})));
}

TEST(Resolve, ReadsWhatIsTyped) {
  auto options = resolve({}, {},
                         flags({{"listen", "[::1]:0"},
                                {"announce", "example.org:7701"},
                                {"initial-peers", "a:1,b:2"},
                                {"part-size", "1MiB"},
                                {"duration", "90s"},
                                {"identity", "/k.pem"},
                                {"json", "out.json"},
                                {"device", "cuda:3"},
                                {"reuse-group", "false"}}));
  ASSERT_TRUE(options) << options.error().detail;
  EXPECT_EQ(options->listen, (endpoint{"::1", 0}));
  EXPECT_EQ(options->announce, (endpoint{"example.org", 7701}));
  EXPECT_EQ(options->initial_peers.size(), 2U);
  EXPECT_EQ(options->part_bytes, std::uint64_t{1} << 20U);
  EXPECT_EQ(options->duration, 90s);
  EXPECT_EQ(options->identity, std::filesystem::path{"/k.pem"});
  EXPECT_TRUE(options->json);
  EXPECT_EQ(options->json_file, std::filesystem::path{"out.json"});
  EXPECT_FALSE(options->reuse_group);
}

TEST(Resolve, AutomaticPartsCanBeAskedForOverAFixedSize) {
  auto options = resolve({{"part-size", {"128KiB", "run.toml:1"}}}, {}, {});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->part_bytes, std::uint64_t{128} << 10U);
  options = resolve({{"part-size", {"128KiB", "run.toml:1"}}}, {}, flags({{"part-size", "auto"}}));
  ASSERT_TRUE(options);
  EXPECT_FALSE(options->part_bytes);
}

TEST(Resolve, RefusesValuesOutOfBoundsWithTheReason) {
  EXPECT_THAT(refusal({{"target-batch-size", "0"}}), HasSubstr("at least one sample"));
  EXPECT_THAT(refusal({{"part-size", "1KiB"}}), HasSubstr("header"));
  EXPECT_THAT(refusal({{"part-size", "32MiB"}}), HasSubstr("frame"));
  EXPECT_THAT(refusal({{"target-group-size", "65"}}), HasSubstr("64 members"));
  EXPECT_THAT(refusal({{"target-group-size", "1"}}), HasSubstr("a group of 1"));
  EXPECT_THAT(refusal({{"stall-timeout", "1ms"}}), HasSubstr("50ms"));
  EXPECT_THAT(refusal({{"peers", "1000"}}), HasSubstr("one machine"));
  EXPECT_THAT(refusal({{"elements", "0"}}), HasSubstr("between 1 and"));
}

TEST(Resolve, RefusesRealNumbersOutOfBoundsWithTheReasonOfThatSide) {
  EXPECT_EQ(refusal({{"lr", "-1"}}), "--lr: '-1' must lie between 0 and 1000000: a negative rate "
                                     "would climb the loss");
  EXPECT_EQ(refusal({{"lr", "1e9"}}), "--lr: '1e9' must lie between 0 and 1000000: every optimizer "
                                      "diverges with a larger one");
  EXPECT_THAT(refusal({{"weight-decay", "-1"}}), HasSubstr("grow without end"));
  EXPECT_THAT(refusal({{"weight-decay", "1e9"}}), HasSubstr("erase"));
  EXPECT_THAT(refusal({{"momentum", "1"}, {"optimizer", "sgd"}}),
              HasSubstr("in [0, 1): from 1 on"));
  EXPECT_THAT(refusal({{"momentum", "-0.1"}}), HasSubstr("in [0, 1): a negative"));
  EXPECT_THAT(refusal({{"beta2", "1"}}), HasSubstr("in [0, 1): from 1 on"));
  EXPECT_THAT(refusal({{"epsilon", "0"}}), HasSubstr("between 1e-37 and 1: a step would divide"));
  EXPECT_THAT(refusal({{"epsilon", "1e-60"}}), HasSubstr("rounds smaller numbers to 0"));
  EXPECT_EQ(refusal({{"epsilon", "1e-37"}}), "");
  EXPECT_THAT(refusal({{"amsgrad", "0.5"}}), HasSubstr("true"));
  EXPECT_EQ(refusal({{"momentum", "0.9999999"}, {"optimizer", "sgd"}}), "");
  EXPECT_THAT(refusal({{"weight", "-0.5"}}), HasSubstr("between 0 and 1e+30: contributions"));
  EXPECT_THAT(refusal({{"weight", "1e31"}}), HasSubstr("overflow"));
  EXPECT_THAT(refusal({{"alpha", "1e7"}}), HasSubstr("between -1000000 and 1000000"));
}

TEST(Resolve, NoOptionTakesWhatIsNoFiniteNumber) {
  for (const char* name :
       {"lr", "weight-decay", "momentum", "epsilon", "max-gradient-norm", "weight", "alpha"})
    for (const char* text : {"nan", "-nan", "inf", "-inf", "infinity", ""})
      EXPECT_THAT(refusal({{name, text}}), HasSubstr("is no finite number")) << name << " " << text;
}

TEST(Resolve, NumbersThatADoubleCannotHoldAreRefusedAsSuch) {
  EXPECT_THAT(refusal({{"lr", "1e999"}}), HasSubstr("is too large, or too close to 0"));
  EXPECT_THAT(refusal({{"lr", "1e-999"}}), HasSubstr("is too large, or too close to 0"));
}

TEST(Threads, MoreThanCoresAreReportedWithTheRemedy) {
  run_options o;
  EXPECT_EQ(too_many_threads(o, 1, 1), std::nullopt);
  EXPECT_EQ(too_many_threads(o, 4, 4), std::nullopt);
  EXPECT_EQ(too_many_threads(o, 4, 0), std::nullopt) << "the number of cores is not known";
  o.threads = 8;
  EXPECT_THAT(*too_many_threads(o, 1, 2), HasSubstr("--threads 8 on 2 cores"));
  EXPECT_THAT(*too_many_threads(o, 1, 2), ::testing::EndsWith("use --threads 2"));
  EXPECT_EQ(too_many_threads(o, 2, 16), std::nullopt);
  EXPECT_THAT(*too_many_threads(o, 3, 16),
              HasSubstr("3 peers with 8 compute threads each on 16 cores"));
  EXPECT_THAT(*too_many_threads(o, 3, 16), ::testing::EndsWith("use --threads 5"));
  EXPECT_THAT(*too_many_threads(o, 3, 2), ::testing::EndsWith("use --threads 1 and --peers 2"));
  o.threads = 1;
  EXPECT_THAT(*too_many_threads(o, 3, 2),
              HasSubstr("3 peers with 1 compute thread each on 2 cores"));
  EXPECT_THAT(*too_many_threads(o, 3, 2), ::testing::EndsWith("use --peers 2"));
}

TEST(Threads, CoresThatNothingElseNeedsReduceLargeParts) {
  run_options o;
  EXPECT_EQ(part_workers(o, 1, 2), 0U);
  EXPECT_EQ(part_workers(o, 1, 3), 0U);
  EXPECT_EQ(part_workers(o, 1, 4), 1U);
  EXPECT_EQ(part_workers(o, 0, 4), 2U) << "waggle average computes nothing else";
  EXPECT_EQ(part_workers(o, 4, 64), 8U);
  EXPECT_EQ(part_workers(o, 0, 0), 0U) << "the number of cores is not known";
  EXPECT_EQ(part_workers(*resolve({}, {}, flags({{"reduce-threads", "3"}})), 1, 2), 3U);
  EXPECT_EQ(part_workers(*resolve({}, {}, flags({{"reduce-threads", "auto"}})), 1, 4), 1U);
}

TEST(Resolve, RefusesUnknownNamesWithTheNearest) {
  EXPECT_THAT(refusal({{"model", "chargpt"}}), HasSubstr("the nearest is char-gpt"));
  EXPECT_THAT(refusal({{"optimizer", "adamx"}}), HasSubstr("adam"));
  EXPECT_THAT(refusal({{"codec", "float6"}}), HasSubstr("the nearest is float16"));
  EXPECT_THAT(refusal({{"log-level", "warning"}}), HasSubstr("the nearest is warn"));
  EXPECT_THAT(refusal({{"schedule", "cosin"}}), HasSubstr("the nearest is cosine"));
  EXPECT_THAT(refusal({{"device", "gpu"}}), HasSubstr("cuda:N"));
  EXPECT_THAT(refusal({{"device", "cuda:x"}}), HasSubstr("cuda:N"));
}

TEST(Resolve, RefusesRunIdsThatCannotBePartOfAKey) {
  for (const char* name : {"", "a b", "a.b", "a/b", "a'b", "a;b", "a$b"})
    EXPECT_THAT(refusal({{"run-id", name}}), HasSubstr("DHT")) << name;
  EXPECT_THAT(refusal({{"run-id", std::string(65, 'a')}}), HasSubstr("1 to 64"));
  EXPECT_EQ(refusal({{"run-id", std::string(64, 'a')}}), "");
  EXPECT_EQ(refusal({{"run-id", "My-run_2"}}), "");
}

TEST(Resolve, RefusesEmptyPaths) {
  EXPECT_THAT(refusal({{"data-dir", ""}}), HasSubstr("folder"));
  EXPECT_THAT(refusal({{"identity", ""}}), HasSubstr("file"));
  EXPECT_THAT(refusal({{"data", ""}}), HasSubstr("empty"));
}

TEST(Combinations, ThatCannotWorkAreRefusedWithWhatToChange) {
  EXPECT_THAT(refusal({{"client-mode", "true"}}), HasSubstr("--initial-peers"));
  EXPECT_THAT(refusal({{"client-mode", "true"}, {"initial-peers", "a:1"}, {"announce", "b:2"}}),
              HasSubstr("--announce"));
  EXPECT_THAT(refusal({{"micro-batch", "64"}, {"target-batch-size", "32"}}),
              HasSubstr("--target-batch-size 32"));
  EXPECT_THAT(refusal({{"min-group-size", "5"}, {"target-group-size", "4"}}),
              HasSubstr("--target-group-size"));
  EXPECT_THAT(refusal({{"min-contributors", "5"}, {"target-group-size", "4"}}),
              HasSubstr("--min-contributors"));
  EXPECT_THAT(refusal({{"expected-peers", "5"}, {"target-group-size", "4"}}),
              HasSubstr("--expected-peers"));
  EXPECT_THAT(refusal({{"matchmaking-time", "60s"}, {"averaging-timeout", "60s"}}),
              HasSubstr("--averaging-timeout"));
  EXPECT_THAT(refusal({{"width", "30"}, {"heads", "4"}}),
              HasSubstr("--heads 4 must divide --width 30"));
  EXPECT_THAT(refusal({{"schedule", "warmup-cosine"}}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({{"epochs", "3"}, {"warmup-epochs", "4"}}), HasSubstr("--warmup-epochs"));
  EXPECT_THAT(refusal({{"schedule", "linear:epochs=5/cosine"}}), HasSubstr("--epochs"));
  EXPECT_EQ(refusal({{"momentum", "0.9"}}),
            "--momentum belongs to --optimizer sgd (0), sgdw (0), rmsprop (0), lars (0.9) and muon "
            "(0.95); adamw does not use it");
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

TEST(Combinations, AnAuxiliaryIsNoClient) {
  EXPECT_THAT(
    refusal({{"client-mode", "true"}, {"initial-peers", "a:1"}, {"auxiliary", "true"}}),
    AllOf(HasSubstr("--client-mode and --auxiliary exclude each other"), HasSubstr("reach it")));
  EXPECT_EQ(refusal({{"initial-peers", "a:1"}, {"auxiliary", "true"}}), "");
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
  EXPECT_THAT(refusal({{"allreduce-timeout", "2m"}}), HasSubstr("--averaging-timeout"));
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
  EXPECT_EQ(refusal({{"strategy", "local-updates"},
                     {"delay-state-averaging", "false"},
                     {"average-opt-statistics", "exp_avg_sq"},
                     {"max-epoch-difference", "3"}}),
            "");
}

TEST(Options, PlateauNeedsTheLossOfTheSwarm) {
  for (const auto& row : strategy_table()) {
    std::string name{row.name};
    auto optimizer = row.optimizer.empty() ? std::string{"adamw"} : std::string{row.optimizer};
    auto said =
      refusal({{"strategy", name}, {"schedule", "plateau:patience=3"}, {"optimizer", optimizer}});
    if (row.averages_parameters)
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
  EXPECT_THAT(
    refusal({{"groups", "moshpit"}, {"strategy", "local-updates"}, {"auxiliary", "true"}}),
    HasSubstr("--auxiliary and --groups moshpit"));
  EXPECT_THAT(
    refusal({{"groups", "moshpit"}, {"strategy", "local-updates"}, {"max-epoch-difference", "0"}}),
    HasSubstr("--max-epoch-difference 1 or more"));
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

TEST(Environment, GivesOnlyWhatTheCommandTakes) {
  std::map<std::string, std::string> variables{
    {"WAGGLE_TARGET_BATCH_SIZE", "7"}, {"WAGGLE_LR", "1"}, {"WAGGLE_SEED", ""}};
  auto look_up = [&](const char* name) {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  auto found = from_environment({"target-batch-size", "seed", "run-id"}, look_up);
  ASSERT_EQ(found.size(), 1U) << "an empty variable counts as none";
  EXPECT_EQ(found["target-batch-size"].value, "7");
  EXPECT_EQ(found["target-batch-size"].source, "WAGGLE_TARGET_BATCH_SIZE");
}

TEST(Environment, InitialPeersNeedNoPrefixButPreferIt) {
  std::map<std::string, std::string> variables{{"INITIAL_PEERS", "a:1"}};
  auto look_up = [&](const char* name) {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  auto found = from_environment({"initial-peers"}, look_up);
  EXPECT_EQ(found["initial-peers"].value, "a:1");
  EXPECT_EQ(found["initial-peers"].source, "INITIAL_PEERS");
  variables["PL_INITIAL_PEERS"] = "c:3"; // the name of Lightning's strategy
  EXPECT_EQ(from_environment({"initial-peers"}, look_up)["initial-peers"].value, "a:1");
  variables.erase("INITIAL_PEERS");
  found = from_environment({"initial-peers"}, look_up);
  EXPECT_EQ(found["initial-peers"].value, "c:3");
  EXPECT_EQ(found["initial-peers"].source, "PL_INITIAL_PEERS");
  variables["WAGGLE_INITIAL_PEERS"] = "b:2";
  EXPECT_EQ(from_environment({"initial-peers"}, look_up)["initial-peers"].value, "b:2");
  EXPECT_TRUE(from_environment({"lr"}, look_up).empty());
}

TEST(Environment, AnUnknownVariableIsReportedWithTheNearest) {
  const char* wrong[] = {"HOME=/root", "WAGGLE_INITAL_PEERS=a:1", "WAGGLE_", nullptr};
  EXPECT_THAT(unknown_variables(wrong),
              ElementsAre(HasSubstr("WAGGLE_INITAL_PEERS, which is ignored; the nearest is "
                                    "WAGGLE_INITIAL_PEERS"),
                          HasSubstr("the nearest is")));
  const char* right[] = {"HOME=/root", "WAGGLE_INITIAL_PEERS=a:1", "WAGGLE_CONFIG=run.toml",
                         "INITIAL_PEERS=", nullptr};
  EXPECT_THAT(unknown_variables(right), IsEmpty());
  EXPECT_THAT(unknown_variables(nullptr), IsEmpty());
}

TEST(Environment, VariablesOfKubernetesAreReportedTogetherWithoutAGuess) {
  const char* variables[] = {"WAGGLE_SERVICE_HOST=10.0.0.1",
                             "WAGGLE_SERVICE_PORT=7700",
                             "WAGGLE_SERVICE_PORT_HTTP=7700",
                             "WAGGLE_PORT=tcp://10.0.0.1:7700",
                             "WAGGLE_PORT_7700_TCP=tcp://10.0.0.1:7700",
                             "WAGGLE_PORT_7700_TCP_ADDR=10.0.0.1",
                             "WAGGLE_METRICS_PORT_53_UDP_PROTO=udp",
                             nullptr};
  auto warnings = unknown_variables(variables);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("WAGGLE_SERVICE_HOST, WAGGLE_SERVICE_PORT, "));
  EXPECT_THAT(warnings[0], HasSubstr("WAGGLE_METRICS_PORT_53_UDP_PROTO"));
  EXPECT_THAT(warnings[0], HasSubstr("Kubernetes"));
  EXPECT_THAT(warnings[0], ::testing::Not(HasSubstr("nearest")));
}

TEST(Environment, OnlyWhatKubernetesSetsLooksLikeIt) {
  const char* variables[] = {"WAGGLE_PORT_RANGE=1", "WAGGLE_PORTS=1", "WAGGLE_PORT_TCP=1", nullptr};
  auto warnings = unknown_variables(variables);
  EXPECT_EQ(warnings.size(), 3U);
  for (const auto& sentence : warnings)
    EXPECT_THAT(sentence, HasSubstr("the nearest is"));
}

TEST(Environment, NamesThatComeFromOutsideAreShortAndPrintable) {
  auto name = "WAGGLE_\x1b[2J" + std::string(1000, 'X') + "=1";
  const char* variables[] = {name.c_str(), nullptr};
  auto warnings = unknown_variables(variables);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("WAGGLE_?[2JXXX"));
  EXPECT_LT(warnings[0].size(), 200U);
}

TEST(Optimizer, NumbersThatAreNotSetAreTheDefaultsOfTheOptimizer) {
  auto of = [](std::initializer_list<std::pair<const std::string, std::string>> values) {
    auto options = resolve({}, {}, flags(values));
    EXPECT_TRUE(options) << options.error().detail;
    return optimizer_of(*options);
  };
  EXPECT_EQ(of({}).beta2, 0.999);
  EXPECT_EQ(of({{"optimizer", "lion"}}).beta2, 0.99);
  EXPECT_EQ(of({{"optimizer", "muon"}}).momentum, 0.95);
  EXPECT_TRUE(of({{"optimizer", "muon"}}).nesterov);
  EXPECT_FALSE(of({{"optimizer", "muon"}, {"nesterov", "no"}}).nesterov);
  EXPECT_EQ(of({{"optimizer", "lion"}, {"beta2", "0.5"}}).beta2, 0.5);
  EXPECT_FALSE(of({{"weight-decay", "0.1"}, {"no-decay", "vectors"}}).decay_vectors);
}

TEST(Optimizer, EveryHyperParameterIsUsedAndExplained) {
  for (const auto& hyper : hyper_parameters()) {
    EXPECT_FALSE(users_of(hyper).empty()) << hyper.name;
    EXPECT_NE(find_option(hyper.name), nullptr) << hyper.name;
    EXPECT_NE(hyper.number == nullptr, hyper.flag == nullptr) << hyper.name;
  }
  for (const auto& row : optimizer_table())
    for (const auto& taken : row.takes) {
      auto known = std::any_of(hyper_parameters().begin(), hyper_parameters().end(),
                               [&](const auto& hyper) { return hyper.name == taken.name; });
      EXPECT_TRUE(known) << row.name << " takes " << taken.name;
    }
}
