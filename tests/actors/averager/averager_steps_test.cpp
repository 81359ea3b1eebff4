// What controls a step of the averager: triggers, cancellation, deadlines.

#include <limits>

#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

// -- control of a step ----------------------------------------------------------------------------

TEST_F(Averager, AStepWaitsForItsTriggerWhileOthersRun) {
  for (int i = 0; i < 4; ++i)
    add();
  group_size = 4;
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 4; ++i) {
    auto what = question({static_cast<float>(i)});
    what.require_trigger = i == 1 || i == 2;
    open.push_back(average(i, what));
  }
  settle();
  EXPECT_EQ(stage(0), step_stage::running_allreduce);
  EXPECT_EQ(stage(1), step_stage::awaiting_trigger);
  EXPECT_EQ(stage(2), step_stage::awaiting_trigger);
  EXPECT_EQ(stage(3), step_stage::running_allreduce);
  tell(peers[1]->averager, trigger_step{1, nullptr, {}});
  EXPECT_FALSE(open[0].answered());
  // The values and the weight may come with the trigger.
  tell(peers[2]->averager, trigger_step{1, vector({6}), 3.0});
  tell(peers[2]->averager, trigger_step{1, nullptr, {}});
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(open[i].get()) << i;
    EXPECT_THAT(*open[i].get()->values, ElementsAre(FloatEq((0 + 1 + 3 * 6 + 3) / 6.0F)));
    EXPECT_EQ(stage(i), step_stage::finished);
  }
}

TEST_F(Averager, TheGroupGoesOnWithoutThoseWhoCancel) {
  for (int i = 0; i < 4; ++i)
    add();
  group_size = 4;
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 4; ++i) {
    auto what = question({static_cast<float>(i)});
    what.require_trigger = true;
    open.push_back(average(i, what));
  }
  group_size = 2; // for the peers that search again
  for (std::size_t i : {0, 1})
    tell(peers[i]->averager, cancel_step{1});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get());
    EXPECT_EQ(open[i].get()->why.code, ec::cancelled);
    EXPECT_EQ(open[i].get()->values, nullptr);
  }
  for (std::size_t i : {2, 3})
    tell(peers[i]->averager, trigger_step{1, nullptr, {}});
  pass(5s);
  for (std::size_t i : {2, 3}) {
    ASSERT_TRUE(open[i].get());
    EXPECT_EQ(open[i].get()->contributors.size(), 2U);
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2.5F));
  }
}

TEST_F(Averager, ARunningStepCanBeCancelled) {
  for (int i = 0; i < 3; ++i)
    add();
  group_size = 3;
  peers[0]->deaf = true; // the parts that it needs do not arrive
  std::vector<pending_report> open;
  for (std::size_t i = 0; i < 3; ++i)
    open.push_back(average(i, question({1, 2, 3})));
  EXPECT_EQ(stage(1), step_stage::running_allreduce);
  group_size = 2;
  tell(peers[0]->averager, cancel_step{1});
  ASSERT_TRUE(open[0].get());
  EXPECT_EQ(open[0].get()->why.code, ec::cancelled);
  settle();
  for (std::size_t i : {1, 2}) {
    ASSERT_TRUE(open[i].get()) << "the others need not wait for a timeout";
    EXPECT_THAT(*open[i].get()->values, ElementsAre(1, 2, 3));
  }
}

TEST_F(Averager, ASearchCanBeCancelled) {
  add();
  auto open = average(0, question({1}));
  EXPECT_EQ(stage(0), step_stage::looking_for_group);
  tell(peers[0]->averager, cancel_step{2});
  EXPECT_FALSE(open.answered()) << "the number of another step";
  tell(peers[0]->averager, cancel_step{1});
  ASSERT_TRUE(open.get());
  EXPECT_EQ(open.get()->why.code, ec::cancelled);
  EXPECT_TRUE(searches.empty());
  // And the next step is not delayed.
  add();
  auto reports = average_all({question({1}), question({3})});
  EXPECT_THAT(*reports[0].values, ElementsAre(2));
}

TEST_F(Averager, AStepThatNobodyTriggersEndsAtItsDeadline) {
  add();
  add();
  auto waits = question({1});
  waits.require_trigger = true;
  waits.deadline = 2s;
  auto open = average(0, waits);
  auto other = average(1, question({1}));
  pass(2100ms);
  ASSERT_TRUE(open.get());
  EXPECT_EQ(open.get()->why.code, ec::timeout);
}

TEST_F(Averager, WithoutRetriesOneFailureIsTheEnd) {
  add();
  add();
  change_plan = [](round_plan& plan) { plan.min_contributors = 2; };
  for (bool retries : {true, false}) {
    peers[0]->deaf = true;
    auto what = question({1});
    what.allow_retries = retries;
    what.deadline = 20s;
    auto before = groups;
    auto a = average(0, what);
    auto b = average(1, what);
    pass(30s);
    ASSERT_TRUE(a.get());
    EXPECT_EQ(a.get()->outcome, round_outcome::failed);
    EXPECT_EQ(groups - before > 1, retries);
  }
}

// A round has a deadline of its own (--allreduce-timeout), beside that of its step.
TEST_F(Averager, ARoundEndsByItsOwnDeadlineOrItsStepsWhicheverIsFirst) {
  struct setting {
    milliseconds of_round, of_step;
  };
  auto failed = [this](std::size_t who) {
    return testing::exported(*peers[who]->ctx.metrics,
                             R"(waggle_averaging_rounds_total{outcome="failed")");
  };
  lets_through = [](std::size_t, const notify_peer&) { return false; };
  for (auto [of_round, of_step] : {setting{3s, 20s}, setting{20s, 3s}}) {
    averaging_config config;
    config.round.deadline = of_round;
    config.round.stall_timeout = 1min; // no member is given up before
    auto first = peers.size();
    auto what = question({1});
    what.deadline = of_step;
    auto began = groups;
    std::vector<pending_report> open;
    for (std::size_t i = 0; i < 2; ++i) {
      add(config);
      open.push_back(average(first + i, what));
    }
    EXPECT_EQ(groups, began + 1);
    pass(3s - 1ms);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_FALSE(open[i].answered());
      EXPECT_EQ(failed(first + i), 0);
    }
    pass(round_check_interval(config.round));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(failed(first + i), 1);
      // A step that has time left tries again.
      EXPECT_EQ(open[i].answered(), of_step < of_round);
    }
    EXPECT_EQ(groups, began + (of_step < of_round ? 1 : 2));
    pass(of_step);
    for (const auto& o : open) {
      ASSERT_TRUE(o.get());
      EXPECT_EQ(o.get()->why.code, ec::timeout);
      EXPECT_EQ(o.get()->why.detail, "the round did not end by its deadline");
    }
  }
}

} // namespace
} // namespace waggle
