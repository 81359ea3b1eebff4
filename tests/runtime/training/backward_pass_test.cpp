#include "runtime/training/backward_pass.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::ElementsAre;

/// Of two parameters, in this order, and a buffer.
struct BackwardPass : ::testing::Test {
  state_table tensors{{{"x", {2}, state_tensor::kind::parameter},
                       {"y", {1}, state_tensor::kind::parameter},
                       {"seen", {1}, state_tensor::kind::buffer}}};
  offered_gradients gradients{3, 1, gradient_use::summed};
  backward_pass pass{tensors, gradients};
  std::vector<float> values{1, 2, 3, 4};
  std::array<offered_tensor, 3> all{
    {{values.data(), 2}, {values.data() + 2, 1}, {values.data() + 3, 1}}};

  bool begin() {
    pass.use_vectors(vector_pool::make(4));
    return pass.begin_early(4, 0);
  }
};

TEST_F(BackwardPass, WritesWhatIsCompleteWhereItBelongs) {
  EXPECT_TRUE(pass.empty());
  EXPECT_FALSE(pass.add(1, values.data() + 2)) << "nobody can take it yet";
  EXPECT_FALSE(pass.empty());
  ASSERT_TRUE(begin());
  pass.write_all();
  auto early = gradients.take_early();
  ASSERT_TRUE(early);
  EXPECT_EQ((*early->values)[2], 3);
  EXPECT_TRUE(pass.add(0, values.data()));
  auto added = gradients.add(all, 4, 1, 0);
  EXPECT_TRUE(added.taken && added.counts);
  EXPECT_THAT(*early->values, ElementsAre(1, 2, 3, 4));
}

TEST_F(BackwardPass, CannotBeTakenWithoutMemoryNorBesideEarlierSamples) {
  EXPECT_FALSE(pass.begin_early(4, 0)) << "no vectors";
  ASSERT_TRUE(gradients.add(all, 4, 1, 0).counts);
  EXPECT_FALSE(begin());
}

TEST_F(BackwardPass, FailsForThoseThatHaveAPartIfItIsDiscarded) {
  ASSERT_TRUE(begin());
  auto early = gradients.take_early();
  ASSERT_TRUE(early);
  pass.add(0, values.data());
  pass.discard();
  EXPECT_TRUE(pass.empty());
  EXPECT_TRUE(early->fills->failed());
}

TEST_F(BackwardPass, RefusesAParameterThatIsNotInTheTable) {
  EXPECT_THROW(pass.add(2, values.data()), std::out_of_range);
}

} // namespace
} // namespace waggle
