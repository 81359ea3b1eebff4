// Trainers whose group is the whole run, and whose rounds average with some of its peers.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct ManyGroups : training_world {
  static training_config many() {
    auto config = defaults();
    config.strategy = "local-updates";
    config.many_groups = true;
    return config;
  }
  /// What the averager of `m` would report: its peers have reached this epoch.
  void run_reaches(const member& m, std::uint64_t epoch) {
    group_view view{true, epoch_id{epoch}, branches.at(m.group), {}};
    for (const auto& other : members)
      if (!other->gone)
        view.members.push_back(other->ctx.record.id);
    tell(m.actor, view);
  }
  /// Answers the open round of `m`; the group is then at `epoch`.
  void end_round(member& m, std::uint64_t epoch, round_report report) {
    groups[m.group] = epoch_id{epoch};
    answer_round(m, report);
  }
  static round_report nobody() { return {.why = {ec::nobody_declared, "as the test wants"}}; }
  /// What another peer of the history of `m` reports: it is at its epoch, or some epochs ahead, and
  /// so many samples are in its state.
  swarm_progress::peer claim_of(const member& m, const peer_record& who, std::uint64_t work,
                                std::uint64_t ahead = 0) {
    swarm_progress::peer other;
    other.who = who;
    other.epoch = epoch_id{status_of(m).epoch.value() + ahead};
    other.claim.past = m.reports.back().claim.past;
    other.claim.past.work = work;
    other.claim.group_size = 1;
    other.claim.ready = true;
    return other;
  }
  /// Tells `m` what the others report.
  void others_claim(member& m, const std::vector<swarm_progress::peer>& claims) {
    auto view = view_of(m);
    view.peers.insert(view.peers.end(), claims.begin(), claims.end());
    tell(m.actor, view);
  }
  /// A peer in whose rounds nobody else takes part, with its first round under way.
  member& add_in_round() {
    auto& m = add_started(many());
    hold_rounds = true;
    pass_until([&] { return !m.answers.empty(); });
    return m;
  }
};

TEST_F(ManyGroups, AnEpochInWhichNobodyWasFoundEndsWithoutAChange) {
  auto& m = add_in_round();
  auto epoch = status_of(m).epoch.value();
  end_round(m, epoch + 1, nobody());
  auto s = status_of(m);
  EXPECT_EQ(s.epoch.value(), epoch + 1);
  EXPECT_EQ(s.rounds_failed, 1U);
  EXPECT_EQ(s.last_outcome, "skipped: nobody_declared");
  EXPECT_EQ(s.group_size, 1U) << "the group is not lost";
  EXPECT_TRUE(m.probe->applied.empty()) << "no gradient was applied in its place";
  auto steps = m.probe->micro_steps;
  pass_until([&] { return m.questions.size() == 2; });
  EXPECT_GT(m.probe->micro_steps, steps) << "it trains on";
  EXPECT_EQ(m.questions[1].epoch.value(), epoch + 1);
}

/// A peer whose rounds block. Its first search for the members of a round is open.
struct BlockingManyGroups : ManyGroups {
  BlockingManyGroups() {
    auto config = many();
    config.how.delay_state = false;
    hold_rounds = hold_searches = true;
    trainer = &add_started(config);
    pass_until([&] { return !trainer->searches.empty(); });
  }
  member* trainer;
};

TEST_F(BlockingManyGroups, PassesGoOnUntilTheMembersOfTheRoundAreFound) {
  auto& m = *trainer;
  auto epoch = status_of(m).epoch;
  auto before = m.probe->micro_steps;
  auto old = m.probe->stepped;
  pass(500ms);
  EXPECT_GT(m.probe->micro_steps, before + 40);
  EXPECT_EQ(status_of(m).phase, trainer_phase::training);
  EXPECT_EQ(status_of(m).epoch, epoch) << "it ends with the round";
  EXPECT_TRUE(m.questions.empty());
  end_search(m);
  ASSERT_EQ(m.questions.size(), 1U);
  EXPECT_NE(m.probe->stepped, old);
  EXPECT_EQ(*m.questions[0].values, m.probe->stepped) << "copied when they were found";
  EXPECT_FALSE(m.questions[0].call) << "the others were called for the search";
  pass(20ms); // the pass that is under way
  before = m.probe->micro_steps;
  pass(500ms);
  EXPECT_EQ(m.probe->micro_steps, before) << "the round blocks";
  EXPECT_EQ(status_of(m).phase, trainer_phase::averaging);
  end_round(m, epoch.value() + 1, nobody());
  pass(100ms);
  EXPECT_GT(m.probe->micro_steps, before);
}

/// Its parameters cannot be copied during a pass, as those of a loop.
struct ManyGroupsOfALoop : ManyGroups {
  ManyGroupsOfALoop() {
    hold_rounds = hold_searches = true;
    loop = &add_started(many(), toy_options{.buffer = true});
    pass_until([&] { return !loop->searches.empty(); });
  }
  member* loop;
};

TEST_F(ManyGroupsOfALoop, MembersWaitForTheEndOfAPass) {
  auto& m = *loop;
  m.gate->passes = true;
  pass(50ms); // the last pass has ended, and the next one does not
  end_search(m);
  pass(500ms);
  EXPECT_TRUE(m.questions.empty());
  m.gate->open();
  pass(20ms);
  ASSERT_EQ(m.questions.size(), 1U);
  EXPECT_EQ(m.questions[0].weight, 1);
}

TEST_F(ManyGroupsOfALoop, MembersDoNotWaitForALoopThatSleeps) {
  auto& m = *loop;
  auto epoch = status_of(m).epoch.value();
  m.gate->passes = true;
  pass(50ms);
  end_search(m);
  pass(2s);
  ASSERT_EQ(m.questions.size(), 1U);
  EXPECT_EQ(m.questions[0].weight, 0);
  EXPECT_THAT(*m.questions[0].values, ::testing::Each(0.0F));
  EXPECT_EQ(status_of(m).group_size, 1U) << "it is still a member, and reduces";
  round_report mean;
  mean.outcome = round_outcome::complete;
  mean.values = std::make_shared<float_vector>(m.questions[0].values->size(), 100.0F);
  mean.weight_sum = 1;
  mean.contributors = {test_context(9, wall).record.id};
  end_round(m, epoch + 1, mean);
  EXPECT_EQ(status_of(m).epoch.value(), epoch + 1);
  m.gate->open();
  pass(100ms);
  expect_balance(m);
}

TEST_F(BlockingManyGroups, PassesDuringTheSearchCountTowardTheNextEpoch) {
  auto& m = *trainer;
  auto before = m.probe->micro_steps;
  pass(500ms);
  ASSERT_GE((m.probe->micro_steps - before) * m.micro_batch, defaults().target_batch_size);
  end_search(m);
  ASSERT_EQ(m.answers.size(), 1U);
  end_round(m, status_of(m).epoch.value() + 1, nobody());
  EXPECT_EQ(m.searches.size(), 1U) << "the next round is due at once";
  expect_balance(m);
}

TEST_F(BlockingManyGroups, ASearchThatFindsNobodyStopsNoPass) {
  auto& m = *trainer;
  auto epoch = status_of(m).epoch.value();
  auto before = m.probe->micro_steps;
  groups[m.group] = epoch_id{epoch + 1};
  end_search(m, nobody());
  auto s = status_of(m);
  EXPECT_EQ(s.epoch.value(), epoch + 1);
  EXPECT_EQ(s.last_outcome, "skipped: nobody_declared");
  EXPECT_EQ(s.phase, trainer_phase::training);
  EXPECT_TRUE(m.questions.empty());
  pass_until([&] { return !m.searches.empty(); });
  EXPECT_GT(m.probe->micro_steps, before);
  expect_balance(m);
}

TEST_F(BlockingManyGroups, AnAnswerToASearchOfAGroupThatItLeftIsIgnored) {
  auto& m = *trainer;
  ASSERT_TRUE(ask<training_status>(m.actor, stop_training{}).ok());
  end_search(m);
  EXPECT_TRUE(m.questions.empty());
  expect_balance(m);
}

TEST_F(ManyGroups, APeerFurtherBehindDownloadsAState) {
  auto& a = add_started(many());
  auto& b = add_started(joining(many()));
  pass_until([&] { return all_at(2); });
  auto downloads = status_of(b).state_downloads;
  hold_rounds = true;
  auto epoch = status_of(b).epoch.value();
  jump_max = 3;
  groups[b.group] = epoch_id{epoch + 3};
  run_reaches(a, epoch + 1);
  run_reaches(a, epoch + 2);
  run_reaches(a, epoch + 3);
  run_reaches(b, epoch + 3);
  hold_rounds = false;
  pass_until([&] { return all_at(epoch + 4); });
  EXPECT_EQ(status_of(b).state_downloads, downloads + 1);
}

TEST_F(ManyGroups, WhileItsRoundRunsAPeerThatIsTooFarBehindDoesNotTrain) {
  auto& m = add_in_round();
  auto epoch = status_of(m).epoch.value();
  run_reaches(m, epoch + 1);
  auto steps = m.probe->micro_steps;
  pass(500ms);
  EXPECT_GT(m.probe->micro_steps, steps + 40) << "within the tolerance";
  run_reaches(m, epoch + 2);
  EXPECT_EQ(status_of(m).epoch.value(), epoch) << "its round decides how it goes on";
  pass(20ms); // the pass that is under way
  steps = m.probe->micro_steps;
  pass(500ms);
  EXPECT_EQ(m.probe->micro_steps, steps);
  jump_max = 2;
  end_round(m, epoch + 2, nobody());
  EXPECT_EQ(status_of(m).epoch.value(), epoch + 2);
  EXPECT_EQ(status_of(m).state_downloads, 0U) << "after its own round it is one epoch behind";
  pass(500ms);
  EXPECT_GT(m.probe->micro_steps, steps);
}

TEST_F(ManyGroups, APeerWithoutAStateTakesPartInNoRound) {
  auto& a = add_started(many());
  pass_until([&] { return status_of(a).epoch.value() >= 1; });
  store_fault = failure{ec::internal, "no state is given away"};
  auto& b = add_started(joining(many()));
  pass_until([&] { return status_of(b).phase == trainer_phase::syncing; });
  tell(b.actor, round_called{status_of(a).epoch});
  pass(1s);
  EXPECT_TRUE(b.questions.empty());
  store_fault.reset();
  pass_until([&] { return !b.questions.empty(); });
  EXPECT_GT(b.questions.front().weight, 0.0);
}

/// One trainer whose rounds find nobody, and what it is told of two others.
struct OthersAverage : ManyGroups {
  member& begin() {
    auto& m = add_in_round();
    keep_log(m);
    hold_views = true;
    for (const auto& who : others)
      tell(m.actor, peer_connected{who});
    return m;
  }
  void others_have(member& m, std::uint64_t first, std::uint64_t second) {
    others_claim(m, {claim_of(m, others[0], first), claim_of(m, others[1], second)});
  }
  void find_nobody(member& m, std::uint64_t rounds) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      pass_until([&] { return !m.answers.empty(); });
      end_round(m, status_of(m).epoch.value() + 1, nobody());
    }
  }
  /// A round of `m` with these, whose mean is what it gave; others only reduced.
  void average_with(member& m, std::vector<peer_id> who, const std::vector<peer_id>& reduce = {}) {
    pass_until([&] { return !m.answers.empty(); });
    round_report mean{.outcome = round_outcome::complete,
                      .group_size = static_cast<std::uint32_t>(who.size() + 1)};
    mean.weight_sum = mean.group_size;
    mean.values = m.questions.back().values;
    who.push_back(m.ctx.record.id);
    mean.contributors = mean.participants = who;
    mean.participants.insert(mean.participants.end(), reduce.begin(), reduce.end());
    end_round(m, status_of(m).epoch.value() + 1, mean);
  }
  static bool downloads(const member& m) {
    return m.said.str().find("the others averaged, and we did not") != std::string::npos;
  }

  std::vector<peer_record> others{test_context(8, wall).record, test_context(9, wall).record};
};

TEST_F(OthersAverage, WithoutThisPeerForLongerThanAllowedItDownloadsAState) {
  auto& m = begin();
  others_have(m, 1'000, 1'001);
  find_nobody(m, 1);
  others_have(m, 2'000, 2'001);
  EXPECT_FALSE(downloads(m)) << "one epoch is within the tolerance";
  find_nobody(m, 1);
  others_have(m, 2'000, 2'001);
  EXPECT_FALSE(downloads(m)) << "it is not known yet whether others went on";
  others_have(m, 3'000, 2'001);
  EXPECT_FALSE(downloads(m)) << "a mean has two members";
  others_have(m, 3'000, 3'001);
  EXPECT_TRUE(downloads(m));
  EXPECT_FALSE(m.reports.back().claim.ready) << "nobody is to download its state";
  auto steps = m.probe->micro_steps;
  pass(1s);
  EXPECT_LE(m.probe->micro_steps, steps + 1) << "no pass begins with the old state";
}

TEST_F(OthersAverage, IfTheyLeaveItGoesOnWithWhatItHas) {
  auto& m = begin();
  find_nobody(m, 2);
  others_have(m, 1'000, 1'001);
  others_have(m, 2'000, 2'001);
  ASSERT_TRUE(downloads(m));
  auto branch = m.reports.back().claim.past.branch;
  auto epoch = status_of(m).epoch;
  for (const auto& who : others)
    tell(m.actor, peer_disconnected{who.id, {ec::peer_lost, ""}});
  hold_views = false;
  hold_rounds = false;
  spread();
  pass_until([&] { return status_of(m).epoch.value() > epoch.value() + 2; });
  EXPECT_EQ(m.reports.back().claim.past.parent, branch) << "the history is not forgotten";
  EXPECT_GT(m.reports.back().claim.past.work, 0U);
  EXPECT_EQ(status_of(m).state_downloads, 0U);
}

TEST_F(OthersAverage, AMeanOfItsOwnIsNone) {
  auto& m = begin();
  find_nobody(m, 2);
  others_have(m, 1'000, 1'001);
  average_with(m, {});
  others_have(m, 2'000, 2'001);
  EXPECT_TRUE(downloads(m));
}

// A client meets the others only through peers that reduce for it. What such a peer reports counts
// for a client, and for nobody else: the others that it knows do not average.
struct OthersReduce : OthersAverage {
  /// Whether a peer downloads a state because one that reduced in its round goes on with a
  /// stranger.
  bool goes_by_whoever_reduces() {
    auto& m = begin();
    auto idle = test_context(6, wall).record;
    auto reducer = test_context(7, wall).record;
    tell(m.actor, peer_connected{idle});
    tell(m.actor, peer_connected{reducer});
    average_with(m, {idle.id}, {reducer.id});
    find_nobody(m, 3);
    for (std::uint64_t work : {1'000, 2'000})
      others_claim(
        m, {claim_of(m, idle, 1'000), claim_of(m, reducer, work), claim_of(m, others[0], work)});
    return downloads(m);
  }
};

TEST_F(OthersReduce, ForAClientTheyAreEvidence) {
  clients = true;
  EXPECT_TRUE(goes_by_whoever_reduces());
}

TEST_F(OthersReduce, ForAPeerThatOthersCanDialOnlyContributorsAre) {
  EXPECT_FALSE(goes_by_whoever_reduces());
}

TEST_F(OthersAverage, AStateIsAskedOfThoseThatStillAverage) {
  auto& m = begin();
  auto idle = test_context(7, wall).record;
  tell(m.actor, peer_connected{idle});
  find_nobody(m, 3);
  for (std::uint64_t work : {1'000, 2'000})
    others_claim(
      m, {claim_of(m, idle, 9'000), claim_of(m, others[0], work), claim_of(m, others[1], work)});
  ASSERT_TRUE(downloads(m));
  pass_until([&] { return m.asked.size() >= 2; }); // none of them answers
  EXPECT_THAT(m.asked, ::testing::Contains(others[0].id));
  EXPECT_THAT(m.asked, ::testing::Not(::testing::Contains(idle.id))) << "its state is no newer";
}

TEST_F(ManyGroups, APeerThatFollowsTheRunDoesNotRepeatTheWorkThatOthersClaim) {
  auto& m = add_in_round();
  hold_views = true;
  others_claim(m, {claim_of(m, test_context(9, wall).record, 1'000'000'000, 1)});
  end_round(m, status_of(m).epoch.value() + 1, nobody());
  run_reaches(m, status_of(m).epoch.value() + 1);
  EXPECT_LT(m.reports.back().claim.past.work, 1'000'000U);
}

} // namespace
} // namespace waggle::testing
