#include "runtime/training/flight_ledger.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "tests/runtime/training/streaming.hpp"

namespace waggle {
namespace {

TEST(FlightLedger, ARoundTakesWhatWasAccumulatedAndNoMore) {
  flight_ledger samples{delayed_gradients(64)};
  samples.add(8);
  EXPECT_EQ(samples.begin(0, 1, 0), 8U);
  samples.add(4); // the pass that ran meanwhile counts toward the next boundary
  EXPECT_EQ(samples.in_flight(0), 8U);
  EXPECT_EQ(samples.toward_boundary(), 4U);
  samples.end(0, verdict::merge);
  auto settled = samples.settle(0);
  EXPECT_EQ(settled.used, 8U);
  EXPECT_EQ(settled.dropped, 0U);
  EXPECT_EQ(samples.toward_boundary(), 4U);
  EXPECT_EQ(samples.in_flight(), 0U);
}

TEST(FlightLedger, SamplesThatAreNotInTheMeanAreDroppedAndCounted) {
  flight_ledger samples{collaborative(64)};
  samples.add(8);
  samples.begin(0, 1, 0);
  samples.end(0, verdict::merge);
  EXPECT_EQ(samples.settle(0, false).dropped, 8U);
  EXPECT_EQ(samples.used(), 0U);
  EXPECT_EQ(samples.dropped(), 8U);
}

TEST(FlightLedger, EveryOutcomeHasItsPlaceForTheSamples) {
  for (auto [outcome, used, dropped, kept] :
       {std::tuple{verdict::own_gradient, 8U, 0U, 0U}, std::tuple{verdict::left_out, 0U, 8U, 0U},
        std::tuple{verdict::skip, 0U, 0U, 8U}}) {
    flight_ledger samples{collaborative(64)};
    samples.add(8);
    samples.begin(0, 1, 0);
    samples.end(0, outcome);
    samples.settle(0);
    EXPECT_EQ(samples.used(), used);
    EXPECT_EQ(samples.dropped(), dropped);
    EXPECT_EQ(samples.toward_boundary(), kept);
  }
}

TEST(FlightLedger, OnlyGradientsTakeSamplesWithThem) {
  flight_ledger samples{local_updates(own_steps(5))};
  samples.add(8);
  EXPECT_EQ(samples.begin(0, 5, 0), 0U);
  EXPECT_EQ(samples.use_accumulated(), 8U);
  EXPECT_EQ(samples.use_accumulated(), 0U); // not counted twice
  EXPECT_EQ(samples.used(), 8U);
}

TEST(FlightLedger, RefusesASecondFlightOfALane) {
  flight_ledger samples{collaborative(64)};
  samples.begin(0, 1, 0);
  EXPECT_DEATH(samples.begin(0, 2, 0), "one flight per lane");
  EXPECT_DEATH(samples.settle(0), "no round to settle");
  EXPECT_DEATH(samples.end(0, verdict::retry), "tried again");
  samples.end(0, verdict::merge);
  EXPECT_DEATH(samples.end(0, verdict::merge), "no round under way");
}

// -- one peer under random events ----------------------------------------------------------------

/// A lane of blocking gradients, and a lane of parameters that are merged whenever they arrive: two
/// flights at once.
strategy gradients_and_parameters() {
  auto both = collaborative(24);
  both.lanes.push_back(local_updates(own_steps(3)).lanes.front());
  return both;
}

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
    for (std::size_t i = 0; i < table_.lanes.size(); ++i)
      if (random_.below(4) == 0)
        end_round(i);
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
    now.lanes = ledger_.lanes();
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
    for (const auto& lane : ledger_.lanes())
      EXPECT_FALSE(lane.under_way);
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

  void end_round(std::size_t lane) {
    const auto& round = ledger_.lanes()[lane].under_way;
    if (!round || round->outcome)
      return;
    round_facts facts;
    facts.contributors = static_cast<std::uint32_t>(random_.below(3));
    facts.excluded = random_.below(8) == 0;
    facts.run_moved_on = random_.below(8) == 0;
    facts.others_remain = random_.below(2) == 0;
    facts.time_left = random_.below(2) == 0;
    facts.own_samples = ledger_.in_flight(lane);
    auto outcome = on_round(table_.lanes[lane], facts);
    if (outcome != verdict::retry)
      ledger_.end(lane, outcome);
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
        const auto& round = ledger_.lanes()[next.lane].under_way;
        ASSERT_TRUE(round && round->outcome);
        EXPECT_EQ(*round->outcome, next.what == action::kind::merge ? verdict::merge : next.why);
        auto samples = ledger_.in_flight(next.lane);
        auto settled = ledger_.settle(next.lane, random_.below(2) == 0);
        if (next.why != verdict::skip || next.what == action::kind::merge) {
          EXPECT_EQ(settled.used + settled.dropped, samples);
        }
        break;
      }
      case action::kind::begin: // ends the test if another flight of the lane is under way
        ledger_.begin(next.lane, steps_, epochs_);
        break;
      case action::kind::end_epoch:
        ++epochs_;
        break;
      case action::kind::await:
        EXPECT_TRUE(ledger_.lanes()[next.lane].under_way);
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
  std::uint64_t added_ = 0;
  bool finished_ = false;
};

TEST(FlightLedger, LosesAndDoublesNoSampleUnderRandomEvents) { // INV-2
  streaming_options four;
  four.fragments = 4;
  four.every = 12;
  four.overlap = 5;
  for (const auto& table : {collaborative(24), delayed_gradients(24), gradients_and_parameters(),
                            local_updates(own_steps(3)), streaming_diloco(four)})
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(testing::Message() << table.lanes.size() << " lanes, seed " << seed);
      random_peer peer{table, seed};
      for (int i = 0; i < 3000 && !peer.finished() && !testing::Test::HasFailure(); ++i)
        peer.event();
      bool has_epochs = table.inner == inner_rule::hold;
      EXPECT_EQ(peer.finished(), has_epochs);
      if (has_epochs)
        peer.check_end();
      if (testing::Test::HasFailure())
        return;
    }
}

} // namespace
} // namespace waggle
