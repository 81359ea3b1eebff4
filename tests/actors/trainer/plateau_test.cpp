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
      std::string image{as_string_view(read_all(*state->state)->view())};
      EXPECT_EQ(first.value_or(image), image) << "plateau and all";
      first = image;
      EXPECT_GT(reductions(*m), 1U);
    }
  }
};

TEST_F(PlateauOfTheSwarm, DelayedGradientsAndStepsDoNotSplitThePeers) {
  auto gradients = until(lowering(), 24);
  gradients.how.delay_gradients = true;
  auto& a = add_started(gradients);
  auto other = joining(gradients);
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
  auto helping = until(joining(lowering()), 16);
  helping.auxiliary = true;
  auto& b = add_started(helping);
  auto& c = add_started(until(joining(lowering()), 16));
  pass_until([&] { return all_at(3); });
  c.probe->non_finite_steps = 20;
  pass_until([&] { return all_finished(); });
  expect_equal_states();
  expect_equal_rates(a, b, 10);
  expect_equal_rates(a, c, 10);
}

TEST_F(PlateauOfTheSwarm, APeerThatGoesOnAloneCountsItsOwnLossAndReturnsToTheOthersState) {
  auto& a = add_started(until(lowering(), 20));
  auto& b = add_started(until(joining(lowering()), 20));
  pass_until([&] { return all_at(5); });
  end(b);
  pass_until([&] { return status_of(a).epoch > epoch_id{9}; });
  auto& c =
    add_started(until(joining(lowering()), 20), toy_options{.init_seed = 99, .data_seed = 7});
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
