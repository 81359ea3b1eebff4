// A loop whose updates are made on a master copy, beside its passes. The loop's thread is the
// test's thread; updates and passes are those of two other threads, as a model_worker's and a
// pass_worker's.

#include <atomic>
#include <future>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/loop_learner.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/offered.hpp"
#include "tests/support/states.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using ::testing::Each, ::testing::ElementsAre;

/// Gradient descent on two tensors of one value. Remembers its callers.
class descent final : public loop_model {
public:
  void apply(std::span<const float> gradient, double lr) override {
    see();
    busy = true;
    if (during_update)
      during_update();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] -= static_cast<float>(lr) * gradient[i];
    ++steps;
    busy = false;
  }
  void step(double) override { ADD_FAILURE() << "the gradient is the mean of a round"; }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    see();
    out[0] = values[which];
  }
  void write_tensor(std::size_t which, std::span<const float> from) override {
    see();
    values[which] = from[0];
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps; }
  void set_optimizer_steps(std::uint64_t n) override { steps = n; }
  void refresh() override {
    see();
    EXPECT_FALSE(master->busy);
    values = master->values;
    ++refreshes;
    if (after_refresh)
      after_refresh();
  }

  std::vector<float> values{1, 2};
  std::uint64_t steps = 0;
  int refreshes = 0;
  std::shared_ptr<descent> master;     // of the module
  std::function<void()> during_update; // of the master copy
  std::function<void()> after_refresh; // of the module
  std::atomic<bool> busy{false};       // during an update
  mutable std::vector<std::thread::id> callers;

private:
  void see() const { callers.push_back(std::this_thread::get_id()); }
};

state_table two_tensors() {
  return state_table{
    {{"x", {1}, state_tensor::kind::parameter}, {"y", {1}, state_tensor::kind::parameter}}};
}

class DelayedLoop : public ::testing::Test {
protected:
  DelayedLoop() { model.master = master; }
  ~DelayedLoop() override {
    port->close();
    for (auto* thread : {&updates, &passes})
      if (thread->valid())
        thread->wait();
    EXPECT_THAT(model.callers, Each(std::this_thread::get_id()));
    EXPECT_THAT(master->callers, Each(::testing::Ne(std::this_thread::get_id())));
  }

  std::future<void> run(std::function<void(learner&)> body) {
    return std::async(std::launch::async, [this, body = std::move(body)] { body(*learns); });
  }
  void await(std::future<void>& thread) {
    ASSERT_EQ(thread.wait_for(20s), std::future_status::ready);
    thread.get();
  }
  step_outcome offer(std::vector<float> gradient) {
    return port->offer(model, testing::offered(*port, gradient), {1, 4, true},
                       [this, waits = 0]() mutable { return over.load() || ++waits == 200; });
  }
  void end() {
    over = true;
    EXPECT_EQ(offer({0, 0}), step_outcome::finished);
  }

  std::shared_ptr<descent> master = std::make_shared<descent>();
  descent model;
  std::shared_ptr<loop_port> port = std::make_shared<loop_port>(two_tensors(), digest{}, master);
  std::unique_ptr<learner> learns = make_loop_learner(port);
  std::atomic<bool> over{false};
  std::future<void> updates, passes;
};

TEST_F(DelayedLoop, ComputesOnWhileAnUpdateIsMade) {
  std::promise<void> began, computed;
  master->during_update = [&] {
    began.set_value();
    EXPECT_EQ(computed.get_future().wait_for(20s), std::future_status::ready);
  };
  passes = run([&](learner& l) {
    EXPECT_TRUE(l.abilities().passes_beside_updates);
    l.accumulate();
    std::vector<float> mean(2);
    EXPECT_EQ(testing::take_mean_gradient(l, mean), 4U);
    updates = run([mean](learner& also) { also.apply(mean, 0.5); });
    began.get_future().wait();
    l.accumulate();
    await(updates);
    EXPECT_EQ(l.accumulated_samples(), 4U) << "it is one update old, and counts";
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 2}), step_outcome::held);
  EXPECT_THAT(model.values, ElementsAre(1, 2)) << "the update is being made";
  computed.set_value();
  EXPECT_EQ(offer({4, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(0, 1));
  EXPECT_EQ(port->samples().given, 8U);
  end();
  await(passes);
}

// Otherwise each pass would wait for the end of the update that is made when it begins.
TEST_F(DelayedLoop, TakesAnUpdateWhileItWaitsForTheNextPassSoThatAnotherOneMayBegin) {
  std::promise<void> refreshed, began, computed;
  model.after_refresh = [&, first = true]() mutable {
    if (std::exchange(first, false))
      refreshed.set_value();
  };
  passes = run([&](learner& l) {
    l.accumulate();
    l.apply(std::vector<float>{1, 1}, 1);
    EXPECT_EQ(refreshed.get_future().wait_for(20s), std::future_status::ready);
    master->during_update = [&] {
      began.set_value();
      EXPECT_EQ(computed.get_future().wait_for(20s), std::future_status::ready);
    };
    updates = run([](learner& also) { also.apply(std::vector<float>{1, 1}, 1); });
    began.get_future().wait();
    l.accumulate();
    await(updates);
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(0, 1)) << "the second update is being made";
  computed.set_value();
  end();
  await(passes);
  port->serve(model, 5ms, [] { return true; });
  EXPECT_THAT(model.values, ElementsAre(-1, 0));
}

TEST_F(DelayedLoop, HasEveryUpdateThatWasCompleteWhenItsPassBegan) {
  constexpr int updates_made = 50;
  master->during_update = [] {
    for (int i = 0; i < 100; ++i)
      std::this_thread::yield();
  };
  std::atomic<int> complete{0};
  std::atomic<bool> ended{false};
  updates = run([&](learner& l) {
    for (int i = 0; i < updates_made; ++i) {
      l.apply(std::vector<float>{-1, 0}, 1);
      complete = i + 1;
    }
    ended = true;
  });
  std::vector<int> before; // each pass: complete when it was asked for
  passes = run([&](learner& l) {
    bool last = false;
    while (!last) {
      last = ended;
      before.push_back(complete);
      l.accumulate();
    }
    over = true;
  });
  std::vector<float> seen; // the value with which each pass is computed
  for (auto outcome = step_outcome::held; outcome != step_outcome::finished;) {
    outcome = offer({0, 0});
    seen.push_back(model.values[0]);
  }
  await(updates);
  await(passes);
  EXPECT_EQ(seen.back(), 1.0F + updates_made) << "the module has the last update at the end";
  // The first gradients may have been offered before a pass was asked for.
  auto shift =
    static_cast<std::ptrdiff_t>(seen.size()) - static_cast<std::ptrdiff_t>(before.size());
  for (std::size_t i = 1; i < before.size(); ++i) {
    auto pass = static_cast<std::ptrdiff_t>(i) + shift - 1;
    if (pass >= 0) {
      EXPECT_GE(seen[static_cast<std::size_t>(pass)], 1.0F + static_cast<float>(before[i]));
    }
  }
}

// Also if the pass was asked for before the loop called for the first time, which some of the
// attempts see.
TEST_F(DelayedLoop, TheFirstGradientIsDroppedIfAStateWasLoadedBefore) {
  constexpr int attempts = 50;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    port = std::make_shared<loop_port>(two_tensors(), digest{}, master);
    learns = make_loop_learner(port);
    over = false;
    model.refreshes = 0;
    auto x = static_cast<float>(attempt);
    std::promise<void> loaded;
    passes = run([&](learner& l) {
      l.write_tensor(0, std::vector<float>{x});
      l.write_tensor(1, std::vector<float>{8});
      l.set_optimizer_steps(5);
      loaded.set_value();
      l.accumulate();
    });
    if (attempt % 2 == 0)
      loaded.get_future().wait();
    EXPECT_EQ(offer({1, 1}), step_outcome::synced);
    EXPECT_THAT(model.values, ElementsAre(x, 8));
    EXPECT_EQ(model.refreshes, 1) << "not with half of the state";
    EXPECT_EQ(port->samples().outdated, 4U);
    EXPECT_EQ(port->gradients().samples(), 0U);
    if (attempt + 1 == attempts) {
      end(); // of the new state: it counts
      EXPECT_EQ(port->gradients().samples(), 4U);
    }
    port->close();
    await(passes);
  }
}

// The trainer drops it, which has asked for it.
TEST_F(DelayedLoop, AGradientIsPassedOnAlsoIfAStateIsLoadedDuringItsPass) {
  std::promise<void> computes, loaded;
  passes = run([&](learner& l) {
    l.accumulate();
    EXPECT_EQ(l.drop_gradient(), 4U);
    updates = run([&](learner& also) {
      computes.get_future().wait();
      also.write_tensor(0, std::vector<float>{7});
      also.set_optimizer_steps(5);
      loaded.set_value();
    });
    EXPECT_EQ(l.accumulate().samples, 4U);
    EXPECT_EQ(l.drop_gradient(), 4U);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::held);
  computes.set_value();
  loaded.get_future().wait();
  EXPECT_THAT(model.values, ElementsAre(1, 2)) << "not during a pass";
  EXPECT_EQ(offer({1, 1}), step_outcome::synced);
  EXPECT_THAT(model.values, ElementsAre(7, 2));
  EXPECT_EQ(port->samples().given, 8U);
  end();
  await(passes);
  EXPECT_EQ(learns->optimizer_steps(), 5U);
}

TEST_F(DelayedLoop, AnUpdateThatFailsReachesTheWorkerOnly) {
  master->during_update = [] { throw std::runtime_error{"out of memory"}; };
  passes = run([](learner& l) {
    EXPECT_THROW(l.apply(std::vector<float>{1, 1}, 1), std::runtime_error);
    l.accumulate();
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::held);
  end();
  await(passes);
}

TEST_F(DelayedLoop, TheModuleHasTheLastUpdateWhenTheLoopHasEnded) {
  passes = run([](learner& l) {
    l.apply(std::vector<float>{1, 1}, 1);
    EXPECT_FALSE(testing::save_state(l).empty()) << "without the loop's thread";
  });
  await(passes);
  EXPECT_THAT(model.values, ElementsAre(1, 2));
  port->serve(model, 5ms, [] { return true; });
  EXPECT_THAT(model.values, ElementsAre(0, 1));
}

TEST_F(DelayedLoop, AStateThatEndsTheRunIsInTheModule) {
  passes = run([](learner& l) {
    l.write_tensor(0, std::vector<float>{7});
    l.set_optimizer_steps(5);
  });
  await(passes);
  over = true;
  EXPECT_EQ(offer({1, 1}), step_outcome::finished);
  EXPECT_THAT(model.values, ElementsAre(7, 2));
}

TEST_F(DelayedLoop, NoPassBeginsWhileAStateIsLoaded) {
  std::promise<void> half, waited;
  passes = run([](learner& l) { l.accumulate(); });
  updates = run([&](learner& l) {
    l.write_tensor(0, std::vector<float>{7});
    half.set_value();
    EXPECT_EQ(waited.get_future().wait_for(20s), std::future_status::ready);
    l.write_tensor(1, std::vector<float>{8});
    l.set_optimizer_steps(5);
  });
  half.get_future().wait();
  auto waits = [&, first = true]() mutable {
    if (std::exchange(first, false))
      waited.set_value();
    return false;
  };
  EXPECT_EQ(
    port->offer(model, testing::offered(*port, std::vector<float>{1, 1}), {1, 4, true}, waits),
    step_outcome::synced);
  EXPECT_THAT(model.values, ElementsAre(7, 8));
  EXPECT_EQ(model.refreshes, 1) << "not with half of the state";
  EXPECT_EQ(port->samples().outdated, 4U);
  end();
  await(passes);
}

TEST_F(DelayedLoop, AStateOfWhichAPartIsMissingAtTheEndIsNotInTheModule) {
  passes = run([](learner& l) { l.write_tensor(0, std::vector<float>{7}); });
  await(passes);
  over = true;
  EXPECT_EQ(offer({1, 1}), step_outcome::finished);
  port->serve(model, 5ms, [] { return true; });
  EXPECT_THAT(model.values, ElementsAre(1, 2));
}

} // namespace
} // namespace waggle
