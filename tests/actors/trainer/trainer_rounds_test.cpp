#include <cmath>

#include <gmock/gmock.h>

#include "actors/training/trainer.hpp"
#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {
namespace {

using Trainer = training_world;

std::vector<float> weights_of(byte_span learner_state) {
  auto table = read_state_table(learner_state);
  EXPECT_TRUE(table.ok());
  auto bytes = testing::parameters_in(*table, learner_state);
  std::vector<float> values(table->parameter_count());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class Member>
double weight_at(const Member& m, std::uint64_t epoch) {
  double weight = 0;
  for (const auto& q : m.questions)
    if (q.epoch == epoch_id{epoch})
      weight = q.weight;
  return weight;
}

struct two_peers {
  const char* name;
  bool adam;
  std::uint64_t micro_batch; // of the second one; the first one's is 4
};

class OneTrajectory : public Trainer, public ::testing::WithParamInterface<two_peers> {};

// With equal samples in each update, and the gradient their mean.
TEST_P(OneTrajectory, TwoPeersFollowThatOfOneProcess) {
  toy_options first{.data_seed = 1, .adam = GetParam().adam};
  toy_options second{
    .micro_batch = GetParam().micro_batch, .data_seed = 2, .adam = GetParam().adam};
  auto faster = joining();
  faster.step_interval = 9ms; // the shares of the two differ from epoch to epoch
  auto& a = add_started(defaults(), first);
  auto& b = add_started(faster, second);
  pass_until([&] { return all_at(6); });
  pass_until(
    [&] { return status_of(a).epoch == status_of(b).epoch && !status_of(b).parameters.is_zero(); });
  auto snapshot = ask<state_snapshot>(a.actor, get_state_snapshot{});
  auto epochs = snapshot->epoch.value();
  EXPECT_EQ(status_of(a).parameters, status_of(b).parameters);

  // One process: the same samples, one sum, one mean.
  auto plain = make_toy_learner(first);
  auto other = make_toy_learner(second);
  std::uint64_t together = 0; // epochs with samples of both
  for (std::uint64_t k = 0; k < epochs; ++k) {
    auto share = static_cast<std::uint64_t>(weight_at(a, k));
    auto rest = static_cast<std::uint64_t>(weight_at(b, k));
    auto batch = share + rest;
    together += share > 0 && rest > 0 ? 1 : 0;
    ASSERT_GE(batch, 32U);
    ASSERT_LE(batch, 32 + a.micro_batch + b.micro_batch)
      << "at most the target and one micro-batch per peer";
    for (std::uint64_t i = 0; i < share; i += a.micro_batch)
      plain->accumulate();
    for (std::uint64_t i = 0; i < rest; i += b.micro_batch)
      other->accumulate();
    std::vector<float> mean;
    auto g = mean_gradient_of(*plain);
    auto h = mean_gradient_of(*other);
    for (std::size_t i = 0; i < g.size(); ++i)
      mean.push_back(
        static_cast<float>((g[i] * static_cast<double>(share) + h[i] * static_cast<double>(rest))
                           / static_cast<double>(batch)));
    for (auto* one : {plain.get(), other.get()})
      one->apply(mean, 0.1);
  }
  EXPECT_GE(together, 4U);
  auto image = read_all(*snapshot->state);
  auto state = decode_state(image->view());
  auto swarm = weights_of(state->learner);
  auto single = weights_of(testing::save_state(*plain));
  for (std::size_t i = 0; i < swarm.size(); ++i)
    EXPECT_NEAR(swarm[i], single[i], 1e-6 + 1e-5 * std::abs(single[i]));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OneTrajectory,
                         ::testing::Values(two_peers{"MomentumSgd", false, 4},
                                           two_peers{"MomentumSgdUnequalMicroBatches", false, 6},
                                           two_peers{"Adam", true, 4},
                                           two_peers{"AdamUnequalMicroBatches", true, 6}),
                         [](const auto& one) { return std::string{one.param.name}; });

TEST_F(Trainer, AsksForTheMeanWithItsSamplesAsWeight) {
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
  EXPECT_EQ(q.deadline, defaults().averaging_timeout);
}

TEST_F(Trainer, WithNobodyLeftAFailedRoundAppliesThisEpochsOwnMeanGradient) { // INV-6
  hold_rounds = true;
  auto& m = add_started();
  auto& other = add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto own = *m.questions[0].values;
  auto weight = m.questions[0].weight;
  end(other);
  m.group = 0;
  round_report failed{.why = {ec::lost_quorum, ""}};
  hold_rounds = false;
  answer_round(m, failed);
  EXPECT_TRUE(m.probe->applied.empty()) << "it looks for the other members first";
  pass_until([&] { return m.probe->applied.size() == 1; });
  EXPECT_THAT(own, ::testing::ElementsAreArray(m.probe->applied[0]));
  auto s = status_of(m);
  EXPECT_EQ(s.epoch, epoch_id{1});
  EXPECT_EQ(s.local_fallbacks, 1U);
  EXPECT_EQ(s.rounds_failed, 1U);
  EXPECT_TRUE(s.provisional);
  EXPECT_EQ(static_cast<double>(s.samples_used), weight);
  EXPECT_EQ(exported(*m.ctx.metrics, "waggle_training_local_fallbacks_total"), 1);
}

TEST_F(Trainer, RoundsThatOftenFailAreANotice) {
  auto& m = add_started();
  auto rule = [&] { return exported(*m.ctx.metrics, R"(waggle_run_health{rule="own_gradients")"); };
  pass_until([&] { return all_at(2); });
  round_report failed{.why = {ec::lost_quorum, ""}};
  for (std::uint64_t k = 1; k <= 2; ++k) {
    hold_rounds = true;
    pass_until([&] { return !m.answers.empty(); });
    m.group = 0;
    hold_rounds = false;
    answer_round(m, failed);
    pass_until([&] { return status_of(m).local_fallbacks == k && all_at(2 + k); });
  }
  EXPECT_EQ(rule(), 0);
  EXPECT_EQ(text_of(status_of(m).notices), "");
  pass_until([&] { return all_at(8); }); // two of eight epochs
  EXPECT_EQ(rule(), 1);
  EXPECT_THAT(text_of(status_of(m).notices),
              ::testing::HasSubstr("in 2 of the last 8 epochs the round"));
  pass_until([&] { return all_at(24); });
  EXPECT_EQ(rule(), 0);
  EXPECT_EQ(text_of(status_of(m).notices), "");
}

TEST_F(Trainer, AFailedRoundIsTriedAgainWithTheSameGradientInTheGroupThatIsLeft) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  m.group = 0;
  round_report failed{.why = {ec::lost_quorum, ""}};
  answer_round(m, failed);
  pass_until([&] { return m.questions.size() == 2; });
  EXPECT_EQ(*m.questions[1].values, *m.questions[0].values);
  EXPECT_EQ(m.questions[1].weight, m.questions[0].weight);
  EXPECT_TRUE(m.probe->applied.empty());
}

TEST_F(Trainer, ARoundThatIsNeverAnsweredEndsByItsDeadline) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  pass(defaults().averaging_timeout + 6s);
  EXPECT_GE(m.questions.size(), 2U);
  EXPECT_GE(status_of(m).rounds_failed, 1U);
}

TEST_F(Trainer, AnAnswerThatComesAfterTheDeadlineChangesNothing) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto late = m.answers.front();
  pass_until([&] { return status_of(m).rounds_failed == 1; });
  round_report report{.outcome = round_outcome::complete,
                      .contributors = {m.ctx.record.id},
                      .weight_sum = 32,
                      .values = std::make_shared<float_vector>(8, 1000.0F)};
  m.answers = {late};
  answer_round(m, report);
  EXPECT_TRUE(m.probe->applied.empty());
}

TEST_F(Trainer, AMeanOfAnotherLengthIsNotAppliedAndItsSamplesAreDropped) {
  for (int difference : {-1, 1}) {
    hold_rounds = true;
    auto& m = add();
    keep_log(m);
    tell(m.actor, start_training{});
    pass_until([&] { return !m.questions.empty(); });
    const auto& question = m.questions.back();
    auto before = status_of(m).parameters;
    round_report report{.outcome = round_outcome::complete,
                        .contributors = {m.ctx.record.id},
                        .group_size = 1,
                        .weight_sum = question.weight};
    auto length = static_cast<std::size_t>(8 + difference);
    report.values = std::make_shared<float_vector>(length, 1.0F);
    auto samples = static_cast<std::uint64_t>(question.weight);
    groups[m.group] = question.epoch.next();
    answer_round(m, report);
    auto s = status_of(m);
    EXPECT_TRUE(m.probe->applied.empty());
    EXPECT_EQ(s.parameters, before);
    EXPECT_EQ(s.samples_used, 0U);
    EXPECT_EQ(s.samples_dropped, samples);
    EXPECT_GE(samples, 32U);
    EXPECT_EQ(s.epoch, epoch_id{1}) << "the group's epoch has ended";
    EXPECT_THAT(m.said.str(),
                ::testing::HasSubstr("the mean of epoch 0 has " + std::to_string(length)
                                     + " values instead of 8, it is dropped"));
    release_rounds();
    pass_until([&] { return status_of(m).epoch == epoch_id{3}; });
    EXPECT_EQ(m.probe->applied.size(), 2U) << "it trains on";
    end(m);
  }
}

TEST_F(Trainer, ItTakesPartAtOnceWhenAnotherMemberCallsForTheRound) {
  hold_rounds = true;
  auto& m = add_started();
  add_started();
  pass(15ms); // one pass of eight
  ASSERT_TRUE(m.questions.empty());
  tell(m.actor, round_called{status_of(m).epoch});
  ASSERT_EQ(m.questions.size(), 1U);
  EXPECT_LT(m.questions[0].weight, 32);
  EXPECT_FALSE(m.questions[0].call) << "the others have begun the round already";
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

TEST_F(Trainer, AFailedRoundThatItOnlyTaggedAlongToHasNoGradientToFallBackOn) {
  hold_rounds = true;
  auto& m = add();
  m.probe->non_finite_steps = 1'000'000;
  tell(m.actor, start_training{});
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  EXPECT_EQ(m.questions[0].weight, 0);
  round_report failed{.why = {ec::too_few, ""}};
  answer_round(m, failed);
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_EQ(status_of(m).epoch, epoch_id{0});
}

TEST_F(Trainer, WhoeverMissesARoundTakesTheStateOfThoseWhoDidNot) {
  auto& a = add_started();
  auto& b = add_started();
  auto& late = add_started();
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &late && epoch == epoch_id{4} ? ec::timeout : ec::none;
  };
  pass_until([&] { return all_at(8); });
  EXPECT_EQ(status_of(late).local_fallbacks, 0U);
  EXPECT_GE(status_of(late).state_downloads, 2U); // when it joined, and now
  pass_until([&] { return status_of(a).parameters == status_of(late).parameters; });
  EXPECT_LE(status_of(a).state_downloads + status_of(b).state_downloads, 1U);
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

// Buffers are averaged with the gradients, and no pass comes after the last update.
TEST_F(Trainer, PeersThatHaveFinishedHoldEqualBuffers) {
  auto config = defaults();
  config.max_epochs = 5;
  auto& a = add_started(config, toy_options{.data_seed = 1, .buffer = true});
  auto& b = add_started(joining(config), toy_options{.data_seed = 2, .buffer = true});
  auto finished = [&](const member& m) { return status_of(m).phase == trainer_phase::finished; };
  pass_until([&] { return finished(a) && finished(b); });
  EXPECT_EQ(a.questions.back().values->size(), 16U);
  EXPECT_NE(a.questions.back().values->back(), b.questions.back().values->back());
  auto of_a = ask<state_snapshot>(a.actor, get_state_snapshot{});
  auto of_b = ask<state_snapshot>(b.actor, get_state_snapshot{});
  ASSERT_TRUE(of_a.ok() && of_b.ok());
  EXPECT_EQ(of_a->content, of_b->content) << "parameters, statistics and buffers";
}

/// The buffer in the state that the member would give to others.
std::vector<float> buffer_in(const state_snapshot& snapshot) {
  auto image = read_all(*snapshot.state);
  auto state = image->view().subspan(state_header_bytes);
  auto table = read_state_table(state);
  EXPECT_TRUE(table.ok());
  auto bytes = table->values_in(state, table->size() - 1);
  std::vector<float> values(table->buffer_count());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Zeros that it did not contribute must not be taken for its own contribution.
TEST_F(Trainer, APeerWithoutSamplesTakesTheMeanOfTheBuffers) {
  auto& a = add_started({}, toy_options{.data_seed = 1, .buffer = true});
  auto& b = add_started(joining(), toy_options{.data_seed = 2, .buffer = true});
  pass_until([&] { return all_at(3); });
  b.probe->non_finite_steps = 1'000'000; // from now on it has nothing to contribute
  pass_until([&] { return b.questions.back().weight == 0; });
  auto epoch = status_of(b).epoch.value();
  pass_until([&] { return all_at(epoch + 4); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  auto snapshot = ask<state_snapshot>(b.actor, get_state_snapshot{});
  auto held = buffer_in(*snapshot);
  const auto& given = *a.questions[a.questions.size() - 2].values; // a alone decided the mean
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_NEAR(held[i], given[held.size() + i], 0.5) << "one pass of b after it";
  for (float x : held)
    EXPECT_LT(std::abs(x), 1) << "a running mean of values between -1 and 1";
  release_rounds();
}

} // namespace
} // namespace waggle::testing
