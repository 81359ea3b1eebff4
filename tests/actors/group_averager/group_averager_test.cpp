#include "actors/group_averager.hpp"

#include <functional>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/actor_test.hpp"

namespace waggle::testing {
namespace {

const digest branch = sha256("branch");

/// Group averagers in one actor system. Their switchboards pass events and requests to each other;
/// a test may answer or lose them instead.
struct GroupAverager : actor_test {
  struct peer {
    node_context ctx;
    wired_group_averager_actor actor;
    std::vector<group_view> views;
    std::vector<epoch_id> calls; // of rounds that other members began
  };

  ~GroupAverager() override { end_actors(); }

  peer& add(member_mode mode = member_mode::node) {
    auto i = peers.size();
    auto& p = *peers.emplace_back(std::make_unique<peer>());
    p.ctx = test_context(i + 1, wall);
    auto board =
      spawn([this, i](switchboard_actor::pointer self) -> switchboard_actor::behavior_type {
        return {
          [this, i, self](const call_peer& call) -> caf::result<peer_answer> {
            const auto& question = std::get<wire::enter_group>(call.what);
            asked.push_back(call.to.id);
            if (answer_entry)
              if (auto code = answer_entry())
                return peer_answer{call.to.id, wire::join_reply{*code, {}}, {}};
            auto promise = self->make_response_promise<peer_answer>();
            self->request(find(call.to.id).actor, 1s, inbound_call{peers[i]->ctx.record, question})
              .then(
                [promise, call](const outbound_answer& answer) mutable {
                  promise.deliver(peer_answer{call.to.id, answer.what, answer.body});
                },
                [promise](const caf::error& why) mutable { promise.deliver(why); });
            return promise;
          },
          [this, i](const notify_peer& msg) {
            if (lets_through(i, msg))
              testing::deliver(find(msg.to.id).ctx, find(msg.to.id).actor,
                               {peers[i]->ctx.record, msg.what, msg.body, nullptr},
                               sys.clock().now());
          },
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
          [](get_connected_peers) { return connected_peers{}; },
        };
      });
    averaging_config averaging;
    matchmaking_config members;
    members.prefix = "gradients";
    members.mode = mode;
    averaging.auxiliary = mode == member_mode::auxiliary;
    auto made = sys.spawn<group_averager>(p.ctx, averaging, members, board);
    keep(made);
    p.actor = made;
    auto listener =
      spawn([&p](group_listener_actor::pointer) -> group_listener_actor::behavior_type {
        return {
          [&p](const group_view& view) { p.views.push_back(view); },
          [&p](const round_called& call) { p.calls.push_back(call.epoch); },
        };
      });
    tell(p.actor, listen_group{listener});
    tell(p.actor, describe_vector{values, nullptr});
    return p;
  }
  peer& find(const peer_id& id) {
    for (auto& p : peers)
      if (p->ctx.record.id == id)
        return *p;
    throw std::logic_error{"nobody has this id"};
  }

  result<group_view> found(peer& p, std::uint64_t epoch = 3) {
    return ask<group_view>(p.actor, found_group{epoch_id{epoch}, branch});
  }
  pending<group_view> enter(peer& p, const std::vector<peer*>& through, digest wanted = branch) {
    enter_group msg;
    for (auto* other : through)
      msg.through.push_back(other->ctx.record);
    msg.branch = wanted;
    msg.deadline = 30s;
    return ask_later<group_view>(p.actor, msg);
  }
  pending<group_round> average(peer& p, float value, std::uint64_t epoch, bool call = true) {
    average_in_group question;
    question.values = std::make_shared<float_vector>(values, value);
    question.weight = 1;
    question.epoch = epoch_id{epoch};
    question.call = call;
    question.deadline = 20s;
    return ask_later<group_round>(p.actor, std::move(question));
  }
  void lose(peer& by, const peer& who) {
    tell(by.actor, peer_disconnected{who.ctx.record.id, {ec::peer_lost, "as the test wants"}});
  }
  static float first_of(const group_round& round) { return round.report.values->front(); }

  static constexpr std::uint64_t values = 64;
  std::vector<std::unique_ptr<peer>> peers;
  std::vector<peer_id> asked; // peers that were asked for admission
  std::function<std::optional<ec>()> answer_entry;
  std::function<bool(std::size_t from, const notify_peer&)> lets_through =
    [](std::size_t, const notify_peer&) { return true; };
};

TEST_F(GroupAverager, PeersEnterAndAverageRoundAfterRound) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  auto entered = enter(b, {&a});
  ASSERT_TRUE(entered.answered());
  ASSERT_TRUE(entered.get().ok());
  EXPECT_EQ(entered.get()->branch, branch);
  ASSERT_EQ(a.views.size(), 1U);
  EXPECT_EQ(a.views[0].members.size(), 2U);
  for (std::uint64_t epoch : {3U, 4U, 5U}) {
    auto one = average(a, 1, epoch);
    EXPECT_EQ(b.calls.back(), epoch_id{epoch});
    auto two = average(b, 3, epoch, false);
    pass(1s);
    ASSERT_TRUE(one.get().ok());
    ASSERT_TRUE(two.get().ok());
    EXPECT_EQ(one.get()->report.outcome, round_outcome::complete);
    EXPECT_EQ(first_of(*one.get()), 2.0F);
    EXPECT_EQ(first_of(*two.get()), 2.0F);
    EXPECT_TRUE(one.get()->keeps_majority);
    EXPECT_EQ(one.get()->branch, branch);
    EXPECT_EQ(two.get()->group.epoch, epoch_id{epoch + 1});
  }
}

TEST_F(GroupAverager, WhoeverIsSentToTheLeaderAsksIt) {
  auto& a = add();
  auto& b = add();
  auto& c = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  auto entered = enter(c, {&b});
  ASSERT_TRUE(entered.get().ok());
  EXPECT_THAT(asked, ::testing::ElementsAre(a.ctx.record.id, b.ctx.record.id, a.ctx.record.id));
}

TEST_F(GroupAverager, AGroupThatTrainsAnotherHistoryIsNotEntered) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  auto entered = enter(b, {&a}, sha256("another branch"));
  ASSERT_TRUE(entered.answered());
  EXPECT_EQ(entered.get().error().code, ec::wrong_run);
  EXPECT_EQ(average(a, 1, 3).get()->report.group_size, 1U);
}

// The leader may have lost its group, and with it the applicants that it had accepted.
TEST_F(GroupAverager, AnAcceptedApplicantWithoutAPlanAsksAgainUntilItIsRefused) {
  auto& a = add();
  auto& b = add();
  int answers = 0;
  answer_entry = [&answers] { return ++answers < 3 ? ec::none : ec::not_ready; };
  auto entered = enter(b, {&a});
  pass(1s);
  EXPECT_EQ(answers, 1);
  pass(2s);
  EXPECT_EQ(answers, 2);
  EXPECT_FALSE(entered.answered());
  pass(2s);
  EXPECT_EQ(answers, 3);
  ASSERT_TRUE(entered.answered());
  EXPECT_EQ(entered.get().error().code, ec::not_ready);
}

TEST_F(GroupAverager, AnAcceptedApplicantThatIsForgottenGetsInByAskingAgain) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  int answers = 0;
  answer_entry = [&answers]() -> std::optional<ec> {
    if (++answers == 1)
      return ec::none; // accepts, and forgets the applicant
    return std::nullopt;
  };
  auto entered = enter(b, {&a});
  pass(2s);
  ASSERT_TRUE(entered.answered());
  EXPECT_TRUE(entered.get().ok());
}

// Otherwise it would be admitted repeatedly, and each time all others would begin again.
TEST_F(GroupAverager, AnEntryEndsWithAPlanThatIsRefused) {
  auto& a = add();
  auto& b = add();
  answer_entry = [] { return ec::none; };
  auto entered = enter(b, {&a});
  EXPECT_FALSE(entered.answered());
  round_plan without_us;
  without_us.members = {{a.ctx.record, member_mode::node}};
  tell(b.actor,
       inbound_event{a.ctx.record, wire::next_plan{{}, without_us, branch, {}, 0}, {}, nullptr});
  ASSERT_TRUE(entered.answered());
  EXPECT_EQ(entered.get().error().code, ec::protocol_violation);
  pass(10s);
  EXPECT_EQ(asked.size(), 1U);
}

TEST_F(GroupAverager, SurvivorsGoOnAndKeepTheNameAsLongAsTheyAreMost) {
  auto& a = add();
  auto& b = add();
  auto& c = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  auto all = {average(a, 1, 3), average(b, 2, 3, false), average(c, 3, 3, false)};
  pass(1s);
  for (const auto& one : all)
    ASSERT_EQ(one.get()->report.outcome, round_outcome::complete);
  lose(a, c);
  lose(b, c);
  auto one = average(a, 1, 4);
  auto two = average(b, 2, 4, false);
  pass(5s);
  ASSERT_TRUE(one.get().ok());
  EXPECT_EQ(one.get()->report.outcome, round_outcome::shrunk);
  EXPECT_TRUE(one.get()->keeps_majority);
  EXPECT_EQ(one.get()->branch, branch);
  EXPECT_EQ(two.get()->group.members.size(), 2U);
}

TEST_F(GroupAverager, ACallOfAStrangerIsNotHeeded) {
  auto& a = add();
  auto& b = add();
  auto& stranger = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  auto one = average(a, 1, 3);
  auto two = average(b, 1, 3, false);
  pass(1s);
  b.calls.clear();
  round_id made_up;
  made_up.bytes.fill(std::byte{9});
  lets_through = [&](std::size_t from, const notify_peer& msg) {
    // Right after the valid call, an invalid one.
    if (from == 0 && std::holds_alternative<wire::call_round>(msg.what))
      caf::anon_send(b.actor,
                     inbound_event{stranger.ctx.record, wire::call_round{made_up}, {}, nullptr});
    return true;
  };
  auto next = average(a, 1, 4);
  EXPECT_THAT(b.calls, ::testing::ElementsAre(epoch_id{4}));
  auto answered = average(b, 1, 4, false);
  pass(1s);
  EXPECT_EQ(answered.get()->report.outcome, round_outcome::complete);
}

TEST_F(GroupAverager, LeavingAnswersWhatIsOpenAndTellsTheOthers) {
  auto& a = add();
  auto& b = add();
  ASSERT_TRUE(found(a).ok());
  ASSERT_TRUE(enter(b, {&a}).get().ok());
  auto open = average(b, 1, 3);
  tell(b.actor, quit_group{});
  ASSERT_TRUE(open.answered());
  EXPECT_EQ(open.get()->report.why.code, ec::cancelled);
  EXPECT_FALSE(open.get()->group.member);
  // The other member does not wait for it.
  auto alone = average(a, 1, 3);
  pass(5s);
  ASSERT_TRUE(alone.answered());
  EXPECT_EQ(average(b, 1, 3).get().error().code, ec::not_ready);
}

TEST_F(GroupAverager, SaysWhyARoundCannotBegin) {
  auto& a = add();
  EXPECT_EQ(average(a, 1, 3).get().error().code, ec::not_ready);
  ASSERT_TRUE(found(a).ok());
  EXPECT_EQ(average(a, 1, 4).get().error().code, ec::epoch_mismatch);
  average_in_group wrong;
  wrong.values = std::make_shared<float_vector>(values + 1, 0.0F);
  wrong.epoch = epoch_id{3};
  EXPECT_EQ(ask<group_round>(a.actor, wrong).error().code, ec::wrong_shape);
  wrong.values = std::make_shared<float_vector>(values, 0.0F);
  wrong.weight = -1;
  EXPECT_EQ(ask<group_round>(a.actor, wrong).error().code, ec::bad_weight);
}

} // namespace
} // namespace waggle::testing
