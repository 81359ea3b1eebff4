// Gradients that are taken while the backward pass computes them.

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "tests/trainer/small_learner.hpp"
#include "trainer/gradient_hooks.hpp"
#include "trainer/gradient_sum.hpp"

namespace waggle {
namespace {

bool same_bytes(const float_vector& a, const float_vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::unique_ptr<learner> make(std::optional<loss_scale_rule> scale = std::nullopt) {
  auto c = testing::small_learner();
  c.layers = 3;
  c.micro_batch = 3; // b·g/b is not always g
  c.loss_scale = scale;
  auto model = testing::made(c);
  model->use_vectors(vector_pool::make(4));
  return model;
}

struct early_pass {
  learner::mean_gradient taken;
  std::vector<std::size_t> there; // values, each time it was asked
  micro_step step;
};

/// Takes the gradient at the hook of this number.
early_pass pass(learner& model, vector_pool& vectors, int at) {
  early_pass out;
  int asked = 0;
  out.step = model.accumulate_in_buckets({[&] { return asked++ == at; },
                                          [&] {
                                            EXPECT_EQ(model.accumulated_samples(), 3U);
                                            out.taken = model.take_mean_vector(vectors);
                                            EXPECT_EQ(model.accumulated_samples(), 0U);
                                          }});
  return out;
}

TEST(Buckets, AGradientThatIsTakenEarlyHasTheSameBytes) {
  for (bool scaled : {false, true})
    for (int at : {0, 5}) {
      auto vectors = vector_pool::make(4);
      auto scale = scaled ? std::optional{constant_scale(1024)} : std::nullopt;
      auto plain = make(scale);
      auto early = make(scale);
      for (int i = 0; i < 4; ++i) {
        auto whole = plain->accumulate();
        auto mean = plain->take_mean_vector(*vectors);
        auto given = pass(*early, *vectors, at);
        ASSERT_TRUE(given.taken.values);
        EXPECT_EQ(given.taken.samples, mean.samples);
        ASSERT_TRUE(given.taken.fills);
        EXPECT_TRUE(given.taken.fills->has(0, mean.values->size()));
        EXPECT_FALSE(given.taken.fills->failed());
        EXPECT_TRUE(given.step.taken && given.step.finite);
        EXPECT_EQ(given.step.loss, whole.loss);
        EXPECT_TRUE(same_bytes(*given.taken.values, *mean.values)) << "pass " << i;
        EXPECT_EQ(early->accumulated_samples(), 0U);
        plain->apply(*mean.values, 1e-2);
        early->apply(*given.taken.values, 1e-2);
      }
      EXPECT_EQ(plain->parameters_digest(), early->parameters_digest());
    }
}

TEST(Buckets, APassWhoseGradientNobodyTakesEndsAsEver) {
  auto vectors = vector_pool::make(4);
  auto plain = make();
  auto early = make();
  for (int i = 0; i < 2; ++i) { // the second has samples of the first
    plain->accumulate();
    auto step = early->accumulate_in_buckets({[] { return true; }, [] {}});
    EXPECT_FALSE(step.taken);
  }
  EXPECT_EQ(early->accumulated_samples(), 6U);
  auto mean = early->take_mean_vector(*vectors);
  EXPECT_FALSE(mean.fills);
  EXPECT_TRUE(same_bytes(*mean.values, *plain->take_mean_vector(*vectors).values));
}

TEST(Buckets, ADroppedPassAddsNothing) {
  auto early = make();
  auto step = early->accumulate_in_buckets(
    {[] { return true; }, [&] { EXPECT_EQ(early->drop_gradient(), 3U); }});
  EXPECT_TRUE(step.taken);
  EXPECT_EQ(early->accumulated_samples(), 0U);
  EXPECT_EQ(early->drop_gradient(), 0U);
}

/// Two layers that share their weights, and a parameter that no layer uses.
struct tied_model {
  torch::Tensor shared = torch::randn({4, 4}, torch::requires_grad());
  torch::Tensor bias = torch::randn({4}, torch::requires_grad());
  torch::Tensor unused = torch::randn({3}, torch::requires_grad());
  std::vector<torch::Tensor> parameters{shared, bias, unused};
  gradient_sum sum{parameters, /*in_place=*/false};
  gradient_hooks hooks{parameters};

  tied_model() { sum.use_vectors(vector_pool::make(4)); }

  torch::Tensor loss() const {
    auto inner = torch::relu(torch::matmul(torch::ones({2, 4}), shared));
    return (torch::matmul(inner, shared) + bias).sum();
  }
};

TEST(Buckets, ASharedParameterIsCompleteWhenAllItsLayersHaveAdded) {
  torch::manual_seed(3);
  tied_model of;
  std::vector<std::size_t> order;
  std::shared_ptr<float_vector> early;
  std::shared_ptr<filling> fills;
  of.hooks.listen([&](std::size_t parameter) {
    order.push_back(parameter);
    of.sum.computed(parameter);
    if (fills)
      return;
    ASSERT_TRUE(of.sum.offer(2));
    auto taken = of.sum.take_vector();
    early = taken->values;
    fills = taken->fills;
    EXPECT_TRUE(fills->has(16, 20)); // the bias
    EXPECT_FALSE(fills->has(0, 1));
  });
  of.sum.begin_pass(1);
  of.loss().backward();
  EXPECT_EQ(order, (std::vector<std::size_t>{1, 0}));
  EXPECT_FALSE(fills->has(20, 23));
  auto ended = of.sum.end_pass(2, true);
  EXPECT_TRUE(ended.finite && ended.taken);
  EXPECT_TRUE(fills->has(0, 23) && !fills->failed());
  of.hooks.listen({});
  of.sum.begin_pass(1);
  of.loss().backward();
  of.sum.end_pass(2, true);
  float_vector whole(23);
  EXPECT_EQ(of.sum.take_mean(std::span{whole}), 2U);
  EXPECT_TRUE(same_bytes(whole, *early));
}

TEST(Buckets, OfAGradientThatIsNotFiniteNoSuchPartIsThere) {
  tied_model of;
  of.hooks.listen([&](std::size_t parameter) {
    of.sum.computed(parameter);
    (void)of.sum.offer(2);
  });
  of.sum.begin_pass(1);
  {
    torch::NoGradGuard guard;
    of.shared.fill_(std::numeric_limits<float>::infinity());
  }
  of.loss().backward();
  auto taken = of.sum.take_vector();
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->fills->failed());
  auto ended = of.sum.end_pass(2, true);
  EXPECT_TRUE(ended.taken);
  EXPECT_FALSE(ended.finite);
  EXPECT_EQ(of.sum.samples(), 0U);
}

// Such a parameter could change after it was sent.
TEST(Buckets, WhereAGradientIsComputedInPiecesNoneIsOffered) {
  tied_model of;
  of.sum.begin_pass(1);
  of.sum.computed(0);
  of.sum.computed(0);
  of.sum.end_pass(2, true);
  of.sum.drop();
  of.sum.begin_pass(1);
  EXPECT_FALSE(of.sum.offer(2));
}

} // namespace
} // namespace waggle
