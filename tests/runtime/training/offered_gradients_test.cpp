#include "runtime/training/offered_gradients.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::Each, ::testing::ElementsAre;

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

offered_tensor tensor(const std::vector<float>& values) {
  return {values.data(), values.size()};
}

std::vector<float> mean_of(offered_gradients& gradients, std::size_t values) {
  std::vector<float> out(values, -1);
  gradients.take_mean(out);
  return out;
}

TEST(OfferedGradients, AMeanWeighsByTheSamplesAndEndsWithTheNewestBuffers) {
  offered_gradients all{3, 1, gradient_use::summed};
  std::vector<float> a{1, 2};
  std::vector<float> b{3};
  std::vector<float> buffer{5};
  EXPECT_TRUE(all.add(std::array{tensor(a), tensor(b), tensor(buffer)}, 1, 1, 7).counts);
  a = {5, 6};
  buffer = {9};
  EXPECT_TRUE(
    all.add(std::array{tensor(a), offered_tensor{nullptr, 1}, tensor(buffer)}, 3, 2, 8).counts);
  a = {100, 100}; // the loop goes on
  EXPECT_EQ(all.samples(), 4U);
  std::vector<float> out(4);
  auto taken = all.take_mean(out);
  EXPECT_EQ(taken.samples, 4U);
  EXPECT_EQ(taken.merges, 8U);
  EXPECT_THAT(out, ElementsAre(4, 5, 0.75F, 9));
  EXPECT_THAT(mean_of(all, 4), Each(0));
}

TEST(OfferedGradients, OneGradientComesBackBitByBit) {
  offered_gradients all{2, 0, gradient_use::summed};
  std::vector<float> odd{0.1F, 1.0F / 3};
  all.add(std::array{tensor(odd)}, 7, 1, 0);
  EXPECT_EQ(mean_of(all, 2), odd);
}

TEST(OfferedGradients, WhatAnEndedOneLeavesIsAddedToBitByBit) {
  std::vector<float> values{0.1F, 1.0F / 3};
  std::vector<float> buffer{5};
  for (int ends = 1; ends < 4; ++ends) {
    offered_gradients whole{2, 1, gradient_use::summed};
    offered_gradients first{2, 1, gradient_use::summed};
    offered_gradients second{2, 1, gradient_use::summed};
    for (int i = 0; i < 4; ++i) {
      if (i == ends) {
        ASSERT_TRUE(second.load(first.copy()));
        EXPECT_EQ(second.samples(), first.samples());
      }
      values[0] *= 1.7F;
      buffer[0] += 1;
      for (auto* one : {&whole, i < ends ? &first : &second})
        EXPECT_TRUE(one->add(std::array{tensor(values), tensor(buffer)}, 3, 1, 0).counts);
    }
    EXPECT_EQ(mean_of(second, 3), mean_of(whole, 3)) << ends;
  }
  offered_gradients other{3, 1, gradient_use::summed};
  other.add(std::array{tensor(values), tensor(buffer), tensor(buffer)}, 3, 1, 0);
  offered_gradients fresh{2, 1, gradient_use::summed};
  EXPECT_FALSE(fresh.load(other.copy()));
  EXPECT_EQ(fresh.samples(), 0U);
  EXPECT_FALSE(fresh.copy().sum);
}

TEST(OfferedGradients, AValueThatIsNotFiniteCostsItsGradient) {
  constexpr std::size_t n = 10'000; // several blocks
  for (std::size_t bad : {std::size_t{0}, n - 1}) {
    offered_gradients all{n, 0, gradient_use::summed};
    std::vector<float> values(n, 1);
    values[bad] = nan_value;
    auto first = all.add(std::array{tensor(values)}, 2, 1, 0);
    EXPECT_FALSE(first.finite);
    EXPECT_EQ(first.lost, 0U);
    EXPECT_EQ(all.samples(), 0U);

    std::vector<float> ones(n, 1);
    EXPECT_TRUE(all.add(std::array{tensor(ones)}, 2, 1, 0).counts);
    values[bad] = -std::numeric_limits<float>::infinity();
    auto second = all.add(std::array{tensor(values)}, 2, 2, 0);
    EXPECT_FALSE(second.finite);
    // Found at once: the earlier one stays. Found after a part was added: it is lost.
    EXPECT_EQ(second.lost, bad == 0 ? 0U : 2U);
    EXPECT_EQ(all.samples(), bad == 0 ? 2U : 0U);
    EXPECT_THAT(mean_of(all, n), Each(bad == 0 ? 1 : 0));

    EXPECT_TRUE(all.add(std::array{tensor(ones)}, 2, 1, 0).counts);
    EXPECT_THAT(mean_of(all, n), Each(1));
  }
}

TEST(OfferedGradients, ABufferThatIsNotFiniteCostsItsGradientOnly) {
  offered_gradients all{1, 1, gradient_use::summed};
  std::vector<float> one{1};
  std::vector<float> bad{nan_value};
  all.add(std::array{tensor(one), tensor(one)}, 1, 1, 0);
  EXPECT_FALSE(all.add(std::array{tensor(one), tensor(bad)}, 1, 2, 0).finite);
  EXPECT_THAT(mean_of(all, 2), ElementsAre(1, 1));
}

TEST(OfferedGradients, ALentGradientCanBeTakenUntilTheLoopGoesOn) {
  offered_gradients all{2, 0, gradient_use::lent};
  std::vector<float> values{1, 2};
  EXPECT_TRUE(all.add(std::array{tensor(values)}, 4, 1, 0).counts);
  values = {3, 4}; // only to show that there is no copy
  EXPECT_THAT(mean_of(all, 2), ElementsAre(3, 4));
  all.add(std::array{tensor(values)}, 4, 1, 0);
  all.take_away();
  EXPECT_THAT(mean_of(all, 2), Each(0));
  EXPECT_EQ(all.samples(), 0U) << "or each empty pass after the loop's end would count them again";
  values[1] = nan_value;
  EXPECT_FALSE(all.add(std::array{tensor(values)}, 4, 1, 0).finite);
}

TEST(OfferedGradients, WhatAddsUpInPlaceIsDividedByItsPasses) {
  offered_gradients all{2, 0, gradient_use::in_place};
  std::vector<float> sum{1, 2};
  EXPECT_TRUE(all.add(std::array{tensor(sum)}, 4, 1, 0).counts);
  all.take_away();
  EXPECT_EQ(all.samples_each(), 4U);
  sum = {3, 6};
  EXPECT_TRUE(all.add(std::array{tensor(sum)}, 4, 2, 0).counts);
  EXPECT_THAT(mean_of(all, 2), ElementsAre(1.5F, 3));
  EXPECT_EQ(all.samples_each(), 0U);
}

TEST(OfferedGradients, ASumInPlaceThatWasNotClearedIsLost) {
  offered_gradients all{1, 0, gradient_use::in_place};
  std::vector<float> sum{1};
  all.add(std::array{tensor(sum)}, 4, 1, 0);
  EXPECT_EQ(all.drop(), 4U); // while the second pass ran
  auto second = all.add(std::array{tensor(sum)}, 4, 2, 0);
  EXPECT_FALSE(second.counts);
  EXPECT_TRUE(second.finite);
  EXPECT_EQ(second.lost, 4U);
  EXPECT_EQ(all.samples(), 0U);
  EXPECT_TRUE(all.add(std::array{tensor(sum)}, 4, 1, 0).counts);
  EXPECT_EQ(all.add(std::array{tensor(sum)}, 4, 3, 0).lost, 8U) << "an unknown one is in it";
}

TEST(OfferedGradients, ASumInPlaceThatTheLoopHasTakenAwayIsLostOnce) {
  offered_gradients all{1, 0, gradient_use::in_place};
  std::vector<float> sum{1};
  for (bool goes_on : {true, false}) {
    EXPECT_TRUE(all.add(std::array{tensor(sum)}, 4, 1, 0).counts);
    all.take_away(); // an exception ended the offer
    EXPECT_THAT(mean_of(all, 1), Each(0));
    EXPECT_EQ(all.samples(), 0U) << "later rounds do not count them";
    if (goes_on)
      EXPECT_EQ(all.add(std::array{tensor(sum)}, 4, 2, 0).lost, 8U);
    else
      EXPECT_EQ(all.drop(), 4U);
    EXPECT_EQ(all.drop(), 0U);
  }
}

TEST(OfferedGradients, ASumInPlaceThatIsNotFiniteIsFoundWhenItIsTaken) {
  offered_gradients all{1, 0, gradient_use::in_place};
  std::vector<float> sum{nan_value};
  EXPECT_TRUE(all.add(std::array{tensor(sum)}, 4, 1, 0).counts);
  EXPECT_FALSE(all.was_not_finite());
  EXPECT_THAT(mean_of(all, 1), Each(0));
  EXPECT_TRUE(all.was_not_finite());
  EXPECT_FALSE(all.was_not_finite());
  sum = {1};
  EXPECT_EQ(all.add(std::array{tensor(sum)}, 4, 1, 0).lost, 4U) << "those of the sum";
}

/// Two values, where nobody else may read them.
struct device final : device_gradient {
  void add_gradient(float keep, float times) override {
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = (keep == 0 ? 0 : sum[i] * keep) + gradient[i] * times;
  }
  void read_gradient(std::span<float> out) const override {
    std::ranges::copy(adds ? sum : gradient, out.begin());
  }
  void write_gradient(std::span<const float> of) override { sum.assign(of.begin(), of.end()); }
  std::vector<float> gradient{1, 2};
  std::vector<float> sum{nan_value, nan_value};
  bool adds = true;
};

TEST(OfferedGradients, OfADeviceTheMeanIsThatInHostMemory) {
  offered_gradients here{2, 1, gradient_use::summed};
  offered_gradients there{2, 1, gradient_use::summed, 0, true};
  device on;
  std::vector<float> buffer{5};
  for (std::uint64_t update = 0; update < 2; ++update) {
    for (std::uint64_t pass = 1; pass < 4; ++pass) {
      on.gradient = {0.1F * static_cast<float>(pass), 1.0F / 3};
      here.add(std::array{tensor(on.gradient), tensor(buffer)}, pass, pass, 0);
      EXPECT_TRUE(
        there.add(std::array{offered_tensor{nullptr, 2}, tensor(buffer)}, pass, pass, 0, &on)
          .counts);
    }
    std::vector<float> out(3);
    EXPECT_EQ(there.take_mean(out, &on).samples, 6U);
    EXPECT_EQ(out, mean_of(here, 3));
  }
  on.gradient = {0.1F, 1.0F / 3};
  there.add(std::array{offered_tensor{nullptr, 2}, tensor(buffer)}, 7, 1, 0, &on);
  std::vector<float> out(3);
  there.take_mean(out, &on);
  EXPECT_THAT(out, ElementsAre(0.1F, 1.0F / 3, 5)) << "one gradient comes back bit by bit";
}

TEST(OfferedGradients, OfADeviceASumIsKeptOverARestart) {
  offered_gradients first{2, 0, gradient_use::summed, 0, true};
  offered_gradients second{2, 0, gradient_use::summed, 0, true};
  device before;
  device after;
  std::array nowhere{offered_tensor{nullptr, 2}};
  first.add(nowhere, 1, 1, 0, &before);
  ASSERT_TRUE(second.load(first.copy(&before), &after));
  after.gradient = {5, 6};
  second.add(nowhere, 3, 1, 0, &after);
  std::vector<float> out(2);
  EXPECT_EQ(second.take_mean(out, &after).samples, 4U);
  EXPECT_THAT(out, ElementsAre(4, 5));
}

TEST(OfferedGradients, WhatALoopOnADeviceHasTakenAwayIsLostOnce) {
  offered_gradients all{2, 0, gradient_use::summed, 0, true};
  device on;
  std::array nowhere{offered_tensor{nullptr, 2}};
  all.add(nowhere, 4, 1, 0, &on);
  EXPECT_THAT(mean_of(all, 2), Each(0)) << "nobody may read the device now";
  EXPECT_EQ(all.samples(), 0U);
  EXPECT_EQ(all.add(nowhere, 4, 1, 0, &on).lost, 4U);
}

TEST(OfferedGradients, OfADeviceWhatAddsUpInPlaceIsDividedByItsPasses) {
  offered_gradients all{2, 0, gradient_use::in_place, 0, true};
  device on;
  on.adds = false;
  std::array nowhere{offered_tensor{nullptr, 2}};
  std::vector<float> out(2);
  all.add(nowhere, 4, 1, 0, &on);
  all.add(nowhere, 4, 2, 0, &on);
  EXPECT_EQ(all.take_mean(out, &on).samples, 8U);
  EXPECT_THAT(out, ElementsAre(0.5F, 1));
  all.add(nowhere, 4, 1, 0, &on);
  on.gradient[1] = nan_value;
  EXPECT_EQ(all.take_mean(out, &on).samples, 0U);
  EXPECT_TRUE(all.was_not_finite());
}

} // namespace
} // namespace waggle
