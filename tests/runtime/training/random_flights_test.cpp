#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/training/flight.hpp"
#include "tests/support/strategies.hpp"

namespace waggle {
namespace {

using testing::collaborative, testing::delayed_gradients, testing::local_updates;

/// One peer under random events, that does what `plan_next` says.
class random_peer {
public:
  random_peer(strategy table, std::uint64_t seed) : table_(std::move(table)), random_(seed) {}

  void event() {
    if (random_.below(3) == 0)
      pass();
    if (random_.below(4) == 0)
      end_round();
    situation now{.own_steps = steps_,
                  .own_samples = takes_samples() ? accumulated_ : it_.counts().samples};
    now.swarm_samples = now.own_samples + random_.below(30);
    now.round_called = random_.below(10) == 0;
    now.in_group = random_.below(10) != 0;
    now.members = 1 + static_cast<std::uint32_t>(random_.below(3));
    now.pass_running = random_.below(2) == 0;
    now.epochs_done = epochs_;
    now.max_epochs = max_epochs;
    now.boundary_steps = it_.counts().passes;
    now.round = it_.round();
    now.last_epoch = it_.last_epoch();
    auto next = plan_next(table_.averages, now);
    EXPECT_FALSE(next.pass && now.pass_running);
    EXPECT_FALSE(next.begin && !now.in_group);
    if (next.merge)
      settle();
    if (next.begin) // ends the test if another flight is under way
      begin();
    ASSERT_EQ(added_, accumulated_ + it_.in_flight() + settled_);
    finished_ = epochs_ == max_epochs && !it_.round();
    EXPECT_FALSE(next.pass && finished_);
  }

  [[nodiscard]] bool finished() const { return finished_; }

  static constexpr std::uint64_t max_epochs = 40;

private:
  [[nodiscard]] bool takes_samples() const {
    return table_.averages.what != lane_content::parameters;
  }

  void pass() {
    ++steps_;
    auto samples = 1 + random_.below(8);
    added_ += samples;
    it_.pass_ended();
    it_.stepped(samples);
    (takes_samples() ? accumulated_ : settled_) += samples;
  }

  void begin() {
    contribution given{.epoch = epoch_id{epochs_},
                       .own = std::make_shared<float_vector>(1),
                       .samples = takes_samples() ? std::exchange(accumulated_, 0) : 0};
    it_.hold(std::move(given), steps_);
    it_.begin_counting();
    (void)it_.send();
    if (!table_.averages.overlap.blocks())
      ++epochs_;
  }

  void end_round() {
    if (!it_.round_runs())
      return;
    if (takes_samples() && random_.below(8) == 0) { // it failed, and is tried again
      it_.interrupt();
      (void)it_.send();
      return;
    }
    it_.end({}, random_.below(2) == 0);
    if (!table_.averages.overlap.blocks())
      return;
    settle();
    ++epochs_;
  }

  void settle() { settled_ += it_.settle(); }

  strategy table_;
  flight it_;
  random_source random_;
  std::uint64_t steps_ = 0;
  std::uint64_t epochs_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t accumulated_ = 0;
  std::uint64_t settled_ = 0;
  bool finished_ = false;
};

TEST(RandomFlights, LoseAndDoubleNoSample) { // INV-2
  const lane_clock third_step{lane_clock::unit::first_peer, 3};
  for (const auto& table : {collaborative(24), delayed_gradients(24), local_updates(third_step),
                            local_updates(third_step, {}, false),
                            find_strategy("diloco")->make({.numbers = {5, 1, 0, 0, 2}})})
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(seed);
      random_peer peer{table, seed};
      for (int i = 0; i < 3000 && !peer.finished() && !::testing::Test::HasFailure(); ++i)
        peer.event();
      EXPECT_TRUE(peer.finished());
      if (::testing::Test::HasFailure())
        return;
    }
}

} // namespace
} // namespace waggle
