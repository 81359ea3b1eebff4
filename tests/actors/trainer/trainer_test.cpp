#include "actors/training/trainer.hpp"

#include <gmock/gmock.h>

#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"

namespace waggle::testing {
namespace {

using Trainer = training_world;

TEST_F(Trainer, TakesNoStepBeforeItsFirstEpochEnds) {
  auto& m = add();
  EXPECT_EQ(status_of(m).phase, trainer_phase::starting);
  tell(m.actor, start_training{});
  pass(40ms); // 5 of 8 micro-steps
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_EQ(status_of(m).phase, trainer_phase::training);
  EXPECT_EQ(m.reports.front().parameters, make_toy_learner({})->parameters_digest());
}

TEST_F(Trainer, AloneItIsTheOrdinaryLoop) { // bit for bit
  auto config = defaults();
  config.schedule = *make_schedule(*parse_schedule("cosine:floor=0.01"), 0.2, 2, 10);
  auto& m = add_started(config);
  pass_until([&] { return all_at(5); });
  auto plain = make_toy_learner({.data_seed = 1});
  for (std::uint64_t k = 0; k < 5; ++k) {
    for (int i = 0; i < 8; ++i)
      plain->accumulate();
    plain->apply(mean_gradient_of(*plain), config.schedule.at(epoch_id{k}));
    plain->drop_gradient();
  }
  EXPECT_EQ(status_of(m).parameters, plain->parameters_digest());
  EXPECT_EQ(status_of(m).last_outcome, "alone");
  EXPECT_EQ(status_of(m).samples_used, 160U);
}

// As hivemind's test of its optimizer.
TEST_F(Trainer, ThreeEpochsTakeAsManySamplesAndAsMuchTimeAsTheirPasses) {
  auto config = defaults();
  config.max_epochs = 3;
  config.step_interval = 300ms; // 4 samples each: 13.33 samples/s
  config.schedule = *make_schedule(*parse_schedule("step:every=1,factor=0.5"), 0.1, 0, 3);
  auto& m = add_started(config);
  auto began = sched.clock().now();
  pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
  auto s = status_of(m);
  EXPECT_EQ(s.epoch, epoch_id{3});
  EXPECT_EQ(s.global_epoch, epoch_id{3});
  EXPECT_EQ(s.samples_used, 96U);
  EXPECT_EQ(s.samples_dropped, 0U);
  constexpr double expected = 4 / 0.3;
  EXPECT_NEAR(m.reports.back().samples_per_second, expected, expected / 5);
  EXPECT_NEAR(96 / seconds_of(sched.clock().now() - began), expected, expected / 5);
  EXPECT_THAT(m.probe->rates, ::testing::ElementsAre(0.1, 0.05, 0.025));
}

TEST_F(Trainer, AMicroStepThatIsNotFiniteCostsOnlyItself) {
  auto& m = add();
  m.probe->non_finite_steps = 3;
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(status_of(m).samples_dropped, 12U);
  EXPECT_EQ(status_of(m).samples_used, 32U);
  EXPECT_EQ(exported(*m.ctx.metrics, R"(waggle_training_nonfinite_total{where="loss")"), 3);
  m.probe->fakes = {{1, 4, false}};
  pass_until([&] { return m.probe->fakes.empty(); });
  EXPECT_EQ(exported(*m.ctx.metrics, R"(waggle_training_nonfinite_total{where="gradient")"), 1);
}

TEST_F(Trainer, AMeanThatIsNotFiniteIsNeverApplied) {
  auto& m = add();
  m.probe->infinite_mean = true;
  tell(m.actor, start_training{});
  pass(200ms);
  EXPECT_TRUE(m.probe->applied.empty());
  EXPECT_GT(status_of(m).samples_dropped, 0U);
  m.probe->infinite_mean = false;
  pass_until([&] { return !m.probe->applied.empty(); });
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
  EXPECT_EQ(snapshot->epoch, epoch_id{3});
  EXPECT_EQ(m.probe->applied.size(), 3U);
}

TEST_F(Trainer, AModelThatCannotBeMadeEndsItWithTheReason) {
  auto& m = add();
  learner_factory none = []() -> result<std::unique_ptr<learner>> {
    return failure{ec::bad_config, "no such model"};
  };
  auto worker = [&](auto owner) {
    auto made = sys.spawn<model_worker>(m.ctx, none, std::nullopt, m.keeper, owner);
    keep(made);
    return model_worker_actor{made};
  };
  trainer_actor actor = sys.spawn<trainer>(m.ctx, defaults(), worker, m.peers);
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
  keep_log(m);
  tell(m.actor, start_training{});
  pass(35s);
  EXPECT_GT(status_of(m).epoch, epoch_id{100});
  auto text = m.said.str();
  auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++n;
    return n;
  };
  EXPECT_EQ(count("trainer is training"), 1U) << text;
  EXPECT_EQ(count("last round: alone"), 3U) << text;
}

TEST_F(Trainer, BeginsOnceThereAreEnoughPeers) {
  auto config = defaults();
  config.min_peers = 2;
  auto& a = add_started(config);
  pass(3s);
  EXPECT_EQ(a.probe->micro_steps, 0U);
  EXPECT_EQ(status_of(a).waiting_for, "1 more of the 2 peers to begin with");
  spoil_state = [](std::size_t, std::string& image) { image.clear(); };
  auto& b = add_started(joining(config), toy_options{.init_seed = 99, .data_seed = 2});
  pass_until([&] { return b.state_requests > 0; });
  EXPECT_EQ(status_of(a).group_size, 2U);
  EXPECT_EQ(a.probe->micro_steps, 0U) << "the other one has no state yet";
  spoil_state = nullptr;
  pass_until([&] { return all_at(3); });
  EXPECT_EQ(status_of(a).waiting_for, "");
  end(b);
  pass_until([&] { return all_at(6); }); // it does not stop when it is alone again
}

TEST_F(Trainer, BeginsWithFewerPeersOnceItHasWaited) {
  auto config = defaults();
  config.min_peers = 2;
  config.wait_for_peers = 2s;
  auto& a = add_started(config);
  pass(1s);
  EXPECT_EQ(a.probe->micro_steps, 0U);
  pass_until([&] { return all_at(2); }, 3s);
}

} // namespace
} // namespace waggle::testing
