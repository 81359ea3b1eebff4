#include "runtime/matchmaking/group_terms.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(GroupTerms, AVectorWithoutTensorsIsOneWithoutAName) {
  auto codecs = [](const char* choice) {
    auto vectors =
      vectors_of(*parse_codec_choice(choice), tensor_role::unspecified, 5'000, {}, nullptr);
    return vectors ? vectors->at(0) : codec_plan{};
  };
  EXPECT_EQ(codecs("role:gradient=uniform8"), (codec_plan{{5'000, codec_id::none}}));
  EXPECT_EQ(codecs("size:3000,none,uniform8"), (codec_plan{{5'000, codec_id::uniform8}}));
  EXPECT_EQ(codecs("map:norm.weight=none"), codec_plan{}) << "a codec is missing";
}

TEST(GroupTerms, TensorsThatDoNotAddUpAreRefused) {
  auto of = std::make_shared<const std::vector<tensor_info>>(2, tensor_info{"w", 10});
  for (std::uint64_t elements : {39U, 40U, 41U})
    EXPECT_EQ(vectors_of({}, tensor_role::unspecified, elements, std::vector{of, of}, nullptr).ok(),
              elements == 40);
}

} // namespace
} // namespace waggle
