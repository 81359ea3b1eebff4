#include "runtime/training/schedule.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using shape = lr_schedule::shape;

TEST(Schedule, ConstantIsThePeakAtEveryEpoch) {
  lr_schedule s{shape::constant, 0.25};
  EXPECT_EQ(s.at(epoch_id{0}), 0.25);
  EXPECT_EQ(s.at(epoch_id{1'000'000}), 0.25);
}

TEST(Schedule, WarmupRisesLinearlyAndReachesThePeakInItsLastEpoch) {
  lr_schedule s{shape::warmup_cosine, 1.0, 4, 100};
  EXPECT_DOUBLE_EQ(s.at(epoch_id{0}), 0.25);
  EXPECT_DOUBLE_EQ(s.at(epoch_id{1}), 0.5);
  EXPECT_DOUBLE_EQ(s.at(epoch_id{3}), 1.0);
  EXPECT_DOUBLE_EQ(s.at(epoch_id{4}), 1.0);
}

TEST(Schedule, CosineIsHalfWayInTheMiddleAndStaysAtTheFloor) {
  lr_schedule s{shape::warmup_cosine, 1.0, 10, 110, 0.2};
  EXPECT_NEAR(s.at(epoch_id{60}), 0.6, 1e-12);
  EXPECT_NEAR(s.at(epoch_id{110}), 0.2, 1e-12);
  EXPECT_NEAR(s.at(epoch_id{5'000}), 0.2, 1e-12);
}

TEST(Schedule, CosineNeverRisesAfterTheWarmup) {
  lr_schedule s{shape::warmup_cosine, 3e-4, 5, 50, 1e-5};
  for (std::uint64_t k = 5; k < 60; ++k)
    EXPECT_LE(s.at(epoch_id{k + 1}), s.at(epoch_id{k})) << "epoch " << k;
}

TEST(Schedule, AWarmupLongerThanTheRunDoesNotDivideByZero) {
  lr_schedule s{shape::warmup_cosine, 1.0, 8, 8};
  EXPECT_DOUBLE_EQ(s.at(epoch_id{7}), 1.0);
  EXPECT_DOUBLE_EQ(s.at(epoch_id{8}), 1.0);
}

TEST(Schedule, IsThePureFunctionThatMakesJoinersEqual) { // INV-3: same epoch, same bits
  lr_schedule a{shape::warmup_cosine, 0.1, 3, 40};
  auto b = a;
  for (std::uint64_t k = 0; k < 50; ++k)
    EXPECT_GE(b.at(epoch_id{k}), 0.0); // a peer that was there from the start
  EXPECT_EQ(a.at(epoch_id{33}), b.at(epoch_id{33}));
}

TEST(Schedule, NamesAreReadBack) {
  for (std::size_t i = 0; i < schedule_table().size(); ++i) {
    const auto& row = schedule_table()[i];
    EXPECT_EQ(static_cast<std::size_t>(row.id), i) << row.name;
    EXPECT_EQ(*parse_schedule(row.name), row.id);
    EXPECT_EQ(to_string(row.id), row.name);
  }
  auto none = parse_schedule("linear");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ec::bad_config);
}

} // namespace
} // namespace waggle
