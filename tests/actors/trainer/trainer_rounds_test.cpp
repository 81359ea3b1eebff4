#include <cmath>

#include <gmock/gmock.h>

#include "actors/trainer.hpp"
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
}

TEST_F(Trainer, ASurvivorGoesOnAlone) {
  auto& a = add_started();
  auto& b = add_started();
  pass_until([&] { return all_at(2); });
  end(b);
  auto epoch = status_of(a).epoch;
  pass_until([&] { return status_of(a).epoch > epoch.next(); });
  EXPECT_EQ(status_of(a).last_outcome, "alone");
}

} // namespace
} // namespace waggle::testing
