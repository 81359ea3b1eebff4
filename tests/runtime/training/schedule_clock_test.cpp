#include "runtime/training/schedule_clock.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

std::uint64_t at(const schedule_clock& clock, const schedule_position& where) {
  return schedule_epoch(clock, where).value();
}

TEST(ScheduleClock, AnEpochEndsWithEachRoundUnlessItIsCountedOtherwise) {
  for (std::uint64_t samples : {0U, 7U, 32U, 1000U})
    EXPECT_EQ(at({}, {epoch_id{5}, 900, samples, 32}), 5U);
}

TEST(ScheduleClock, SeveralEpochsOfSamplesLieBetweenTwoRounds) {
  schedule_clock clock{4, 0};
  std::uint64_t per_round = 40;
  EXPECT_EQ(at(clock, {epoch_id{0}, 0, 0, per_round}), 0U);
  EXPECT_EQ(at(clock, {epoch_id{0}, 0, 9, per_round}), 0U);
  EXPECT_EQ(at(clock, {epoch_id{0}, 0, 10, per_round}), 1U);
  EXPECT_EQ(at(clock, {epoch_id{0}, 0, 39, per_round}), 3U);
  EXPECT_EQ(at(clock, {epoch_id{3}, 0, 20, per_round}), 14U);
}

// Samples that come in while the round is about to begin must not be of an epoch of the next one:
// otherwise the rate would fall, and rise again when the round has begun.
TEST(ScheduleClock, TheEpochsOfTheNextRoundWaitForIt) {
  schedule_clock clock{4, 0};
  for (std::uint64_t samples : {40U, 55U, 4000U})
    EXPECT_EQ(at(clock, {epoch_id{2}, 0, samples, 40}), 11U);
  EXPECT_EQ(at(clock, {epoch_id{3}, 0, 0, 40}), 12U);
}

TEST(ScheduleClock, TheStepsOfAllPeersMakeAnEpochWhateverTheRounds) {
  schedule_clock clock{1, 100};
  EXPECT_EQ(at(clock, {epoch_id{0}, 0, 0, 1}), 0U);
  EXPECT_EQ(at(clock, {epoch_id{25}, 99, 0, 1}), 0U);
  EXPECT_EQ(at(clock, {epoch_id{25}, 100, 0, 1}), 1U);
  EXPECT_EQ(at(clock, {epoch_id{1}, 1'234, 0, 1}), 12U);
}

TEST(ScheduleClock, NobodyGoesBackWithinARoundOrByOneEpochOfSteps) {
  auto next = [](const schedule_clock& clock, std::uint64_t last, std::uint64_t found) {
    return without_going_back(clock, epoch_id{last}, epoch_id{found}).value();
  };
  schedule_clock several{4, 0};
  EXPECT_EQ(next(several, 9, 10), 10U);
  EXPECT_EQ(next(several, 11, 8), 11U);  // the same round: a member that was counted is gone
  EXPECT_EQ(next(several, 12, 11), 11U); // another round: this peer follows another state
  schedule_clock steps{1, 100};
  EXPECT_EQ(next(steps, 5, 6), 6U);
  EXPECT_EQ(next(steps, 5, 4), 5U); // a smaller estimate
  EXPECT_EQ(next(steps, 5, 3), 3U); // a correction, or another state
  EXPECT_EQ(next({}, 5, 4), 4U);
}

TEST(ScheduleClock, NoPositionDividesByZero) {
  EXPECT_EQ(at({4, 0}, {epoch_id{2}, 0, 5, 0}), 11U);
  EXPECT_EQ(at({4, 0}, {epoch_id{2}, 0, 2, 3}), 10U);
  EXPECT_EQ(at({0, 0}, {epoch_id{2}, 0, 2, 3}), 2U);
}

} // namespace
} // namespace waggle
