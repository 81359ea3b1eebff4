#include "runtime/training/boundary_estimate.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace waggle {
namespace {

using std::chrono_literals::operator""ms;

lane_clock samples(std::uint64_t every) {
  return {lane_clock::unit::swarm_samples, every, 0, 0};
}
lane_clock steps(std::uint64_t every, std::uint64_t grid = 0) {
  return {lane_clock::unit::first_peer, every, 0, grid};
}

TEST(BoundaryEstimate, SamplesThatAreMissingAtTheSpeedOfAll) {
  boundary_progress now;
  EXPECT_EQ(time_to_boundary(samples(100), now), std::nullopt) << "no speed is known yet";
  now.samples = 40;
  now.samples_per_second = 30;
  EXPECT_EQ(time_to_boundary(samples(100), now), 2000ms);
  now.samples = 100;
  EXPECT_EQ(time_to_boundary(samples(100), now), 0ms);
  now.samples_per_second = 0;
  now.samples = 130;
  EXPECT_EQ(time_to_boundary(samples(100), now), 0ms) << "it is due, whatever the speed";
}

TEST(BoundaryEstimate, OwnStepsAndThePartOfOneThatIsOver) {
  boundary_progress now;
  EXPECT_EQ(time_to_boundary(steps(8), now), std::nullopt);
  now.seconds_per_step = 0.5;
  now.steps = 5;
  EXPECT_EQ(time_to_boundary(steps(8), now), 1500ms);
  now.since_step = 0.25;
  EXPECT_EQ(time_to_boundary(steps(8), now), 1250ms);
  now.since_step = 9;
  EXPECT_EQ(time_to_boundary(steps(8), now), 0ms) << "never negative";
  now.steps = 8;
  EXPECT_EQ(time_to_boundary(steps(8), now), 0ms);
}

TEST(BoundaryEstimate, AFasterPeerUsuallyEndsTheEpoch) {
  boundary_progress now;
  now.seconds_per_step = 2;
  now.usual_epoch = 3;
  now.since_boundary = 1;
  EXPECT_EQ(time_to_boundary(steps(8), now), 2000ms) << "not 16 s";
  now.since_boundary = 3.5;
  EXPECT_EQ(time_to_boundary(steps(8), now), 16000ms) << "this time it did not";
  now.seconds_per_step = 0.1;
  now.since_boundary = 1;
  EXPECT_EQ(time_to_boundary(steps(8), now), 800ms) << "this peer is faster now";
  now.seconds_per_step = 0;
  EXPECT_EQ(time_to_boundary(steps(8), now), 2000ms);
}

TEST(BoundaryEstimate, OnAGridTheNextPointOfIt) {
  boundary_progress now;
  now.boundary_time = 10'000;
  now.time = 10'700;
  EXPECT_EQ(time_to_boundary(steps(1, 2'000), now), std::nullopt) << "no step has ended yet";
  now.steps = 1;
  EXPECT_EQ(time_to_boundary(steps(1, 2'000), now), 1300ms);
  now.time = 12'100;
  EXPECT_EQ(time_to_boundary(steps(1, 2'000), now), 0ms) << "the point is over";
  now.time = 11'900;
  now.steps = 0;
  now.seconds_per_step = 0.5;
  EXPECT_EQ(time_to_boundary(steps(1, 2'000), now), 500ms) << "once the step is complete";
}

TEST(BoundaryEstimate, WithoutBoundariesOrWithoutAnEndThereIsNone) {
  boundary_progress now;
  now.seconds_per_step = 1;
  EXPECT_EQ(time_to_boundary(own_steps(4), now), std::nullopt);
  now.samples_per_second = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(time_to_boundary(samples(100), now), std::nullopt);
  now.samples_per_second = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(time_to_boundary(samples(100), now), std::nullopt);
}

TEST(SearchWindow, IsTheMatchmakingTimeIfEpochsAreLongEnough) {
  EXPECT_EQ(search_window(1'000ms, 10), 1'000ms);
  EXPECT_EQ(search_window(1'000ms, 3.5), 1'000ms);
  EXPECT_EQ(search_window(1'000ms, 2.75), 250ms);
  EXPECT_EQ(search_window(0ms, 10), 0ms);
}

// Whoever is left over from the boundary before searches on meanwhile.
TEST(SearchWindow, IsEmptyIfEpochsAreShortOrOfUnknownLength) {
  EXPECT_EQ(search_window(1'000ms, 2.5), 0ms);
  EXPECT_EQ(search_window(1'000ms, 0.1), 0ms);
  EXPECT_EQ(search_window(1'000ms, 0), 0ms);
  EXPECT_EQ(search_window(1'000ms, std::numeric_limits<double>::infinity()), 1'000ms);
}

} // namespace
} // namespace waggle
