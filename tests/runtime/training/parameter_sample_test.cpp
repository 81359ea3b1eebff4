#include "runtime/training/parameter_sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/training/learner_layer.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {
namespace {

/// Three tensors of parameters with 3, 4 and 2 values, and a statistic.
class nine_values final : public learner_layer {
public:
  nine_values() : learner_layer(make_toy_learner({})) {}

  [[nodiscard]] const state_table& tensors() const override { return table_; }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    auto from = part(which);
    std::copy(from.begin(), from.end(), out.begin());
  }
  [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
    return in_host_memory ? part(which) : std::span<const float>{};
  }

  std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  bool in_host_memory = true;

private:
  [[nodiscard]] std::span<const float> part(std::size_t which) const {
    return std::span{values}.subspan(table_.offset(which), table_[which].elements());
  }

  using kind = state_tensor::kind;
  state_table table_{{{"a", {3}, kind::parameter},
                      {"b", {2, 2}, kind::parameter},
                      {"c", {2}, kind::parameter},
                      {"momentum/a", {3}, kind::statistic}}};
};

digest hash_of(const learner& model, std::uint64_t epoch,
               std::size_t values_max = sampled_values_max) {
  return sample_parameters(model, epoch_id{epoch}, values_max).hash;
}

digest of_values(std::vector<float> values) {
  sha256_stream hash;
  hash.add(std::as_bytes(std::span{values}));
  return hash.finish();
}

TEST(ParameterSample, OfASmallModelIsThatOfAllParameters) {
  nine_values model;
  for (std::uint64_t epoch : {0U, 1U, 7U}) {
    EXPECT_EQ(hash_of(model, epoch, 9), model.parameters_digest());
    EXPECT_EQ(hash_of(model, epoch), model.parameters_digest());
  }
}

TEST(ParameterSample, OfALargerOneIsAWindowThatMovesOnWithTheEpochs) {
  nine_values model;
  for (bool in_host_memory : {true, false}) {
    model.in_host_memory = in_host_memory;
    EXPECT_EQ(hash_of(model, 0, 4), of_values({0, 1, 2, 3}));
    EXPECT_EQ(hash_of(model, 1, 4), of_values({4, 5, 6, 7}));
    EXPECT_EQ(hash_of(model, 2, 4), of_values({8})) << "no statistic";
    EXPECT_EQ(hash_of(model, 3, 4), of_values({0, 1, 2, 3}));
  }
}

TEST(ParameterSample, OneValueThatDiffersIsFoundOnceTheWindowReachesIt) {
  for (std::size_t where = 0; where < 9; ++where) {
    nine_values model;
    nine_values other;
    other.values[where] += 1;
    std::size_t found = 0;
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch)
      found += hash_of(model, epoch, 2) != hash_of(other, epoch, 2) ? 1 : 0;
    EXPECT_EQ(found, 1U) << where;
  }
}

TEST(ParameterSample, OfValuesThatAreNotFiniteIsTheSameWhateverTheOthers) {
  for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    nine_values model;
    model.values[5] = bad;
    for (std::uint64_t epoch : {0U, 2U})
      EXPECT_NE(hash_of(model, epoch, 4), not_finite_sample());
    EXPECT_EQ(hash_of(model, 1, 4), not_finite_sample());
    EXPECT_EQ(sample_parameters(model, epoch_id{1}, 4, false).hash, not_finite_sample());
    EXPECT_EQ(sample_parameters(model, epoch_id{1}, 4).sketch, parameter_sketch{});
    model.values[4] = 77;
    EXPECT_EQ(hash_of(model, 1, 4), not_finite_sample());
    EXPECT_EQ(hash_of(model, 0), not_finite_sample());
    model.values[5] = 5;
    model.values[10] = bad; // of a statistic
    EXPECT_EQ(hash_of(model, 0), model.parameters_digest());
  }
}

TEST(ParameterSample, TheDistanceOfTwoSketchesIsAboutThatOfTheParameters) {
  class many final : public learner_layer {
  public:
    many() : learner_layer(make_toy_learner({})), values(10'000) {
      random_source random{3};
      for (auto& value : values)
        value = static_cast<float>(random.unit() - 0.5);
    }
    [[nodiscard]] const state_table& tensors() const override { return table_; }
    [[nodiscard]] std::span<const float> values_of(std::size_t which) const override {
      return std::span{values}.subspan(table_.offset(which), table_[which].elements());
    }
    std::vector<float> values;

  private:
    state_table table_{{{"x", {4'001}, state_tensor::kind::parameter},
                        {"y", {5'999}, state_tensor::kind::parameter}}};
  };
  many a;
  random_source random{4};
  for (double distance : {1e-6, 1e-4, 1e-2})
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
      auto sketch = [&](const learner& of) {
        return sample_parameters(of, epoch_id{epoch}).sketch;
      };
      many all;
      for (auto& value : all.values)
        value += static_cast<float>(distance * (random.unit() - 0.5));
      auto found = sketch(a).distance_to(sketch(all));
      EXPECT_GT(found, distance / 3) << epoch;
      EXPECT_LT(found, distance * 3) << epoch;
      many one;
      one.values[random.below(one.values.size())] += 1;
      EXPECT_GT(sketch(a).distance_to(sketch(one)), 1e-3) << "a single value";
    }
}

TEST(ParameterSample, CopiesNoHugeTensorForAWindow) {
  class huge final : public learner_layer {
  public:
    huge() : learner_layer(make_toy_learner({})) {}
    [[nodiscard]] const state_table& tensors() const override { return table_; }
    void read_tensor(std::size_t, std::span<float>) const override { ADD_FAILURE() << "a copy"; }
    [[nodiscard]] std::span<const float> values_of(std::size_t) const override { return {}; }

  private:
    state_table table_{{{"x", {16'777'217}, state_tensor::kind::parameter}}};
  };
  EXPECT_TRUE(hash_of(huge{}, 5).is_zero());
}

} // namespace
} // namespace waggle::testing
