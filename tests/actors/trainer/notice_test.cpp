// What a trainer under notice does not do any more.

#include <gmock/gmock.h>

#include "runtime/training/left_progress.hpp"
#include "runtime/training/notice_period.hpp"
#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

class NoticedTrainer : public training_world {
protected:
  training_config noticed(training_config config = defaults()) {
    config.leave = notice;
    return config;
  }
  bool leaves(const member& m) { return status_of(m).phase == trainer_phase::finished; }

  const std::shared_ptr<leave_notice> notice = std::make_shared<leave_notice>();
};

TEST_F(NoticedTrainer, BeginsNoPassClaimsNoSpeedAndLeavesWithTheUpdateOfItsSamples) {
  auto& a = add_started();
  auto& b = add_started(noticed());
  pass_until([&] { return all_at(2); });
  hold_rounds = true; // samples stay in the round
  pass_until([&] { return status_of(b).samples_pending() > 0 && !b.answers.empty(); });
  ASSERT_TRUE(notice->give(25s));
  pass(500ms);
  auto passes = b.probe->micro_steps;
  EXPECT_FALSE(leaves(b));
  EXPECT_EQ(b.reports.back().samples_per_second, notice_period::speed);
  EXPECT_THAT(status_of(b).waiting_for, ::testing::HasSubstr("before it leaves"));
  release_rounds();
  pass_until([&] { return leaves(b); }, 500ms);
  EXPECT_EQ(b.probe->micro_steps, passes);
  EXPECT_EQ(status_of(b).samples_pending(), 0U);
  EXPECT_EQ(b.group, 0U) << "no round waits for it";
  auto epoch = status_of(a).epoch.value();
  pass_until([&] { return status_of(a).epoch >= epoch_id{epoch + 3}; }, 5s);
}

TEST_F(NoticedTrainer, GivesTheStateOnlyIfNobodyElseCan) {
  add_started();
  auto& b = add_started(noticed());
  pass_until([&] { return all_at(2); });
  hold_rounds = true;
  pass_until([&] { return !b.answers.empty(); });
  ASSERT_TRUE(notice->give(25s));
  pass(100ms);
  auto& joiner = add_joiner();
  pass(200ms);
  EXPECT_FALSE(ask<state_snapshot>(b.actor, get_state_snapshot{}).ok());
  release_rounds();
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
}

TEST_F(NoticedTrainer, LeavesWhatItHasAloneWithAMemberThatStays) {
  auto& a = add_started();
  auto& b = add_started(noticed());
  auto& c = add_started(noticed());
  pass_until([&] { return all_at(2); });
  hold_rounds = true; // both are noticed before either can leave
  pass_until([&] { return !b.answers.empty() && !c.answers.empty(); });
  b.residual.values = std::make_shared<float_vector>(b.described->elements, 0.5F);
  b.residual.history = status_of(b).past.branch;
  ASSERT_TRUE(notice->give(25s));
  pass(100ms);
  auto branch = status_of(b).past.branch;
  get_state_snapshot question{branch, {}, c.ctx.record.id, c.ctx.record};
  EXPECT_EQ(ask<state_snapshot>(b.actor, question).error().code, ec::no_donor) << "it leaves, too";
  question = {branch, {}, test_peer(99).id, test_peer(99)};
  EXPECT_EQ(ask<state_snapshot>(a.actor, question).error().code, ec::no_donor) << "a stranger";
  release_rounds();
  pass_until([&] { return leaves(b) && leaves(c); }, 1s);
  auto of = [&](const member& m) {
    return ask<state_snapshot>(a.actor, get_state_snapshot{branch, {}, m.ctx.record.id});
  };
  auto left = of(b);
  ASSERT_TRUE(left) << to_string(left.error());
  auto bytes = read_all(*left->state);
  auto what = open_left(as_string_view(bytes->view()), b.ctx.record.id, b.ctx.run_id, branch,
                        b.described->elements, *b.ctx.verifier);
  ASSERT_TRUE(what) << to_string(what.error());
  EXPECT_EQ(*what->residual, *b.residual.values);
  EXPECT_FALSE(of(b)) << "it is given once";
}

TEST_F(NoticedTrainer, LeavesWhenItsTimeIsOverAndItsSamplesArePending) {
  add_started();
  auto& b = add_started(noticed());
  pass_until([&] { return all_at(2); });
  hold_rounds = true;
  pass_until([&] { return !b.answers.empty(); });
  ASSERT_TRUE(notice->give(2s)); // of which 0.4 s are for the goodbye
  pass(1500ms);
  EXPECT_FALSE(leaves(b));
  pass_until([&] { return leaves(b); }, 200ms);
  EXPECT_GT(status_of(b).samples_pending(), 0U);
  hold_rounds = false;
}

} // namespace
} // namespace waggle::testing
