// A peer that stops in the middle of an epoch and starts again is where it would have been without
// the stop: same data, same sums, same updates.

#include <gmock/gmock.h>

#include "runtime/training/own_progress.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t epochs = 4;
constexpr std::uint64_t passes_per_epoch = 8;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Resumed : training_world {
  using files_ptr = std::shared_ptr<memory_disk>;

  static training_config keeping(const files_ptr& files) {
    auto config = defaults();
    config.max_epochs = epochs;
    config.checkpoints.emplace(files, "/data");
    return config;
  }
  training_status stop(member& m) {
    auto answer = ask<training_status>(m.actor, stop_training{});
    EXPECT_TRUE(answer.ok());
    end(m);
    return answer.ok() ? *answer : training_status{};
  }
  /// The bytes of all tensors and of the number of steps.
  std::string state_of(const member& m) {
    auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
    EXPECT_TRUE(snapshot.ok());
    if (!snapshot.ok())
      return {};
    return std::string{as_string_view(read_all(*snapshot->state)->view())}.substr(
      state_header_bytes);
  }
  std::string finish(member& m) {
    pass_until([&] { return status_of(m).phase == trainer_phase::finished; });
    return state_of(m);
  }
  /// What a peer says at level warn when it resumes from these files.
  std::string said_at_resume(const files_ptr& files) {
    auto& m = add(keeping(files), {});
    keep_log(m);
    m.ctx.log->set_level(spdlog::level::warn);
    tell(m.actor, start_training{});
    pass(5ms);
    end(m);
    return m.said.str();
  }
  void pass_steps(const member& m, std::uint64_t steps) {
    pass_until([&] { return m.probe->micro_steps >= steps; });
  }
  member& restart(const training_config& config, const toy_options& toy, std::uint64_t kept) {
    auto again = toy;
    again.init_seed = 99; // all comes from the checkpoint
    auto& m = add(config, again);
    m.resumed = kept;
    tell(m.actor, start_training{});
    return m;
  }

  /// Every contribution of `m` is that of `whole`, which has never stopped.
  static void expect_equal_contributions(const member& m, const member& whole) {
    for (const auto& question : m.questions) {
      auto k = static_cast<std::size_t>(question.epoch.value());
      ASSERT_LT(k, whole.questions.size());
      ASSERT_EQ(whole.questions[k].epoch, question.epoch);
      EXPECT_EQ(*question.values, *whole.questions[k].values) << "epoch " << k;
      EXPECT_EQ(question.weight, whole.questions[k].weight) << "epoch " << k;
    }
  }
  /// Stops after each number of passes, restarts, and compares the rest and the end with those of a
  /// run without a stop.
  void expect_equal_end(const std::function<training_config(const files_ptr&)>& make,
                        const toy_options& toy) {
    auto& whole = add_started(make(std::make_shared<memory_disk>()), toy);
    auto expected = finish(whole);
    stop(whole);
    for (std::uint64_t steps = 0; steps <= 2 * passes_per_epoch + 1; ++steps) {
      auto files = std::make_shared<memory_disk>();
      auto& first = add_started(make(files), toy);
      pass_steps(first, steps);
      ASSERT_LE(first.probe->micro_steps, std::max<std::uint64_t>(steps, 1)) << steps;
      auto before = stop(first);
      EXPECT_EQ(before.samples_dropped, 0U) << steps;
      auto& second = restart(make(files), toy, before.samples_toward_epoch);
      EXPECT_EQ(finish(second), expected) << "stopped after " << steps << " passes";
      expect_equal_contributions(second, whole);
      auto after = status_of(second);
      EXPECT_EQ(before.samples_used + after.samples_used, 4 * passes_per_epoch * epochs); // INV-2
      EXPECT_EQ(after.samples_dropped, 0U);
      EXPECT_EQ(first.probe->micro_steps + second.probe->micro_steps, passes_per_epoch * epochs);
      stop(second);
    }
  }
};

TEST_F(Resumed, AfterEachMicroStepAsWithoutTheStop) {
  expect_equal_end(keeping, {.data_seed = 5});
}

TEST_F(Resumed, WithAdamAndASchedule) {
  auto make = [](const files_ptr& files) {
    auto config = keeping(files);
    config.schedule = *make_schedule(*parse_schedule("cosine:floor=0.01"), 0.2, 1, epochs);
    return config;
  };
  expect_equal_end(make, {.data_seed = 5, .adam = true});
}

TEST_F(Resumed, WithBuffers) {
  expect_equal_end(keeping, {.data_seed = 5, .buffer = true});
}

// The update of the epoch before is decided, and not applied yet.
TEST_F(Resumed, WithDelayedGradients) {
  auto make = [](const files_ptr& files) {
    auto config = keeping(files);
    config.how.delay_gradients = true;
    return config;
  };
  expect_equal_end(make, {.data_seed = 5});
}

// Updates are applied before the next pass begins: in virtual time they take none.
TEST_F(Resumed, WithADelayedOptimizerStep) {
  for (bool gradients : {false, true}) {
    auto make = [gradients](const files_ptr& files) {
      auto config = keeping(files);
      config.delay_optimizer_step = true;
      config.how.delay_gradients = gradients;
      return config;
    };
    expect_equal_end(make, {.data_seed = 5});
  }
}

TEST_F(Resumed, LocalStepsOfAnEpochWhoseRoundWasRunningCountTowardIt) {
  constexpr std::uint64_t meanwhile = 2; // passes during the round
  hold_rounds = true;
  auto files = std::make_shared<memory_disk>();
  auto config = keeping(files);
  config.strategy = "local-updates";
  auto& first = add_started(config);
  pass_until([&] { return !first.questions.empty(); });
  pass_steps(first, passes_per_epoch + meanwhile);
  EXPECT_EQ(stop(first).epoch.value(), 0U);
  hold_rounds = false;
  auto& second = add_started(config);
  finish(second);
  // The round begins at once, and its epoch has more passes than the others.
  EXPECT_EQ(first.probe->micro_steps + second.probe->micro_steps,
            passes_per_epoch * epochs + meanwhile);
}

TEST_F(Resumed, WithLocalUpdates) {
  for (const char* strategy : {"local-updates", "decentralized-sgd"}) {
    auto make = [strategy](const files_ptr& files) {
      auto config = keeping(files);
      config.strategy = strategy;
      config.how.steps_period = passes_per_epoch;
      return config;
    };
    expect_equal_end(make, {.data_seed = 5});
  }
}

// As in a loop of one's own, whose learner keeps no unfinished epoch. Local steps are in the state.
TEST_F(Resumed, LocalStepsOfALearnerThatCannotResumeCountTowardTheEpoch) {
  learners_resume = false;
  auto files = std::make_shared<memory_disk>();
  auto config = keeping(files);
  config.strategy = "local-updates";
  auto& first = add_started(config);
  pass_steps(first, 3);
  ASSERT_LT(first.probe->micro_steps, passes_per_epoch);
  auto before = stop(first);
  EXPECT_EQ(before.epoch.value(), 0U);
  EXPECT_EQ(before.samples_dropped, 0U);
  auto& second = add_started(config);
  finish(second);
  EXPECT_EQ(first.probe->micro_steps + second.probe->micro_steps, passes_per_epoch * epochs);
}

// The losses of the unfinished epoch count toward the mean that the schedule depends on.
TEST_F(Resumed, WithAScheduleThatDependsOnTheLoss) {
  for (const char* text : {"plateau:factor=0.5,patience=0,threshold=0.5", // lowers the rate at once
                           "plateau:factor=0.5,patience=0"}) {
    auto make = [text](const files_ptr& files) {
      auto config = keeping(files);
      config.schedule = *make_schedule(*parse_schedule(text), 0.1, 0, epochs);
      return config;
    };
    expect_equal_end(make, {.data_seed = 5});
  }
}

TEST_F(Resumed, InTheMiddleOfARoundItIsRunAgain) {
  for (bool delayed : {false, true}) {
    auto make = [&](const files_ptr& files) {
      auto config = keeping(files);
      config.how.delay_gradients = delayed;
      return config;
    };
    auto& whole = add_started(make(std::make_shared<memory_disk>()), toy_options{.data_seed = 5});
    auto expected = finish(whole);
    stop(whole);
    auto files = std::make_shared<memory_disk>();
    hold_rounds = true;
    auto& first = add_started(make(files), toy_options{.data_seed = 5});
    pass_until([&] { return !first.questions.empty(); });
    if (delayed)
      pass_steps(first, passes_per_epoch + 3);
    auto before = stop(first);
    EXPECT_EQ(before.samples_toward_epoch, 4 * first.probe->micro_steps);
    EXPECT_EQ(before.samples_dropped, 0U);
    EXPECT_TRUE(first.probe->applied.empty());
    hold_rounds = false;
    auto& second = restart(make(files), {.data_seed = 5}, before.samples_toward_epoch);
    EXPECT_EQ(finish(second), expected);
    EXPECT_EQ(status_of(second).local_fallbacks, 0U);
    stop(second);
  }
}

// Killed: the samples after the last checkpoint are drawn again.
TEST_F(Resumed, AfterAKillFromTheLastCheckpoint) {
  auto& whole = add_started(keeping(std::make_shared<memory_disk>()), toy_options{.data_seed = 5});
  auto expected = finish(whole);
  stop(whole);
  auto files = std::make_shared<memory_disk>();
  auto& first = add_started(keeping(files), toy_options{.data_seed = 5});
  pass_steps(first, 2 * passes_per_epoch + 3);
  end(first);
  auto& second = restart(keeping(files), {.data_seed = 5}, 0);
  EXPECT_EQ(finish(second), expected);
  EXPECT_EQ(second.probe->micro_steps, (epochs - 2) * passes_per_epoch);
  stop(second);
}

TEST_F(Resumed, IsSaidAsAWarningWithHowToBeginAnewAndOfWhichRun) {
  auto files = std::make_shared<memory_disk>();
  EXPECT_EQ(said_at_resume(files), "");
  auto& first = add_started(keeping(files));
  pass_steps(first, passes_per_epoch + 3);
  stop(first);
  EXPECT_THAT(said_at_resume(files),
              AllOf(HasSubstr("resumed from the checkpoint of epoch 1 (/data/checkpoint-"),
                    HasSubstr("to begin anew, remove /data, or give this peer another data folder"),
                    Not(HasSubstr("another run"))));
  auto names = *files->list("/data");
  ASSERT_TRUE(names[names.size() - 2].ends_with(".own"));
  const auto& own_name = names[names.size() - 2]; // of the newest
  auto image = *files->read("/data/" + own_name.substr(0, own_name.size() - 4) + ".wgl", 1_MiB);
  auto state = name_of_state(as_byte_span(image).first(state_header_bytes));
  own_progress of_another{.run = "run-0badcafe"};
  files->corrupt("/data/" + own_name, head_of(of_another, state));
  EXPECT_THAT(said_at_resume(files), HasSubstr("epoch 1 of another run, run-0badcafe"));
  ASSERT_TRUE(files->remove("/data/" + own_name).ok());
  EXPECT_THAT(said_at_resume(files), AllOf(HasSubstr("resumed from the checkpoint of epoch 1"),
                                           HasSubstr(own_name + " is missing")));
}

TEST_F(Resumed, WithoutCheckpointsThePartialEpochIsDroppedAndCounted) {
  auto& m = add_started();
  pass_steps(m, 3);
  auto answer = ask<training_status>(m.actor, stop_training{});
  EXPECT_EQ(answer->samples_dropped, 12U);
  EXPECT_EQ(answer->samples_toward_epoch, 0U);
}

TEST_F(Resumed, IfTheLastCheckpointFailsThePartialEpochIsDroppedAndCounted) {
  for (bool delayed : {false, true}) {
    auto files = std::make_shared<memory_disk>();
    auto config = keeping(files);
    config.how.delay_gradients = delayed; // then an update waits, too
    auto& m = add_started(config);
    pass_steps(m, passes_per_epoch + 3);
    files->fail_writes(failure{ec::io_error, "no space left"});
    auto answer = ask<training_status>(m.actor, stop_training{});
    EXPECT_EQ(answer->samples_dropped, 12U + (delayed ? 4 * passes_per_epoch : 0));
    EXPECT_EQ(answer->samples_toward_epoch, 0U);
    expect_balance(m);
    end(m);
  }
}

/// One peer of two stops in an epoch and comes back.
struct ResumedInASwarm : Resumed {
  training_config endless() {
    auto config = keeping(files);
    config.max_epochs = 0;
    return joining(config);
  }
  /// Stops `b` with a partial sum, and with a contribution if rounds are held.
  training_status leave_with_samples(member& b) {
    pass_until([&] { return status_of(b).samples_toward_epoch >= 8; });
    auto before = stop(b);
    EXPECT_GE(before.samples_toward_epoch, 8U);
    return before;
  }

  files_ptr files = std::make_shared<memory_disk>();
};

TEST_F(ResumedInASwarm, WhatTheRunHasPassedIsDroppedAndCountedAndTheDataGoOn) {
  for (bool in_round : {false, true}) {
    files = std::make_shared<memory_disk>();
    if (!in_round)
      add_started();
    auto& b = add_started(endless());
    pass_until([&] { return all_at(3); });
    hold_rounds = in_round;
    if (in_round)
      pass_until([&] { return !b.answers.empty(); });
    auto before = leave_with_samples(b);
    release_rounds();
    auto later = before.epoch.value() + 2;
    pass_until([&] { return status_of(*members[0]).epoch.value() >= later; });
    auto& again = restart(endless(), {.data_seed = 2}, before.samples_toward_epoch);
    spread();
    pass_until([&] { return status_of(again).state_downloads == 1; });
    pass_until([&] { return status_of(again).samples_used > 0; });
    EXPECT_GE(status_of(again).samples_dropped, before.samples_toward_epoch);
    pass_until([&] { return status_of(again).parameters == status_of(*members[0]).parameters; });
    end(again);
  }
}

TEST_F(ResumedInASwarm, AnotherStrategyDropsAndCountsThem) {
  auto& b = add_started(keeping(files));
  auto before = leave_with_samples(b);
  auto config = keeping(files);
  config.strategy = "local-updates";
  auto& again = restart(config, {}, before.samples_toward_epoch);
  pass(5ms);
  EXPECT_EQ(status_of(again).samples_dropped, before.samples_toward_epoch);
}

TEST_F(ResumedInASwarm, OfAnotherModelTheyAreDroppedAndCounted) {
  auto& b = add_started(keeping(files));
  auto before = leave_with_samples(b);
  // The schema is the same, the sums are not.
  auto name = files->list("/data")->front();
  ASSERT_TRUE(name.ends_with(".own"));
  auto image = *files->read("/data/" + name.substr(0, name.size() - 4) + ".wgl", 1_MiB);
  auto state = name_of_state(as_byte_span(image).first(state_header_bytes));
  auto own = *decode_own_progress(*files->read("/data/" + name, 1_MiB), state);
  auto longer = std::make_shared<float_vector>(*own.partial.sum);
  longer->push_back(0);
  own.partial.sum = longer;
  files->corrupt("/data/" + name,
                 head_of(own, state)
                   + std::string{as_string_view(std::as_bytes(std::span<const float>{*longer}))});
  auto& again = restart(keeping(files), {}, before.samples_toward_epoch);
  pass(5ms);
  EXPECT_EQ(status_of(again).samples_dropped, before.samples_toward_epoch);
}

TEST_F(ResumedInASwarm, TheErrorsOfCodecsAreKeptIfTheyAreOfTheSameHistory) {
  for (bool same : {true, false}) {
    auto& b = add_started(keeping(files));
    pass_until([&] { return status_of(b).epoch.value() == 2; });
    auto history = status_of(b).past.branch;
    b.residual = {std::make_shared<float_vector>(float_vector{0.5F, -1}),
                  same ? history : sha256("another")};
    auto before = leave_with_samples(b);
    auto& again = restart(keeping(files), {}, before.samples_toward_epoch);
    pass(5ms);
    ASSERT_TRUE(again.described);
    ASSERT_EQ(again.described->residual != nullptr, same);
    if (same) {
      EXPECT_EQ(*again.described->residual, *b.residual.values);
      EXPECT_EQ(again.described->history, history);
    }
    stop(again);
  }
}

} // namespace
} // namespace waggle::testing
