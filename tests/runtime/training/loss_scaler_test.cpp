#include "runtime/training/loss_scaler.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "runtime/core/byte_io.hpp"

namespace waggle {
namespace {

void update(loss_scaler& scaler, int times) {
  for (int i = 0; i < times; ++i)
    scaler.on_update();
}

TEST(LossScaler, DoublesAfterTwoThousandUpdates) {
  loss_scaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  update(scaler, 1999);
  EXPECT_EQ(scaler.scale(), 65536);
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 131072);
  update(scaler, 1999);
  EXPECT_EQ(scaler.scale(), 131072);
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 262144);
}

TEST(LossScaler, AnOverflowHalvesItAtOnceAndEndsTheSequence) {
  loss_scaler scaler;
  update(scaler, 1999);
  scaler.on_overflow(scaler.scale());
  EXPECT_EQ(scaler.scale(), 32768);
  update(scaler, 1); // of the epoch in which the overflow was
  update(scaler, 1999);
  EXPECT_EQ(scaler.scale(), 32768);
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, EveryOverflowOfAnEpochHalvesIt) {
  loss_scaler scaler;
  for (int i = 0; i < 5; ++i)
    scaler.on_overflow(scaler.scale());
  EXPECT_EQ(scaler.scale(), 2048);
}

TEST(LossScaler, APassOverflowsIfOnlyItsGradientIsNotFiniteAndASmallerScaleMayHelp) {
  struct row {
    bool finite;
    bool loss_is_finite;
    double used;
    bool overflow;
  };
  for (auto each : {row{false, true, 16, true}, row{true, true, 16, false},
                    row{false, false, 16, false}, row{false, true, 1, false}}) {
    loss_scaler scaler{{.initial = 16}};
    micro_step pass{.finite = each.finite};
    scaler.note(pass, each.used, each.loss_is_finite);
    EXPECT_EQ(pass.scale, each.used);
    EXPECT_EQ(pass.overflow, each.overflow);
    EXPECT_EQ(scaler.scale(), each.overflow ? 8 : 16);
  }
  loss_scaler constant{constant_scale(16)};
  micro_step pass{.finite = false};
  constant.note(pass, 16, true);
  EXPECT_FALSE(pass.overflow) << "nothing will get better";
}

TEST(LossScaler, FollowsAnotherRule) {
  loss_scaler scaler{{.initial = 16, .growth = 8, .back_off = 0.25, .growth_interval = 3}};
  update(scaler, 3);
  EXPECT_EQ(scaler.scale(), 128);
  scaler.on_overflow(128);
  EXPECT_EQ(scaler.scale(), 32);
}

TEST(LossScaler, StaysWithinItsBounds) {
  loss_scaler small{{.initial = 2}};
  for (int i = 0; i < 4; ++i)
    small.on_overflow(small.scale());
  EXPECT_EQ(small.scale(), loss_scaler::scale_min);
  loss_scaler large{{.initial = loss_scaler::scale_max / 2, .growth_interval = 1}};
  update(large, 3);
  EXPECT_EQ(large.scale(), loss_scaler::scale_max);
}

// Gradients that are accumulated with their scale keep it while the scaler's grows.
TEST(LossScaler, AnOverflowOfASmallerScaleShrinksItBelowThatOne) {
  loss_scaler scaler{{.initial = 64, .growth_interval = 1}};
  update(scaler, 2);
  ASSERT_EQ(scaler.scale(), 256);
  scaler.on_overflow(64);
  EXPECT_EQ(scaler.scale(), 32);
}

TEST(LossScaler, AConstantScaleNeverChanges) {
  loss_scaler scaler{constant_scale(1024)};
  update(scaler, 5000);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.on_overflow(1024);
  EXPECT_EQ(scaler.scale(), 1024);
  loss_scaler other;
  ASSERT_TRUE(scaler.load(other.save()).ok());
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, ContinuesFromWhatWasSaved) {
  for (bool overflow : {false, true}) {
    loss_scaler first;
    update(first, 1990);
    if (overflow)
      first.on_overflow(first.scale());
    loss_scaler second;
    ASSERT_TRUE(second.load(first.save()).ok());
    for (int i = 0; i < 4100; ++i) {
      ASSERT_EQ(second.scale(), first.scale()) << "update " << i;
      update(first, 1);
      update(second, 1);
    }
    EXPECT_GT(first.scale(), 65536);
  }
}

TEST(LossScaler, LoadsNothingThatItCannotHaveSaved) {
  auto saved = [](double scale, std::uint64_t updates) {
    return byte_writer{}.put(scale).put(updates).put(std::uint8_t{0}).take();
  };
  loss_scaler scaler;
  update(scaler, 7);
  auto before = scaler.save();
  for (double scale :
       {0.0, -65536.0, 3.0, 0.5, 2 * loss_scaler::scale_max,
        std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(scaler.load(saved(scale, 0)).ok()) << scale;
  EXPECT_FALSE(scaler.load({}).ok());
  EXPECT_FALSE(scaler.load(before + "x").ok());
  EXPECT_FALSE(scaler.load(before.substr(1)).ok());
  EXPECT_EQ(scaler.save(), before);
  ASSERT_TRUE(scaler.load(saved(64, 1U << 31U)).ok());
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 128) << "more updates than an interval has count as one less";
}

TEST(LossScaler, KnowsPowersOfTwo) {
  for (double x : {1.0, 2.0, 0.25, 65536.0})
    EXPECT_TRUE(loss_scaler::is_power_of_two(x)) << x;
  for (double x : {0.0, -2.0, 3.0, 65535.0, std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(loss_scaler::is_power_of_two(x)) << x;
}

} // namespace
} // namespace waggle
