#include "actors/averaging/allreduce_round.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "actors/averaging/compute_worker.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle {
namespace {

/// The messages of the round to other members, and its outcome.
struct observed {
  std::vector<notify_peer> told;
  std::vector<round_finished> ended;
};
using log_book = std::shared_ptr<observed>;

switchboard_actor::behavior_type recording_switchboard(switchboard_actor::pointer, log_book log) {
  return {
    [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
    [=](const notify_peer& msg) { log->told.push_back(msg); },
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
  };
}

round_listener_actor::behavior_type recording_listener(round_listener_actor::pointer,
                                                       log_book log) {
  return {[=](const round_finished& msg) { log->ended.push_back(msg); },
          [](const group_message&) {}};
}

/// Three members. This peer is the first one, leads, and reduces all three parts of six values.
class AllreduceRound : public testing::actor_test {
protected:
  AllreduceRound() : ctx(testing::test_context(1, wall)) {}

  void SetUp() override {
    plan.prefix = "test";
    plan.id.bytes[0] = std::byte{7};
    plan.members = {{ctx.record, member_mode::node},
                    {testing::test_peer(2), member_mode::node},
                    {testing::test_peer(3), member_mode::node}};
    plan.elements = 6;
    plan.part_elements = 2;
    plan.shares = {6, 0, 0};
    plan.codecs = {{6, codec_id::none}};
    plan.gathered.resize(3);
    change_plan();
    ASSERT_TRUE(validate_plan(plan));
    order.plan = plan;
    order.values = std::make_shared<float_vector>(float_vector{1, 1, 1, 1, 1, 1});
    auto board = spawn(recording_switchboard, log);
    auto listener = spawn(recording_listener, log);
    handles.switchboard = board;
    handles.listener = listener;
    round = spawn<allreduce_round>(ctx, config, order, handles);
    settle();
  }

  /// For fixtures with another plan.
  virtual void change_plan() {}

  /// `values` as encoded on the wire.
  payload encoded(const std::vector<float>& values) const {
    auto bytes = std::make_shared<std::vector<std::byte>>(encoded_size(codec, values.size()));
    encode(codec, values, *bytes);
    return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
  }

  void contribute(std::size_t member, std::uint32_t part, const std::vector<float>& values) {
    deliver(contribution(member, part, values));
  }
  inbound_event contribution(std::size_t member, std::uint32_t part,
                             const std::vector<float>& values) const {
    wire::part head{.round = plan.id,
                    .kind = wire::part_kind::contribution,
                    .index = part,
                    .offset = part * 2,
                    .count = 2,
                    .weight = 1};
    return {plan.members[member].peer, head, encoded(values), nullptr};
  }
  void contribute_all(std::size_t member, float value) {
    for (std::uint32_t part = 0; part < 3; ++part)
      contribute(member, part, {value, value});
  }
  void deliver(inbound_event event) {
    testing::deliver(ctx, nullptr, event, sys.clock().now());
    settle();
  }
  void say(std::size_t member, wire::event what) {
    deliver({plan.members[member].peer, std::move(what), {}, nullptr});
  }
  template <class Event>
  std::vector<Event> told(std::size_t member) {
    std::vector<Event> out;
    for (const auto& msg : log->told)
      if (const auto* event = std::get_if<Event>(&msg.what))
        if (msg.to.id == plan.members[member].peer.id)
          out.push_back(*event);
    return out;
  }
  /// Another member holds what we have reported to hold.
  wire::round_prepared same_as_ours(std::uint32_t view) {
    auto ours = told<wire::round_prepared>(2);
    EXPECT_FALSE(ours.empty()) << "we hold no result";
    auto held = first_view(plan);
    for (const auto& proposed : told<wire::round_propose>(2))
      if (proposed.view.number == view)
        held = proposed.view;
    held.result = ours.empty() ? digest{} : ours.back().result;
    // member 2, as in `plan.members`
    return {plan.id, view, held.result,
            identity::from_seed(3)->sign(prepared_statement(plan.id, held))};
  }
  double refused(const std::string& reason) {
    return testing::exported(*ctx.metrics,
                             "waggle_network_refused_total{reason=\"" + reason + "\"");
  }
  /// The round continues without member 1 and ends once member 2 also holds the result.
  void expect_shrunk_without_member_1(ec reason) {
    auto views = told<wire::round_propose>(2);
    ASSERT_EQ(views.size(), 1U);
    EXPECT_EQ(views[0].view.contributors, 0b101U);
    EXPECT_TRUE(log->ended.empty()) << "no other member holds the result yet";
    say(2, same_as_ours(views[0].view.number));
    ASSERT_EQ(log->ended.size(), 1U);
    const auto& report = log->ended[0].report;
    EXPECT_EQ(report.outcome, round_outcome::shrunk);
    EXPECT_EQ(report.contributors, (std::vector{plan.members[0].peer.id, plan.members[2].peer.id}));
    EXPECT_EQ(*report.values, (float_vector{2, 2, 2, 2, 2, 2}));
    ASSERT_EQ(report.faults.size(), 1U);
    EXPECT_EQ(report.faults[0].peer, plan.members[1].peer.id);
    EXPECT_EQ(report.faults[0].reason, reason);
    EXPECT_TRUE(report.faults[0].seen);
    EXPECT_EQ(told<wire::round_commit>(2).size(), 1U);
  }

  log_book log = std::make_shared<observed>();
  node_context ctx;
  round_plan plan;
  codec_id codec = codec_id::none;
  round_request order;
  round_config config;
  round_handles handles;
  allreduce_round_actor round;
};

TEST_F(AllreduceRound, AppliesNothingBeforeEverybodyHoldsTheResult) {
  contribute_all(1, 2);
  contribute_all(2, 3);
  EXPECT_EQ(told<wire::part>(1).size(), 3U);
  EXPECT_EQ(told<wire::part>(2).size(), 3U);
  say(1, same_as_ours(0));
  EXPECT_TRUE(log->ended.empty());
  say(2, same_as_ours(0));
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(log->ended[0].report.outcome, round_outcome::complete);
  EXPECT_EQ(*log->ended[0].report.values, (float_vector{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(log->ended[0].report.weight_sum, 3);
}

TEST_F(AllreduceRound, GoesOnWithoutAMemberThatSendsNaN) {
  contribute_all(2, 3);
  contribute(1, 0, {std::numeric_limits<float>::quiet_NaN(), 0});
  contribute(1, 1, {0, 0});
  EXPECT_EQ(refused("non_finite"), 1);
  expect_shrunk_without_member_1(ec::non_finite);
}

TEST_F(AllreduceRound, GoesOnWithoutAMemberWhoseLinkBreaks) {
  contribute_all(2, 3);
  contribute(1, 0, {5, 5});
  tell(round, peer_disconnected{plan.members[1].peer.id, {ec::peer_lost, {}}});
  expect_shrunk_without_member_1(ec::peer_lost);
}

/// The same members, with a robust aggregator.
class RobustRound : public AllreduceRound {
protected:
  RobustRound() { plan.reduce_by = {aggregator::median, 1}; }
};

TEST_F(RobustRound, ReducesByWhatThePlanSays) {
  contribute_all(1, 30'000);
  contribute_all(2, 2);
  say(1, same_as_ours(0));
  say(2, same_as_ours(0));
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(log->ended[0].report.outcome, round_outcome::complete);
  EXPECT_EQ(*log->ended[0].report.values, (float_vector{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(log->ended[0].report.weight_sum, 3) << "of all contributors, excluded or not";
}

TEST_F(AllreduceRound, IgnoresStrangers) {
  wire::round_abort abort{plan.id, ec::cancelled};
  deliver({testing::test_peer(9), abort, {}, nullptr});
  EXPECT_TRUE(log->ended.empty());
  EXPECT_EQ(refused("protocol_violation"), 1);
}

TEST_F(AllreduceRound, KeepsOnlySoManyPartsOfViewsToCome) {
  contribute_all(2, 3);
  wire::part head{.round = plan.id, .view = 3, .kind = wire::part_kind::result, .count = 2};
  for (int i = 0; i < 12; ++i)
    deliver({plan.members[1].peer, head, encoded({1, 1}), nullptr});
  EXPECT_EQ(refused("overloaded"), 0);
  deliver({plan.members[1].peer, head, encoded({1, 1}), nullptr});
  EXPECT_EQ(refused("overloaded"), 1);
  expect_shrunk_without_member_1(ec::overloaded);
}

TEST_F(AllreduceRound, FailsByItsDeadlineWithAReason) {
  pass(61s);
  tell(round, check_round{});
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(log->ended[0].report.outcome, round_outcome::failed);
  EXPECT_NE(log->ended[0].report.why.code, ec::none);
  EXPECT_EQ(log->ended[0].report.values, nullptr);
}

TEST_F(AllreduceRound, LeavesNothingBehindWhenItEnds) {
  auto left = caf::actor_cast<caf::weak_actor_ptr>(round);
  pass(61s);
  tell(round, check_round{});
  round = nullptr;
  settle();
  EXPECT_EQ(left.get()->strong_refs.load(), 0U);
  EXPECT_EQ(left.get()->weak_refs.load(), 2U) << "the fixture and this test; not its listener";
}

/// Member 1 reduces everything and contributes nothing; the codec rounds the values.
class AllreduceRoundWithAnAuxiliary : public AllreduceRound {
protected:
  void change_plan() override {
    plan.members[1].mode = member_mode::auxiliary;
    plan.shares = {0, 6, 0};
    codec = codec_id::float16;
    plan.codecs = {{6, codec}};
  }

  void send_result(std::size_t member, std::uint32_t part, const std::vector<float>& values) {
    wire::part head{.round = plan.id,
                    .kind = wire::part_kind::result,
                    .index = part,
                    .offset = part * 2,
                    .count = 2,
                    .weight = 2,
                    .contributors = 0b101,
                    .weights = {1, 1}};
    deliver({plan.members[member].peer, head, encoded(values), nullptr});
  }
};

// The mean of 1 and 1.0009765625 lies between two float16 values: a member that wrote an unrounded
// sum into its result would end with other bytes than the rest.
TEST_F(AllreduceRoundWithAnAuxiliary, KeepsAResultThatItReducesAgainInPlaceOfItsReducer) {
  constexpr float next_to_one = 1.0009765625F;
  for (std::uint32_t part = 0; part < 3; ++part)
    send_result(1, part, {1, 1});
  say(2, same_as_ours(0));
  tell(round, peer_disconnected{plan.members[1].peer.id, {ec::peer_lost, {}}});
  auto views = told<wire::round_propose>(2);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].view.contributors, 0b101U) << "both remaining members hold the result";
  // Two of the parts are ours now.
  contribute(2, 0, {next_to_one, next_to_one});
  contribute(2, 2, {next_to_one, next_to_one});
  say(2, same_as_ours(views[0].view.number));
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(log->ended[0].report.outcome, round_outcome::complete);
  EXPECT_EQ(*log->ended[0].report.values, (float_vector{1, 1, 1, 1, 1, 1}));
}

/// All parts are reduced by two compute_workers.
class AllreduceRoundWithWorkers : public AllreduceRound {
protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i)
      handles.workers.push_back(sys.spawn([this]() -> compute_worker_actor::behavior_type {
        return {[this](const run_job& what) { return ++jobs, job_done{what.job()}; }};
      }));
    config.offload_elements = 1;
    AllreduceRound::SetUp();
  }

  int jobs = 0;
};

TEST_F(AllreduceRoundWithWorkers, SumsArePassedToTheWorkersAndTheirResultsSent) {
  contribute_all(1, 2);
  contribute_all(2, 3);
  EXPECT_EQ(jobs, 3);
  EXPECT_EQ(told<wire::part>(1).size(), 3U);
  say(1, same_as_ours(0));
  say(2, same_as_ours(0));
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(*log->ended[0].report.values, (float_vector{2, 2, 2, 2, 2, 2}));
}

TEST_F(AllreduceRoundWithWorkers, AMemberWhoseValuesAWorkerRefusesIsLeftOut) {
  contribute_all(2, 3);
  contribute(1, 0, {std::numeric_limits<float>::quiet_NaN(), 0});
  contribute(1, 1, {0, 0});
  EXPECT_EQ(refused("non_finite"), 1);
  expect_shrunk_without_member_1(ec::non_finite);
}

TEST_F(AllreduceRoundWithWorkers, SumsOfAViewThatIsOverAreNotUsed) {
  contribute_all(2, 3);
  auto now = sys.clock().now();
  for (std::uint32_t part = 0; part < 3; ++part) // the workers do not run yet
    testing::deliver(ctx, nullptr, contribution(1, part, {9, 9}), now);
  caf::anon_send(round, peer_disconnected{plan.members[1].peer.id, {ec::peer_lost, {}}});
  settle();
  expect_shrunk_without_member_1(ec::peer_lost);
}

TEST_F(AllreduceRoundWithWorkers, ASumThatArrivesAfterTheRoundIsDropped) {
  contribute_all(2, 3);
  for (std::uint32_t part = 0; part < 3; ++part)
    testing::deliver(ctx, nullptr, contribution(1, part, {2, 2}), sys.clock().now());
  caf::anon_send(round, cancel_round{});
  settle();
  ASSERT_EQ(log->ended.size(), 1U);
  EXPECT_EQ(log->ended[0].report.outcome, round_outcome::failed);
}

} // namespace
} // namespace waggle
