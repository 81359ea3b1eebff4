#include "runtime/training/parameter_sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

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

digest of_values(std::vector<float> values) {
  sha256_stream hash;
  hash.add(std::as_bytes(std::span{values}));
  return hash.finish();
}

TEST(ParameterSample, OfASmallModelIsThatOfAllParameters) {
  nine_values model;
  for (std::uint64_t epoch : {0U, 1U, 7U}) {
    EXPECT_EQ(parameter_sample(model, epoch_id{epoch}, 9), model.parameters_digest());
    EXPECT_EQ(parameter_sample(model, epoch_id{epoch}), model.parameters_digest());
  }
}

TEST(ParameterSample, OfALargerOneIsAWindowThatMovesOnWithTheEpochs) {
  nine_values model;
  for (bool in_host_memory : {true, false}) {
    model.in_host_memory = in_host_memory;
    EXPECT_EQ(parameter_sample(model, epoch_id{0}, 4), of_values({0, 1, 2, 3}));
    EXPECT_EQ(parameter_sample(model, epoch_id{1}, 4), of_values({4, 5, 6, 7}));
    EXPECT_EQ(parameter_sample(model, epoch_id{2}, 4), of_values({8})) << "no statistic";
    EXPECT_EQ(parameter_sample(model, epoch_id{3}, 4), of_values({0, 1, 2, 3}));
  }
}

TEST(ParameterSample, OneValueThatDiffersIsFoundOnceTheWindowReachesIt) {
  for (std::size_t where = 0; where < 9; ++where) {
    nine_values model;
    nine_values other;
    other.values[where] += 1;
    std::size_t found = 0;
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch)
      found +=
        parameter_sample(model, epoch_id{epoch}, 2) != parameter_sample(other, epoch_id{epoch}, 2)
          ? 1
          : 0;
    EXPECT_EQ(found, 1U) << where;
  }
}

TEST(ParameterSample, OfValuesThatAreNotFiniteIsTheSameWhateverTheOthers) {
  for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    nine_values model;
    model.values[5] = bad;
    for (std::uint64_t epoch : {0U, 2U}) {
      EXPECT_NE(parameter_sample(model, epoch_id{epoch}, 4), not_finite_sample());
      EXPECT_TRUE(sample_is_finite(model, epoch_id{epoch}, 4));
    }
    EXPECT_EQ(parameter_sample(model, epoch_id{1}, 4), not_finite_sample());
    EXPECT_FALSE(sample_is_finite(model, epoch_id{1}, 4));
    model.values[4] = 77;
    EXPECT_EQ(parameter_sample(model, epoch_id{1}, 4), not_finite_sample());
    EXPECT_EQ(parameter_sample(model, epoch_id{0}), not_finite_sample());
    model.values[5] = 5;
    model.values[10] = bad; // of a statistic
    EXPECT_EQ(parameter_sample(model, epoch_id{0}), model.parameters_digest());
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
  EXPECT_TRUE(parameter_sample(huge{}, epoch_id{5}).is_zero());
}

} // namespace
} // namespace waggle::testing
