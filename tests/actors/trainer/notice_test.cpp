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
  get_state_snapshot question{branch, {}, c.ctx.record.id, c.ctx.record, true};
  EXPECT_EQ(ask<state_snapshot>(b.actor, question).error().code, ec::no_donor) << "it leaves, too";
  question = {branch, {}, test_peer(99).id, test_peer(99), true};
  EXPECT_EQ(ask<state_snapshot>(a.actor, question).error().code, ec::no_donor) << "a stranger";
  release_rounds();
  pass_until([&] { return leaves(b) && leaves(c); }, 1s);
  auto of = [&](const member& m) {
    return ask<state_snapshot>(a.actor, get_state_snapshot{branch, {}, m.ctx.record.id});
  };
  auto left = of(b);
  auto bytes = read_all(*left->state);
  auto what = open_left(as_string_view(bytes->view()), b.ctx.record.id, b.ctx.run_id, branch,
                        b.described->elements, *b.ctx.verifier);
  EXPECT_EQ(*what->residual, *b.residual.values);
  EXPECT_FALSE(of(b)) << "it is given once";
}

TEST_F(NoticedTrainer, TellsAPeerThatIsBackWhoHasWhatItHadLeft) {
  auto& a = add_started();
  auto& b = add_started(noticed());
  pass_until([&] { return all_at(2); });
  tell(a.actor, peer_connected{b.ctx.record});
  EXPECT_TRUE(told.empty()) << "it has left nothing";
  ASSERT_TRUE(notice->give(25s));
  pass_until([&] { return leaves(b); }, 5s);
  tell(a.actor, peer_connected{test_peer(99)});
  EXPECT_TRUE(told.empty());
  tell(a.actor, peer_connected{b.ctx.record});
  EXPECT_THAT(told, ::testing::ElementsAre(b.ctx.record.id));
}

/// Otherwise what the neighbour gets would count there, too.
TEST_F(NoticedTrainer, IsInNoRoundWhileANeighbourGetsWhatItHasAlone) {
  auto local = defaults();
  local.strategy = "local-updates";
  local.how.steps_period = 4;
  auto& a = add_started(local);
  auto& b = add_started(noticed(joining(local)));
  pass_until([&] { return all_at(2); });
  hold_left = true;
  ASSERT_TRUE(notice->give(25s));
  pass_until([&] { return !unanswered.empty(); }, 5s);
  auto before = b.questions.size();
  pass_until([&] { return b.questions.size() > before + 2; }, 5s);
  for (std::size_t i = before; i < b.questions.size(); ++i)
    EXPECT_EQ(b.questions[i].weight, 0);
  EXPECT_EQ(a.questions.back().weight, 1);
  EXPECT_FALSE(leaves(b));
  pass_until([&] { return leaves(b); }, 25s);
}

// -- what it had alone, when it is back -----------------------------------------------------------

class ReturnedTrainer : public NoticedTrainer {
protected:
  /// A member without a folder, in a run of three.
  member& come_back(training_config config = defaults()) {
    add_started();
    add_started();
    add_started();
    pass_until([&] { return all_at(2); });
    auto& back = add(joining(config), toy_options{.init_seed = 99, .data_seed = 9});
    keep_log(back);
    return back;
  }
  /// What `owner` had alone.
  std::string sealed(const identity& owner) {
    own_progress what{.position = "40", .residual = residual};
    auto store = make_memory_store();
    const auto& a = *members.front();
    EXPECT_TRUE(seal_left(what, owner, a.ctx.run_id, status_of(a).past.branch, *store));
    return std::string{as_string_view(read_all(*store)->view())};
  }
  /// In the order in which they are asked.
  std::vector<peer_id> neighbours(const peer_id& owner) {
    std::vector<peer_record> all;
    for (const auto& m : members)
      all.push_back(m->ctx.record);
    all.resize(3);
    std::vector<peer_id> out;
    for (const auto& peer : neighbours_of(owner, all))
      out.push_back(peer.id);
    return out;
  }
  void begin(member& back) {
    tell(back.actor, start_training{});
    spread();
  }
  bool sent_residual(const member& m) {
    return std::ranges::any_of(m.questions, [&](const average_in_group& question) {
      return question.residual && *question.residual == *residual;
    });
  }

  void asks_the_next(training_config config) {
    config.instead_of = owner->id();
    auto& back = come_back(config);
    auto order = neighbours(owner->id());
    left_with[order[0]] = "garbage";
    left_with[order[1]] = sealed(*identity::from_seed(78)); // of another peer
    left_with[order[2]] = sealed(*owner);
    begin(back);
    pass_until([&] { return sent_residual(back); }, 5s);
    EXPECT_EQ(back.probe->resumed_at, (std::pair<std::string, std::uint64_t>{"40", 0}));
    EXPECT_EQ(std::ranges::count_if(back.questions, [](const auto& q) { return !!q.residual; }), 1);
  }

  const std::shared_ptr<const identity> owner = identity::from_seed(77);
  const std::shared_ptr<const float_vector> residual =
    std::make_shared<const float_vector>(8, 0.25F);
};

TEST_F(ReturnedTrainer, AsksTheNextNeighbourAfterALie) {
  asks_the_next(defaults());
}

TEST_F(ReturnedTrainer, GoesOnAtItsPlaceWherePassesRunBesideTheWorker) {
  auto config = defaults();
  config.delay_optimizer_step = true;
  asks_the_next(config);
}

TEST_F(ReturnedTrainer, WaitsOnlyAMomentForALiarAndUsesWhatComesLater) {
  auto config = defaults();
  config.instead_of = owner->id();
  auto& back = come_back(config);
  auto order = neighbours(owner->id());
  left_with[order[0]] = left_with[order[1]] = {};
  left_with[order[2]] = sealed(*owner);
  begin(back);
  pass_until([&] { return status_of(back).state_downloads == 1; }, 5s);
  pass(9s);
  EXPECT_EQ(back.probe->micro_steps, 0U);
  pass_until([&] { return back.probe->micro_steps > 0; }, 2s);
  EXPECT_FALSE(sent_residual(back));
  pass_until([&] { return sent_residual(back); }, 30s);
  EXPECT_FALSE(back.probe->resumed_at) << "its samples are drawn";
  EXPECT_THAT(back.said.str(), ::testing::HasSubstr("comes too late"));
}

TEST_F(ReturnedTrainer, AsksWhoeverSaysThatItHasWhatItHadLeft) {
  auto& back = come_back();
  left_with[members[0]->ctx.record.id] = "garbage";
  left_with[members[2]->ctx.record.id] = sealed(*back.ctx.self);
  for (std::size_t i : {0U, 2U}) {
    get_state_snapshot news{{}, {}, back.ctx.record.id, members[i]->ctx.record, true};
    EXPECT_EQ(ask<state_snapshot>(back.actor, news).error().code, ec::not_ready);
  }
  begin(back);
  pass_until([&] { return sent_residual(back); }, 5s);
  EXPECT_TRUE(back.probe->resumed_at);
}

TEST_F(ReturnedTrainer, AsksNobodyIfNobodySaysSo) {
  auto& back = come_back();
  for (const auto& m : members)
    left_with[m->ctx.record.id] = sealed(*back.ctx.self);
  begin(back);
  pass_until([&] { return back.probe->micro_steps > 5; }, 5s);
  pass(5s);
  EXPECT_FALSE(sent_residual(back));
  EXPECT_FALSE(back.probe->resumed_at);
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
