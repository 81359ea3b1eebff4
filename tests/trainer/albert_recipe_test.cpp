// The options of hivemind's example that trains ALBERT, as a run file and as
// flags. tests/processes/modes/albert_test.cpp trains with them.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "actors/program/node_options.hpp"
#include "runtime/config/options.hpp"
#include "trainer/train_command.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// The example accumulates two passes of four samples; here that is one pass of eight. Its groups
// have up to 256 peers, here up to 64. Its line of 100 Mb/s is 12.5 MB/s.
const std::map<std::string, std::string> recipe{{"run-id", "albert"},
                                                {"target-batch-size", "4096"},
                                                {"micro-batch", "8"},
                                                {"context", "512"},
                                                {"optimizer", "lamb"},
                                                {"lr", "0.00176"},
                                                {"epsilon", "1e-6"},
                                                {"weight-decay", "0.01"},
                                                {"no-decay", "vectors"},
                                                {"max-gradient-norm", "1"},
                                                {"schedule", "warmup-linear:warmup=5000"},
                                                {"epochs", "125000"},
                                                {"codec", "float16"},
                                                {"delay-grad-averaging", "true"},
                                                {"delay-optimizer-step", "true"},
                                                {"offload-optimizer", "true"},
                                                {"target-group-size", "64"},
                                                {"bandwidth", "12500000"},
                                                {"averaging-timeout", "60s"},
                                                {"max-refresh-period", "30s"},
                                                {"report-expiration", "120s"},
                                                {"device", "cpu"}};

settings as_flags(const std::map<std::string, std::string>& values) {
  settings all;
  for (const auto& [name, value] : values)
    all[name] = {value, "--" + name};
  return all;
}

settings as_run_file(const std::map<std::string, std::string>& values) {
  auto pattern = (std::filesystem::temp_directory_path() / "waggle-albert-XXXXXX").string();
  std::filesystem::path folder = ::mkdtemp(pattern.data());
  {
    std::ofstream file{folder / "albert.toml"};
    for (const auto& [name, value] : values)
      file << name << " = \"" << value << "\"\n";
  }
  auto read = from_file(folder / "albert.toml");
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(read) << read.error().detail;
  return read ? *read : settings{};
}

/// Why the options are refused; empty: they are not.
std::string refusal(const result<run_options>& options) {
  if (!options)
    return options.error().detail;
  if (auto usable = check_training_options(*options); !usable)
    return usable.error().detail;
  if (auto usable = check_learner_config(learner_from(*options, {})); !usable)
    return usable.error().detail;
  return {};
}

void expect_the_recipe(const run_options& options) {
  auto c = node_config_from(options, "folder");
  add_training(c, options, {}, "folder");
  const auto& t = c.training->training;
  EXPECT_EQ(t.strategy, "collaborative");
  EXPECT_EQ(t.target_batch_size, 4096U);
  EXPECT_EQ(t.max_epochs, 125'000U);
  EXPECT_TRUE(t.how.delay_gradients);
  EXPECT_TRUE(t.delay_optimizer_step);
  EXPECT_EQ(t.group_size_max, 64U);
  EXPECT_EQ(t.averaging_timeout, 60s);
  EXPECT_EQ(t.schedule.at(epoch_id{0}), 0);
  EXPECT_DOUBLE_EQ(t.schedule.at(epoch_id{2'500}), 0.00088);
  EXPECT_DOUBLE_EQ(t.schedule.at(epoch_id{5'000}), 0.00176);
  EXPECT_DOUBLE_EQ(t.schedule.at(epoch_id{65'000}), 0.00088);
  EXPECT_EQ(t.schedule.at(epoch_id{125'000}), 0);
  const auto& a = *c.averaging;
  EXPECT_EQ(a.averaging.codec, codec_choice{codec_id::float16});
  EXPECT_EQ(a.averaging.round.deadline, 60s);
  EXPECT_FALSE(a.averaging.measures_bandwidth);
  EXPECT_EQ(a.matchmaking.bandwidth, 12.5e6);
  EXPECT_EQ(a.matchmaking.target_group_size, 64U);
  EXPECT_EQ(c.progress.ledger.refresh_max, 30s);
  EXPECT_EQ(c.progress.report_ttl, 120s);

  auto learner = learner_from(options, {});
  EXPECT_EQ(learner.micro_batch, 8);
  EXPECT_EQ(learner.context, 512);
  EXPECT_TRUE(learner.offload_optimizer);
  const auto& lamb = learner.optimizer;
  EXPECT_EQ(lamb.kind, "lamb");
  EXPECT_EQ(lamb.epsilon, 1e-6);
  EXPECT_EQ(lamb.weight_decay, 0.01);
  EXPECT_FALSE(lamb.decay_vectors);
  auto made = c.training->make_learner();
  ASSERT_TRUE(made) << made.error().detail;
  EXPECT_TRUE((*made)->abilities().passes_beside_updates);
}

TEST(AlbertRecipe, IsAcceptedAsARunFileAndArrives) {
  auto options = resolve(as_run_file(recipe), {}, {});
  ASSERT_EQ(refusal(options), "");
  expect_the_recipe(*options);
}

TEST(AlbertRecipe, IsAcceptedAsFlagsAndArrives) {
  auto options = resolve({}, {}, as_flags(recipe));
  ASSERT_EQ(refusal(options), "");
  expect_the_recipe(*options);
}

// The peers of a run are one group, for which nobody has to be searched.
TEST(AlbertRecipe, WhatIsNotForOneGroupIsRefusedWithWhatToDo) {
  auto with = [](const std::string& name, const std::string& value) {
    auto values = recipe;
    values[name] = value;
    return refusal(resolve(as_run_file(values), {}, {}));
  };
  EXPECT_THAT(with("matchmaking-time", "5s"), HasSubstr("use --groups moshpit"));
  EXPECT_THAT(with("target-group-size", "256"), HasSubstr("64"));
}

// Whoever trains draws its own samples: the seed of the data is that of the identity.
TEST(AlbertRecipe, EachPeerShufflesByItsIdentity) {
  auto options = resolve({}, {}, as_flags(recipe));
  ASSERT_TRUE(options);
  auto one = learner_from(*options, *peer_id::from_raw(std::string(32, '1')));
  auto other = learner_from(*options, *peer_id::from_raw(std::string(32, '2')));
  EXPECT_NE(one.data_seed, other.data_seed);
  EXPECT_EQ(one.init_seed, other.init_seed);
}

} // namespace
} // namespace waggle
