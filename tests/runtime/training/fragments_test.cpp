#include "runtime/training/fragments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/training/averaged_tensors.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;
using kind = state_tensor::kind;

const state_table layers{{{"a", {5}, kind::parameter},
                          {"b", {2, 2}, kind::parameter},
                          {"c", {3}, kind::parameter},
                          {"d", {3}, kind::parameter},
                          {"exp_avg/a", {5}, kind::statistic},
                          {"mean", {2}, kind::buffer}}};

TEST(Fragments, EachParameterIsDealtToTheSmallest) {
  fragments two{layers, 2};
  EXPECT_THAT(two.tensors(0), ElementsAre(0, 3));
  EXPECT_THAT(two.tensors(1), ElementsAre(1, 2));
  EXPECT_EQ(two.values(0), 8U);
  EXPECT_EQ(two.values(1), 7U);
  EXPECT_EQ(two.values(), 15U);
  EXPECT_EQ(two.pieces(1).size(), 1U) << "they stand beside each other";
}

TEST(Fragments, OneIsTheModel) {
  fragments one{layers, 1};
  EXPECT_THAT(one.tensors(0), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(one.pieces(0).size(), 1U);
  EXPECT_EQ(one.values(0), fragments::one_of(15).values(0));
}

TEST(Fragments, GatheredAndScatteredTheyAreTheWhole) {
  float_vector all(15);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<float>(i);
  for (std::size_t count = 1; count <= 4; ++count) {
    fragments dealt{layers, count};
    float_vector back(15);
    for (std::size_t i = 0; i < count; ++i) {
      float_vector part(dealt.values(i));
      dealt.gather(i, all, part);
      dealt.scatter(i, part, back);
    }
    EXPECT_EQ(back, all) << count;
  }
  float_vector second(7);
  fragments{layers, 2}.gather(1, all, second);
  EXPECT_THAT(second, ElementsAre(5, 6, 7, 8, 9, 10, 11));
}

TEST(Fragments, AreWhatARoundAverages) {
  lane progress;
  progress.what = lane_content::progress;
  progress.fragments = 2;
  auto first = averaged_tensors::of(layers, progress, 0);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT((*first)->indices(), ElementsAre(0, 3, 5)) << "the buffers are in each";
  EXPECT_EQ((*first)->parameter_count(), 8U);
  EXPECT_EQ((*first)->value_count(), 10U);
  progress.fragments = 5;
  auto refused = averaged_tensors::of(layers, progress);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().detail.find("has 4 tensors"), std::string::npos);
}

} // namespace
} // namespace waggle
