// What becomes of a model with values that are not finite, for which hivemind's ALBERT example
// keeps a backup. Gradients that are not finite never reach a model:
// passes_test.cpp, trainer_test.cpp.

#include <cmath>

#include <gmock/gmock.h>

#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

using NotFinite = training_world;

double nonfinite_parameters(const node_context& ctx) {
  return exported(*ctx.metrics, R"(waggle_training_nonfinite_total{where="parameters")");
}

// The other peers' model is its backup.
TEST_F(NotFinite, APeerWhoseOwnStepsSpoiledItsModelDownloadsTheStateOfTheOthers) {
  auto config = defaults();
  config.strategy = "local-updates";
  auto& healthy = add_started(config);
  config.join_timeout = 5s;
  config.schedule.parts = *parse_schedule("multi-step:at=10,factor=1e-32");
  config.schedule.peak = 1e30; // 0.01 from epoch 10 on
  auto& m = add_started(config);
  pass_until([&] { return nonfinite_parameters(m.ctx) > 0; });
  auto downloads = status_of(m).state_downloads;
  pass_until([&] { return status_of(m).state_downloads > downloads; });
  pass_until([&] { return all_at(15); });
  auto spoiled = nonfinite_parameters(m.ctx);
  auto rounds = status_of(m).rounds_complete;
  auto later = status_of(m).epoch.value() + 5;
  pass_until([&] { return all_at(later); });
  EXPECT_EQ(nonfinite_parameters(m.ctx), spoiled);
  EXPECT_EQ(status_of(m).group_size, 2U);
  EXPECT_GT(status_of(m).rounds_complete, rounds + 3);
  for (float x : m.probe->stepped)
    EXPECT_TRUE(std::isfinite(x));
  EXPECT_EQ(nonfinite_parameters(healthy.ctx), 0);
  for (float x : healthy.probe->stepped)
    EXPECT_TRUE(std::isfinite(x));
}

// A run that diverges must not replace its last usable checkpoint.
TEST_F(NotFinite, AModelIsNoCheckpointAndTheLastOneBeforeItStays) {
  auto files = std::make_shared<memory_disk>();
  auto config = defaults();
  config.checkpoints.emplace(files, "/data");
  auto stop = [&](member& m) {
    auto stopped = ask<training_status>(m.actor, stop_training{});
    EXPECT_TRUE(stopped.ok());
    end(m);
    return stopped.ok() ? stopped->samples_toward_epoch : 0;
  };
  auto& before = add_started(config);
  pass_until([&] { return all_at(5); });
  auto kept = stop(before);

  config.schedule.peak = 1e38; // the second step overflows
  auto& diverges = add_started(config);
  diverges.resumed = kept;
  keep_log(diverges);
  auto failed = [&] {
    return exported(*diverges.ctx.metrics, R"(waggle_checkpoint_saves_total{outcome="failed")");
  };
  pass_until([&] { return all_at(15); });
  EXPECT_GE(failed(), 3);
  EXPECT_TRUE(diverges.said.str().find("holds NaN or infinite values") != std::string::npos);
  stop(diverges);

  config.schedule.peak = 0.1;
  auto& after = add_started(config);
  EXPECT_GE(after.reports.front().epoch, epoch_id{5}) << "it has not begun from scratch";
  auto resumed = after.reports.front().epoch.value();
  pass_until([&] { return all_at(resumed + 1); });
}

} // namespace
} // namespace waggle::testing
