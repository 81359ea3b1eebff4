// Strategies whose optimizer steps with each micro-batch, and which average parameters.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct LocalUpdates : training_world {
  static training_config local(const std::string& strategy = "local-updates") {
    auto config = defaults();
    config.strategy = strategy;
    config.how.steps_period = 4;
    return config;
  }
  /// The values of the tensor with this name.
  std::vector<float> tensor_of(const member& m, const std::string& name) {
    auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
    EXPECT_TRUE(snapshot.ok());
    auto image = read_all(*snapshot->state);
    auto state = image->view().subspan(state_header_bytes);
    auto table = read_state_table(state);
    EXPECT_TRUE(table.ok());
    for (std::size_t i = 0; i < table->size(); ++i)
      if ((*table)[i].name == name) {
        auto bytes = table->values_in(state, i);
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
      }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<float> parameters_of(const member& m) { return tensor_of(m, "weights"); }
};

TEST_F(LocalUpdates, APeerAloneIsAPlainLoop) {
  auto config = local();
  config.max_epochs = 3;
  config.schedule.peak = 0.02;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
  auto plain = make_toy_learner({.data_seed = 1});
  for (std::uint64_t i = 0; i < m.probe->micro_steps; ++i) {
    plain->accumulate();
    plain->step_locally(0.02);
  }
  std::vector<float> expected(8);
  plain->read_tensor(0, expected);
  EXPECT_THAT(parameters_of(m), ::testing::Pointwise(::testing::FloatNear(1e-6F), expected));
  EXPECT_EQ(status_of(m).samples_used, 4 * m.probe->micro_steps);
}

// A peer whose rate is 0 learns nothing itself, so all that changes its parameters are the means.
TEST_F(LocalUpdates, APeerThatLearnsNothingIsAlwaysAtTheMeanOfTheLastRound) {
  auto still = local();
  still.schedule.peak = 0;
  auto learning = joining(local());
  learning.schedule.peak = 0.05;
  auto& a = add_started(still);
  auto& b = add_started(learning);
  pass_until([&] { return all_at(8); });
  std::size_t compared = 0;
  for (std::size_t k = 0; k + 1 < a.questions.size(); ++k)
    for (const auto& other : b.questions)
      if (other.epoch == a.questions[k].epoch && other.weight > 0) {
        const auto& x = *a.questions[k].values;
        const auto& y = *other.values;
        const auto& next = *a.questions[k + 1].values;
        for (std::size_t i = 0; i < x.size(); ++i)
          EXPECT_NEAR(next[i], (x[i] + y[i]) / 2, 1e-5);
        EXPECT_NE(x, y);
        ++compared;
      }
  EXPECT_GE(compared, 4U);
}

TEST_F(LocalUpdates, WhatIsLearnedDuringARoundRemains) { // INV-5
  auto& a = add_started(local());
  auto& b = add_started(joining(local()));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  pass(30ms); // three local steps: the next boundary is not reached yet
  auto learned = parameters_of(a);
  auto own = *a.questions.back().values;
  auto other = *b.questions.back().values;
  auto steps = a.probe->micro_steps;
  release_rounds();
  ASSERT_EQ(a.probe->micro_steps, steps) << "no step between the two looks at the parameters";
  auto merged = parameters_of(a);
  for (std::size_t i = 0; i < merged.size(); ++i)
    EXPECT_NEAR(merged[i], learned[i] + (own[i] + other[i]) / 2 - own[i], 1e-6);
}

TEST_F(LocalUpdates, NoStepWaitsForARound) {
  auto& a = add_started(local());
  add_started(joining(local()));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty(); });
  auto before = a.probe->micro_steps;
  pass(2s);
  EXPECT_GE(a.probe->micro_steps, before + 195) << "a pass every 10 ms";
  release_rounds();
}

// During a long pass one round ends and the next one begins, which the change of the first has not
// reached: without it, the second round would report the same change again.
TEST_F(LocalUpdates, AChangeThatWaitsBehindAPassCountsInTheNextRound) {
  auto still = local();
  still.schedule.peak = 0;
  auto& a = add_started(still);
  auto& b = add_started(joining(local()));
  pass_until([&] { return all_at(4); });
  a.gate->passes = true;
  auto first = a.questions.size();
  pass_until([&] { return a.questions.size() >= first + 3; });
  for (auto k = first; k + 1 < a.questions.size(); ++k) {
    const auto& x = *a.questions[k].values;
    const auto& y = *b.questions[b.questions.size() - a.questions.size() + k].values;
    ASSERT_EQ(a.questions[k].epoch, b.questions[b.questions.size() - a.questions.size() + k].epoch);
    EXPECT_NE(x, y);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR((*a.questions[k + 1].values)[i], (x[i] + y[i]) / 2, 1e-5);
  }
  a.gate->open();
  settle();
}

TEST_F(LocalUpdates, ARoundThatBlocksStopsThePasses) {
  auto config = local();
  config.how.delay_state = false;
  auto& a = add_started(config);
  add_started(joining(config));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty(); });
  auto before = a.probe->micro_steps;
  pass(1s);
  EXPECT_LE(a.probe->micro_steps, before + 1);
  release_rounds();
  pass_until([&] { return all_at(6); });
}

TEST_F(LocalUpdates, APeerThatMissedARoundTrainsOnWithoutADownload) {
  auto& a = add_started(local());
  auto& b = add_started(joining(local()));
  pass_until([&] { return all_at(3); });
  auto lost = status_of(b).epoch;
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &b && epoch == lost.next() ? ec::excluded : ec::none;
  };
  auto downloads = status_of(b).state_downloads;
  pass_until([&] { return all_at(lost.value() + 5); });
  EXPECT_EQ(status_of(b).state_downloads, downloads);
  EXPECT_EQ(status_of(b).rounds_failed, 1U);
  EXPECT_EQ(status_of(a).group_size, 2U);
}

TEST_F(LocalUpdates, APeerFurtherBehindDownloadsTheState) {
  auto config = local();
  config.epoch_difference_max = 0;
  add_started(config);
  auto& b = add_started(joining(config));
  pass_until([&] { return all_at(3); });
  auto lost = status_of(b).epoch;
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &b && epoch == lost.next() ? ec::excluded : ec::none;
  };
  auto downloads = status_of(b).state_downloads;
  pass_until([&] { return all_at(lost.value() + 5); });
  EXPECT_EQ(status_of(b).state_downloads, downloads + 1);
}

// The round blocks, so nothing is learned between its snapshot and its mean.
TEST_F(LocalUpdates, ARoundMakesTheStatisticsThatAreNamedTheMeanOfThePeers) {
  auto config = local();
  config.how.delay_state = false;
  config.how.statistics = {"exp_avg_sq"};
  auto& a = add_started(config, toy_options{.data_seed = 1, .adam = true});
  auto& b = add_started(joining(config), toy_options{.data_seed = 2, .adam = true});
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  a.gate->passes = b.gate->passes = true; // the next look is before the next step
  struct look {
    std::vector<float> weights, mean, square;
  };
  auto look_at = [this](const member& m) {
    return look{parameters_of(m), tensor_of(m, "exp_avg/weights"),
                tensor_of(m, "exp_avg_sq/weights")};
  };
  auto before_a = look_at(a);
  auto before_b = look_at(b);
  auto steps = a.probe->micro_steps + b.probe->micro_steps;
  release_rounds();
  ASSERT_EQ(a.probe->micro_steps + b.probe->micro_steps, steps);
  auto after_a = look_at(a);
  auto after_b = look_at(b);
  EXPECT_EQ(after_a.weights, after_b.weights);
  EXPECT_EQ(after_a.square, after_b.square);
  for (std::size_t i = 0; i < after_a.square.size(); ++i) {
    EXPECT_NE(before_a.square[i], before_b.square[i]);
    EXPECT_FLOAT_EQ(after_a.square[i], (before_a.square[i] + before_b.square[i]) / 2);
    EXPECT_FLOAT_EQ(after_a.weights[i], (before_a.weights[i] + before_b.weights[i]) / 2);
  }
  EXPECT_NE(after_a.mean, after_b.mean) << "exp_avg is not averaged";
  EXPECT_EQ(after_a.mean, before_a.mean);
  EXPECT_EQ(after_b.mean, before_b.mean);
  a.gate->open();
  b.gate->open();
}

TEST_F(LocalUpdates, AStatisticThatTheOptimizerDoesNotKeepEndsThePeer) {
  auto config = local();
  config.how.statistics = {"exp_avg_sq"};
  auto& m = add(config);
  keep_log(m);
  tell(m.actor, start_training{});
  EXPECT_FALSE(alive(m.actor));
  EXPECT_FALSE(ask<training_status>(m.actor, get_training_status{}).ok());
  EXPECT_THAT(m.said.str(), ::testing::HasSubstr("the optimizer keeps no statistic 'exp_avg_sq': "
                                                 "it keeps momentum_buffer"));
  EXPECT_FALSE(m.described) << "nothing was asked of the averager";
  EXPECT_EQ(m.group, 0U);
  EXPECT_TRUE(m.questions.empty());
  EXPECT_EQ(m.probe->micro_steps, 0U);
  m.gone = true;
}

// The first peer that has made its steps calls the others, whatever their speed.
TEST_F(LocalUpdates, TheFastestPeerBeginsADecentralizedRound) {
  auto fast = local("decentralized-sgd");
  auto slow = fast;
  slow.step_interval = 1s;
  auto& a = add_started(fast);
  auto& b = add_started(joining(slow));
  pass_until([&] { return all_at(10); });
  EXPECT_GT(a.probe->micro_steps, 10 * b.probe->micro_steps);
  EXPECT_GT(status_of(b).rounds_complete, 5U);
}

TEST_F(LocalUpdates, RoundsBeginOnTheCommonGrid) {
  auto config = local("decentralized-sgd");
  config.how.steps_period = 1;
  config.how.time_period = 500ms;
  auto& a = add_started(config);
  add_started(joining(config));
  pass_until([&] { return all_at(2); });
  auto before = status_of(a).epoch.value();
  pass(5s);
  EXPECT_NEAR(static_cast<double>(status_of(a).epoch.value() - before), 10.0, 1.0);
}

} // namespace
} // namespace waggle::testing
