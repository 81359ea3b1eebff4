// What becomes of a model with values that are not finite, for which hivemind's ALBERT example
// keeps a backup. Gradients that are not finite never reach a model:
// passes_test.cpp, trainer_test.cpp. The other peers' model is its backup:
// swarm/not_finite_test.cpp.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

using NotFinite = training_world;

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
