#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/mean_gradient.hpp"

namespace waggle::testing {
namespace {

class PausedTrainer : public training_world {
protected:
  training_status pause(const member& m) {
    return *ask<training_status>(m.actor, pause_training{});
  }
  training_status resume(const member& m) {
    return *ask<training_status>(m.actor, resume_training{});
  }
};

TEST_F(PausedTrainer, OthersGoOnAtOnceAndItTakesTheirStateAfterwards) {
  auto& a = add_started();
  auto& b = add_started();
  pass_until([&] { return all_at(2); });
  pause(b);
  pass_until([&] { return status_of(b).phase == trainer_phase::paused; }, 200ms);
  EXPECT_EQ(status_of(b).group_size, 0U);
  EXPECT_EQ(status_of(b).waiting_for, "");
  EXPECT_EQ(exported(*b.ctx.metrics, R"(waggle_peer_state{state="paused")"), 1);
  auto passes = b.probe->micro_steps;
  auto epoch = status_of(a).epoch.value();
  pass_until([&] { return status_of(a).epoch >= epoch_id{epoch + 5}; }, 2s);
  EXPECT_EQ(status_of(a).group_size, 1U);
  EXPECT_EQ(b.probe->micro_steps, passes);
  auto before = status_of(b).state_downloads;

  resume(b);
  pass_until([&] { return status_of(b).group_size == 2 && status_of(b).epoch > epoch_id{epoch}; });
  EXPECT_EQ(status_of(b).state_downloads, before + 1);
  auto later = status_of(a).epoch.value() + 3;
  pass_until([&] { return all_at(later); });
  EXPECT_EQ(status_of(a).parameters, status_of(b).parameters);
  EXPECT_GT(b.probe->micro_steps, passes);
}

TEST_F(PausedTrainer, AloneItGoesOnWithTheSamplesOfItsUnfinishedEpoch) { // bit for bit
  auto& m = add_started();
  pass_until([&] { return all_at(2); });
  pass(45ms);
  pause(m);
  pass(5s);
  EXPECT_EQ(status_of(m).phase, trainer_phase::paused);
  EXPECT_GT(status_of(m).samples_toward_epoch, 0U);
  EXPECT_LT(status_of(m).epoch, epoch_id{4});
  resume(m);
  pass_until([&] { return all_at(5); });
  auto plain = make_toy_learner({.data_seed = 1});
  for (std::uint64_t k = 0; k < status_of(m).epoch.value(); ++k) {
    for (int i = 0; i < 8; ++i)
      plain->accumulate();
    plain->apply(mean_gradient_of(*plain), defaults().schedule.at(epoch_id{k}));
    plain->drop_gradient();
  }
  EXPECT_EQ(status_of(m).parameters, plain->parameters_digest());
  EXPECT_EQ(status_of(m).samples_dropped, 0U);
}

TEST_F(PausedTrainer, ARoundThatRunsEndsFirst) {
  auto& a = add_started();
  auto& b = add_started();
  pass_until([&] { return all_at(2); });
  hold_rounds = true;
  pass_until([&] { return !b.answers.empty() && !a.answers.empty(); });
  auto epoch = status_of(b).epoch.value();
  pause(b);
  pass(500ms);
  EXPECT_EQ(status_of(b).group_size, 2U) << "the others need its part";
  release_rounds();
  pass_until([&] { return status_of(b).phase == trainer_phase::paused; }, 200ms);
  EXPECT_EQ(status_of(b).epoch, epoch_id{epoch + 1});
}

} // namespace
} // namespace waggle::testing
