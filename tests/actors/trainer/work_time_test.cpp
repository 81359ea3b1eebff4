// The time account: what a test plants is what is counted, with every strategy.

#include "runtime/training/strategy.hpp"
#include "runtime/training/time_account.hpp"
#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct Times : training_world {
  using seconds_by_activity = std::map<std::string, double>;

  static seconds_by_activity times_of(const member& m) {
    seconds_by_activity out;
    for (auto name : activities)
      out[std::string{name}] =
        exported(*m.ctx.metrics,
                 "waggle_training_time_seconds_total{activity=\"" + std::string{name} + "\"");
    return out;
  }
  /// What is counted from here until `change` has ended what the test has planted.
  template <class Change>
  seconds_by_activity counted(const member& m, milliseconds time, Change change) {
    auto before = times_of(m);
    pass(time);
    change();
    pass(2 * milliseconds{100}); // time_account::late: what has just begun is not counted yet
    auto after = times_of(m);
    for (auto& [name, seconds] : after)
      seconds -= before[name];
    return after;
  }
  static void expect(const seconds_by_activity& times, activity what, double seconds) {
    std::string all;
    for (const auto& [name, each] : times)
      all += name + " " + std::to_string(each) + " ";
    EXPECT_NEAR(times.at(std::string{to_string(what)}), seconds, 0.03 * seconds) << all;
  }

  /// Calls `check` with the settings of each strategy.
  void for_each_strategy(bool delay_state,
                         const std::function<void(training_config, const strategy&)>& check) {
    for (const auto& row : strategy_table()) {
      SCOPED_TRACE(row.name);
      auto config = defaults();
      bool by_steps = std::any_of(row.numbers.begin(), row.numbers.end(),
                                  [](const named_number& n) { return n.name == "steps"; });
      config.strategy = std::string{row.name} + (by_steps ? ":steps=4" : "");
      config.how.steps_period = 4;
      config.how.delay_state = delay_state;
      config.step_interval = 40ms;
      check(config, config.strategy.make(config.how));
      for (const auto& m : members)
        if (!m->gone)
          end(*m);
    }
  }
};

TEST_F(Times, AnIntervalBetweenPassesIsIdle) {
  for_each_strategy(true, [this](const training_config& config, const strategy&) {
    auto& m = add_started(config);
    pass(1s);
    auto times = counted(m, 10s, [] {});
    expect(times, activity::idle, 10.2);
    EXPECT_GE(m.probe->micro_steps, 200U);
  });
}

TEST_F(Times, ALongPassIsAPass) {
  for_each_strategy(true, [this](const training_config& config, const strategy&) {
    auto& m = add_started(config);
    pass(1s);
    m.gate->passes = true;
    pass_until([&] { return !m.gate->held.empty(); });
    expect(counted(m, 2s, [&] { m.gate->open(); }), activity::pass, 2);
  });
}

TEST_F(Times, ARoundThatBlocksIsARoundAndOneBesidePassesIsNot) {
  for (bool delay : {false, true})
    for_each_strategy(delay, [this](const training_config& config, const strategy& how) {
      auto& m = add_started(config);
      pass(1s);
      hold_rounds = true;
      pass_until([&] { return !m.answers.empty(); });
      auto times = counted(m, 2s, [&] { release_rounds(); });
      if (how.averages.overlap.blocks())
        expect(times, activity::round, 2);
      else
        expect(times, activity::idle, 2.2);
    });
}

TEST_F(Times, WhoFindsNobodySearches) {
  for_each_strategy(true, [this](training_config config, const strategy&) {
    config.join_timeout = 3s;
    auto& m = add_started(config);
    expect(counted(m, 3s, [&] { pass_until([&] { return m.group != 0; }); }), activity::search, 3);
  });
}

TEST_F(Times, AStateThatDoesNotArriveIsADownload) {
  for_each_strategy(true, [this](training_config config, const strategy&) {
    add_started(config);
    pass(1s);
    spoil_state = [](std::size_t, std::string& image) { image.back() ^= 1; };
    auto& m = add_started(joining(config), toy_options{.init_seed = 99, .data_seed = 2});
    spread();
    pass_until([&] { return !m.asked.empty(); });
    auto begun = sched.clock().now();
    double took = 0;
    auto times = counted(m, 2s, [&] {
      spoil_state = {};
      pass_until([&] { return !m.downloads.empty() && m.downloads.back().ok; });
      took = seconds_of(sched.clock().now() - begun);
    });
    expect(times, activity::download, took);
  });
}

/// As of a peer whose share of a core lets most passes through, and stops the others.
TEST_F(Times, ReportsTheMeanSecondsOfItsPassesAndNotOfTheirSpeeds) {
  auto& m = add_started();
  hold_passes = true;
  for (int i = 0; i < 20; ++i) {
    pass_until([&] { return !m.held.empty(); });
    for (auto done : std::exchange(m.held, {})) {
      done.seconds = i % 2 == 0 ? 0.01 : 0.19;
      tell(caf::actor_cast<model_listener_actor>(m.actor), done);
    }
  }
  pass(1s);
  auto seconds = m.reports.back().vitals.pass_seconds;
  ASSERT_TRUE(seconds);
  EXPECT_NEAR(*seconds, 0.1, 0.02);
}

} // namespace
} // namespace waggle::testing
