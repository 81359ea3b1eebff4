// Training goes on while gradients are averaged; each update is one epoch late.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct DelayedGradients : training_world {
  static training_config delayed() {
    auto config = defaults();
    config.how.delay_gradients = true;
    return config;
  }
};

TEST_F(DelayedGradients, PeersComputeWhileTheirRoundRunsAndHoldEqualParameters) {
  auto& a = add_started(delayed());
  auto& b = add_started(joining(delayed()));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  auto before = a.probe->micro_steps;
  auto applied = a.probe->applied.size();
  pass(30ms); // three passes, less than the next target
  EXPECT_GE(a.probe->micro_steps, before + 2);
  EXPECT_EQ(a.probe->applied.size(), applied);
  auto epoch = status_of(a).epoch;
  release_rounds();
  EXPECT_EQ(status_of(a).epoch, epoch.next());
  EXPECT_EQ(a.probe->applied.size(), applied) << "its result waits for the next boundary";

  pass_until([&] { return all_at(10); });
  hold_rounds = true;
  pass(500ms);
  ASSERT_FALSE(a.answers.empty());
  ASSERT_FALSE(b.answers.empty());
  EXPECT_EQ(a.probe->applied, b.probe->applied);
}

// Samples beyond the target would be computed from parameters that are two updates old.
TEST_F(DelayedGradients, ASlowRoundIsAwaitedOnceTheNextTargetIsReached) {
  auto& a = add_started(delayed());
  auto& b = add_started(joining(delayed()));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  auto before = a.probe->micro_steps + b.probe->micro_steps;
  pass(2s); // 400 passes
  auto samples = 4 * (a.probe->micro_steps + b.probe->micro_steps - before);
  EXPECT_GE(samples, 24U);
  EXPECT_LE(samples, 48U) << "the target of 32, one micro-batch per peer, one forecast that is off";
  release_rounds();
  pass_until([&] { return all_at(8); });
}

TEST_F(DelayedGradients, ANewcomerGetsAStateOfTheGroupsEpoch) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(4); });
  auto config = joining(delayed());
  auto& b = add_started(config, toy_options{.init_seed = 99, .data_seed = 2});
  pass_until([&] { return status_of(b).state_downloads == 1 && status_of(b).rounds_complete > 3; });
  hold_rounds = true;
  pass(500ms);
  auto of_a = ask<state_snapshot>(a.actor, get_state_snapshot{});
  auto of_b = ask<state_snapshot>(b.actor, get_state_snapshot{});
  ASSERT_TRUE(of_a.ok() && of_b.ok());
  EXPECT_EQ(of_a->epoch, of_b->epoch);
  EXPECT_EQ(of_a->parameters, of_b->parameters);
}

// The group's epoch has ended, the model's only does with the next boundary.
TEST_F(DelayedGradients, ADonationAppliesTheResultThatWaits) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(4); });
  auto epoch = status_of(a).epoch;
  EXPECT_EQ(a.probe->applied.size(), epoch.value() - 1);
  auto snapshot = ask<state_snapshot>(a.actor, get_state_snapshot{});
  EXPECT_EQ(snapshot->epoch, epoch);
  EXPECT_EQ(a.probe->applied.size(), epoch.value());
}

// INV-6: not zeros, and not the next epoch's partial sum.
TEST_F(DelayedGradients, AFailedRoundEndsWithTheOwnGradientOfItsEpoch) {
  auto& a = add_started(delayed());
  auto& b = add_started(joining(delayed()));
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty() && !b.answers.empty(); });
  auto given = *a.questions.back().values;
  auto epoch = a.questions.back().epoch;
  pass(100ms); // the next epoch's sum grows
  hold_rounds = false;
  end(b);
  round_report failed{.why = {ec::peer_lost, ""}};
  a.group = 0;
  deliver(a, {failed, true, {}, {}});
  pass_until([&] { return status_of(a).epoch > epoch.next(); });
  auto& applied = a.probe->applied;
  EXPECT_NE(
    std::find(applied.begin(), applied.end(), std::vector<float>(given.begin(), given.end())),
    applied.end());
  EXPECT_EQ(status_of(a).local_fallbacks, 1U);
}

TEST_F(DelayedGradients, StoppingAppliesWhatWasDecided) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(4); });
  auto epoch = status_of(a).epoch;
  auto stopped = ask<training_status>(a.actor, stop_training{});
  EXPECT_EQ(stopped->epoch, epoch);
  EXPECT_EQ(a.probe->applied.size(), epoch.value());
}

// The change of one round has not been made when the next one begins: without it, both rounds would
// correct the same difference.
TEST_F(DelayedGradients, BuffersAreContributedWithTheChangesThatWait) {
  auto& a = add_started(delayed(), toy_options{.buffer = true});
  pass_until([&] { return all_at(3); });
  hold_rounds = true;
  pass_until([&] { return !a.answers.empty(); });
  const auto& question = a.questions.back();
  auto mean = std::make_shared<float_vector>(*question.values);
  constexpr std::size_t parameters = 8;
  for (auto i = parameters; i < mean->size(); ++i)
    (*mean)[i] += 5; // as if another peer's buffers were 10 above ours
  round_report report{.outcome = round_outcome::complete,
                      .contributors = {a.ctx.record.id},
                      .group_size = 1,
                      .weight_sum = question.weight,
                      .values = mean};
  auto before = *question.values;
  auto rounds = a.questions.size();
  groups[a.group] = question.epoch.next();
  answer_round(a, report);
  pass_until([&] { return a.questions.size() > rounds; });
  const auto& next = *a.questions.back().values;
  for (auto i = parameters; i < next.size(); ++i)
    EXPECT_NEAR(next[i], before[i] + 5, 2) << "passes change a running mean of -1 to 1 slowly";
  release_rounds();
}

} // namespace
} // namespace waggle::testing
