// What ends a step of the averager: peers that leave, failures, deadlines.

#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;

TEST_F(Averager, TheGroupGoesOnWithoutThoseWhoLeave) {
  for (int i = 0; i < 4; ++i)
    add();
  group_size = 4;
  std::vector<pending<group_formed>> found{find(0, 1), find(1, 1)};
  std::vector<pending_report> open{average(2, question({2})), average(3, question({3}))};
  group_size = 2; // for the peers that search again
  for (std::size_t i : {0, 1}) {
    EXPECT_TRUE(found[i].get().ok());
    tell(peers[i]->group, quit_group{});
  }
  pass(5s);
  for (const auto& o : open) {
    ASSERT_TRUE(o.get());
    EXPECT_EQ(o.get()->contributors.size(), 2U);
    EXPECT_THAT(*o.get()->values, ElementsAre(2.5F));
  }
}

TEST_F(Averager, WithoutRetriesOneFailureIsTheEnd) {
  change_plan = [](round_plan& plan) { plan.min_contributors = 2; };
  for (bool retries : {true, false}) {
    averaging_config config;
    if (!retries)
      config.retries_max = 0;
    auto first = peers.size();
    add(config).deaf = true;
    add(config);
    auto what = question({1});
    what.deadline = 20s;
    auto before = groups;
    auto a = average(first, what);
    auto b = average(first + 1, what);
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
