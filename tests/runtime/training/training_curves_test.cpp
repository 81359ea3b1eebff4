#include "runtime/training/training_curves.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

constexpr std::int64_t t0 = 1'700'000'000'000;
constexpr auto nan = std::numeric_limits<float>::quiet_NaN();

curve_point point(std::uint64_t epoch, float loss) {
  curve_point out{epoch_id{epoch}, epoch * 256, t0 + static_cast<std::int64_t>(epoch) * 300};
  out[curve::loss] = loss;
  return out;
}

training_curves falling(std::uint64_t epochs) {
  training_curves out;
  for (std::uint64_t e = 0; e <= epochs; ++e)
    out.add(point(e, 4.0F - 3.0F * static_cast<float>(e) / static_cast<float>(epochs)));
  return out;
}

bool same(const training_curves& a, const training_curves& b) {
  return a.encode() == b.encode();
}

TEST(TrainingCurves, EachEpochIsAPointUntilThereAreTooMany) {
  auto curves = falling(training_curves::points_max - 1);
  ASSERT_EQ(curves.points().size(), training_curves::points_max);
  EXPECT_EQ(curves.points()[7].epoch, epoch_id{7});
  EXPECT_EQ(curves.points()[7].samples, 7U * 256);
}

TEST(TrainingCurves, AnyRunHasItsRoomAndItsBeginAndItsEnd) {
  for (std::uint64_t epochs : {1'199U, 1'200U, 1'201U, 2'401U, 16'000U, 100'003U}) {
    auto curves = falling(epochs);
    const auto& all = curves.points();
    ASSERT_LE(all.size(), training_curves::points_max) << epochs;
    EXPECT_GE(all.size(), training_curves::points_max / 2) << epochs;
    EXPECT_EQ(all.front().epoch, epoch_id{0});
    EXPECT_FLOAT_EQ(all.front()[curve::loss], 4) << "the first point is never part of a mean";
    EXPECT_EQ(all.back().epoch, epoch_id{epochs});
    auto widest = epochs / (training_curves::points_max / 2) + 1;
    for (std::size_t i = 1; i < all.size(); ++i) {
      auto gap = all[i].epoch.value() - all[i - 1].epoch.value();
      EXPECT_LE(gap, widest) << epochs << " at " << i;
      // A mean of a straight line is its value in the middle.
      auto middle = static_cast<double>(all[i].epoch.value()) - static_cast<double>(gap - 1) / 2;
      EXPECT_NEAR(all[i][curve::loss], 4 - 3 * middle / static_cast<double>(epochs), 1e-3);
    }
  }
}

TEST(TrainingCurves, AMeanLeavesOutWhatIsNotKnown) {
  training_curves curves;
  for (std::uint64_t e = 0; e <= 4000; ++e)
    curves.add(point(e, e % 2 == 0 ? nan : 2.0F));
  for (std::size_t i = 1; i + 1 < curves.points().size(); ++i)
    EXPECT_EQ(curves.points()[i][curve::loss], 2.0F) << i;
  EXPECT_TRUE(std::isnan(curves.points()[5][curve::eval_loss]));
  curves.add(point(4001, std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(training_curves::decode(curves.encode()).ok()) << "an infinite value is not known";
}

TEST(TrainingCurves, TheBestValueOutlivesTheThinning) {
  auto curves = falling(5'000);
  curves.evaluate(epoch_id{3'001}, 0.5, 0.9);
  curves.evaluate(epoch_id{3'002}, 2.5, 0.1);
  for (std::uint64_t e = 5'001; e < 40'000; ++e)
    curves.add(point(e, 1));
  auto best = curves.best(curve::eval_loss);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->epoch, epoch_id{3'001});
  EXPECT_EQ(best->value, 0.5F);
  EXPECT_EQ(curves.best(curve::eval_accuracy)->value, 0.9F);
  EXPECT_FALSE(curves.best(curve::learning_rate));
  curves.cut(epoch_id{2'000});
  EXPECT_FALSE(curves.best(curve::eval_loss)) << "of an epoch that is gone";
  EXPECT_LE(curves.last(), epoch_id{2'000});
}

TEST(TrainingCurves, AnEvaluationOfAnEpochThatHasNoPointChangesNothing) {
  training_curves curves;
  curves.evaluate(epoch_id{0}, 1, 1);
  curves.add(point(3, 1));
  curves.evaluate(epoch_id{4}, 1, 1);
  EXPECT_TRUE(std::isnan(curves.points()[0][curve::eval_loss]));
  curves.evaluate(epoch_id{2}, 1.5, nan);
  EXPECT_EQ(curves.points()[0][curve::eval_loss], 1.5F);
  EXPECT_TRUE(std::isnan(curves.points()[0][curve::eval_accuracy]));
}

TEST(TrainingCurves, AnEarlierEpochReplacesWhatCameAfterIt) {
  auto curves = falling(100);
  curves.add(point(50, 9));
  EXPECT_EQ(curves.last(), epoch_id{50});
  EXPECT_EQ(curves.points().size(), 51U);
  EXPECT_EQ(curves.points().back()[curve::loss], 9.0F);
  curves.add(point(0, 5));
  ASSERT_EQ(curves.points().size(), 1U);
  EXPECT_EQ(curves.best(curve::loss)->value, 5.0F);
}

TEST(TrainingCurves, AClockThatIsSetBackDoesNotTurnTheTimeAround) {
  training_curves curves;
  curves.add(point(1, 1));
  auto next = point(2, 1);
  next.t = t0 - 3'600'000;
  next.samples = 0;
  curves.add(next);
  EXPECT_EQ(curves.points()[1].t, curves.points()[0].t);
  EXPECT_EQ(curves.points()[1].samples, curves.points()[0].samples);
}

TEST(TrainingCurves, AJoinerAddsItsOwnPointsToThoseOfAnother) {
  auto theirs = falling(16'000);
  theirs.evaluate(epoch_id{9'000}, 0.25, 0.5);
  training_curves ours;
  ours.insert(theirs.thinned(600), {}, epoch_id{15'000}, t0 + 1'000'000);
  EXPECT_EQ(ours.points().front().epoch, epoch_id{0});
  EXPECT_LE(ours.last(), epoch_id{15'000});
  EXPECT_GT(ours.last(), epoch_id{14'900});
  EXPECT_EQ(ours.best(curve::eval_loss)->epoch, epoch_id{9'000});
  for (const auto& each : ours.points())
    EXPECT_LE(each.t, t0 + 1'000'000) << "another machine's clock is ahead";
  auto before = ours.encode();
  ours.insert(theirs, ours.last(), ours.last(), t0 + 1'000'000);
  EXPECT_EQ(ours.encode(), before) << "our own points stay";
  for (std::uint64_t e = 15'001; e < 60'000; ++e)
    ours.add(point(e, 1));
  EXPECT_LE(ours.points().size(), training_curves::points_max);
  std::size_t early = 0;
  for (const auto& each : ours.points())
    early += each.epoch <= epoch_id{15'000} ? 1 : 0;
  EXPECT_GT(early, 200U) << "a quarter of the run in a quarter of the points";
}

TEST(TrainingCurves, TheEpochsBetweenACheckpointAndADownloadAreThoseOfTheDonor) {
  auto theirs = falling(200);
  training_curves ours;
  for (std::uint64_t e : {0U, 1U, 2U, 50U, 150U, 151U}) // resumed at 50, loaded the state of 150
    ours.add(point(e, 9));
  ours.insert(theirs, epoch_id{50}, epoch_id{150}, t0 + 1'000'000'000);
  std::vector<std::uint64_t> own;
  for (const auto& each : ours.points())
    if (each[curve::loss] == 9.0F)
      own.push_back(each.epoch.value());
  EXPECT_EQ(own, (std::vector<std::uint64_t>{0, 1, 2, 50, 151}));
  EXPECT_EQ(ours.points().size(), 5U + 100);
  ours.insert(training_curves{}, {}, epoch_id{151}, t0);
  EXPECT_EQ(ours.points().size(), 5U + 100) << "nothing is there to take";
}

TEST(TrainingCurves, ACopyOfTheBytesIsTheSame) {
  for (std::uint64_t epochs : {0U, 1U, 1'500U}) {
    auto curves = epochs == 0 ? training_curves{} : falling(epochs);
    curves.evaluate(epoch_id{1}, 0.5, 0.25);
    auto bytes = curves.encode();
    EXPECT_EQ(bytes.size(), training_curves::bytes_of(curves.points().size()));
    EXPECT_TRUE(same(*training_curves::decode(bytes), curves));
  }
  EXPECT_TRUE(same(falling(5'000), falling(5'000)));
}

TEST(TrainingCurves, DamagedBytesAreRefused) {
  auto bytes = falling(40).encode();
  random_source random{7};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ static_cast<char>(1 + random.next() % 255));
    EXPECT_FALSE(training_curves::decode(damaged).ok()) << i;
    EXPECT_FALSE(training_curves::decode(std::string_view{bytes}.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(training_curves::decode(bytes + "x").ok());
}

/// Bytes with a right hash, whatever they say.
struct lie {
  std::vector<curve_point> points{point(1, 2), point(2, 1)};
  std::uint64_t best_epoch = 1;
  float best = 1;
  std::optional<std::uint32_t> count{};

  [[nodiscard]] std::string bytes() const {
    byte_writer rest;
    for (std::size_t i = 0; i < curve_count; ++i)
      rest.put(best_epoch).put(best);
    rest.put(count.value_or(static_cast<std::uint32_t>(points.size())));
    for (const auto& each : points) {
      rest.put(each.epoch.value()).put(each.samples).put(each.t);
      for (auto value : each.values)
        rest.put(value);
    }
    byte_writer out;
    out.put_raw("WGGLCV01").put(sha256(rest.text())).put_raw(rest.text());
    return out.take();
  }
};

TEST(TrainingCurves, WhatAPeerMadeUpIsWithinBoundsOrRefused) {
  EXPECT_TRUE(training_curves::decode(lie{}.bytes()).ok());
  auto refused = [](const lie& what) { return !training_curves::decode(what.bytes()).ok(); };
  lie many;
  many.points.assign(training_curves::points_max + 1, point(1, 1));
  EXPECT_TRUE(refused(many));
  EXPECT_TRUE(refused({.count = 3}));
  EXPECT_TRUE(refused({.count = 0xffff'ffffU}));
  EXPECT_TRUE(refused({.points = {point(2, 1), point(2, 1)}})) << "epochs ascend";
  EXPECT_TRUE(refused({.points = {point(2, 1), point(1, 1)}}));
  EXPECT_TRUE(refused({.points = {point(1, std::numeric_limits<float>::infinity())}}));
  EXPECT_TRUE(refused({.best_epoch = 3})) << "an epoch that they do not have";
  EXPECT_TRUE(refused({.best = std::numeric_limits<float>::infinity()}));
  lie backwards;
  backwards.points[1].t = t0;
  EXPECT_TRUE(refused(backwards));
  backwards.points[0].t = -1;
  EXPECT_TRUE(refused(backwards));
  lie samples;
  samples.points[1].samples = ~std::uint64_t{0};
  EXPECT_TRUE(refused(samples));
  lie far;
  far.points[1].epoch = epoch_id{epoch_max + 1};
  EXPECT_TRUE(refused(far));
  // As far as allowed: nothing overflows, and nothing is endless.
  far.points[1].epoch = epoch_id{epoch_max};
  auto taken = training_curves::decode(far.bytes());
  training_curves ours;
  ours.insert(*taken, {}, epoch_id{~std::uint64_t{0}}, t0);
  ours.add(point(epoch_max - 1, 1));
  EXPECT_LE(ours.thinned(2).points().size(), 2U);
}

TEST(TrainingCurves, APageGetsAsManyPointsAsItAsksFor) {
  auto curves = falling(9'000);
  for (std::size_t most : {2U, 3U, 60U, 600U, 1'200U}) {
    auto fewer = curves.thinned(most);
    EXPECT_LE(fewer.points().size(), most);
    EXPECT_GE(2 * fewer.points().size(), most == 2 ? 4U : most);
    EXPECT_EQ(fewer.points().front().epoch, epoch_id{0});
    EXPECT_EQ(fewer.last(), epoch_id{9'000});
  }
}

} // namespace
} // namespace waggle
