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
  static round_report nobody() {
    round_report report;
    report.why = {ec::nobody_declared, "as the test wants"};
    return report;
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

TEST_F(ManyGroups, APeerNearTheRunGoesOnAtItsEpochWithoutADownload) {
  auto& m = add_started(many());
  pass_until([&] { return status_of(m).epoch.value() >= 1; });
  auto epoch = status_of(m).epoch.value();
  run_reaches(m, epoch + 1);
  EXPECT_EQ(status_of(m).epoch.value(), epoch + 1);
  groups[m.group] = epoch_id{epoch + 1};
  pass_until([&] { return status_of(m).epoch.value() >= epoch + 3; });
  EXPECT_EQ(status_of(m).state_downloads, 0U);
}

TEST_F(ManyGroups, APeerFurtherBehindDownloadsAState) {
  auto& a = add_started(many());
  auto joining = many();
  joining.join_timeout = 5s;
  auto& b = add_started(joining);
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
  auto joining = many();
  joining.join_timeout = 5s;
  store_fault = failure{ec::internal, "no state is given away"};
  auto& b = add_started(joining);
  pass_until([&] { return status_of(b).phase == trainer_phase::syncing; });
  tell(b.actor, round_called{status_of(a).epoch});
  pass(1s);
  EXPECT_TRUE(b.questions.empty());
  store_fault.reset();
  pass_until([&] { return !b.questions.empty(); });
  EXPECT_GT(b.questions.front().weight, 0.0);
}

} // namespace
} // namespace waggle::testing
