// The schedule plateau: a rate that depends on the loss of the swarm, equal on all peers.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {
namespace {

struct PlateauOfTheSwarm : training_world {
  /// Halves the rate as soon as two epochs did not halve the best loss.
  static training_config lowering() {
    auto config = defaults();
    const auto* row = find_row();
    config.schedule.parts = {{row, {0.5, 1, 0.5, 0, 0, 0, 1e-8}}};
    return config;
  }
  static training_config joining() {
    auto config = lowering();
    config.join_timeout = 5s;
    return config;
  }
  static const schedule_row* find_row() {
    for (const auto& row : schedule_table())
      if (row.name == plateau_name)
        return &row;
    return nullptr;
  }
  std::uint64_t reductions(const member& m) { return status_of(m).rate_reductions.value_or(9'999); }
  /// The last `count` rates of the updates of both.
  static void expect_equal_rates(const member& a, const member& b, std::size_t count) {
    ASSERT_GE(a.probe->rates.size(), count);
    ASSERT_GE(b.probe->rates.size(), count);
    for (std::size_t i = 1; i <= count; ++i)
      EXPECT_EQ(a.probe->rates[a.probe->rates.size() - i],
                b.probe->rates[b.probe->rates.size() - i])
        << i << " updates before the last one";
  }
  /// Stops all after the same epoch, so that the numbers of updates are equal.
  static training_config until(training_config config, std::uint64_t epochs) {
    config.max_epochs = epochs;
    return config;
  }
  bool all_finished() {
    return std::all_of(members.begin(), members.end(), [this](const auto& m) {
      return m->gone || status_of(*m).phase == trainer_phase::finished;
    });
  }
  void expect_equal_states() {
    std::optional<std::string> first;
    for (const auto& m : members) {
      if (m->gone)
        continue;
      auto state = ask<state_snapshot>(m->actor, get_state_snapshot{});
      ASSERT_TRUE(state.ok());
      std::string image{as_string_view(read_all(*state->state)->view())};
      EXPECT_EQ(first.value_or(image), image) << "plateau and all";
      first = image;
      EXPECT_GT(reductions(*m), 1U);
    }
  }
};

TEST_F(PlateauOfTheSwarm, AllPeersLowerTheirRatesInTheSameEpochs) {
  auto& a = add_started(until(lowering(), 16));
  auto& b = add_started(until(joining(), 16));
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, b, 10);
  EXPECT_EQ(a.probe->rates.front(), 0.1);
  EXPECT_LT(a.probe->rates.back(), 0.1 / 3);
  EXPECT_EQ(status_of(a).learning_rate, status_of(b).learning_rate);
  EXPECT_LE(status_of(a).learning_rate, a.probe->rates.back());
}

TEST_F(PlateauOfTheSwarm, TheContributionsMeanIsWhatCounts) {
  auto& a = add_started(lowering());
  auto& b = add_started(joining());
  pass_until([&] { return all_at(4); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  const auto& own = *a.questions.back().values;
  const auto& other = *b.questions.back().values;
  EXPECT_EQ(own.size(), 9U) << "8 parameters and the loss";
  EXPECT_GT(own.back(), 0);
  EXPECT_NE(own.back(), other.back()) << "each its own";
  release_rounds();
}

TEST_F(PlateauOfTheSwarm, AJoinerHasTheRateOfTheOthersFromItsFirstUpdateOn) {
  auto& a = add_started(until(lowering(), 24));
  pass_until([&] { return all_at(10); });
  ASSERT_GT(reductions(a), 0U);
  auto& joiner = add_started(until(joining(), 24), toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  EXPECT_EQ(reductions(joiner), reductions(a)) << "known before its first update";
  EXPECT_EQ(status_of(joiner).learning_rate, status_of(a).learning_rate);
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, joiner, 10);
}

TEST_F(PlateauOfTheSwarm, AnImpossibleStateOfADonorIsRefused) {
  auto& a = add_started(lowering());
  add_started(joining());
  pass_until([&] { return all_at(6); });
  auto first = members[0]->ctx.record.id < members[1]->ctx.record.id ? 0U : 1U;
  spoil_state = [first](std::size_t donor, std::string& image) {
    if (donor != first)
      return;
    auto honest = decode_state(as_byte_span(image));
    ASSERT_TRUE(honest);
    std::vector<std::byte> spoilt{honest->learner.begin(), honest->learner.end()};
    float huge = 1e9F; // reductions; behind them only the loss
    std::memcpy(spoilt.data() + spoilt.size() - 8, &huge, sizeof huge);
    honest->learner = spoilt;
    image = as_string_view(testing::encode_state(*honest).view());
  };
  auto& joiner = add_started(joining(), toy_options{.init_seed = 99, .data_seed = 3});
  spread();
  pass_until([&] { return !joiner.downloads.empty(); });
  ASSERT_FALSE(joiner.downloads[0].ok);
  EXPECT_EQ(joiner.downloads[0].why.code, ec::malformed);
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  pass_until([&] { return status_of(joiner).parameters == status_of(a).parameters; });
  EXPECT_EQ(reductions(joiner), reductions(a));
}

TEST_F(PlateauOfTheSwarm, DelayedGradientsAndStepsDoNotSplitThePeers) {
  auto gradients = until(lowering(), 24);
  gradients.how.delay_gradients = true;
  auto& a = add_started(gradients);
  auto other = gradients;
  other.join_timeout = 5s;
  other.delay_optimizer_step = true;
  auto& b = add_started(other);
  b.gate->updates = true; // until the end, updates wait
  pass_until([&] { return b.gate->held.size() == 2; });
  b.gate->open();
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, b, 10);
}

TEST_F(PlateauOfTheSwarm, PassesThatOverflowAndPeersWithoutSamplesChangeNothingForTheOthers) {
  auto& a = add_started(until(lowering(), 16));
  auto helping = until(joining(), 16);
  helping.auxiliary = true;
  auto& b = add_started(helping);
  auto& c = add_started(until(joining(), 16));
  pass_until([&] { return all_at(3); });
  c.probe->non_finite_steps = 20;
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, b, 10);
  expect_equal_rates(a, c, 10);
}

TEST_F(PlateauOfTheSwarm, APeerThatGoesOnAloneCountsItsOwnLossAndReturnsToTheOthersState) {
  auto& a = add_started(until(lowering(), 20));
  auto& b = add_started(until(joining(), 20));
  pass_until([&] { return all_at(5); });
  end(b);
  pass_until([&] { return status_of(a).epoch > epoch_id{9}; });
  auto& c = add_started(until(joining(), 20), toy_options{.init_seed = 99, .data_seed = 7});
  spread();
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, c, 5);
}

// A mean that no peer applies must not count on any of them.
TEST_F(PlateauOfTheSwarm, AMeanThatIsDroppedDoesNotCount) {
  auto& a = add_started(lowering());
  pass_until([&] { return all_at(4); });
  a.probe->infinite_mean = true;
  pass_until([&] { return all_at(7); }); // the rounds that were already running
  auto before = ask<state_snapshot>(a.actor, get_state_snapshot{});
  auto updates = a.probe->applied.size();
  pass_until([&] { return all_at(16); });
  auto after = ask<state_snapshot>(a.actor, get_state_snapshot{});
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(a.probe->applied.size(), updates);
  auto of_plateau = [](const state_snapshot& s) {
    std::string image{as_string_view(read_all(*s.state)->view())};
    return image.substr(image.size() - 5 * sizeof(float));
  };
  EXPECT_EQ(of_plateau(*before), of_plateau(*after));
}

} // namespace
} // namespace waggle::testing
