#include "runtime/status/training_report.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::HasSubstr;

peer_id named(int n) {
  return peer_id{std::array<std::byte, peer_id::size>{static_cast<std::byte>(n)}};
}
digest branch(int n) {
  return digest{std::array<std::byte, digest::size>{static_cast<std::byte>(n)}};
}

struct peer {
  explicit peer(std::uint64_t epochs = 10, std::string notice = {})
    : report{{256, epochs, std::move(notice), {}}, metrics, seen, group, at, vote} {
    at.begin({branch(1), {}, {}, 0}, epoch_id{5});
  }
  /// A member of a group of two at epoch 5.
  void join() {
    group.begin({});
    group.asked(false);
    group.entered({}, {named(1), named(2)}, epoch_id{5}, {});
  }
  run_view seen{named(1)};
  membership group{seen, {}};
  run_position at{1'000};
  parameter_vote vote{branch(9)};
  std::shared_ptr<metric_families> metrics =
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), "r", "p");
  training_report report;
};

trainer_work in_group() {
  trainer_work work;
  work.started = work.member = work.in_step = true;
  return work;
}

TEST(TrainerWork, APhaseIsWhatAPersonWouldSay) {
  trainer_work work;
  EXPECT_EQ(work.phase(), trainer_phase::starting);
  work.started = work.in_step = true;
  EXPECT_EQ(work.phase(), trainer_phase::joining);
  work.paused = true;
  EXPECT_EQ(work.phase(), trainer_phase::paused);
  work.finished = true;
  EXPECT_EQ(work.phase(), trainer_phase::finished) << "its group may have ended first";
  work = in_group();
  EXPECT_EQ(work.phase(), trainer_phase::training);
  work.round_runs = work.pass_runs = true;
  EXPECT_EQ(work.phase(), trainer_phase::training) << "it trains on meanwhile";
  work.blocked = true;
  EXPECT_EQ(work.phase(), trainer_phase::averaging);
  work.in_step = false;
  EXPECT_EQ(work.phase(), trainer_phase::syncing);
  work.stopped = true;
  EXPECT_EQ(work.phase(), trainer_phase::stopped);
}

TEST(TrainerWork, OneActivityAtATimeThatOfTheModelsThreadFirst) {
  trainer_work work;
  EXPECT_EQ(work.present(), activity::idle);
  work.started = work.in_step = true;
  EXPECT_EQ(work.present(), activity::search);
  work = in_group();
  EXPECT_EQ(work.present(), activity::idle) << "it waits for the samples of others";
  work.round_runs = true;
  EXPECT_EQ(work.present(), activity::round);
  work.searches = true;
  EXPECT_EQ(work.present(), activity::search);
  work.rests = true;
  EXPECT_EQ(work.present(), activity::idle) << "the round does not hold it up";
  work.downloads = true;
  EXPECT_EQ(work.present(), activity::download);
  work.pass_runs = true;
  EXPECT_EQ(work.present(), activity::pass);
  work.updates = true;
  EXPECT_EQ(work.present(), activity::update);
}

TEST(TrainingReport, CountsHistoriesAndPeersBehind) {
  peer it;
  it.join();
  auto add = [&](int who, int history, std::uint64_t epoch, bool connected) {
    swarm_progress::peer one;
    one.who.id = named(who);
    one.epoch = epoch_id{epoch};
    one.claim.past.branch = branch(history);
    one.claim.group_size = 2;
    one.claim.ready = true;
    it.seen.progress.peers.push_back(one);
    if (connected)
      it.seen.connected.insert(one.who.id);
  };
  add(1, 1, 5, false); // ourselves
  add(2, 1, 5, true);
  add(3, 1, 4, true);
  add(4, 2, 9, true);
  add(5, 3, 9, false); // may be gone
  it.report.complete(3, {}, {});
  EXPECT_EQ(it.report.status.epoch, epoch_id{5});
  EXPECT_EQ(it.report.status.group_size, 2U);
  EXPECT_EQ(it.report.status.histories, 2U);
  EXPECT_EQ(it.report.status.peers_behind, 3U);
  EXPECT_DOUBLE_EQ(it.report.status.seconds_left, 15);
}

TEST(TrainingReport, ShowsWhatIsWorstAsItsNotice) {
  peer it{0, "from the settings"};
  it.report.complete(3, {}, {});
  EXPECT_EQ(text_of(it.report.status.notices), "from the settings");
  EXPECT_TRUE(std::isnan(it.report.status.seconds_left)) << "the run has no end";
  it.report.complete(3, {"doubt", "a doubt", {}}, {});
  EXPECT_EQ(text_of(it.report.status.notices), "a doubt");
  EXPECT_TRUE(it.report.give_download_up({100, 50, 1, 1, 10, 20, 256}));
  it.report.complete(3, {"doubt", "a doubt", {}}, {});
  EXPECT_NE(text_of(it.report.status.notices), "a doubt")
    << "without the state, the rest does not matter";
  it.report.catch_up();
  it.report.complete(3, {}, {});
  EXPECT_EQ(text_of(it.report.status.notices), "from the settings");
}

TEST(TrainingReport, IsDueAtOnceOrAfterItsInterval) {
  peer it;
  steady_time now{1h};
  EXPECT_TRUE(it.report.is_due(true, now));
  EXPECT_FALSE(it.report.is_due(false, now + 99ms));
  EXPECT_TRUE(it.report.is_due(true, now + 99ms));
  EXPECT_FALSE(it.report.is_due(false, now + 198ms));
  EXPECT_TRUE(it.report.is_due(false, now + 199ms));
  EXPECT_TRUE(it.report.logs_progress(now));
  EXPECT_FALSE(it.report.logs_progress(now + 9'999ms));
}

TEST(TrainingReport, LogsAPassOverTheDataWhenItIsComplete) {
  peer it;
  sample_ledger ledger{512};
  EXPECT_FALSE(it.report.show(ledger));
  ASSERT_EQ(it.report.status.passes.size(), 1U);
  EXPECT_EQ(it.report.status.passes[0].pass, 1U);
  std::vector<std::uint64_t> counts(sample_ledger::ranges, 2);
  std::vector<float> claims(sample_ledger::ranges);
  sample_ledger::write_claims(std::span<const std::uint64_t, sample_ledger::ranges>{counts}, 512,
                              std::span<float, sample_ledger::ranges>{claims});
  std::vector<peer_id> members{named(1)};
  ledger.end_epoch({}, 0, members);
  ledger.end_epoch(claims, 512, members);
  ASSERT_EQ(ledger.passes(), 1U);
  auto line = it.report.show(ledger);
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("pass 1 over the data is complete: 512 samples seen once, 0 twice"));
  ASSERT_EQ(it.report.status.passes.size(), 2U);
  EXPECT_EQ(it.report.status.passes[1].pass, 2U);
}

TEST(TrainingReport, PassesShowLossAndSpeedToOthers) {
  peer it;
  micro_step step{.loss = 2, .samples = 8};
  steady_time now{1h};
  EXPECT_FALSE(it.report.end_pass(step, 0.5, now));
  EXPECT_EQ(it.report.status.steps, 1U);
  EXPECT_DOUBLE_EQ(it.report.status.compute_samples_per_second, 16);
  it.report.complete(0, {}, now);
  EXPECT_THAT(it.report.progress(), HasSubstr("epoch 5 of 10: loss 2.000, no update yet"));
  EXPECT_EQ(it.report.vitals(0.5).samples_per_second, std::nullopt);
  it.report.use(8, now + 1500ms); // the round takes its time
  it.report.complete(0, {}, now + 1600ms);
  EXPECT_DOUBLE_EQ(it.report.status.samples_per_second, 4);
  EXPECT_EQ(it.report.vitals(0.5).samples_per_second, 4.0F);
  EXPECT_EQ(it.report.vitals(0.5).loss, 2.0F);
  EXPECT_EQ(it.report.vitals(0.5).pass_seconds, 0.5F);
  EXPECT_THAT(it.report.progress(), HasSubstr("epoch 5 of 10: loss 2.000, 4 samples/s here"));
  step.finite = false;
  step.loss = NAN;
  EXPECT_TRUE(it.report.end_pass(step, 0.5, {})) << "a warning";
}

TEST(TrainingReport, SaysWhenThePlateauLowersTheRate) {
  peer it;
  plateau_report plateau;
  EXPECT_FALSE(it.report.show(plateau, epoch_id{3}));
  EXPECT_EQ(it.report.status.rate_reductions, 0U);
  plateau = {1, 0.01, true, 0.1, 2, 1.5};
  auto line = it.report.show(plateau, epoch_id{4});
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("from 0.1 to 0.01 at epoch 4"));
  EXPECT_DOUBLE_EQ(it.report.status.learning_rate, 0.01);
}

TEST(TrainingReport, SaysWhenAStrategyAveragesInAnotherWay) {
  peer it;
  strategy_phase at{.name = "warm-up", .epochs = 12, .batches = 50};
  EXPECT_EQ(it.report.show("daso", at),
            "daso: warm-up from epoch 1 of 12 on, a round after each batch, for which all wait");
  at.epoch = 3;
  at.loss = 2.5;
  EXPECT_FALSE(it.report.show("daso", at));
  EXPECT_EQ(it.report.status.strategy->epoch, 3U);
  at = {.name = "cycling", .epoch = 4, .epochs = 12, .skips = 4, .wait = 1, .loss = 2.5};
  at.best_loss = 2.25;
  EXPECT_EQ(
    it.report.show("daso", at),
    "daso: cycling from epoch 5 of 12 on, a round every 4 batches, merged 1 batch later; the "
    "loss was 2.5000, the best one 2.2500");
  at = {.name = "cool-down", .epoch = 12, .epochs = 12};
  EXPECT_EQ(it.report.show("daso", at), "daso: its 12 epochs are over, and the run ends with them");
}

TEST(TrainingReport, CountsRoundsAndTheFirstOfThem) {
  peer it;
  it.report.count_round(true, "complete", 3s);
  it.report.count_round(false, "shrunk", 5s);
  EXPECT_EQ(it.report.status.rounds_complete, 1U);
  EXPECT_EQ(it.report.status.rounds_shrunk, 1U);
  EXPECT_EQ(it.report.status.last_outcome, "shrunk");
  EXPECT_DOUBLE_EQ(it.report.status.first_round_seconds, 3);
  EXPECT_TRUE(it.report.enter(trainer_phase::joining));
  EXPECT_FALSE(it.report.enter(trainer_phase::joining));
}

TEST(TrainingReport, WarnsOfAHistoryThatIsNotContinued) {
  peer it;
  history_choice choice;
  choice.branch = branch(2);
  choice.supporters = 3;
  history past;
  EXPECT_FALSE(it.report.leave_history(past, epoch_id{0}, choice)) << "there was none";
  past.branch = branch(1);
  EXPECT_FALSE(it.report.leave_history(past, epoch_id{4}, choice)) << "nothing is lost";
  EXPECT_THAT(it.report.begin_history(past), HasSubstr("began the run's history"));
  it.report.use(8, {});
  auto line = it.report.leave_history(past, epoch_id{9}, choice);
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("(up to epoch 9, 8 of our samples since epoch 5) is not continued"));
  EXPECT_THAT(*line, HasSubstr("at epoch 5, which 3 peers hold"));
  EXPECT_FALSE(it.report.leave_history(past, epoch_id{4}, choice)) << "once";
  past.work = 1;
  EXPECT_TRUE(it.report.leave_history(past, epoch_id{4}, choice)) << "others did it";
  choice.branch = branch(1);
  EXPECT_FALSE(it.report.leave_history(past, epoch_id{4}, choice)) << "it is the same";
  past.parent = branch(3);
  EXPECT_THAT(it.report.begin_history(past), HasSubstr("going on as history"));
}

TEST(TrainingReport, NamesPeersWithOtherParametersOnce) {
  peer it;
  it.vote.hold(epoch_id{5}, branch(4));
  swarm_progress::peer other;
  other.who.id = named(2);
  other.epoch = epoch_id{5};
  other.claim.ready = true;
  other.parameters = branch(6);
  auto line = it.report.compare(it.vote.compare({&other}));
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("1 peers, " + short_name(named(2)) + " among them"));
  EXPECT_FALSE(it.report.compare(it.vote.compare({&other})));
  other.parameters = branch(4);
  EXPECT_FALSE(it.report.compare(it.vote.compare({&other}))) << "they are equal again";
}

TEST(TrainingReport, SaysOnceThatAPeerRoundsDifferently) {
  peer it;
  EXPECT_FALSE(it.report.show_rounding(nullptr));
  swarm_progress::peer other;
  other.who.id = named(2);
  auto line = it.report.show_rounding(&other);
  ASSERT_TRUE(line);
  EXPECT_THAT(*line, HasSubstr("peer " + short_name(named(2)) + " rounds updates differently"));
  EXPECT_THAT(*line, HasSubstr("to 1e-05 of their length"));
  EXPECT_FALSE(it.report.show_rounding(&other));
}

} // namespace
} // namespace waggle
