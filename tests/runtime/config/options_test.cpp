#include "runtime/config/options.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/runtime/config/flags.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace waggle;
using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty,
  ::testing::StartsWith;

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
  for (const auto& spec : option_table())
    EXPECT_EQ(spec.get(*set), spec.name == "data-dir"
                                ? (std::filesystem::current_path() / spec.default_text).string()
                                : spec.default_text)
      << spec.name;
}

TEST(OptionTable, PathsStayThoseOfTheFolderInWhichTheyWereGiven) {
  const std::map<std::string, std::string> files{
    {"data-dir", "peer"}, {"identity", "key.pem"}, {"data", "text"},    {"eval-data", "other"},
    {"from", "c.wgl"},    {"json", "e.json"},      {"model", "net.pt"}, {"swarm-key", "birds.key"},
    {"key", "auth.pem"},  {"members-list", "list"}};
  auto here = std::filesystem::current_path();
  for (const auto& [name, file] : files) {
    run_options set;
    ASSERT_TRUE(find_option(name)->set(set, file)) << name;
    auto text = name == "json" ? set.json_file->string() : find_option(name)->get(set);
    EXPECT_EQ(text, (here / file).string()) << name;
  }
  run_options several;
  for (const char* data : {"data", "eval-data"})
    ASSERT_TRUE(find_option(data)->set(several, "a.txt,more/*.txt"));
  EXPECT_EQ(several.data, (here / "a.txt").string() + "," + (here / "more/*.txt").string());
  EXPECT_EQ(several.eval_data, several.data);
  for (const char* word : {"data", "model"}) { // those that are no paths
    run_options set;
    auto text = find_option(word)->default_text;
    ASSERT_TRUE(find_option(word)->set(set, text));
    EXPECT_EQ(find_option(word)->get(set), text);
  }
  EXPECT_EQ(resolve({}, {}, {})->data_dir, here / ".waggle");
}

TEST(OptionTable, PatternsAreNotRelativeToAFolderWithAComma) {
  waggle::testing::scratch_folder scratch;
  auto here = std::filesystem::current_path();
  std::filesystem::create_directories(scratch.path() / "a,b" / "text");
  std::filesystem::current_path(scratch.path() / "a,b");
  run_options set;
  auto pattern = find_option("data")->set(set, "*.txt");
  auto folder = find_option("eval-data")->set(set, "text");
  std::filesystem::current_path(here);
  EXPECT_THAT(pattern.error().detail, HasSubstr("folder with a comma"));
  EXPECT_TRUE(folder);
  EXPECT_EQ(set.eval_data, (scratch.path() / "a,b/text").string());
}

TEST(OptionTable, EveryOptionSetsItsOwnField) {
  // The options with a single valid value, or with a value that no other option may have.
  std::map<std::string, std::string> values{
    {"run-id", "birds"},
    {"strategy", "local-updates"},
    {"performance-ema-alpha", "0.25"},
    {"data-dir", "/d"},
    {"event-log", "1048576"},
    {"listen", "[::1]:5"},
    {"announce", "b:2"},
    {"initial-peers", "a:1,b:2"},
    {"identity", "/k.pem"},
    {"swarm-key", "/b.key"},
    {"encrypt", "never"},
    {"port-mapping", "off"},
    {"members", std::string(64, 'a')},
    {"members-list", "/members.list"},
    {"key", "/auth.pem"},
    {"until", "2027-01-31"},
    {"data", "/text"},
    {"eval-data", "/other"},
    {"from", "/d.wgl"},
    {"device", "cuda:3"},
    {"devices", "cuda:0,cuda:1"},
    {"congestion", "bbr"},
    {"group-bits", "0110"},
    {"gather", "hello"},
    {"log-level", "warn"},
    {"log-format", "json"},
    {"pages", "local"},
    {"model", "mlp"},
    {"loss", "mse"},
    {"token-type", "uint32"},
    {"format", "torchscript"},
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
    {"curve", "eval_loss"},
    {"link", "13mbit,7ms"},
    {"only", "problems"},
    {"schedule-unit", "rounds"},
    {"since", "02:00"},
    {"notice-url", "http://cloud/notice"},
    {"instead-of", std::string(64, 'a')},
    {"fingerprint", "FD:B8:EB:66:89:94:6C:2A:23:47:D3:F8:6A:6C:DA:70:"
                    "F2:70:4E:DA:55:13:C4:82:5E:BC:6B:88:3C:98:57:97"},
  };
  for (const auto& spec : option_table()) {
    auto value = values.contains(spec.name)     ? values[spec.name]
                 : spec.value_name == "TIME"    ? "1234ms"
                 : spec.default_text == "true"  ? "false"
                 : spec.default_text == "false" ? "true"
                                                : "13";
    run_options options;
    auto before = options;
    if (spec.name == "json")
      continue; // it has no text
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
  EXPECT_EQ(options->lr, 0.3);
  EXPECT_EQ(options->epochs, 2U);
  EXPECT_EQ(options->width, 128U);
  EXPECT_EQ(options->layers, run_options{}.layers);
}

TEST(Resolve, RemembersWhatWasSetForTheJoinLine) {
  auto options = resolve({{"width", {"128", "run.toml:3"}}}, {}, flags({{"lr", "3e-4"}}));
  EXPECT_EQ(options->given, (std::map<std::string, std::string>{{"lr", "3e-4"}, {"width", "128"}}));
}

TEST(Resolve, BlamesThePlaceThatIsWrong) {
  auto wrong = resolve({}, {{"lr", {"fast", "WAGGLE_LR"}}}, {});
  EXPECT_EQ(wrong.error().detail, "WAGGLE_LR: 'fast' is no finite number");
  wrong = resolve({{"lr", {"fast", "run.toml:7"}}}, {}, {});
  EXPECT_THAT(wrong.error().detail, HasSubstr("run.toml:7"));
}

TEST(Resolve, AWrongValueThatIsOverruledDoesNotMatter) {
  EXPECT_TRUE(resolve({{"lr", {"fast", "run.toml:7"}}}, {}, flags({{"lr", "1"}})));
}

TEST(Resolve, ReadsWhatIsTyped) {
  auto options = resolve({}, {},
                         flags({{"listen", "[::1]:0,127.0.0.1:0"},
                                {"announce", "example.org:7701"},
                                {"initial-peers", "a:1,b:2"},
                                {"part-size", "1MiB"},
                                {"duration", "90s"},
                                {"identity", "/k.pem"},
                                {"json", "out.json"},
                                {"device", "cuda:3"},
                                {"reuse-group", "false"}}));
  EXPECT_EQ(options->listen, (std::vector<endpoint>{{"::1", 0}, {"127.0.0.1", 0}}));
  EXPECT_EQ(options->announce, (std::vector<endpoint>{{"example.org", 7701}}));
  EXPECT_EQ(options->initial_peers.size(), 2U);
  EXPECT_EQ(options->part_bytes, std::uint64_t{1} << 20U);
  EXPECT_EQ(options->duration, 90s);
  EXPECT_EQ(options->identity, std::filesystem::path{"/k.pem"});
  EXPECT_TRUE(options->json);
  EXPECT_EQ(options->json_file, std::filesystem::current_path() / "out.json");
  EXPECT_FALSE(options->reuse_group);
}

TEST(Resolve, AutomaticPartsCanBeAskedForOverAFixedSize) {
  auto options = resolve({{"part-size", {"128KiB", "run.toml:1"}}}, {}, {});
  EXPECT_EQ(options->part_bytes, std::uint64_t{128} << 10U);
  options = resolve({{"part-size", {"128KiB", "run.toml:1"}}}, {}, flags({{"part-size", "auto"}}));
  EXPECT_FALSE(options->part_bytes);
}

TEST(Resolve, RefusesAValueWithItsBoundsOrTheNearestName) {
  struct {
    const char* option;
    const char* value;
    const char* said;
  } const rows[]{{"target-batch-size", "0", "at least one sample"},
                 {"part-size", "1KiB", "header"},
                 {"part-size", "32MiB", "frame"},
                 {"target-group-size", "65", "64 members"},
                 {"target-group-size", "1", "a group of 1"},
                 {"stall-timeout", "1ms", "50ms"},
                 {"peers", "1000", "a round has at most 64 members"},
                 {"elements", "0", "between 1 and"},
                 {"values", "0", "between 1 and 1e13"},
                 {"values", "many", "such as 1e9"},
                 {"frozen", "-1", "between 0 and 1e13"},
                 {"step-time", "0ms", "at least 1ms, or measure"},
                 {"link", "fast", "such as 50mbit,20ms"},
                 {"link", "50,20ms", "such as 50mbit,20ms"},
                 {"link", "50mbyte", "kbit, mbit or gbit"},
                 {"link", "1kbit,20ms", "10kbit to 1000gbit"},
                 {"link", "50mbit,20", "at most 10s"},
                 {"link", "50mbit,1h", "at most 10s"},
                 {"instead-of", "first", "write the 64 digits from its log"},
                 {"error-feedback", "1.5", "between 0 and 1: 1 keeps all"},
                 {"error-feedback", "-0.1", "between 0 and 1: 0 keeps nothing"},
                 {"replicas", "0", "must lie between 1 and 64"},
                 {"low-rank", "-1", "is no whole number"},
                 {"lr", "-1", "between 0 and 1000000: a negative rate"},
                 {"lr", "1e9", "between 0 and 1000000: every optimizer"},
                 {"lr", "1e999", "is too large, or too close to 0"},
                 {"lr", "1e-999", "is too large, or too close to 0"},
                 {"weight-decay", "-1", "grow without end"},
                 {"weight-decay", "1e9", "erase"},
                 {"momentum", "1", "in [0, 1): from 1 on"},
                 {"momentum", "-0.1", "in [0, 1): a negative"},
                 {"beta2", "1", "in [0, 1): from 1 on"},
                 {"epsilon", "0", "between 1e-37 and 1: a step would divide"},
                 {"epsilon", "1e-60", "rounds smaller numbers to 0"},
                 {"amsgrad", "0.5", "true"},
                 {"weight", "-0.5", "between 0 and 1e+30: contributions"},
                 {"weight", "1e31", "overflow"},
                 {"alpha", "1e7", "between -1000000 and 1000000"},
                 {"min-compression-ratio", "0", "nothing would be saved"},
                 {"min-compression-ratio", "1", "never that small"},
                 {"loss-scale", "3", "power of two"},
                 {"loss-scale", "0", "power of two"},
                 {"loss-scale", "0.5", "power of two"},
                 {"loss-scale", "1e30", "power of two"},
                 {"loss-scale", "large", "auto, dynamic, off"},
                 {"model", "chargpt", "the nearest is char-gpt"},
                 {"optimizer", "adamx", "the nearest is adam"},
                 {"strategy", "decentralised-sgd", "the nearest is decentralized-sgd"},
                 {"strategy", "daso:skips=3", "max-skips"},
                 {"codec", "float6", "the nearest is float16"},
                 {"log-level", "warning", "the nearest is warn"},
                 {"pages", "me", "is not one of all, local, none"},
                 {"schedule", "cosin", "the nearest is cosine"},
                 {"device", "gpu", "cuda:N; the nearest is cpu"},
                 {"device", "cuda0", "the nearest is cuda"},
                 {"device", "cuda:x", "the nearest is cuda:N"},
                 {"device", "cuda:-1", "the nearest is cuda:N"},
                 {"device", "cuda:N", "the nearest is cuda:N"},
                 {"devices", "cpu,gpu", "a device that is not one of auto"},
                 {"run-id", "", "DHT"},
                 {"run-id", "a b", "DHT"},
                 {"run-id", "a.b", "DHT"},
                 {"run-id", "a/b", "DHT"},
                 {"run-id", "a'b", "DHT"},
                 {"run-id", "a;b", "DHT"},
                 {"run-id", "a$b", "DHT"},
                 {"data-dir", "", "folder"},
                 {"identity", "", "file"},
                 {"swarm-key", "", "file"},
                 {"encrypt", "always", "is not one of auto, never"},
                 {"port-mapping", "on", "is not one of auto, off"},
                 {"members", "birds", "is no public key"},
                 {"members", "-----BEGIN PRIVATE KEY-----", "is a private key"},
                 {"members-list", "", "file"},
                 {"until", "tomorrow", "is no date"},
                 {"data", "", "empty"}};
  for (const auto& [option, value, said] : rows)
    EXPECT_THAT(
      refusal({{option, value}}),
      AllOf(StartsWith("--" + std::string{option} + ": '" + value + "' "), HasSubstr(said)));
  for (const char* name :
       {"lr", "weight-decay", "momentum", "epsilon", "max-gradient-norm", "weight", "alpha"})
    for (const char* text : {"nan", "-nan", "inf", "-inf", "infinity", ""})
      EXPECT_THAT(refusal({{name, text}}), HasSubstr("is no finite number")) << name << " " << text;
  EXPECT_THAT(refusal({{"run-id", std::string(65, 'a')}}), HasSubstr("1 to 64"));
}

TEST(Resolve, TakesValuesAtTheirBounds) {
  EXPECT_EQ(refusal({{"epsilon", "1e-37"}}), "");
  EXPECT_EQ(refusal({{"momentum", "0.9999999"}, {"optimizer", "sgd"}}), "");
  EXPECT_EQ(refusal({{"run-id", std::string(64, 'a')}}), "");
  EXPECT_EQ(refusal({{"run-id", "My-run_2"}}), "");
}

TEST(Threads, MoreThanCoresAreReportedWithTheRemedy) {
  run_options o;
  EXPECT_EQ(too_many_threads(o, 1, 1), std::nullopt);
  EXPECT_EQ(too_many_threads(o, 4, 4), std::nullopt);
  EXPECT_EQ(too_many_threads(o, 4, 0), std::nullopt) << "the number of cores is not known";
  o.threads = 8;
  EXPECT_THAT(*too_many_threads(o, 1, 2), HasSubstr("8 compute threads on 2 cores"));
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
  o.replicas = 4;
  EXPECT_EQ(too_many_threads(o, 1, 4), std::nullopt);
  EXPECT_THAT(*too_many_threads(o, 1, 2),
              HasSubstr("4 replicas with 1 compute thread each on 2 cores"));
  EXPECT_THAT(*too_many_threads(o, 2, 4), ::testing::EndsWith("use --replicas 2 and --threads 1"));
  o.threads = 3;
  EXPECT_THAT(*too_many_threads(o, 2, 16), ::testing::EndsWith("use --threads 2"));
}

TEST(Resolve, ReplicasAreAsManyAsTheDevicesUnlessTheyAreCounted) {
  EXPECT_EQ(resolve({}, {}, flags({{"devices", "cuda:0,cuda:1"}}))->replicas, 2U);
  EXPECT_EQ(resolve({}, {}, flags({{"devices", "cpu"}, {"replicas", "3"}}))->replicas, 3U);
}

TEST(Threads, CoresThatNothingElseNeedsReduceLargeParts) {
  run_options o;
  EXPECT_EQ(part_workers(o.reduce_threads, 1, 2), 0U);
  EXPECT_EQ(part_workers(o.reduce_threads, 1, 3), 0U);
  EXPECT_EQ(part_workers(o.reduce_threads, 1, 4), 1U);
  EXPECT_EQ(part_workers(o.reduce_threads, 0, 4), 2U) << "waggle average computes nothing else";
  EXPECT_EQ(part_workers(o.reduce_threads, 4, 64), 8U);
  EXPECT_EQ(part_workers(o.reduce_threads, 0, 0), 0U) << "the number of cores is not known";
  EXPECT_EQ(part_workers(3, 1, 2), 3U);
  EXPECT_EQ(part_workers(std::nullopt, 1, 4), 1U);
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

TEST(Environment, WhatToolsPutAroundAValueIsNoPartOfIt) {
  std::map<std::string, std::string> variables{{"WAGGLE_INITIAL_PEERS", "127.0.0.1:7700\n"},
                                               {"WAGGLE_LR", "\"0.01\""},
                                               {"WAGGLE_RUN_ID", " 'birds'\r\n"},
                                               {"WAGGLE_SEED", "\"\"\n"},
                                               {"WAGGLE_DATA", "\"it's\""},
                                               {"WAGGLE_MODEL", "'"}};
  auto look_up = [&](const char* name) {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  auto found =
    from_environment({"initial-peers", "lr", "run-id", "seed", "data", "model"}, look_up);
  EXPECT_EQ(found["initial-peers"].value, "127.0.0.1:7700");
  EXPECT_EQ(found["lr"].value, "0.01");
  EXPECT_EQ(found["run-id"].value, "birds");
  EXPECT_FALSE(found.contains("seed")) << "an empty one counts as none";
  EXPECT_EQ(found["data"].value, "it's");
  EXPECT_EQ(found["model"].value, "'") << "no pair";
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
