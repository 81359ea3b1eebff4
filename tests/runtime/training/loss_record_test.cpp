#include "runtime/training/loss_record.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(LossRecord, KnowsNothingBeforeTheFirstLoss) {
  loss_record losses;
  losses.end_epoch();
  EXPECT_TRUE(std::isnan(losses.smoothed()));
  EXPECT_TRUE(std::isnan(losses.of_first_epoch()));
}

TEST(LossRecord, MovesTowardsEachLossFromTheFirstOne) {
  loss_record losses;
  losses.note(4);
  EXPECT_EQ(losses.smoothed(), 4);
  losses.note(2);
  EXPECT_DOUBLE_EQ(losses.smoothed(), 4 - 2 * loss_record::smoothing);
}

TEST(LossRecord, TheFirstEpochsMeanStandsOnceThatEpochEnded) {
  loss_record losses;
  losses.end_epoch(); // an epoch without a loss of its own: nothing to record yet
  losses.note(4);
  losses.note(2);
  EXPECT_TRUE(std::isnan(losses.of_first_epoch()));
  losses.end_epoch();
  EXPECT_EQ(losses.of_first_epoch(), 3);
  losses.note(1);
  losses.end_epoch();
  EXPECT_EQ(losses.of_first_epoch(), 3);
}

TEST(LossRecord, TheMeanOfALongFirstEpochIsThatOfItsBeginning) {
  loss_record losses;
  for (std::uint64_t i = 0; i < loss_record::first_steps_max; ++i)
    losses.note(5);
  losses.note(1);
  losses.end_epoch();
  EXPECT_EQ(losses.of_first_epoch(), 5);
}

} // namespace
} // namespace waggle
