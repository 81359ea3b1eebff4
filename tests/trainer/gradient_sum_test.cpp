#include "trainer/gradient_sum.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "tests/trainer/lazy_device.hpp"

namespace waggle {
namespace {

constexpr std::size_t size = 5;

struct separate_sum : gradient_sum {
  explicit separate_sum(std::vector<torch::Tensor> of) : gradient_sum(std::move(of), false) {}
};
struct in_place_sum : gradient_sum {
  explicit in_place_sum(std::vector<torch::Tensor> of) : gradient_sum(std::move(of), true) {}
};

/// Two parameters with five values, whose passes the test plays.
template <class Sum>
struct played {
  std::vector<torch::Tensor> parameters;
  Sum sum;
  std::shared_ptr<vector_pool> vectors = vector_pool::make(4);

  explicit played(std::vector<torch::Tensor> on = {torch::zeros({2, 2}), torch::zeros({1})})
    : parameters(std::move(on)), sum(parameters) {
    sum.use_vectors(vectors);
  }

  /// As autograd does: adds to the .grad.
  void backward(float gradient, double scale) {
    torch::NoGradGuard guard;
    for (auto& p : parameters)
      p.mutable_grad().add_(gradient * static_cast<float>(scale));
  }
  gradient_sum::outcome pass(float gradient, double scale = 1, std::uint64_t samples = 4) {
    backward(gradient, sum.begin_pass(scale));
    return sum.end_pass(samples, true);
  }
  /// The only value of the mean, by way of the outgoing vector or of a copy.
  std::pair<float, std::uint64_t> mean() {
    if (auto taken = sum.take_vector())
      return {equal_values(*taken->values), taken->samples};
    std::vector<float> out(size);
    auto samples = sum.take_mean(out);
    return {equal_values(out), samples};
  }
  static float equal_values(std::span<const float> values) {
    EXPECT_EQ(values.size(), size);
    for (float v : values)
      EXPECT_EQ(v, values.front());
    return values.front();
  }
};

using mean_of = std::pair<float, std::uint64_t>;
constexpr float infinite = std::numeric_limits<float>::infinity();

template <class Sum>
struct EverySum : ::testing::Test, played<Sum> {};
using Sums = ::testing::Types<separate_sum, in_place_sum>;
TYPED_TEST_SUITE(EverySum, Sums);

TYPED_TEST(EverySum, TakesTheMeanAndBeginsAnew) {
  for (int epoch = 0; epoch < 3; ++epoch) {
    this->pass(1);
    EXPECT_EQ(this->mean(), (mean_of{1, 4}));
    this->pass(1);
    this->pass(2);
    this->pass(6);
    EXPECT_EQ(this->sum.samples(), 12U);
    EXPECT_EQ(this->mean(), (mean_of{3, 12}));
    EXPECT_EQ(this->mean(), (mean_of{0, 0}));
  }
}

TYPED_TEST(EverySum, TheScaleIsTakenOutAgain) {
  this->pass(1, 1024);
  this->pass(2, 1024);
  EXPECT_EQ(this->mean(), (mean_of{1.5, 8}));
}

TYPED_TEST(EverySum, AScaleThatChangesBetweenTwoPassesDoesNotMatter) {
  this->pass(1, 1024);
  this->pass(2, 512);
  EXPECT_EQ(this->mean(), (mean_of{1.5, 8}));
  this->pass(3, 256);
  EXPECT_EQ(this->mean(), (mean_of{3, 4}));
}

TYPED_TEST(EverySum, ANewVectorIsTakenWhileTheOldOneIsOnItsWay) {
  this->pass(1);
  this->pass(1);
  auto first = this->sum.take_vector();
  ASSERT_TRUE(first);
  this->pass(2);
  this->pass(2);
  auto second = this->sum.take_vector();
  ASSERT_TRUE(second);
  EXPECT_NE(first->values, second->values);
  EXPECT_EQ(this->equal_values(*first->values), 1);
  EXPECT_EQ(this->equal_values(*second->values), 2);
}

TYPED_TEST(EverySum, TheMeanForAStepOfThisPeerAlone) {
  EXPECT_FALSE(this->sum.take_mean().defined());
  this->pass(1, 8);
  EXPECT_EQ(this->sum.take_mean()[0].template item<float>(), 1);
  this->pass(1);
  this->pass(3);
  EXPECT_EQ(this->sum.take_mean()[0].template item<float>(), 2);
  EXPECT_EQ(this->sum.samples(), 0U);
}

TYPED_TEST(EverySum, ACopyLeavesItAsItIs) {
  for (int passes : {1, 2, 3}) {
    for (int i = 0; i < passes; ++i)
      this->pass(static_cast<float>(i));
    (void)this->sum.copy();
    auto copy = this->sum.copy();
    auto samples = static_cast<std::uint64_t>(4 * passes);
    EXPECT_EQ(copy.samples, samples);
    auto mean = this->mean();
    EXPECT_EQ(mean, (mean_of{static_cast<float>(passes - 1) / 2, samples}));
    EXPECT_TRUE(this->sum.load(copy));
    EXPECT_EQ(this->mean(), mean) << "of the copy";
  }
}

TYPED_TEST(EverySum, DroppingEmptiesIt) {
  this->pass(1);
  this->pass(1);
  EXPECT_EQ(this->sum.drop(), 8U);
  EXPECT_EQ(this->sum.drop(), 0U);
  this->pass(5);
  EXPECT_EQ(this->mean(), (mean_of{5, 4}));
}

TYPED_TEST(EverySum, ALossThatIsNotFiniteIsNotAdded) {
  this->pass(1);
  this->backward(1, this->sum.begin_pass(1));
  EXPECT_FALSE(this->sum.end_pass(4, false).finite);
  EXPECT_LE(this->sum.samples(), 4U);
  this->sum.drop();
  this->pass(2);
  EXPECT_EQ(this->mean(), (mean_of{2, 4}));
}

struct SeparateSum : ::testing::Test, played<separate_sum> {};
struct InPlaceSum : ::testing::Test, played<in_place_sum> {};

TEST_F(SeparateSum, APassThatIsNotFiniteCostsOnlyItself) {
  pass(1);
  auto bad = pass(infinite, 2);
  EXPECT_FALSE(bad.finite);
  EXPECT_EQ(bad.lost, 0U);
  pass(3);
  EXPECT_EQ(mean(), (mean_of{2, 8}));
}

TEST_F(SeparateSum, APassThatIsNotFiniteIsNotInTheMeanForAStepOfThisPeerAlone) {
  pass(1);
  pass(3);
  pass(infinite);
  EXPECT_EQ(sum.take_mean()[0].item<float>(), 2);
}

TEST_F(SeparateSum, CanBeTakenInTheMiddleOfAPass) {
  pass(1);
  pass(3);
  sum.begin_pass(1);
  EXPECT_EQ(mean(), (mean_of{2, 8}));
  backward(7, 1);
  EXPECT_TRUE(sum.end_pass(4, true).finite);
  EXPECT_EQ(mean(), (mean_of{7, 4}));
}

TEST_F(InPlaceSum, APassThatIsNotFiniteCostsAllPassesOfTheSum) {
  pass(1);
  pass(3);
  auto bad = pass(infinite);
  EXPECT_FALSE(bad.finite);
  EXPECT_EQ(bad.lost, 8U);
  EXPECT_EQ(sum.samples(), 0U);
  pass(5);
  EXPECT_EQ(mean(), (mean_of{5, 4}));
}

TEST_F(InPlaceSum, DroppedInTheMiddleOfAPassItLosesThatPass) {
  pass(1);
  auto scale = sum.begin_pass(1);
  EXPECT_EQ(sum.drop(), 4U);
  backward(7, scale);
  auto done = sum.end_pass(4, true);
  EXPECT_TRUE(done.finite);
  EXPECT_EQ(done.lost, 4U);
  EXPECT_EQ(sum.samples(), 0U);
  auto next = pass(5);
  EXPECT_EQ(next.lost, 0U);
  EXPECT_EQ(mean(), (mean_of{5, 4}));
}

TEST_F(InPlaceSum, KeepsItsScaleUntilItIsEmpty) {
  EXPECT_EQ(sum.begin_pass(64), 64);
  sum.end_pass(4, true);
  EXPECT_EQ(sum.begin_pass(128), 64);
  sum.end_pass(4, true);
  sum.drop();
  EXPECT_EQ(sum.begin_pass(128), 128);
}

TEST_F(InPlaceSum, TheVectorOfThePoolIsTheOnlyOne) {
  pass(1);
  EXPECT_EQ(vectors->lent(), 1U);
  const auto* gradient = parameters[0].grad().data_ptr<float>();
  pass(1);
  EXPECT_EQ(vectors->lent(), 1U);
  EXPECT_EQ(parameters[0].grad().data_ptr<float>(), gradient);
  EXPECT_EQ(sum.take_vector()->values->data(), gradient);
  EXPECT_EQ(vectors->lent(), 0U);
}

// -- on a device whose work runs late -------------------------------------------------------------

using testing::lazy_device;

template <class Sum>
struct EverySumOnADevice : ::testing::Test, played<Sum> {
  EverySumOnADevice() : played<Sum>({lazy_device::zeros({2, 2}), lazy_device::zeros({1})}) {}
};
TYPED_TEST_SUITE(EverySumOnADevice, Sums);

TYPED_TEST(EverySumOnADevice, TakesTheMeanOfPassesThatHaveNotRunYet) {
  for (int epoch = 0; epoch < 3; ++epoch)
    for (int passes : {1, 2, 3}) {
      for (int i = 0; i < passes; ++i)
        this->pass(static_cast<float>(i), 4);
      EXPECT_EQ(this->mean(), (mean_of{static_cast<float>(passes - 1) / 2, 4 * passes}));
    }
}

TYPED_TEST(EverySumOnADevice, ACopyLeavesItAsItIs) {
  for (int passes : {1, 2, 3}) {
    for (int i = 0; i < passes; ++i)
      this->pass(static_cast<float>(i));
    (void)this->sum.copy();
    auto copy = this->sum.copy();
    auto mean = this->mean();
    EXPECT_EQ(mean, (mean_of{static_cast<float>(passes - 1) / 2, 4 * passes}));
    EXPECT_TRUE(this->sum.load(copy));
    EXPECT_EQ(this->mean(), mean) << "of the copy";
  }
}

TYPED_TEST(EverySumOnADevice, ContinuesWithAGradientThatItLoadedBeforeItsFirstPass) {
  this->pass(1);
  this->pass(3);
  auto copy = this->sum.copy();
  played<TypeParam> resumed{{lazy_device::zeros({2, 2}), lazy_device::zeros({1})}};
  EXPECT_TRUE(resumed.sum.load(copy));
  EXPECT_EQ(resumed.mean(), (mean_of{2, 8}));
  EXPECT_TRUE(resumed.sum.load(copy));
  resumed.pass(5);
  EXPECT_EQ(resumed.mean(), (mean_of{3, 12}));
}

TEST(SeparateSumOnADevice, IsTakenWithoutWaitingForTheRunningPass) {
  played<separate_sum> p{{lazy_device::zeros({2, 2}), lazy_device::zeros({1})}};
  p.pass(1);
  p.pass(3);
  p.sum.begin_pass(1);
  bool ran = false;
  lazy_device::enqueue([&ran] { ran = true; });
  EXPECT_EQ(p.mean(), (mean_of{2, 8}));
  EXPECT_FALSE(ran);
  p.backward(7, 1);
  EXPECT_TRUE(p.sum.end_pass(4, true).finite);
  EXPECT_TRUE(ran);
  EXPECT_EQ(p.mean(), (mean_of{7, 4}));
}

TEST_F(InPlaceSum, IsNeverTakenInTheMiddleOfAPass) {
  pass(1);
  sum.begin_pass(1);
  EXPECT_DEATH((void)sum.take_vector(), "middle of a pass");
  std::vector<float> out(size);
  EXPECT_DEATH(sum.take_mean(out), "middle of a pass");
}

} // namespace
} // namespace waggle
