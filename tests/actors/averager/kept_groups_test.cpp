// Groups that matchmaking formed and that go on as open groups, among whole peers.

#include <algorithm>
#include <cmath>
#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/simulation.hpp"

namespace waggle::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::FloatNear;
using index = simulation::index;

class KeptGroups : public ::testing::Test {
protected:
  /// Averages step after step from `start_steps` on.
  struct driver {
    average_vector what;
    std::vector<round_report> ended;
    std::size_t wanted = 0; // steps
  };

  index add(member_mode mode = member_mode::node, codec_id codec = codec_id::none,
            std::size_t smallest = 2) {
    node_config config{.run_id = "sim", .client_mode = mode == member_mode::client};
    auto& parts = config.averaging.emplace();
    parts.matchmaking.prefix = "vector";
    parts.matchmaking.mode = mode;
    parts.matchmaking.min_group_size = smallest;
    parts.matchmaking.target_group_size = largest;
    parts.matchmaking.min_matchmaking_time = 1500ms;
    parts.matchmaking.request_timeout = 1s;
    parts.averaging.auxiliary = mode == member_mode::auxiliary;
    parts.averaging.kind = "vector";
    parts.averaging.codec = codec;
    parts.averaging.round.stall_timeout = 2s;
    auto others = sim.living();
    auto who = sim.start(config, {others.begin(), others.begin() + (others.empty() ? 0 : 1)});
    auto& what = drivers.emplace_back().what;
    what.deadline = 30s;
    what.reuse_group = true;
    set_values(who, 50, static_cast<float>(who));
    if (parts.averaging.auxiliary)
      what.values = nullptr;
    sim.run_for(2s);
    return who;
  }
  void set_values(index who, std::size_t elements, float value) {
    drivers[who].what.values = std::make_shared<const float_vector>(elements, value);
    drivers[who].what.elements = elements;
  }
  void start_steps(index who, std::size_t count) {
    bool idle = drivers[who].ended.size() >= drivers[who].wanted;
    drivers[who].wanted = drivers[who].ended.size() + count;
    if (idle)
      step(who);
  }
  void step(index who) {
    sim.later<round_report>(sim[who].node.parts.averager, drivers[who].what,
                            [this, who](const round_report& report) {
                              drivers[who].ended.push_back(report);
                              if (drivers[who].ended.size() < drivers[who].wanted)
                                step(who);
                            });
  }
  bool end_all(const std::vector<index>& all) {
    return sim.run_until(
      [&] {
        return std::all_of(all.begin(), all.end(), [&](index who) {
          return drivers[who].ended.size() >= drivers[who].wanted;
        });
      },
      120s);
  }
  bool steps(const std::vector<index>& all, std::size_t count) {
    for (auto who : all)
      start_steps(who, count);
    return end_all(all);
  }
  const round_report& last(index who) { return drivers[who].ended.back(); }

  std::size_t largest = 64; // group of those that are added from now on
  std::deque<driver> drivers;
  simulation sim{7}; // its actors use the drivers
};

TEST_F(KeptGroups, NeedNoMatchmaking) {
  std::vector<index> all{add(), add(), add(member_mode::client), add(member_mode::auxiliary)};
  for (auto who : all)
    drivers[who].what.expected_peers = 4;
  ASSERT_TRUE(steps(all, 6));
  for (auto who : all) {
    for (std::size_t i = 0; i < 6; ++i) {
      const auto& report = drivers[who].ended[i];
      EXPECT_EQ(report.outcome, round_outcome::complete) << to_string(report.why);
      EXPECT_EQ(report.contributors.size(), 3U) << "the auxiliary has none";
      EXPECT_EQ(report.round, drivers[0].ended[i].round);
      EXPECT_EQ(report.matchmaking_seconds > 0, i == 0);
      ASSERT_TRUE(report.values);
      EXPECT_THAT(*report.values, Each(FloatNear(1, 1e-6F)));
    }
  }
}

TEST_F(KeptGroups, AreEnteredByPeersThatComeLater) {
  std::vector<index> all{add(), add()};
  ASSERT_TRUE(steps(all, 2));
  for (int later = 0; later < 2; ++later) {
    for (auto who : all)
      start_steps(who, 10'000);
    auto who = add(later == 0 ? member_mode::node : member_mode::client);
    all.push_back(who);
    start_steps(who, 10'000); // the others would wait for one that stops
    ASSERT_TRUE(sim.run_until([&] { return drivers[who].ended.size() >= 3; }, 60s));
    EXPECT_EQ(last(who).contributors.size(), all.size());
    for (const auto& d : drivers)
      for (const auto& report : d.ended)
        EXPECT_NE(report.outcome, round_outcome::failed) << to_string(report.why);
  }
}

TEST_F(KeptGroups, OfTheExpectedNumberGrowNoFurther) {
  std::vector<index> pair{add(), add()};
  for (auto who : pair)
    drivers[who].what.expected_peers = 2;
  ASSERT_TRUE(steps(pair, 2));
  auto third = add();
  drivers[third].what.deadline = 5s;
  for (auto who : pair)
    start_steps(who, 10'000);
  ASSERT_TRUE(steps({third}, 1));
  EXPECT_EQ(last(third).outcome, round_outcome::failed);
  EXPECT_EQ(last(0).contributors.size(), 2U);
}

TEST_F(KeptGroups, ThatAreFullDoNotKeepLaterPeersOut) {
  largest = 2;
  std::vector<index> all{add(), add()};
  ASSERT_TRUE(steps(all, 2));
  for (auto who : all)
    start_steps(who, 10'000);
  all.push_back(add());
  start_steps(2, 10'000);
  ASSERT_TRUE(sim.run_until([&] { return drivers[2].ended.size() >= 3; }, 60s));
  std::vector<std::size_t> begun;
  for (const auto& each : drivers)
    begun.push_back(each.ended.size());
  sim.run_for(30s);
  for (auto who : all) {
    auto from = drivers[who].ended.begin() + static_cast<std::ptrdiff_t>(begun[who]);
    auto together = std::count_if(from, drivers[who].ended.end(), [](const round_report& each) {
      return each.outcome == round_outcome::complete && each.contributors.size() == 2;
    });
    EXPECT_GE(together, 1) << "peer " << who;
  }
}

TEST_F(KeptGroups, OfWhichAMemberLeavesForALaterPeerGoOn) {
  largest = 4;
  std::vector<index> all{add(), add(), add(), add()};
  ASSERT_TRUE(steps(all, 2));
  for (auto who : all)
    start_steps(who, 10'000);
  all.push_back(add());
  start_steps(4, 10'000);
  for (std::size_t more : {3, 6, 9})
    for (auto who : all)
      ASSERT_TRUE(sim.run_until([&] { return drivers[who].ended.size() >= 2 + more; }, 120s))
        << who;
}

TEST_F(KeptGroups, GoOnWithoutAMemberThatDies) {
  std::vector<index> all{add(), add(), add(), add()};
  for (auto who : all)
    start_steps(who, 10'000);
  ASSERT_TRUE(sim.run_until([&] { return drivers[0].ended.size() > 50; }, 60s));
  for (auto victim : {index{2}, index{0}}) { // the first one knows all others
    sim.crash(victim, victim == 0);
    std::erase(all, victim);
    for (auto who : all)
      drivers[who].ended.clear();
    ASSERT_TRUE(sim.run_until([&] { return drivers[1].ended.size() > 50; }, 60s));
    for (auto who : all) {
      EXPECT_EQ(last(who).contributors.size(), all.size());
      for (const auto& report : drivers[who].ended)
        EXPECT_NE(report.outcome, round_outcome::failed) << to_string(report.why);
    }
  }
}

TEST_F(KeptGroups, DoNotGoOnWithTooFewMembers) {
  std::vector<index> all;
  for (int i = 0; i < 3; ++i)
    all.push_back(add(member_mode::node, codec_id::none, 3));
  ASSERT_TRUE(steps(all, 2));
  ASSERT_EQ(last(0).outcome, round_outcome::complete) << to_string(last(0).why);
  sim.crash(2, false);
  for (auto who : {0, 1})
    drivers[who].what.deadline = 5s;
  ASSERT_TRUE(steps({0, 1}, 2)); // in the first of them it is lost
  for (auto who : {0, 1})
    EXPECT_EQ(last(who).outcome, round_outcome::failed);
}

TEST_F(KeptGroups, AMemberThatWantsAnotherGroupDelaysNoOther) {
  std::vector<index> all{add(), add(), add()};
  ASSERT_TRUE(steps(all, 2));
  drivers[0].what.expected_peers = 2; // it searches for another one, in vain
  drivers[0].what.deadline = 5s;
  auto began = sim.seconds();
  start_steps(0, 1);
  ASSERT_TRUE(steps({1, 2}, 1));
  EXPECT_LT(sim.seconds() - began, 1) << "less than the timeout of a silent member";
  for (auto who : {1, 2}) {
    EXPECT_EQ(last(who).outcome, round_outcome::shrunk);
    EXPECT_EQ(last(who).contributors.size(), 2U);
  }
}

TEST_F(KeptGroups, AVectorOfAnotherLengthNeedsAnotherGroup) {
  std::vector<index> all{add(), add()};
  for (auto elements : {50U, 7U, 50U}) {
    for (auto who : all) {
      drivers[who].what.expected_peers = 2;
      set_values(who, elements, static_cast<float>(who));
    }
    ASSERT_TRUE(steps(all, 2));
    for (auto who : all) {
      EXPECT_EQ(last(who).values->size(), elements);
      EXPECT_EQ(last(who).matchmaking_seconds, 0);
    }
  }
}

TEST_F(KeptGroups, AVectorThatIsNotFiniteOnlyHarmsItsOwner) {
  for (auto codec : {codec_id::none, codec_id::float16}) {
    std::vector<index> all{add(member_mode::node, codec), add(member_mode::node, codec),
                           add(member_mode::node, codec)};
    for (auto who : all)
      drivers[who].what.expected_peers = 3;
    ASSERT_TRUE(steps(all, 2));
    auto poisoned = all[1];
    set_values(poisoned, 50, std::nanf(""));
    ASSERT_TRUE(steps(all, 1));
    EXPECT_EQ(last(poisoned).outcome, round_outcome::failed);
    EXPECT_EQ(last(poisoned).why.code, ec::non_finite) << to_string(last(poisoned).why);
    for (auto who : {all[0], all[2]}) {
      EXPECT_EQ(last(who).outcome, round_outcome::shrunk) << to_string(last(who).why);
      EXPECT_EQ(last(who).contributors.size(), 2U);
      EXPECT_THAT(*last(who).values, Each(static_cast<float>(all[0] + all[2]) / 2));
    }
    for (auto who : all)
      sim.crash(who, false);
  }
}

TEST_F(KeptGroups, AVectorThatWeighsNothingIsChecked) {
  std::vector<index> all{add(), add()};
  ASSERT_TRUE(steps(all, 2));
  auto bad = drivers[0].what;
  bad.values = std::make_shared<const float_vector>(50, std::nanf(""));
  bad.weight = 0;
  EXPECT_FALSE(sim.ask<round_report>(sim[0].node.parts.averager, bad))
    << "reducers do not check it";
}

TEST_F(KeptGroups, AlphaDeltasAndTextsAreThoseOfTheStep) {
  std::vector<index> all{add(), add()};
  for (auto who : all) {
    set_values(who, 50, static_cast<float>(4 * who));
    drivers[who].what.expected_peers = 2;
    drivers[who].what.alpha = 0.5;
    drivers[who].what.deltas = true;
  }
  ASSERT_TRUE(steps(all, 2));
  EXPECT_THAT(*last(0).values, Each(1.0F));
  EXPECT_THAT(*last(1).values, Each(3.0F));
  for (auto who : all)
    drivers[who].what.gather = "text of " + std::to_string(who);
  ASSERT_TRUE(steps(all, 2));
  for (auto who : all) {
    ASSERT_EQ(last(who).gathered.size(), 2U);
    for (const auto& [peer, text] : last(who).gathered)
      EXPECT_EQ(text, peer == sim[0].self->id() ? "text of 0" : "text of 1");
    EXPECT_GT(last(who).matchmaking_seconds, 0) << "matchmaking exchanges them";
  }
}

TEST_F(KeptGroups, AMemberThatQuitsDelaysNoOther) {
  std::vector<index> all{add(), add(), add()};
  for (auto who : all)
    drivers[who].what.expected_peers = 3;
  ASSERT_TRUE(steps(all, 2));
  drivers[0].what.deadline = 5s;
  start_steps(0, 1);
  sim.run_for(100ms); // it waits for the others
  caf::anon_send(sim[0].node.parts.group, quit_group{});
  auto began = sim.seconds();
  ASSERT_TRUE(steps({1, 2}, 1));
  EXPECT_LT(sim.seconds() - began, 4);
  ASSERT_TRUE(end_all({0}));
  EXPECT_EQ(last(0).outcome, round_outcome::failed);
}

} // namespace
} // namespace waggle::testing
