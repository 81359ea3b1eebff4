// Steps whose rounds wait for a trigger or a time, and steps that are cancelled.

#include <algorithm>
#include <ranges>

#include "tests/actors/averager/averager_fixture.hpp"
#include "tests/support/simulation.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ControlledSteps : public Averager {
protected:
  struct controlled {
    std::shared_ptr<step_progress> progress = std::make_shared<step_progress>();
    pending_report report;

    [[nodiscard]] step_stage stage() const { return progress->load(); }
    [[nodiscard]] ec code() const {
      return report.get() ? report.get()->why.code : report.get().error().code;
    }
  };
  /// A step of a vector of one value.
  controlled begin(std::size_t who, bool triggered, milliseconds timeout = 60s, float value = 3) {
    controlled step;
    average_vector what{
      .deadline = timeout, .elements = 1, .triggered = triggered, .progress = step.progress};
    if (!triggered)
      what.values = vector({value});
    step.report = average(who, what);
    return step;
  }
  void trigger(std::size_t who, const controlled& step, float value) {
    tell(peers[who]->averager, trigger_step{step.progress, vector({value})});
  }
  void cancel(std::size_t who, const controlled& step) {
    tell(peers[who]->averager, cancel_step{step.progress});
  }
  void add_all(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      add();
    group_size = n;
  }
  /// That peer `who` averages as ever.
  void expect_next_step(std::size_t a, std::size_t b) {
    group_size = 2;
    auto one = average(a, question({1}));
    auto other = average(b, question({3}));
    ASSERT_TRUE(one.get().ok() && other.get().ok());
    EXPECT_THAT(*one.get()->values, ElementsAre(2));
  }
};

TEST_F(ControlledSteps, AStepThatIsTriggeredLateIsWaitedForAndGivesTheValuesOfThatMoment) {
  add_all(2);
  auto late = begin(0, true);
  EXPECT_EQ(late.stage(), step_stage::looking_for_group);
  auto other = begin(1, false);
  EXPECT_EQ(late.stage(), step_stage::awaiting_trigger);
  EXPECT_EQ(other.stage(), step_stage::running);
  pass(averaging_config{}.round.stall_timeout / 2);
  EXPECT_FALSE(other.report.answered());
  trigger(0, late, 5);
  EXPECT_EQ(late.stage(), step_stage::done);
  EXPECT_THAT(*late.report.get()->values, ElementsAre(4));
  EXPECT_THAT(*other.report.get()->values, ElementsAre(4));
}

TEST_F(ControlledSteps, ATriggerBeforeTheGroupIsFoundIsKept) {
  add_all(2);
  auto early = begin(0, true);
  trigger(0, early, 5);
  EXPECT_EQ(early.stage(), step_stage::looking_for_group);
  auto other = begin(1, false);
  EXPECT_THAT(*early.report.get()->values, ElementsAre(4));
}

TEST_F(ControlledSteps, ATriggerThatNeverComesEndsByTheTimeoutAndTheGroupGoesOnWithout) {
  add_all(3);
  auto never = begin(0, true, 20s);
  auto second = begin(1, false);
  auto third = begin(2, false, 60s, 5);
  pass(19s);
  EXPECT_FALSE(never.report.answered());
  ASSERT_TRUE(second.report.get().ok());
  EXPECT_THAT(*second.report.get()->values, ElementsAre(4));
  EXPECT_THAT(*third.report.get()->values, ElementsAre(4));
  pass(2s);
  EXPECT_EQ(never.code(), ec::timeout);
  EXPECT_THAT(never.report.get()->why.detail, HasSubstr("nobody allowed the all-reduce in time"));
  expect_next_step(0, 1);
}

TEST_F(ControlledSteps, IsCancelledWhileItLooksForAGroup) {
  add_all(2);
  auto step = begin(0, false);
  cancel(0, step);
  EXPECT_EQ(step.code(), ec::cancelled);
  EXPECT_EQ(step.stage(), step_stage::done);
  expect_next_step(0, 1);
}

TEST_F(ControlledSteps, IsCancelledWhileItAwaitsItsTriggerAndTheGroupGoesOn) {
  add_all(3);
  auto step = begin(0, true);
  auto second = begin(1, false);
  auto third = begin(2, false, 60s, 5);
  cancel(0, step);
  EXPECT_EQ(step.code(), ec::cancelled);
  pass(15s); // these peers have no links over which it would tell them
  ASSERT_TRUE(second.report.get().ok());
  EXPECT_THAT(*second.report.get()->values, ElementsAre(4));
  EXPECT_THAT(*third.report.get()->values, ElementsAre(4));
  expect_next_step(0, 1);
}

TEST_F(ControlledSteps, IsCancelledInItsRoundAndTriesNoOtherGroup) {
  add_all(3);
  peers[0]->deaf = true; // the parts that it needs do not arrive
  std::vector<controlled> all{begin(0, false), begin(1, false), begin(2, false)};
  EXPECT_EQ(all[0].stage(), step_stage::running);
  cancel(0, all[0]);
  EXPECT_EQ(all[0].code(), ec::cancelled);
  pass(15s);
  EXPECT_THAT(*all[1].report.get()->values, ElementsAre(3));
  EXPECT_TRUE(searches.empty());
  cancel(0, all[0]); // nothing is left to cancel
  peers[0]->deaf = false;
  expect_next_step(0, 1);
}

TEST_F(ControlledSteps, WithoutRetriesTryOnce) {
  add_all(2);
  change_plan = [](round_plan& plan) { plan.min_contributors = 2; };
  peers[1]->deaf = true;
  auto what = question({1});
  what.retries = 0;
  auto one = average(0, what);
  auto other = average(1, what);
  pass(30s);
  EXPECT_TRUE(one.answered());
  EXPECT_EQ(other.get()->outcome, round_outcome::failed);
  EXPECT_EQ(groups, 1U);
}

TEST_F(ControlledSteps, AreRefusedWithASentence) {
  add_all(2);
  auto refused = [this](const std::function<void(average_vector&)>& change) {
    auto what = question({1});
    what.deadline = 10s;
    change(what);
    auto answer = average(0, what);
    return answer.answered() && !answer.get() ? answer.get().error().detail : "accepted";
  };
  EXPECT_EQ(refused([&](auto& x) { x.begin = wall->now() - 1500ms; }),
            "scheduled_time is in the past, by 1.5 s");
  EXPECT_EQ(refused([&](auto& x) { x.begin = wall->now() + 12s; }),
            "scheduled_time is in 12.0 s, after the timeout of 10.0 s");
  EXPECT_EQ(refused([&](auto& x) { x.gather = std::string(1025, 'x'); }),
            "gather has 1025 bytes: it may have at most 1024");
  auto first = begin(0, true);
  EXPECT_THAT(refused([](auto&) {}), HasSubstr("has a step that runs: wait for it, or cancel it"));
}

/// Whole peers, whose clocks differ by `ahead`.
class ScheduledSteps : public ::testing::Test {
protected:
  using index = testing::simulation::index;

  void start(const std::vector<milliseconds>& ahead) {
    for (auto by : ahead) {
      node_config config{.run_id = "sim"};
      auto& parts = config.averaging.emplace();
      parts.matchmaking.prefix = "vector";
      parts.matchmaking.min_matchmaking_time = 1s;
      parts.matchmaking.request_timeout = 500ms;
      std::vector<index> through;
      if (sim.size() > 0)
        through.push_back(0);
      sim.start(config, through, nullptr, by);
      sim.run_for(2s);
    }
  }
  void begin(index who, swarm_time at) {
    average_vector what;
    what.values = std::make_shared<const float_vector>(10, static_cast<float>(who));
    what.progress = progress[who] = std::make_shared<step_progress>();
    what.begin = at;
    sim.later<round_report>(sim[who].node.parts.averager, what,
                            [this, who](const round_report& report) { ended[who] = report; });
  }
  /// Runs in steps of a millisecond until all steps have begun their rounds; notes when they did.
  bool run_until_all_begin(std::size_t n) {
    return sim.run_until(
      [&] {
        for (std::size_t i = 0; i < n; ++i)
          if (!began.contains(i) && progress[i] && progress[i]->load() >= step_stage::running)
            began[i] = sim.seconds();
        return began.size() == n;
      },
      20s);
  }
  [[nodiscard]] swarm_time now_of(index who) { return sim[who].node.ctx.wall->now(); }

  testing::simulation sim{11};
  std::map<index, std::shared_ptr<step_progress>> progress;
  std::map<index, round_report> ended;
  std::map<index, double> began;
};

TEST_F(ScheduledSteps, BeginTogetherByTheClockOfOneOfThemAlthoughTheirClocksDiffer) {
  start({0ms, 400ms, 200ms});
  auto at = now_of(0) + 2s;
  auto asked = sim.seconds();
  for (index i = 0; i < 3; ++i)
    begin(i, at);
  ASSERT_TRUE(run_until_all_begin(3));
  auto [first, last] = std::ranges::minmax(began | std::views::values);
  EXPECT_LT(last - first, 0.02 + 1e-9);
  EXPECT_GT(first - asked, 1.599) << "the fastest clock is 0.4 s ahead";
  EXPECT_LT(last - asked, 2.1);
  ASSERT_TRUE(sim.run_until([&] { return ended.size() == 3; }, 20s));
  for (const auto& [who, report] : ended)
    EXPECT_EQ(report.contributors.size(), 3U) << to_string(report.why);
}

TEST_F(ScheduledSteps, AreJoinedByPeersThatAskLater) {
  start({0ms, 0ms});
  auto at = now_of(0) + 5s;
  begin(0, at);
  sim.run_for(3s); // longer than its matchmaking time
  begin(1, at);
  ASSERT_TRUE(run_until_all_begin(2));
  ASSERT_TRUE(sim.run_until([&] { return ended.size() == 2; }, 20s));
  EXPECT_EQ(ended[0].contributors.size(), 2U);
  EXPECT_GE(now_of(0) - at, 0s);
}

} // namespace
} // namespace waggle
