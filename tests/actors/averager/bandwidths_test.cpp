// A persistent group whose measured bandwidths change (runtime/averaging/partition.hpp).

#include <functional>
#include <set>

#include "tests/actors/averager/averaging_world.hpp"

namespace waggle {
namespace {

class AveragerBandwidths : public testing::averaging_world {
protected:
  static constexpr double fast = 12e6;
  static constexpr double slow = 3e6;

  /// Three peers in a persistent group that the first one leads, after a round.
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      averaging_config config;
      config.observer = [this, i](const round_report& report) {
        if (report.outcome == round_outcome::failed)
          failures.push_back(i);
      };
      add(config);
    }
    group_size = 3;
    change_plan = [](round_plan& plan) { plan.part_elements = 1; };
    what = question(std::vector<float>(30, 1));
    what.reuse_group = true;
    what.expected_peers = 3;
    expect_round();
    ASSERT_EQ(groups, 1U);
  }
  /// The bandwidth of peer `who`'s link from now on.
  void carry(std::size_t who, double rate) {
    constexpr std::uint64_t packet = 1448;
    auto now = sched.clock().now();
    auto gap = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * packet / rate));
    for (auto at = now - 4s; at < now; at += gap)
      peers[who]->ctx.bandwidth->carried(false, packet, at);
  }
  round_id expect_round() {
    reduced.clear();
    std::vector<pending<round_report>> open;
    for (std::size_t who = 0; who < 3; ++who)
      open.push_back(average(who, what));
    settle();
    round_id id;
    for (const auto& answer : open) {
      auto report = answer.answered() && answer.get() ? *answer.get() : round_report{};
      EXPECT_EQ(report.outcome, round_outcome::complete) << to_string(report.why);
      EXPECT_EQ(report.contributors.size(), 3U);
      EXPECT_TRUE(report.values && report.values->at(17) == 1.0F);
      id = report.round;
    }
    return id;
  }
  /// Records which peers send results.
  void watch(std::function<bool(std::size_t, const notify_peer&)> also = {}) {
    lets_through = [this, also = std::move(also)](std::size_t from, const notify_peer& msg) {
      if (const auto* part = std::get_if<wire::part>(&msg.what);
          part != nullptr && part->kind == wire::part_kind::result)
        reduced.insert(from);
      return !also || also(from, msg);
    };
  }

  average_vector what;
  std::vector<int> failures;     // peers whose round failed
  std::set<std::size_t> reduced; // peers that reduced in the last round

  /// A round after which the leader repartitions the next ones; the second peer does not receive
  /// the new partition until `tell_the_second`.
  void repartition_behind_the_back_of_the_second() {
    watch([this](std::size_t from, const notify_peer& msg) {
      if (!holds_ || !std::holds_alternative<wire::new_partition>(msg.what)
          || msg.to.id != peers[1]->ctx.record.id)
        return true;
      held_.emplace_back(from, msg);
      return false;
    });
    pass(10s);
    carry(0, fast);
    carry(1, fast);
    carry(2, slow);
    expect_round();
    ASSERT_FALSE(held_.empty());
  }
  /// The second peer receives it.
  void pass_on(const inbound_event& event) {
    deliver(*peers[1], event);
    settle();
  }
  void tell_the_second() {
    holds_ = false;
    for (const auto& [from, msg] : held_)
      pass_on({peers[from]->ctx.record, msg.what, {}, nullptr});
  }

  std::vector<std::pair<std::size_t, notify_peer>> held_;
  bool holds_ = true;
};

TEST_F(AveragerBandwidths, APersistentGroupRepartitionsItsWorkWithoutSearchingForAGroup) {
  watch();
  pass(10s);
  carry(0, fast);
  carry(1, fast);
  carry(2, slow);
  expect_round(); // in which they report it
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_NEAR(peers[2]->reported_bandwidth.value_or(0), slow, slow / 20);
  expect_round();
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1})) << "the slow peer reduces nothing";
  pass(5s);
  carry(2, fast);
  expect_round();
  expect_round();
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_EQ(groups, 1U);
  EXPECT_TRUE(failures.empty());
}

TEST_F(AveragerBandwidths, TheLeadersOwnBandwidthCountsToo) {
  watch();
  pass(10s);
  carry(0, slow);
  carry(1, fast);
  carry(2, fast);
  expect_round();
  expect_round();
  EXPECT_EQ(reduced, (std::set<std::size_t>{1, 2}));
  EXPECT_EQ(groups, 1U);
}

TEST_F(AveragerBandwidths, WhatIsDeclaredIsNotMeasured) {
  averaging_config declared;
  declared.measures_bandwidth = false;
  add(declared);
  pass(10s);
  carry(3, fast);
  average(3, what);
  settle();
  EXPECT_FALSE(peers[3]->reported_bandwidth);
}

TEST_F(AveragerBandwidths, NearlyEqualBandwidthsChangeNothing) {
  int announced = 0;
  watch([&](std::size_t, const notify_peer& msg) {
    announced += std::holds_alternative<wire::new_partition>(msg.what) ? 1 : 0;
    return true;
  });
  pass(10s);
  carry(0, fast);
  carry(1, fast * 1.02);
  carry(2, fast * 0.98);
  expect_round();
  expect_round();
  EXPECT_EQ(announced, 0);
}

TEST_F(AveragerBandwidths, AMemberThatReceivesANewPartitionTooLateBeginsAgain) {
  repartition_behind_the_back_of_the_second();
  reduced.clear();
  std::vector<pending<round_report>> open;
  for (std::size_t who : {1U, 0U, 2U})
    open.push_back(average(who, what));
  settle();
  for (const auto& report : open)
    EXPECT_FALSE(report.answered()) << "the peers are in different rounds";
  tell_the_second();
  for (auto& report : open) {
    ASSERT_TRUE(report.answered()) << "without waiting for a timeout";
    EXPECT_EQ(report.get()->outcome, round_outcome::complete);
    EXPECT_EQ(report.get()->contributors.size(), 3U);
  }
  EXPECT_EQ(groups, 1U);
  EXPECT_TRUE(failures.empty()) << "a round that was replaced has not failed";
}

TEST_F(AveragerBandwidths, AStepThatAwaitsItsTriggerTakesTheNewPartition) {
  repartition_behind_the_back_of_the_second();
  auto waits = what;
  waits.require_trigger = true;
  reduced.clear();
  std::vector<pending<round_report>> open{average(1, waits), average(0, what), average(2, what)};
  settle();
  tell_the_second();
  EXPECT_EQ(stage(1), step_stage::awaiting_trigger);
  tell(peers[1]->averager, trigger_step{1, {}, {}});
  for (auto& report : open) {
    ASSERT_TRUE(report.answered());
    EXPECT_EQ(report.get()->contributors.size(), 3U);
  }
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1}));
  EXPECT_EQ(groups, 1U);
}

TEST_F(AveragerBandwidths, ARefusedPartitionEndsTheGroupAfterItsRound) {
  auto last = expect_round();
  wire::new_partition message{last, {{30, 0, 1}, 1}};
  pass_on({peers[0]->ctx.record, message, {}, nullptr});
  EXPECT_EQ(testing::exported(*peers[1]->ctx.metrics,
                              "waggle_network_refused_total{reason=\"protocol_violation\""),
            1.0);
  expect_round();
  EXPECT_EQ(groups, 2U) << "and all of them search for another group at once";
}

TEST_F(AveragerBandwidths, OnlyTheLeaderIsBelieved) {
  watch();
  auto last = expect_round();
  wire::new_partition message{last, {{30, 0, 0}, 1}};
  pass_on({peers[2]->ctx.record, message, {}, nullptr});
  pass_on({peers[2]->ctx.record, wire::bandwidth_report{last, slow}, {}, nullptr});
  expect_round();
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_EQ(groups, 1U);
}

TEST_F(AveragerBandwidths, MessagesOfEarlierRoundsChangeNothing) {
  watch();
  auto past = expect_round();
  expect_round();
  wire::new_partition message{past, {{30, 0, 0}, 1}};
  pass_on({peers[0]->ctx.record, message, {}, nullptr});
  expect_round();
  EXPECT_EQ(reduced, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_EQ(groups, 1U);
}

} // namespace
} // namespace waggle
