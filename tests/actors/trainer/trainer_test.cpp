#include "actors/trainer.hpp"

#include <cmath>
#include <sstream>

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"

namespace waggle::testing {
namespace {

using Trainer = training_world;

std::vector<float> weights_of(const payload& state) {
  std::vector<float> values(state.size / sizeof(float) / 2);
  std::memcpy(values.data(), state.data.get(), values.size() * sizeof(float));
  return values;
}

// -- alone ---------------------------------------------------------------------------------------

TEST_F(Trainer, TakesNoStepBeforeItsFirstEpochEnds) { // F17
  auto& m = add();
  EXPECT_EQ(status_of(m).phase, trainer_phase::starting);
  tell(m.actor, start_training{});
  pass(40ms); // 5 of 8 micro-steps
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_EQ(status_of(m).phase, trainer_phase::training);
  EXPECT_EQ(m.reports.front().parameters, make_toy_learner({})->parameters_digest());
}

TEST_F(Trainer, AloneItIsTheOrdinaryLoop) { // F1 for one peer, bit for bit
  auto config = defaults();
  config.schedule = {lr_schedule::shape::warmup_cosine, 0.2, 2, 10, 0.01};
  auto& m = add_started(config);
  pass_until([&] { return all_at(5); });
  auto plain = make_toy_learner({.data_seed = 1});
  for (std::uint64_t k = 0; k < 5; ++k) {
    for (int i = 0; i < 8; ++i)
      plain->accumulate();
    plain->apply(mean_gradient_of(*plain), config.schedule.at(epoch_id{k}));
    plain->reset_accumulators();
  }
  EXPECT_EQ(status_of(m).parameters, plain->parameters_digest());
  EXPECT_TRUE(m.questions.empty());
  EXPECT_EQ(status_of(m).last_outcome, "alone");
  EXPECT_EQ(status_of(m).samples_used, 160U);
  expect_balance(m);
}

TEST_F(Trainer, TheEpochsAdvanceByOne) { // INV-1, INV-7
  auto& m = add_started();
  pass_until([&] { return all_at(6); });
  for (std::size_t i = 1; i < m.reports.size(); ++i) {
    auto before = m.reports[i - 1].epoch.value();
    auto after = m.reports[i].epoch.value();
    EXPECT_TRUE(after == before || after == before + 1) << before << " to " << after;
  }
}

TEST_F(Trainer, UsesTheRateOfItsEpoch) { // F11
  auto config = defaults();
  config.schedule = {lr_schedule::shape::warmup_cosine, 0.2, 3, 10, 0.01};
  auto& m = add_started(config);
  pass_until([&] { return all_at(8); });
  for (std::size_t k = 0; k < 8; ++k)
    EXPECT_EQ(m.probe->rates[k], config.schedule.at(epoch_id{k})) << "epoch " << k;
}

TEST_F(Trainer, AMicroStepThatIsNotFiniteCostsOnlyItself) {
  auto& m = add();
  m.probe->non_finite_steps = 3;
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(status_of(m).samples_dropped, 12U);
  EXPECT_EQ(status_of(m).samples_used, 32U);
  EXPECT_EQ(exported(*m.ctx.metrics, R"(waggle_training_nonfinite_total{where="gradient")"), 3);
  expect_balance(m);
}

TEST_F(Trainer, AMeanThatIsNotFiniteIsNeverApplied) {
  auto& m = add();
  m.probe->infinite_mean = true;
  tell(m.actor, start_training{});
  pass(200ms);
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_EQ(status_of(m).epoch, epoch_id{0});
  EXPECT_GT(status_of(m).samples_dropped, 0U);
  m.probe->infinite_mean = false;
  pass_until([&] { return all_at(1); });
  expect_balance(m);
}

TEST_F(Trainer, FinishesAtItsLastEpochAndGoesOnDonating) {
  auto config = defaults();
  config.max_epochs = 3;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
  auto steps = m.probe->micro_steps;
  pass(1s);
  EXPECT_EQ(m.probe->micro_steps, steps);
  auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->epoch, epoch_id{3});
  EXPECT_EQ(m.probe->applied.size(), 3U);
}

TEST_F(Trainer, AModelThatCannotBeMadeEndsItWithTheReason) {
  auto ctx = test_context(1, wall);
  auto& m = add();
  learner_factory none = []() -> result<std::unique_ptr<learner>> {
    return failure{ec::bad_config, "no such model"};
  };
  auto actor = spawn(trainer, ctx, defaults(), none, m.peers);
  tell(actor, start_training{});
  EXPECT_FALSE(alive(actor));
}

TEST_F(Trainer, LooksForOthersBeforeItStartsAlone) {
  auto config = defaults();
  config.join_timeout = 2s;
  auto& m = add_started(config);
  pass(1900ms);
  EXPECT_EQ(m.probe->micro_steps, 0U);
  EXPECT_EQ(status_of(m).phase, trainer_phase::joining);
  EXPECT_FALSE(ask<state_snapshot>(m.actor, get_state_snapshot{}).ok());
  pass(200ms);
  EXPECT_GT(m.probe->micro_steps, 0U);
}

TEST_F(Trainer, SaysHowItGoesEveryTenSecondsAndNotEveryEpoch) {
  auto& m = add();
  std::ostringstream said;
  m.ctx.log->sinks() = {std::make_shared<spdlog::sinks::ostream_sink_st>(said)};
  m.ctx.log->set_pattern("%v");
  m.ctx.log->set_level(spdlog::level::info);
  tell(m.actor, start_training{});
  pass(35s);
  m.ctx.log->set_level(spdlog::level::off);
  EXPECT_GT(status_of(m).epoch, epoch_id{100});
  auto text = said.str();
  auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++n;
    return n;
  };
  EXPECT_EQ(count("trainer is training"), 1U) << text;
  EXPECT_EQ(count("samples/s here, last round: alone"), 3U) << text;
}

// -- together ------------------------------------------------------------------------------------

TEST_F(Trainer, TwoPeersFollowTheTrajectoryOfOneProcess) { // F1
  auto& a = add_started();
  auto& b = add_started();
  pass_until([&] { return all_at(6); });
  auto stopped_a = ask<training_status>(a.actor, stop_training{});
  auto stopped_b = ask<training_status>(b.actor, stop_training{});
  ASSERT_TRUE(stopped_a.ok() && stopped_b.ok());
  auto epochs = stopped_a->epoch.value();
  ASSERT_EQ(stopped_b->epoch.value(), epochs);
  EXPECT_EQ(stopped_a->parameters, stopped_b->parameters);

  // One process: the same samples, one sum, one mean.
  auto plain = make_toy_learner({.data_seed = 1});
  auto other = make_toy_learner({.data_seed = 2});
  for (std::uint64_t k = 0; k < epochs; ++k) {
    auto share = static_cast<std::uint64_t>(a.questions[k].weight);
    auto batch = share + static_cast<std::uint64_t>(b.questions[k].weight);
    ASSERT_GE(batch, 32U);
    for (std::uint64_t i = 0; i < share; i += 4)
      plain->accumulate();
    for (std::uint64_t i = share; i < batch; i += 4)
      other->accumulate();
    std::vector<float> mean;
    auto g = mean_gradient_of(*plain);
    auto h = mean_gradient_of(*other);
    for (std::size_t i = 0; i < g.size(); ++i)
      mean.push_back(static_cast<float>(
        (g[i] * static_cast<double>(share) + h[i] * static_cast<double>(batch - share))
        / static_cast<double>(batch)));
    for (auto* one : {plain.get(), other.get()}) {
      one->apply(mean, 0.1);
      one->reset_accumulators();
    }
  }
  auto snapshot = ask<state_snapshot>(a.actor, get_state_snapshot{});
  ASSERT_TRUE(snapshot.ok());
  auto swarm = weights_of(a.probe->last_state);
  auto single = weights_of(plain->save_state());
  for (std::size_t i = 0; i < swarm.size(); ++i)
    EXPECT_NEAR(swarm[i], single[i], 1e-6 + 1e-5 * std::abs(single[i]));
}

TEST_F(Trainer, AsksForTheMeanWithItsSamplesAsWeight) { // F3: S_p weighs ḡ_p
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto plain = make_toy_learner({.data_seed = 1});
  const auto& q = m.questions[0];
  for (int i = 0; i < static_cast<int>(q.weight); i += 4)
    plain->accumulate();
  EXPECT_GT(q.weight, 0);
  EXPECT_THAT(*q.values, ::testing::ElementsAreArray(mean_gradient_of(*plain)));
  EXPECT_EQ(q.epoch, epoch_id{0});
  EXPECT_EQ(q.expected_peers, 2U);
  EXPECT_TRUE(q.standing);
  EXPECT_EQ(q.deadline, defaults().averaging_timeout);
}

TEST_F(Trainer, AFailedRoundAppliesThisEpochsOwnMeanGradient) { // F7, INV-6
  hold_rounds = true;
  auto& m = add_started();
  auto& other = add_started();
  pass_until([&] { return !m.questions.empty() && !other.questions.empty(); });
  auto own = *m.questions[0].values;
  auto weight = m.questions[0].weight;
  round_report failed;
  failed.why = {ec::lost_quorum, ""};
  answer_round(m, failed);
  ASSERT_EQ(m.probe->applied.size(), 1U);
  EXPECT_THAT(own, ::testing::ElementsAreArray(m.probe->applied[0]));
  auto s = status_of(m);
  EXPECT_EQ(s.epoch, epoch_id{1});
  EXPECT_EQ(s.local_fallbacks, 1U);
  EXPECT_EQ(s.rounds_failed, 1U);
  EXPECT_EQ(s.last_outcome, "failed: lost_quorum");
  EXPECT_EQ(static_cast<double>(s.samples_used), weight);
  EXPECT_EQ(exported(*m.ctx.metrics, "waggle_training_local_fallbacks_total"), 1);
  expect_balance(m);
}

TEST_F(Trainer, ARoundThatIsNeverAnsweredEndsByItsDeadline) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  pass(defaults().averaging_timeout + 6s);
  EXPECT_GE(status_of(m).local_fallbacks, 1U);
  EXPECT_GE(status_of(m).epoch, epoch_id{1});
}

TEST_F(Trainer, AnAnswerThatComesAfterTheDeadlineChangesNothing) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto late = m.answers.front();
  pass_until([&] { return status_of(m).epoch == epoch_id{1}; });
  auto applied = m.probe->applied.size();
  round_report report;
  report.outcome = round_outcome::complete;
  report.values = std::make_shared<float_vector>(8, 1000.0F);
  report.contributors = {m.ctx.record.id};
  m.answers = {late};
  answer_round(m, report);
  EXPECT_EQ(m.probe->applied.size(), applied);
}

TEST_F(Trainer, LeftOutOfARoundItDropsItsSamplesAndTakesTheRunsState) {
  auto& a = add_started();
  auto& b = add_started();
  auto& left_out = add_started();
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &left_out && epoch == epoch_id{2} ? ec::excluded : ec::none;
  };
  pass_until([&] { return all_at(5); });
  auto s = status_of(left_out);
  EXPECT_GE(s.state_downloads, 1U);
  EXPECT_EQ(s.local_fallbacks, 0U);
  EXPECT_GT(s.samples_dropped, 0U);
  pass_until([&] {
    return status_of(a).parameters == status_of(left_out).parameters
           && status_of(b).parameters == status_of(left_out).parameters;
  });
  for (const auto& m : members)
    expect_balance(*m);
}

TEST_F(Trainer, LeftOutItNeitherAsksAgainNorStepsWithoutASample) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  hold_views = true; // what the swarm did without us has not come through
  round_report excluded;
  excluded.why = {ec::excluded, ""};
  answer_round(m, excluded);
  pass(defaults().settle_time - 10ms);
  EXPECT_EQ(m.questions.size(), 1U);
  EXPECT_TRUE(m.probe->applied.empty());
}

TEST_F(Trainer, AFailedRoundThatItOnlyTaggedAlongToHasNoGradientToFallBackOn) {
  hold_rounds = true;
  auto& m = add();
  m.probe->non_finite_steps = 1'000'000;
  tell(m.actor, start_training{});
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  EXPECT_EQ(m.questions[0].weight, 0);
  round_report failed;
  failed.why = {ec::too_few, ""};
  answer_round(m, failed);
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_EQ(status_of(m).epoch, epoch_id{0});
}

TEST_F(Trainer, AfterItsOwnStepTheMinorityTakesTheMajoritysState) {
  auto& a = add_started();
  auto& b = add_started();
  auto& alone = add_started();
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &alone && epoch == epoch_id{1} ? ec::timeout : ec::none;
  };
  pass_until([&] { return all_at(4); });
  EXPECT_EQ(status_of(alone).local_fallbacks, 1U);
  EXPECT_GE(status_of(alone).state_downloads, 1U);
  pass_until([&] { return status_of(a).parameters == status_of(alone).parameters; });
  EXPECT_EQ(status_of(a).state_downloads + status_of(b).state_downloads, 0U);
  for (const auto& m : members)
    expect_balance(*m);
}

TEST_F(Trainer, ASurvivorGoesOnAlone) {
  auto& a = add_started();
  auto& b = add_started();
  pass_until([&] { return all_at(2); });
  end(b);
  auto epoch = status_of(a).epoch;
  pass_until([&] { return status_of(a).epoch > epoch.next(); });
  EXPECT_EQ(status_of(a).last_outcome, "alone");
  expect_balance(a);
}

// -- joining -------------------------------------------------------------------------------------

TEST_F(Trainer, AJoinerIsTheDonorBitForBitAndStaysIt) { // F10, INV-3
  auto& donor = add_started();
  pass_until([&] { return all_at(3); });
  auto config = defaults();
  config.join_timeout = 5s;
  auto& joiner = add_started(config, toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  EXPECT_TRUE(joiner.probe->applied.empty()); // nothing of its own before
  auto state = ask<state_snapshot>(donor.actor, get_state_snapshot{});
  ASSERT_TRUE(state.ok());
  if (status_of(joiner).epoch == state->epoch) {
    auto its = ask<state_snapshot>(joiner.actor, get_state_snapshot{});
    ASSERT_TRUE(its.ok());
    EXPECT_EQ(as_string_view(its->state.view()), as_string_view(state->state.view()));
  }
  auto later = status_of(donor).epoch.value() + 3;
  pass_until([&] { return all_at(later); });
  EXPECT_EQ(status_of(joiner).state_downloads, 1U);
  EXPECT_EQ(status_of(joiner).parameters, status_of(donor).parameters);
  EXPECT_EQ(joiner.probe->applied.back(), donor.probe->applied.back());
  EXPECT_EQ(joiner.probe->rates.back(), donor.probe->rates.back());
  expect_balance(joiner);
  expect_balance(donor);
}

TEST_F(Trainer, ADamagedStateChangesNothingAndAnotherDonorIsAsked) {
  auto& a = add_started();
  add_started();
  pass_until([&] { return all_at(2); });
  // The spoiled image has the hash that its donor announced, but is none inside.
  auto first = members[0]->ctx.record.id < members[1]->ctx.record.id ? 0U : 1U;
  spoil_state = [first](std::size_t donor, std::string& image) {
    if (donor == first)
      image[60] = static_cast<char>(image[60] ^ 1);
  };
  auto config = defaults();
  config.join_timeout = 5s;
  auto& joiner = add_started(config, toy_options{.init_seed = 99, .data_seed = 3});
  spread();
  pass_until([&] { return !joiner.downloads.empty(); });
  ASSERT_FALSE(joiner.downloads[0].ok);
  EXPECT_EQ(joiner.downloads[0].why.code, ec::hash_mismatch);
  EXPECT_EQ(status_of(joiner).epoch, epoch_id{0});
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  pass_until([&] { return status_of(joiner).parameters == status_of(a).parameters; });
}

TEST_F(Trainer, AStateOfAnotherModelIsRefusedAndRetriedEverMoreSlowly) {
  auto& donor = add_started();
  pass_until([&] { return all_at(2); });
  auto config = defaults();
  config.join_timeout = 5s;
  auto& joiner = add_started(config, toy_options{.parameters = 5});
  spread();
  pass(10s);
  ASSERT_FALSE(joiner.downloads.empty());
  EXPECT_EQ(joiner.downloads[0].why.code, ec::schema_mismatch);
  EXPECT_EQ(status_of(joiner).epoch, epoch_id{0});
  EXPECT_TRUE(joiner.probe->applied.empty());
  EXPECT_LE(joiner.downloads.size(), 7U); // 0.5 + 1 + 2 + 4 + 8 s
  EXPECT_GT(status_of(donor).epoch, epoch_id{2});
}

// -- checkpoints ---------------------------------------------------------------------------------

struct TrainerCheckpoints : Trainer {
  training_config with_checkpoints() {
    auto config = defaults();
    config.checkpoints.emplace(files, "/data");
    return config;
  }
  training_status stop(const member& m) {
    auto answer = ask<training_status>(m.actor, stop_training{});
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? *answer : training_status{};
  }

  std::shared_ptr<memory_disk> files = std::make_shared<memory_disk>();
};

TEST_F(TrainerCheckpoints, StoppingWritesOneAndTheNextStartGoesOnFromIt) {
  auto& m = add_started(with_checkpoints());
  pass_until([&] { return all_at(4); });
  pass(15ms);
  auto before = stop(m);
  EXPECT_EQ(before.phase, trainer_phase::stopped);
  EXPECT_EQ(before.samples_used + before.samples_dropped, m.probe->micro_steps * 4);
  auto steps = m.probe->micro_steps;
  pass(1s);
  EXPECT_EQ(m.probe->micro_steps, steps); // it stays stopped
  end(m);

  auto& again = add_started(with_checkpoints(), toy_options{.init_seed = 99});
  settle();
  EXPECT_EQ(again.reports.front().epoch, before.epoch); // INV-1
  EXPECT_EQ(again.reports.front().parameters, before.parameters);
  pass_until([&] { return all_at(before.epoch.value() + 1); });
  EXPECT_EQ(again.probe->rates[0], defaults().schedule.at(before.epoch));
}

TEST_F(TrainerCheckpoints, ATornNewestFallsBackToTheOneBefore) {
  auto& m = add_started(with_checkpoints());
  pass_until([&] { return all_at(4); });
  auto epoch = stop(m).epoch.value();
  end(m);
  files->corrupt("/data/checkpoint-" + std::to_string(epoch) + ".wgl", "WGGLST01 and no more");
  auto& again = add_started(with_checkpoints());
  EXPECT_EQ(again.reports.front().epoch, epoch_id{epoch - 1});
}

TEST_F(TrainerCheckpoints, AFullDiskIsCountedAndTrainingGoesOn) {
  auto& m = add_started(with_checkpoints());
  pass_until([&] { return all_at(2); });
  auto names = *files->list("/data");
  files->fail_writes(failure{ec::io_error, "no space left"});
  pass_until([&] { return all_at(5); });
  EXPECT_EQ(*files->list("/data"), names);
  EXPECT_GE(exported(*m.ctx.metrics, R"(waggle_checkpoint_saves_total{outcome="failed")"), 3);
  EXPECT_EQ(status_of(m).phase, trainer_phase::training);
}

TEST_F(TrainerCheckpoints, OneOfAnotherModelIsLeftAlone) {
  auto& m = add_started(with_checkpoints(), toy_options{.parameters = 5});
  pass_until([&] { return all_at(6); });
  stop(m);
  end(m);
  auto theirs = *files->list("/data");
  auto& other = add_started(with_checkpoints());
  EXPECT_EQ(other.reports.front().epoch, epoch_id{0});
  pass_until([&] { return status_of(other).epoch >= epoch_id{2}; });
  auto names = *files->list("/data");
  for (const auto& name : theirs)
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  EXPECT_GT(names.size(), theirs.size());
}

TEST_F(TrainerCheckpoints, EveryZeroEpochsMeansOnlyAtTheEnd) {
  auto config = with_checkpoints();
  config.checkpoint_every = 0;
  auto& m = add_started(config);
  pass_until([&] { return all_at(3); });
  EXPECT_TRUE(files->list("/data")->empty());
  stop(m);
  EXPECT_EQ(files->list("/data")->size(), 1U);
}

TEST_F(TrainerCheckpoints, StoppingInTheMiddleOfARoundDropsAndCountsItsSamples) {
  hold_rounds = true;
  auto& m = add_started(with_checkpoints());
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto s = stop(m);
  EXPECT_EQ(s.samples_used, 0U);
  EXPECT_EQ(s.samples_dropped, m.probe->micro_steps * 4);
  round_report late;
  late.outcome = round_outcome::complete;
  late.values = std::make_shared<float_vector>(8, 1.0F);
  answer_round(m, late);
  EXPECT_TRUE(m.probe->applied.empty());
}

} // namespace
} // namespace waggle::testing
