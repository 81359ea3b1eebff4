// What controls a step of the averager (triggers, cancellation, deadlines), and groups that stay.

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

TEST_F(Averager, OnlyTheFirstSearchOfAStepIsScheduled) {
  averaging_config config;
  config.round.deadline = 3s;
  for (int i = 0; i < 3; ++i)
    add(config);
  lets_through = [](std::size_t, const notify_peer&) { return false; };
  auto scheduled = [this] {
    std::map<std::size_t, milliseconds> of_peers;
    for (const auto& search : searches)
      of_peers[search.peer] = search.what.scheduled_in;
    return of_peers;
  };
  using pair = std::pair<const std::size_t, milliseconds>;
  auto what = question({1});
  what.scheduled_in = 4s;
  group_size = 3;
  auto first = average(0, what);
  auto second = average(1, what);
  EXPECT_THAT(scheduled(), ElementsAre(pair{0, 4s}, pair{1, 4s}));
  group_size = 2;
  auto third = average(2, question({1}));
  EXPECT_EQ(groups, 1U) << "of the first two";
  group_size = 4;
  pass(4s);
  EXPECT_THAT(scheduled(), ElementsAre(pair{0, 0s}, pair{1, 0s}, pair{2, 0s}))
    << "their round failed, and another wait would only delay the next one";
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

// -- persistent groups ----------------------------------------------------------------------------

TEST_F(Averager, APersistentGroupNeedsNoMatchmaking) {
  add();
  add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 2;
  average_all({what, what});
  auto formed = groups;
  for (int round = 0; round < 5; ++round)
    for (const auto& report : average_all({what, what}))
      EXPECT_EQ(report.outcome, round_outcome::complete);
  EXPECT_EQ(groups, formed);
}

TEST_F(Averager, AVectorThatIsNotFiniteOnlyHarmsItsOwnerInAPersistentGroup) {
  for (auto codec : {codec_id::none, codec_id::float16})
    for (std::size_t poisoned : {0U, 1U, 2U}) { // including the leader
      auto first = peers.size();
      averaging_config config;
      config.codec = codec;
      auto what = question({1, 1, 1, 1, 1, 1});
      what.reuse_group = true;
      what.expected_peers = 3;
      std::vector<pending_report> open;
      group_size = 3;
      for (std::size_t i = 0; i < 3; ++i) {
        add(config);
        open.push_back(average(first + i, what));
      }
      settle();
      auto formed = groups;
      auto bad = what;
      bad.values = vector({1, 1, 1, 1, 1, std::nanf("")});
      open.clear();
      for (std::size_t i = 0; i < 3; ++i)
        open.push_back(average(first + i, i == poisoned ? bad : what));
      settle();
      pass(10s); // longer than a takeover
      EXPECT_EQ(groups, formed) << "the group persisted";
      for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(open[i].answered() && open[i].get());
        auto report = *open[i].get();
        if (i == poisoned) {
          EXPECT_EQ(report.outcome, round_outcome::failed);
          EXPECT_EQ(report.why.code, ec::non_finite) << to_string(report.why);
        } else {
          EXPECT_EQ(report.outcome, round_outcome::shrunk) << to_string(report.why);
          EXPECT_EQ(report.contributors.size(), 2U);
          EXPECT_THAT(*report.values, ::testing::Each(1.0F));
        }
      }
      auto again = average(first + poisoned, bad);
      ASSERT_TRUE(again.answered());
      EXPECT_FALSE(again.get()) << "it no longer takes part";
    }
}

TEST_F(Averager, AVectorThatWeighsNothingIsCheckedInAPersistentGroup) {
  add();
  add();
  auto what = question({1, 1});
  what.reuse_group = true;
  what.expected_peers = 2;
  average_all({what, what});
  auto bad = question({1, std::nanf("")}, 0);
  bad.reuse_group = true;
  bad.expected_peers = 2;
  EXPECT_EQ(refusal(bad), ec::non_finite) << "reducers would not check it";
}

TEST_F(Averager, AGroupOfABucketDoesNotStand) {
  regrouped = true;
  add();
  add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 2;
  for (int round = 1; round <= 3; ++round) {
    average_all({what, what});
    EXPECT_EQ(groups, round) << "every round has other members";
  }
}

// Peer 1 has begun the group's next round when peer 0, which has not, loses peer 2.
TEST_F(Averager, AMemberThatLosesAnotherBetweenRoundsCallsTheRestBackAtOnce) {
  group_size = 3;
  for (int i = 0; i < 3; ++i)
    add();
  auto what = question({1});
  what.reuse_group = true;
  what.expected_peers = 3;
  average_all({what, what, what});
  auto began = groups;
  auto second = average(1, what);
  settle();
  peer_disconnected lost{peers[2]->ctx.record.id, {ec::peer_lost, {}}};
  tell(peers[0]->averager, lost);
  tell(peers[1]->averager, lost);
  group_size = 2;
  auto first = average(0, what);
  settle();
  EXPECT_EQ(groups, began + 1) << "both search at once, without waiting for a timeout";
  ASSERT_TRUE(first.answered() && first.get());
  ASSERT_TRUE(second.answered() && second.get());
  EXPECT_EQ(first.get()->outcome, round_outcome::complete);
  EXPECT_EQ(first.get()->round, second.get()->round);
}

TEST_F(Averager, AMemberThatLeavesThePersistentGroupDelaysNoOther) {
  for (int i = 0; i < 3; ++i)
    add();
  auto what = question({1});
  what.reuse_group = true;
  average_all({what, what, what});
  // The first peer searches for a group of two; the others begin the persistent group's round.
  group_size = 2;
  auto two = what;
  two.expected_peers = 2;
  auto second = average(1, what);
  auto first = average(0, two);
  settle();
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(second.get());
  EXPECT_EQ(first.get()->outcome, round_outcome::complete);
  EXPECT_EQ(second.get()->contributors.size(), 2U);
}

} // namespace
} // namespace waggle
