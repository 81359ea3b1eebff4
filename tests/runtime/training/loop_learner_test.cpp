// The loop's thread is the test's thread; the worker runs on another one.

#include "runtime/training/loop_learner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/mean_gradient.hpp"
#include "tests/support/offered.hpp"
#include "tests/support/states.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using testing::mean_gradient_of;

/// Plain gradient descent on two values. Remembers its callers.
class small_model final : public loop_model {
public:
  void apply(std::span<const float> gradient, double lr) override {
    see();
    if (broken)
      throw std::runtime_error{"out of memory"};
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] -= static_cast<float>(lr) * gradient[i];
    ++steps;
  }
  void step(double) override { ADD_FAILURE() << "the gradient is the mean of a round"; }
  void read_tensor(std::size_t, std::span<float> out) const override {
    see();
    std::copy(values.begin(), values.end(), out.begin());
  }
  void write_tensor(std::size_t, std::span<const float> from) override {
    see();
    values.assign(from.begin(), from.end());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps; }
  void set_optimizer_steps(std::uint64_t n) override { steps = n; }

  void add_gradient(float keep, float times) override {
    see();
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = sum[i] * keep + gradient[i] * times;
  }
  void read_gradient(std::span<float> out) const override {
    see();
    std::ranges::copy(sum, out.begin());
    ++reads;
  }

  std::vector<float> values{1, 2};
  std::vector<float> gradient{0, 0}; // on a device
  std::vector<float> sum{0, 0};
  mutable int reads = 0;
  std::uint64_t steps = 0;
  bool broken = false;
  mutable std::vector<std::thread::id> callers;

private:
  void see() const { callers.push_back(std::this_thread::get_id()); }
};

state_table two_values() {
  return state_table{{{"x", {2}, state_tensor::kind::parameter}}};
}

class LoopLearner : public ::testing::Test {
protected:
  ~LoopLearner() override {
    port->close();
    if (work.valid())
      work.wait();
    for (auto who : model.callers)
      EXPECT_EQ(who, std::this_thread::get_id());
  }

  /// Runs `body` as the worker.
  void worker(std::function<void(learner&)> body) {
    work = std::async(std::launch::async, [this, body = std::move(body)] { body(*learns); });
  }
  void await_worker() {
    ASSERT_EQ(work.wait_for(20s), std::future_status::ready);
    work.get();
  }
  /// The run is over with this gradient.
  void finish(std::vector<float> last = {1, 1}, std::uint64_t samples = 4) {
    over = true;
    EXPECT_EQ(offer(std::move(last), samples), step_outcome::finished);
    await_worker();
  }
  step_outcome offer(std::vector<float> gradient, std::uint64_t samples = 4, double loss = 1) {
    return port->offer(model, testing::offered(*port, gradient),
                       {loss, samples, std::isfinite(loss)}, [this] { return over.load(); });
  }

  small_model model;
  std::shared_ptr<loop_port> port = std::make_shared<loop_port>(two_values(), digest{});
  std::unique_ptr<learner> learns = make_loop_learner(port);
  std::atomic<bool> over{false};
  std::future<void> work;
};

TEST_F(LoopLearner, AGradientIsHeldUntilTheNextPassIsAskedFor) {
  worker([](learner& l) {
    auto first = l.accumulate();
    EXPECT_EQ(first.samples, 4u);
    EXPECT_EQ(first.loss, 1.0);
    EXPECT_EQ(l.accumulated_samples(), 4u);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::held);
  finish();
  EXPECT_EQ(port->samples().given, 8u);
}

TEST_F(LoopLearner, AGradientOnADeviceIsReadOnceAnUpdateByTheLoopsThread) {
  port = std::make_shared<loop_port>(two_values(), digest{}, nullptr, gradient_use::summed, true);
  learns = make_loop_learner(port);
  EXPECT_TRUE(learns->waits_for_pass());
  worker([this](learner& l) {
    l.accumulate();
    l.accumulate();
    EXPECT_EQ(model.reads, 0);
    l.apply(mean_gradient_of(l), 0.5);
    EXPECT_EQ(model.reads, 1);
    l.accumulate();
  });
  model.gradient = {1, 1};
  EXPECT_EQ(offer({0, 0}), step_outcome::held);
  model.gradient = {3, 7};
  EXPECT_EQ(offer({0, 0}), step_outcome::stepped);
  EXPECT_EQ(model.values, (std::vector<float>{0, 0}));
  finish({0, 0});
}

TEST_F(LoopLearner, TheLoopGoesOnFromTheUpdateThatItsGradientWasPartOf) {
  worker([](learner& l) {
    l.accumulate();
    l.apply(mean_gradient_of(l), 0.5);
    l.accumulate();
  });
  EXPECT_EQ(offer({2, 4}), step_outcome::stepped);
  EXPECT_EQ(model.values, (std::vector<float>{0, 0}));
  finish({0, 0});
}

TEST_F(LoopLearner, TheFirstGradientIsDroppedIfTheRunsStateIsLoaded) {
  worker([](learner& l) {
    l.write_tensor(0, std::vector<float>{7, 8});
    l.set_optimizer_steps(3);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::synced);
  EXPECT_EQ(model.values, (std::vector<float>{7, 8}));
  EXPECT_EQ(port->gradients().samples(), 0u);
  EXPECT_EQ(port->samples().outdated, 4u);
  over = true;
  EXPECT_EQ(offer({1, 1}), step_outcome::finished); // computed from the new state: it counts
  EXPECT_EQ(port->samples().given, 4u);
  await_worker();
}

TEST_F(LoopLearner, AGradientFromParametersThatWereUpdatedMeanwhileIsDropped) {
  worker([](learner& l) {
    l.apply(std::vector<float>{1, 1}, 1);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::dropped);
  finish();
}

/// A peer alone: all ranges are its own.
std::shared_ptr<sample_draws> draws_of(std::uint64_t samples) {
  auto self = *peer_id::from_raw(sha256("self").raw());
  auto draws = std::make_shared<sample_draws>(self, samples, "run");
  auto ledger = draws->ledger();
  ledger.end_epoch({}, 0, std::vector{self});
  EXPECT_TRUE(draws->follow(ledger));
  return draws;
}

TEST_F(LoopLearner, SamplesOfAGradientThatTheRunNeverSawAreDrawnAgain) {
  auto draws = draws_of(8);
  port->use_draws(draws);
  auto first = draws->draw(4);
  (void)draws->draw(2);
  worker([](learner& l) {
    l.apply(std::vector<float>{1, 1}, 1); // while the first was computed
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::dropped);
  EXPECT_EQ(draws->ahead(), 2U);
  finish({1, 1}, 2);
  auto again = draws->draw(8);
  EXPECT_TRUE(std::all_of(first.begin(), first.end(), [&](auto sample) {
    return std::find(again.begin(), again.end(), sample) != again.end();
  }));
  EXPECT_THROW(port->keep("place"), std::invalid_argument);
}

TEST_F(LoopLearner, APassThatHasNoSamplesAnyMoreEndsWithoutAny) {
  auto draws = draws_of(8);
  port->use_draws(draws);
  worker([&](learner& l) {
    auto without = draws->ledger();
    without.end_epoch({}, 0, std::vector<peer_id>{}); // another member has them
    EXPECT_TRUE(draws->follow(without));
    EXPECT_EQ(l.accumulate().samples, 0U);
    EXPECT_TRUE(draws->follow(draws_of(8)->ledger()));
    EXPECT_EQ(l.accumulate().samples, 4U);
  });
  ASSERT_TRUE(port->await_samples(model, [] { return false; }));
  EXPECT_EQ(draws->draw(4).size(), 4U);
  finish();
}

TEST_F(LoopLearner, ReadingChangesNothing) {
  worker([](learner& l) {
    (void)l.parameters_digest();
    l.accumulate();
    (void)testing::save_state(l);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}), step_outcome::held);
  finish();
}

TEST_F(LoopLearner, NonFiniteGradientsAreReportedAndNotAccumulated) {
  worker([](learner& l) {
    auto step = l.accumulate();
    EXPECT_FALSE(step.finite);
    EXPECT_EQ(step.samples, 4u);
    EXPECT_EQ(l.accumulated_samples(), 0u);
    l.accumulate();
  });
  EXPECT_EQ(offer({1, 1}, 4, std::nan("")), step_outcome::dropped);
  finish();
}

TEST_F(LoopLearner, OneGradientComesBackBitByBitAndSeveralByTheirSamples) {
  auto odd = std::vector<float>{0.1F, 1.0F / 3};
  worker([odd](learner& l) {
    l.accumulate();
    EXPECT_EQ(mean_gradient_of(l), odd);
    l.accumulate();
    l.accumulate();
    EXPECT_EQ(mean_gradient_of(l), (std::vector<float>{4, 7}));
    EXPECT_EQ(mean_gradient_of(l), (std::vector<float>{0, 0}));
    l.accumulate();
    EXPECT_EQ(l.drop_gradient(), 3u);
    EXPECT_EQ(l.drop_gradient(), 0u);
    l.accumulate();
  });
  offer(odd, 7);
  offer({1, 1}, 1);
  offer({5, 9}, 3);
  offer({1, 1}, 3);
  finish({0, 0}, 1);
}

TEST_F(LoopLearner, ALoopThatStopsCallingDoesNotBlockTakingTheGradient) {
  std::promise<void> handed;
  worker([&](learner& l) {
    l.accumulate();
    handed.set_value();
    l.accumulate(); // the loop never calls again
  });
  auto loop_again = std::thread{[&] { EXPECT_EQ(offer({2, 2}, 4), step_outcome::held); }};
  handed.get_future().wait();
  loop_again.join();
  EXPECT_EQ(mean_gradient_of(*learns), (std::vector<float>{2, 2}));
  EXPECT_EQ(learns->accumulated_samples(), 0u);
}

TEST_F(LoopLearner, AnExceptionOfTheModelReachesBothSides) {
  model.broken = true;
  worker([](learner& l) {
    EXPECT_THROW(l.apply(std::vector<float>{1, 1}, 1), std::runtime_error);
  });
  EXPECT_THROW(offer({1, 1}), std::runtime_error);
  await_worker();
}

TEST_F(LoopLearner, AnExceptionOfIsOverReachesTheLoop) {
  EXPECT_THROW(port->offer(model, testing::offered(*port, std::vector<float>{1, 1}), {1, 4, true},
                           []() -> bool { throw std::runtime_error{"refused"}; }),
               std::runtime_error);
  EXPECT_EQ(port->samples().outdated, 4u);
}

// -- the end --------------------------------------------------------------------------------------

TEST_F(LoopLearner, ClosingReleasesAPassAndLaterOnesAreEmpty) {
  worker([](learner& l) {
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(l.accumulate().samples, 0u);
  });
  port->close();
  await_worker();
}

TEST_F(LoopLearner, ClosingReleasesACallThatIsNotCarriedOut) {
  worker([](learner& l) {
    EXPECT_THROW(l.write_tensor(0, std::vector<float>{1, 1}), loop_closed);
    EXPECT_THROW(l.apply(std::vector<float>{1, 1}, 1), loop_closed);
  });
  port->close();
  await_worker();
  EXPECT_EQ(model.values, (std::vector<float>{1, 2}));
}

TEST_F(LoopLearner, ALoopThatEndsStillCarriesOutTheLastCheckpoint) {
  worker([](learner& l) {
    EXPECT_EQ(l.accumulate().samples, 0u); // the loop has ended
    EXPECT_EQ(l.accumulate().samples, 0u);
    l.apply(std::vector<float>{1, 1}, 1);
    EXPECT_FALSE(testing::save_state(l).empty());
  });
  bool ended = false;
  port->serve(model, 5ms, [&] { return ended = work.wait_for(0s) == std::future_status::ready; });
  EXPECT_TRUE(ended);
  EXPECT_EQ(model.steps, 1u);
}

TEST_F(LoopLearner, AnEmptyPassRepeatsTheLastLossAndCountsNothing) {
  worker([](learner& l) {
    EXPECT_EQ(l.accumulate().loss, 2.5);
    auto empty = l.accumulate();
    EXPECT_EQ(empty.loss, 2.5);
    EXPECT_TRUE(empty.finite);
    EXPECT_EQ(empty.samples, 0u);
  });
  EXPECT_EQ(offer({1, 1}, 4, 2.5), step_outcome::held);
  port->close();
  await_worker();
  EXPECT_EQ(offer({1, 1}), step_outcome::finished);
}

// The position is what the loop keeps with each gradient.
TEST_F(LoopLearner, WhatItKeepsBelongsToTheGradientsThatAreTaken) {
  auto& resumes = *learns;
  EXPECT_EQ(port->kept(), "");
  ASSERT_TRUE(resumes.load_position("at 0"));
  EXPECT_EQ(port->kept(), "at 0");
  worker([&](learner& l) {
    l.accumulate();
    EXPECT_EQ(resumes.position(), "at 1");
    EXPECT_EQ(resumes.taken_position(), "at 0");
    (void)mean_gradient_of(l);
    EXPECT_FALSE(l.accumulate().finite);
    EXPECT_EQ(resumes.position(), "at 2");
    EXPECT_EQ(resumes.taken_position(), "at 1");
    l.drop_gradient();
    EXPECT_EQ(resumes.taken_position(), "at 2");
    l.accumulate();
  });
  port->keep("at 1");
  offer({1, 1});
  port->keep("at 2");
  offer({1, 1}, 4, NAN);
  port->keep("at 3"); // no gradient follows
  EXPECT_EQ(port->kept(), "at 2");
  finish();
  EXPECT_THROW(port->keep(std::string(loop_port::kept_bytes_max + 1, 'x')), std::length_error);
}

TEST_F(LoopLearner, WaitsForTheStateThatItGoesOnFrom) {
  worker([](learner& l) {
    l.write_tensor(0, std::vector<float>{7, 8});
    l.set_optimizer_steps(3);
    l.accumulate();
  });
  port->await_pass(model, [this] { return over.load(); });
  EXPECT_EQ(model.values, (std::vector<float>{7, 8}));
  over = true;
  EXPECT_EQ(offer({1, 1}), step_outcome::finished) << "and no gradient was lost";
  await_worker();
  EXPECT_EQ(port->samples().outdated, 0U);
}

/// Also has a buffer of one value, tensor 1.
class model_with_buffer final : public loop_model {
public:
  void apply(std::span<const float> gradient, double) override {
    EXPECT_EQ(gradient.size(), 2U);
    ++steps;
  }
  void step(double) override { ADD_FAILURE() << "the gradient is the mean of a round"; }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), which == 1 ? buffer : 0);
  }
  void write_tensor(std::size_t which, std::span<const float> from) override {
    if (which == 1)
      buffer = from.front();
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps; }
  void set_optimizer_steps(std::uint64_t n) override { steps = n; }

  float buffer = 5;
  std::uint64_t steps = 0;
};

/// The gradient of x is complete first, in passes over four samples.
class EarlyGradient : public LoopLearner {
protected:
  EarlyGradient() {
    port = std::make_shared<loop_port>(state_table{{{"x", {2}, state_tensor::kind::parameter},
                                                    {"y", {1}, state_tensor::kind::parameter}}},
                                       digest{});
    learns = make_loop_learner(port);
    learns->use_vectors(vectors);
    port->backward().hear();
  }

  /// Two passes: the first is offered whole, the second is taken early if it is due.
  void two_passes(bool takes, bool due = true) {
    worker([this, takes, due](learner& l) {
      learner::early_gradient when{[due] { return due; },
                                   [this, &l, takes] {
                                     if (takes)
                                       given = l.take_mean_vector(*vectors);
                                     offered_early.set_value();
                                   }};
      EXPECT_FALSE(l.accumulate_in_buckets(when).taken);
      first = mean_gradient_of(l);
      second = l.accumulate_in_buckets(when);
      rest = l.accumulated_samples();
      over = true;
      l.accumulate_in_buckets(when);
    });
    EXPECT_EQ(offer(values), step_outcome::held);
  }
  /// The second of two passes, until its first gradient is taken.
  void begin_early(bool takes = true) {
    two_passes(takes);
    port->computed(0, values.data(), 4);
    await_early();
  }
  void await_early() { offered_early.get_future().wait(); }
  void expect_failed_pass() const {
    EXPECT_TRUE(given.fills->failed());
    EXPECT_TRUE(second.taken && !second.finite);
    EXPECT_EQ(rest, 0U);
  }
  step_outcome offer(const std::vector<float>& from, std::uint64_t samples = 4, double loss = 1) {
    std::array<offered_tensor, 2> tensors{offered_tensor{from.data(), 2}, {from.data() + 2, 1}};
    return port->offer(model, tensors, {loss, samples, std::isfinite(loss)},
                       [this] { return over.load(); });
  }
  /// After the last offer.
  void end() {
    port->close();
    await_worker();
  }

  std::shared_ptr<vector_pool> vectors = vector_pool::make(4);
  std::vector<float> values{0.1F, -0.0F, 3};
  std::promise<void> offered_early;
  learner::mean_gradient given;
  std::vector<float> first;
  micro_step second;
  std::uint64_t rest = 0;
};

TEST_F(EarlyGradient, HasTheBytesOfOneThatIsOfferedWhole) {
  begin_early();
  ASSERT_TRUE(given.fills);
  EXPECT_EQ(given.samples, 4U);
  EXPECT_TRUE(given.fills->has(0, 2));
  EXPECT_FALSE(given.fills->has(2, 3));
  EXPECT_EQ(offer(values), step_outcome::held);
  end();
  EXPECT_TRUE(given.fills->has(0, 3) && !given.fills->failed());
  EXPECT_EQ(std::memcmp(given.values->data(), first.data(), 3 * sizeof(float)), 0);
  EXPECT_TRUE(second.taken && second.finite);
  EXPECT_EQ(second.samples, 4U);
  EXPECT_EQ(rest, 0U);
}

TEST_F(EarlyGradient, IsOneOfThePassIfNobodyTakesIt) {
  begin_early(false);
  offer(values);
  end();
  EXPECT_FALSE(second.taken);
  EXPECT_EQ(rest, 4U);
}

TEST_F(EarlyGradient, BeginsNotBeforeItIsDue) {
  two_passes(true, false);
  port->computed(0, values.data(), 4);
  offer(values);
  end();
  EXPECT_FALSE(second.taken || given.values);
}

TEST_F(EarlyGradient, ThatTheLoopChangesLaterFailsAndTheLoopLearnsIt) {
  begin_early();
  values[0] *= 0.5F;
  EXPECT_THROW(offer(values), std::invalid_argument);
  end();
  expect_failed_pass();
}

TEST_F(EarlyGradient, OverOtherSamplesThanWereSaidFails) {
  begin_early();
  EXPECT_THROW(offer(values, 3), std::invalid_argument);
  end();
  EXPECT_TRUE(given.fills->failed());
}

TEST_F(EarlyGradient, WhoseValuesAreGivenTwiceKeepsTheFirstAndFails) {
  begin_early();
  std::vector<float> other{5, 5, 5};
  port->computed(0, other.data(), 4);
  EXPECT_TRUE(given.fills->failed());
  EXPECT_EQ(given.values->at(0), values[0]) << "which others may have received";
  EXPECT_EQ(offer(other), step_outcome::dropped);
  end();
  EXPECT_TRUE(second.taken && !second.finite);
  EXPECT_EQ(port->samples().early, 4U);
}

TEST_F(EarlyGradient, IsOfThePositionThatWasKeptBeforeIt) {
  two_passes(true);
  port->keep("first");
  port->computed(0, values.data(), 4);
  await_early();
  EXPECT_THROW(port->keep("second"), std::invalid_argument);
  EXPECT_EQ(learns->taken_position(), "first");
  offer(values);
  port->keep("second");
  end();
  EXPECT_EQ(port->kept(), "first");
}

TEST_F(EarlyGradient, OfAPassThatIsDiscardedFailsAndTheNextIsDropped) {
  begin_early();
  port->backward().discard();
  EXPECT_TRUE(given.fills->failed());
  std::vector<float> other{5, 5, 5};
  port->computed(0, other.data(), 4);
  offer(other);
  end();
  EXPECT_TRUE(second.taken && !second.finite);
  EXPECT_EQ(rest, 0U);
}

TEST_F(EarlyGradient, WithALossThatIsNotFiniteFails) {
  begin_early();
  offer(values, 4, NAN);
  end();
  expect_failed_pass();
}

TEST_F(EarlyGradient, ThatIsNotFiniteSendsNothingOfIt) {
  two_passes(true);
  values[1] = NAN;
  port->computed(0, values.data(), 4);
  await_early();
  EXPECT_FALSE(given.fills->has(0, 1));
  offer(values);
  end();
  EXPECT_TRUE(given.fills->failed());
  EXPECT_FALSE(second.finite);
}

TEST_F(EarlyGradient, OfALoopThatEndsInsteadFails) {
  begin_early();
  end();
  EXPECT_TRUE(given.fills->failed());
}

TEST(LoopLearnerWithBuffers, OffersTheirLastValuesAndMergesTheMean) {
  loop_port port{state_table{{{"x", {2}, state_tensor::kind::parameter},
                              {"running_mean", {1}, state_tensor::kind::buffer}}},
                 {}};
  auto learns = make_loop_learner(std::shared_ptr<loop_port>{&port, [](auto*) {}});
  ASSERT_EQ(learns->gradient_count(), 3U);
  auto worker = std::async(std::launch::async, [&] {
    learns->accumulate();
    learns->accumulate();
    std::vector<float> mean(3);
    EXPECT_EQ(testing::take_mean_gradient(*learns, mean), 4U);
    EXPECT_EQ(mean, (std::vector<float>{2, 3, 7})) << "the mean gradient, the newest buffer";
    std::vector<float> round_mean{9};
    std::vector<float> contributed{7};
    learns->apply(std::span{mean}.first(2), 0.1);
    learns->merge_buffers(round_mean, contributed);
    learns->accumulate();
  });
  model_with_buffer model;
  auto never = [] { return false; };
  EXPECT_EQ(
    port.offer(model, testing::offered(port, std::vector<float>{1, 2, 6}), {0, 2, true}, never),
    step_outcome::held);
  model.buffer = 8; // one further pass
  EXPECT_EQ(
    port.offer(model, testing::offered(port, std::vector<float>{3, 4, 7}), {0, 2, true}, never),
    step_outcome::stepped);
  EXPECT_EQ(model.buffer, 10) << "8 + (9 - 7)";
  EXPECT_EQ(model.steps, 1U);
  port.close();
  worker.wait();
}

} // namespace
} // namespace waggle
