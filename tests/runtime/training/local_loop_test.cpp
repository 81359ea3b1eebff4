// A loop with a strategy that averages parameters: its optimizer steps with each gradient. The
// loop's thread is the test's thread; the worker runs on another one.

#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/layers.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/loop_learner.hpp"
#include "runtime/training/strategies/anchored_learner.hpp"
#include "tests/support/offered.hpp"
#include "tests/support/strategies.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre, testing::local_updates;

/// Gradient descent on two values, with a buffer of one value.
class descent final : public loop_model {
public:
  void apply(std::span<const float> gradient, double lr) override {
    std::copy(gradient.begin(), gradient.end(), own.begin());
    step(lr);
  }
  void step(double lr) override {
    if (during_step)
      during_step();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] -= static_cast<float>(lr) * own[i];
    ++steps;
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    readers.insert(std::this_thread::get_id());
    const auto& from = which == 0 ? values : buffer;
    std::copy(from.begin(), from.end(), out.begin());
  }
  void write_tensor(std::size_t which, std::span<const float> from) override {
    (which == 0 ? values : buffer).assign(from.begin(), from.end());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps; }
  void set_optimizer_steps(std::uint64_t n) override { steps = n; }

  std::vector<float> values{1, 2};
  std::vector<float> buffer{5};
  std::vector<float> own{0, 0}; // the gradient, as the loop left it
  std::uint64_t steps = 0;
  std::function<void()> during_step;
  mutable std::set<std::thread::id> readers;
};

class LocalLoop : public ::testing::Test {
protected:
  ~LocalLoop() override {
    port->close();
    if (work.valid())
      work.wait();
  }

  static state_table table() {
    return state_table{{{"x", {2}, state_tensor::kind::parameter},
                        {"running_mean", {1}, state_tensor::kind::buffer}}};
  }

  /// Runs `body` as the worker, which makes the learner.
  void worker(std::function<void(learner&)> body) {
    work = std::async(std::launch::async, [this, body = std::move(body)] {
      learner_factory make = [this]() -> result<std::unique_ptr<learner>> {
        return make_loop_learner(port, averaged != nullptr);
      };
      if (with_an_anchor)
        make = anchored(make, "diloco", outer_rule{});
      auto made = with_averaged_gradients(clipped(make, norm_max), average_gradients)();
      learns = std::move(*made);
      body(local());
    });
  }
  void await_worker() {
    ASSERT_EQ(work.wait_for(20s), std::future_status::ready);
    work.get();
  }
  static std::shared_ptr<const averaged_tensors> averaged_with_gradients(const learner& l) {
    return *averaged_tensors::of(
      l.tensors(), find_strategy("decentralized")->make({.average_gradients = true}).averages);
  }
  static void pass(learner& l, double lr = 0.5) {
    l.accumulate();
    l.step_locally(lr);
  }
  [[nodiscard]] learner& local() const { return *learns; }
  [[nodiscard]] std::vector<float> copy() const {
    std::vector<float> out(3);
    std::optional<std::uint64_t> copied;
    while (!(copied = local().copy_tensors(averaged->indices(), out)))
      std::this_thread::yield(); // until the loop is in `offer`
    changes = *copied;
    return out;
  }
  step_outcome offer(std::vector<float> gradient, bool finite = true) {
    model.own = gradient;
    gradient.push_back(model.buffer.front());
    return port->offer(model, testing::offered(*port, gradient), {1, 4, finite},
                       [this] { return over.load(); });
  }
  void end() {
    over = true;
    EXPECT_EQ(offer({0, 0}), step_outcome::finished);
    await_worker();
  }

  descent model;
  std::shared_ptr<loop_port> port = std::make_shared<loop_port>(table(), digest{});
  std::shared_ptr<const averaged_tensors> averaged =
    *averaged_tensors::of(table(), local_updates({}).averages);
  double norm_max = 0;
  bool average_gradients = false;
  bool with_an_anchor = false;
  std::unique_ptr<learner> learns;
  mutable std::uint64_t changes = 0;
  std::atomic<bool> over{false};
  std::future<void> work;
};

TEST_F(LocalLoop, StepsWithEachGradientWhereTheLoopLeftIt) {
  worker([](learner& l) {
    for (int i = 0; i < 2; ++i) {
      pass(l);
      EXPECT_EQ(l.accumulated_samples(), 0U);
    }
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(0, 0));
  EXPECT_EQ(offer({-2, 0}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(1, 0));
  end();
  EXPECT_EQ(model.steps, 2U);
}

// Only the loop's thread reads the model, in `offer`: a round of another thread never waits for it.
TEST_F(LocalLoop, IsReadByARoundBetweenTwoPassesOnItsOwnThread) {
  std::vector<float> none(3);
  worker([this](learner& l) {
    EXPECT_THAT(copy(), ElementsAre(1, 2, 5)) << "before the first step";
    pass(l);
    auto round = std::async(std::launch::async, [this] { return copy(); });
    EXPECT_THAT(round.get(), ElementsAre(0, 0, 5));
    EXPECT_FALSE(l.abilities().copies_during_passes);
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_FALSE(local().copy_tensors(averaged->indices(), none)) << "a pass runs";
  end();
  EXPECT_EQ(model.readers, std::set{std::this_thread::get_id()});
}

TEST_F(LocalLoop, ARoundThatReadsDuringACallWaitsForItAndNotForTheLoop) {
  std::promise<void> asked;
  worker([&](learner& l) {
    pass(l);
    l.accumulate();
  });
  std::vector<float> out(3);
  std::future<bool> round;
  model.during_step = [&] {
    round = std::async(std::launch::async, [&] {
      asked.set_value();
      return local().copy_tensors(averaged->indices(), out).has_value();
    });
    asked.get_future().wait();
  };
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  if (round.get()) { // otherwise it came when the next pass had begun
    EXPECT_THAT(out, ElementsAre(0, 0, 5));
  }
  end();
}

TEST_F(LocalLoop, AddsAChangeToWhatItHasLearnedMeanwhile) { // INV-5
  worker([this](learner& l) {
    auto snapshot = copy();
    EXPECT_EQ(changes, 0U);
    pass(l);
    l.add_change(averaged->indices(), std::vector<float>{2, 2, 9}, snapshot);
    EXPECT_THAT(copy(), ElementsAre(1, 0, 9));
    EXPECT_EQ(changes, 1U);
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(1, 0)) << "(0, 0) + (2, 2) - (1, 2)";
  EXPECT_THAT(model.buffer, ElementsAre(9)) << "no pass has changed it since the snapshot";
  end();
}

// Alone, the mean is the snapshot: nothing that was learned since is lost or counted twice. With
// another peer, which is at -3 after its first step, it is one below this peer's snapshot.
TEST_F(LocalLoop, FourStepsOfMinusOneEndAtMinusFourHoweverLongTheRoundTakes) { // F5
  model.values = {0, 0};
  worker([this](learner& l) {
    for (bool alone : {true, false}) {
      for (int latency = 0; latency < 4; ++latency) {
        std::vector<float> snapshot;
        for (int step = 0; step < 4; ++step) {
          pass(l, 1);
          if (step == 0)
            snapshot = copy();
          if (step == latency)
            l.add_change(averaged->indices(), alone ? snapshot : std::vector<float>{-2, -2, 5},
                         snapshot);
        }
        float end = alone ? -4 : -5;
        EXPECT_THAT(copy(), ElementsAre(end, end, 5)) << latency;
        l.write_tensor(0, std::vector<float>{0, 0}); // once more
      }
    }
    l.accumulate();
  });
  for (int i = 0; i < 32; ++i)
    EXPECT_NE(offer({1, 1}), step_outcome::held);
  end();
}

TEST_F(LocalLoop, ABufferKeepsWhatPassesHaveAddedSinceTheSnapshot) {
  worker([this](learner& l) {
    pass(l);
    auto snapshot = copy();
    pass(l);
    l.add_change(averaged->indices(), std::vector<float>{1, 2, 7}, snapshot);
    l.accumulate();
  });
  EXPECT_EQ(offer({0, 0}), step_outcome::stepped);
  model.buffer = {6}; // the next pass
  EXPECT_EQ(offer({0, 0}), step_outcome::stepped);
  EXPECT_THAT(model.buffer, ElementsAre(8)) << "6 + (7 - 5)";
  end();
}

// No step has renewed the copy since the loop changed its tensors.
TEST_F(LocalLoop, AChangeAfterADroppedGradientIsAddedToWhatTheLoopHolds) {
  worker([this](learner& l) {
    pass(l);
    auto snapshot = copy();
    EXPECT_FALSE(l.accumulate().finite);
    l.add_change(averaged->indices(), std::vector<float>{1, 2, 7}, snapshot);
    EXPECT_THAT(copy(), ElementsAre(3, 2, 8));
    l.accumulate();
  });
  EXPECT_EQ(offer({0, 0}), step_outcome::stepped);
  model.buffer = {6};
  model.values = {3, 2}; // the loop limits its weights, say
  EXPECT_EQ(offer({0, 0}, false), step_outcome::dropped);
  EXPECT_THAT(model.values, ElementsAre(3, 2));
  EXPECT_THAT(model.buffer, ElementsAre(8)) << "6 + (7 - 5)";
  end();
}

TEST_F(LocalLoop, AStateThatIsLoadedIsInTheCopy) {
  worker([this](learner& l) {
    l.write_tensor(0, std::vector<float>{7, 8});
    l.write_tensor(1, std::vector<float>{9});
    EXPECT_THAT(copy(), ElementsAre(7, 8, 9));
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::synced);
  EXPECT_THAT(model.values, ElementsAre(7, 8));
  end();
}

TEST_F(LocalLoop, AGradientThatIsNotFiniteCountsAsDropped) {
  worker([](learner& l) {
    EXPECT_FALSE(l.accumulate().finite); // the worker makes no step then
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}, false), step_outcome::dropped);
  EXPECT_THAT(model.values, ElementsAre(1, 2));
  end();
}

TEST_F(LocalLoop, ShowsTheSharedParametersUntilItsOwnAreBack) {
  with_an_anchor = true;
  port->show_shared(model);
  EXPECT_THAT(model.values, ElementsAre(1, 2)) << "nothing is shared before the first step";
  port->show_own(model);
  worker([](learner& l) {
    pass(l);
    l.accumulate();
    l.write_tensor(0, std::vector<float>{7, 8});
    l.set_optimizer_steps(1); // the end of the state
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(0, 0));
  port->show_shared(model);
  EXPECT_THAT(model.values, ElementsAre(1, 2)) << "the anchor";
  EXPECT_THAT(model.buffer, ElementsAre(5));
  EXPECT_THROW(offer({1, 1}), std::logic_error);
  EXPECT_THROW(port->show_shared(model), std::logic_error);
  EXPECT_THROW(port->await_pass(model, [] { return false; }), std::logic_error);
  model.values = {9, 9};
  port->show_own(model);
  EXPECT_THAT(model.values, ElementsAre(0, 0));
  EXPECT_EQ(offer({1, 1}), step_outcome::synced);
  EXPECT_THAT(model.values, ElementsAre(6, 6)) << "moved with the anchor";
  port->show_shared(model);
  EXPECT_THAT(model.values, ElementsAre(7, 8));
  port->serve(model, 5ms, [] { return true; });
  EXPECT_THAT(model.values, ElementsAre(6, 6)) << "the peer's last state is of its own";
  end();
}

TEST_F(LocalLoop, WithoutAnAnchorTheSharedParametersAreItsOwn) {
  worker([](learner& l) {
    pass(l);
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  port->show_shared(model);
  EXPECT_THAT(model.values, ElementsAre(0, 0));
  EXPECT_THROW(offer({1, 1}), std::logic_error);
  port->show_own(model);
  EXPECT_THAT(model.values, ElementsAre(0, 0));
  end();
}

TEST(SharedParameters, AreThoseBeforeAStateUntilAllOfItIsLoaded) {
  shared_parameters shared{3, 1};
  EXPECT_EQ(shared.values().size(), 4U);
  shared.change([](float_vector& values) { values = {1, 2, 3, 0}; });
  shared.load(0, std::vector<float>{7});
  shared.load(1, std::vector<float>{8, 9});
  std::vector<float> seen(shared.count());
  shared.copy(seen);
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
  EXPECT_THAT(*shared.end_load(), ElementsAre(1, 2, 3, 0));
  shared.copy(seen);
  EXPECT_THAT(seen, ElementsAre(7, 8, 9));
  EXPECT_FALSE(shared.end_load());
}

TEST_F(LocalLoop, TakesNoStepAfterTheLoopHasEnded) {
  worker([](learner& l) {
    EXPECT_EQ(l.accumulate().samples, 0U);
    l.step_locally(0.5);
  });
  bool ended = false;
  port->serve(model, 5ms, [&] { return ended = work.wait_for(0s) == std::future_status::ready; });
  EXPECT_TRUE(ended);
  EXPECT_EQ(model.steps, 0U);
}

TEST_F(LocalLoop, ClipsTheGradientOfEachStep) {
  norm_max = 1;
  worker([this](learner& l) {
    pass(l, 1);
    EXPECT_THAT(copy(), ElementsAre(::testing::FloatEq(1 - 0.6F), ::testing::FloatEq(2 - 0.8F), 5));
    l.add_change(averaged->indices(), copy(), copy());
    l.accumulate();
  });
  EXPECT_EQ(offer({3, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(::testing::FloatEq(0.4F), ::testing::FloatEq(1.2F)));
  end();
}

// The other peer's gradient was (4, 8): half of the difference enters the next step, and no other.
TEST_F(LocalLoop, AddsTheAveragedChangeOfAGradientToTheNextStepOnce) {
  average_gradients = true;
  worker([this](learner& l) {
    auto both = averaged_with_gradients(l);
    ASSERT_EQ(both->tensor_value_count(), 5U);
    pass(l);
    std::vector<float> snapshot(5);
    l.copy_tensors(both->indices(), snapshot);
    EXPECT_THAT(snapshot, ElementsAre(0, 0, 5, 2, 4)) << "the tensors, the gradient of the step";
    l.add_change(both->indices(), std::vector<float>{1, 1, 5, 3, 6}, snapshot);
    for (int i = 0; i < 2; ++i) {
      pass(l);
    }
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(1, 1)) << "moved by the mean of the parameters";
  EXPECT_EQ(offer({2, 2}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(-0.5, -1)) << "with (2, 2) + (3, 6) - (2, 4)";
  EXPECT_EQ(offer({2, 2}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(-1.5, -2)) << "with (2, 2)";
  end();
}

TEST_F(LocalLoop, KeepsAnAveragedGradientForTheNextStepAndDropsItWithItsState) {
  average_gradients = true;
  worker([this](learner& l) {
    auto both = averaged_with_gradients(l);
    std::vector<float> mean{1, 2, 5, 8, 8};
    std::vector<float> snapshot{1, 2, 5, 0, 0};
    l.add_change(both->indices(), mean, snapshot);
    EXPECT_FALSE(l.accumulate().finite); // the worker makes no step then
    pass(l);
    l.add_change(both->indices(), mean, snapshot);
    l.write_tensor(0, std::vector<float>{7, 7});
    l.write_tensor(l.tensors().size() - 1, std::vector<float>{6, 6}); // of a state
    pass(l);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::dropped) << "of the parameters before the change";
  EXPECT_EQ(offer({0, 0}, false), step_outcome::dropped);
  EXPECT_EQ(offer({0, 0}), step_outcome::synced);
  EXPECT_THAT(model.values, ElementsAre(7, 7));
  EXPECT_EQ(offer({2, 2}), step_outcome::stepped);
  EXPECT_THAT(model.values, ElementsAre(6, 6)) << "with (2, 2)";
  end();
}

} // namespace
} // namespace waggle
