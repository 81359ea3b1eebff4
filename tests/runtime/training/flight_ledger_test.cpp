#include "runtime/training/flight_ledger.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

TEST(FlightLedger, ARoundTakesWhatWasAccumulatedAndNoMore) {
  flight_ledger samples{delayed_gradients(64)};
  samples.add(8);
  EXPECT_EQ(samples.begin(1, 0), 8U);
  samples.add(4); // the pass that ran meanwhile counts toward the next boundary
  EXPECT_EQ(samples.in_flight(), 8U);
  EXPECT_EQ(samples.toward_boundary(), 4U);
  samples.end(verdict::merge);
  auto settled = samples.settle();
  EXPECT_EQ(settled.used, 8U);
  EXPECT_EQ(settled.dropped, 0U);
  EXPECT_EQ(samples.toward_boundary(), 4U);
  EXPECT_EQ(samples.in_flight(), 0U);
}

TEST(FlightLedger, SamplesThatAreNotInTheMeanAreDroppedAndCounted) {
  flight_ledger samples{collaborative(64)};
  samples.add(8);
  samples.begin(1, 0);
  samples.end(verdict::merge);
  EXPECT_EQ(samples.settle(false).dropped, 8U);
  EXPECT_EQ(samples.used(), 0U);
  EXPECT_EQ(samples.dropped(), 8U);
}

TEST(FlightLedger, EveryOutcomeHasItsPlaceForTheSamples) {
  for (auto [outcome, used, dropped, kept] :
       {std::tuple{verdict::own_gradient, 8U, 0U, 0U}, std::tuple{verdict::left_out, 0U, 8U, 0U},
        std::tuple{verdict::skip, 0U, 0U, 8U}}) {
    flight_ledger samples{collaborative(64)};
    samples.add(8);
    samples.begin(1, 0);
    samples.end(outcome);
    samples.settle();
    EXPECT_EQ(samples.used(), used);
    EXPECT_EQ(samples.dropped(), dropped);
    EXPECT_EQ(samples.toward_boundary(), kept);
  }
}

TEST(FlightLedger, OnlyGradientsTakeSamplesWithThem) {
  flight_ledger samples{local_updates({})};
  samples.add(8);
  EXPECT_EQ(samples.begin(5, 0), 0U);
  EXPECT_EQ(samples.use_accumulated(), 8U);
  EXPECT_EQ(samples.use_accumulated(), 0U); // not counted twice
  EXPECT_EQ(samples.used(), 8U);
}

TEST(FlightLedger, RefusesASecondFlight) {
  flight_ledger samples{collaborative(64)};
  samples.begin(1, 0);
  EXPECT_DEATH(samples.begin(2, 0), "one flight at a time");
  EXPECT_DEATH(samples.settle(), "no round to settle");
  EXPECT_DEATH(samples.end(verdict::retry), "tried again");
  samples.end(verdict::merge);
  EXPECT_DEATH(samples.end(verdict::merge), "no round under way");
}

// -- one peer under random events ----------------------------------------------------------------

int place_in_a_plan(const action& a) {
  switch (a.what) {
    case action::kind::inner_step:
      return 0;
    case action::kind::merge:
    case action::kind::give_up:
      return 1;
    case action::kind::begin:
      return 2;
    case action::kind::end_epoch:
      return 3;
    case action::kind::await:
      return 4;
    case action::kind::finish:
    case action::kind::hold:
      return 5;
  }
  return -1;
}

class random_peer {
public:
  random_peer(strategy table, std::uint64_t seed)
    : table_(std::move(table)), ledger_(table_), random_(seed) {}

  void event() {
    bool offered = random_.below(3) == 0;
    if (offered)
      offer();
    if (random_.below(4) == 0)
      end_round();
    situation now;
    now.offered = offered;
    now.own_steps = steps_;
    now.own_samples = ledger_.toward_boundary();
    now.swarm_samples = now.own_samples + random_.below(30);
    now.round_called = random_.below(10) == 0;
    now.in_group = random_.below(10) != 0;
    now.members = 1 + static_cast<std::uint32_t>(random_.below(3));
    now.pass_running = random_.below(2) == 0;
    now.epochs_done = epochs_;
    now.max_epochs = max_epochs;
    now.boundary_steps = steps_ - boundary_;
    now.round = ledger_.round();
    now.last_epoch = ledger_.last_epoch();
    auto next = on_offer(table_, now);
    check_request(next);
    for (const auto& a : next)
      carry_out(a);
    ASSERT_EQ(added_,
              ledger_.toward_boundary() + ledger_.in_flight() + ledger_.used() + ledger_.dropped());
  }

  [[nodiscard]] bool finished() const { return finished_; }
  void check_end() const {
    EXPECT_EQ(epochs_, max_epochs);
    EXPECT_EQ(ledger_.in_flight(), 0U);
    EXPECT_FALSE(ledger_.round());
    EXPECT_EQ(added_, ledger_.used() + ledger_.dropped());
  }

  static constexpr std::uint64_t max_epochs = 40;

private:
  void offer() {
    ++steps_;
    auto samples = 1 + random_.below(8);
    added_ += samples;
    if (random_.below(50) == 0)
      ledger_.refuse(samples); // not finite
    else
      ledger_.add(samples);
  }

  void end_round() {
    const auto& round = ledger_.round();
    if (!round || round->outcome)
      return;
    round_facts facts;
    facts.contributors = static_cast<std::uint32_t>(random_.below(3));
    facts.excluded = random_.below(8) == 0;
    facts.run_moved_on = random_.below(8) == 0;
    facts.others_remain = random_.below(2) == 0;
    facts.time_left = random_.below(2) == 0;
    facts.own_samples = ledger_.in_flight();
    auto outcome = on_round(table_.averages.what, facts);
    if (outcome != verdict::retry)
      ledger_.end(outcome);
  }

  void check_request(const plan& next) const {
    int before = 0;
    for (const auto& a : next) {
      EXPECT_GE(place_in_a_plan(a), before);
      before = place_in_a_plan(a);
    }
  }

  void carry_out(const action& next) {
    switch (next.what) {
      case action::kind::inner_step:
        ledger_.use_accumulated();
        break;
      case action::kind::merge:
      case action::kind::give_up: {
        const auto& round = ledger_.round();
        ASSERT_TRUE(round && round->outcome);
        EXPECT_EQ(*round->outcome, next.what == action::kind::merge ? verdict::merge : next.why);
        auto samples = ledger_.in_flight();
        auto settled = ledger_.settle(random_.below(2) == 0);
        if (next.why != verdict::skip || next.what == action::kind::merge) {
          EXPECT_EQ(settled.used + settled.dropped, samples);
        }
        break;
      }
      case action::kind::begin: // ends the test if another flight is under way
        ledger_.begin(steps_, epochs_);
        break;
      case action::kind::end_epoch:
        ++epochs_;
        boundary_ = steps_;
        break;
      case action::kind::await:
        EXPECT_TRUE(ledger_.round());
        break;
      case action::kind::finish:
        finished_ = true;
        ledger_.drop_accumulated();
        break;
      case action::kind::hold:
        break;
    }
  }

  strategy table_;
  flight_ledger ledger_;
  random_source random_;
  std::uint64_t steps_ = 0;
  std::uint64_t epochs_ = 0;
  std::uint64_t boundary_ = 0; // own steps at the end of the last epoch
  std::uint64_t added_ = 0;
  bool finished_ = false;
};

TEST(FlightLedger, LosesAndDoublesNoSampleUnderRandomEvents) { // INV-2
  const lane_clock third_step{lane_clock::unit::first_peer, 3};
  for (const auto& table : {collaborative(24), delayed_gradients(24), local_updates(third_step),
                            local_updates(third_step, {}, false),
                            find_strategy("diloco")->make({.numbers = {5, 1, 0, 0, 2}})})
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(seed);
      random_peer peer{table, seed};
      for (int i = 0; i < 3000 && !peer.finished() && !testing::Test::HasFailure(); ++i)
        peer.event();
      EXPECT_TRUE(peer.finished());
      peer.check_end();
      if (testing::Test::HasFailure())
        return;
    }
}

} // namespace
} // namespace waggle
