#include "runtime/codec/codec_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "tests/runtime/codec/choices.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

constexpr auto none = codec_id::none;
constexpr auto half = codec_id::float16;
constexpr auto eight = codec_id::uniform8;

codec_id chosen(const codec_choice& choice, const tensor_info& tensor, std::size_t index = 0) {
  auto codec = choice.choose(tensor, index);
  EXPECT_TRUE(codec.ok());
  return codec ? *codec : codec_id{99};
}

std::string refusal(std::string_view text) {
  auto choice = parse_codec_choice(text);
  EXPECT_FALSE(choice.ok()) << text;
  if (choice.ok())
    return "";
  EXPECT_EQ(choice.error().code, ec::bad_config);
  return choice.error().detail;
}

TEST(CodecChoice, ACodecIsTheSimplestChoice) {
  EXPECT_EQ(chosen(half, {"w", 10}), half);
  EXPECT_EQ(chosen({}, {"w", 10}), none);
}

TEST(CodecChoice, SizeIsThatOfTheWholeTensorAndTheThresholdBelongsToTheLarge) {
  auto choice = by_size(1'000, half, eight);
  EXPECT_EQ(chosen(choice, {"w", 999}), half);
  EXPECT_EQ(chosen(choice, {"w", 1'000}), eight);
}

TEST(CodecChoice, RolesThatAreNotNamedGetTheDefault) {
  auto choice = by_role({{tensor_role::gradient, eight}}, half);
  EXPECT_EQ(chosen(choice, {"w", 1, tensor_role::gradient}), eight);
  EXPECT_EQ(chosen(choice, {"w", 1, tensor_role::parameter}), half);
  EXPECT_EQ(chosen(choice, {"w", 1}), half);
  EXPECT_EQ(chosen(by_role({}), {"w", 1, tensor_role::activation}), none);
}

TEST(CodecChoice, ATensorThatIsNotListedIsAnErrorThatNamesIt) {
  auto list = per_index({half, eight});
  EXPECT_EQ(chosen(list, {"w", 1}, 1), eight);
  auto beyond = list.choose({"bias", 1}, 2);
  EXPECT_THAT(beyond.error().detail, AllOf(HasSubstr("tensor 2 ('bias')"), HasSubstr("after 2")));

  auto map = per_key({{"w", half}, {"b", eight}});
  EXPECT_EQ(chosen(map, {"b", 1}), eight);
  EXPECT_EQ(chosen(map, {"w", 1}), half);
  auto missing = map.choose({"head", 1}, 0);
  EXPECT_THAT(missing.error().detail, HasSubstr("'head'"));
  EXPECT_EQ(missing.error().code, ec::bad_config);
}

TEST(CodecPlan, NeighboursWithTheSameCodecAreOneRunAndEmptyTensorsNone) {
  std::vector<tensor_info> tensors;
  for (std::uint64_t n : {10, 2'000, 0, 3'000, 20, 0, 30})
    tensors.push_back({"w", n});
  auto plan = plan_codecs(by_size(1'000, half, eight), tensors);
  EXPECT_THAT(*plan,
              ElementsAre(codec_run{10, half}, codec_run{5'000, eight}, codec_run{50, half}));
  EXPECT_EQ(elements_of(*plan), 5'060U);
  EXPECT_TRUE(plan_codecs(half, {})->empty());
}

TEST(CodecPlan, MoreRunsThanAPlanMayHaveAreRefused) {
  std::vector<tensor_info> tensors;
  for (std::size_t i = 0; i < codec_runs_max + 1; ++i)
    tensors.push_back({std::to_string(i), i % 2 == 0 ? 1U : 5'000U});
  EXPECT_EQ(plan_codecs(by_size(1'000, half, eight), tensors).error().code, ec::bad_config);
  tensors.pop_back();
  EXPECT_TRUE(plan_codecs(by_size(1'000, half, eight), tensors).ok());
}

// Adam with six parameters, halves for parameters and for small gradients,
// eight bits for large gradients, floats for the statistics.
TEST(CodecPlan, AnAdaptiveChoiceForAdamHasFourRuns) {
  auto choice = parse_codec_choice("role:parameter=float16,gradient=(size:1000,float16,uniform8)");
  std::vector<tensor_info> tensors;
  for (auto role : {tensor_role::parameter, tensor_role::gradient, tensor_role::optimizer})
    for (std::uint64_t n : {1U, 1U, 100U, 1'000U, 5'000U, 10'000U})
      tensors.push_back({std::to_string(tensors.size()), n, role});
  auto plan = plan_codecs(*choice, tensors);
  EXPECT_THAT(*plan, ElementsAre(codec_run{16'102, half}, codec_run{102, half},
                                 codec_run{16'000, eight}, codec_run{16'102, none}))
    << "gradients are a run of their own, also if their codec is that of the parameters";
}

TEST(CodecChoiceText, EveryFormIsRead) {
  EXPECT_EQ(*parse_codec_choice("float16"), codec_choice{half});
  EXPECT_EQ(*parse_codec_choice("size:65536,float16,blockwise8"),
            by_size(65'536, half, codec_id::blockwise8));
  EXPECT_EQ(*parse_codec_choice("role:gradient=uniform8,parameter=float16"),
            by_role({{tensor_role::gradient, eight}, {tensor_role::parameter, half}}));
  EXPECT_EQ(*parse_codec_choice("role:default=float16"), by_role({}, half));
  EXPECT_EQ(*parse_codec_choice("list:float16,none,(size:5,none,uniform8)"),
            per_index({half, none, by_size(5, none, eight)}));
  EXPECT_EQ(*parse_codec_choice("map:layers.0.weight=uniform8,ns::bias=none"),
            per_key({{"layers.0.weight", eight}, {"ns::bias", none}}));
  EXPECT_EQ(*parse_codec_choice("(float16)"), codec_choice{half});
  EXPECT_EQ(*parse_codec_choice("map:a%2cb=none"), per_key({{"a,b", none}}));
}

codec_choice random_choice(random_source& random, int depth) {
  auto inner = [&] { return random_choice(random, depth + 1); };
  auto codec = all_codecs()[random.below(all_codecs().size())];
  switch (depth > 3 ? 0 : random.below(5)) {
    case 1:
      return by_size(random.next(), inner(), inner());
    case 2:
      return by_role({{tensor_role::gradient, inner()}, {tensor_role::optimizer, inner()}},
                     inner());
    case 3:
      return per_index({inner(), inner()});
    case 4: {
      std::string odd(1 + random.below(5), ' ');
      for (auto& c : odd)
        c = static_cast<char>(random.below(256));
      return per_key({{odd, inner()}, {"a long name", inner()}});
    }
    default:
      return codec;
  }
}

TEST(CodecChoiceText, WhatIsWrittenIsReadBack) {
  random_source random{61};
  for (int i = 0; i < 500; ++i) {
    auto choice = random_choice(random, 0);
    auto text = to_string(choice);
    auto back = parse_codec_choice(text);
    ASSERT_TRUE(back.ok()) << "seed 61, case " << i << ": " << text << ": " << back.error().detail;
    ASSERT_EQ(*back, choice) << "seed 61, case " << i << ": " << text;
  }
}

TEST(CodecChoiceText, ErrorsNameWhatIsValid) {
  EXPECT_THAT(refusal("float61"), HasSubstr("none, float16, bfloat16, scaled_float16"));
  EXPECT_THAT(refusal(""), HasSubstr("none, float16"));
  EXPECT_THAT(refusal("shape:3,none,none"),
              AllOf(HasSubstr("'shape:'"), HasSubstr("size:THRESHOLD"), HasSubstr("role:ROLE"),
                    HasSubstr("list:"), HasSubstr("map:"), HasSubstr("blockwise8")));
  EXPECT_THAT(refusal("float16,none"), HasSubstr("size:, role:, list: or map:"));
  EXPECT_THAT(refusal("gradient=none"), HasSubstr("size:, role:, list: or map:"));
  EXPECT_THAT(refusal("size:3,none"), HasSubstr("size:65536,float16,blockwise8"));
  EXPECT_THAT(refusal("size:many,none,none"), HasSubstr("'many' is not a number"));
  EXPECT_THAT(refusal("size:-1,none,none"), HasSubstr("'-1' is not a number"));
  EXPECT_THAT(refusal("role:weights=none"),
              HasSubstr("activation, parameter, gradient, optimizer, buffer, default"));
  EXPECT_THAT(refusal("role:gradient"), HasSubstr("ROLE=CODEC"));
  EXPECT_THAT(refusal("role:gradient=none,gradient=float16"), HasSubstr("twice"));
  EXPECT_THAT(refusal("map:w=nothing"), HasSubstr("'nothing' is not a codec"));
  EXPECT_THAT(refusal("map:w%2=none"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal("list:(size:3,none,none"), HasSubstr("parentheses"));
  EXPECT_THAT(refusal("list:none)"), HasSubstr("parentheses"));
  std::string deep = "none";
  for (int i = 0; i < 20; ++i)
    deep = "(" + deep + ")";
  EXPECT_THAT(refusal(deep), HasSubstr("within each other"));
}

// A rounded variance may be negative.
TEST(CodecChoice, BuffersAreNotRoundedUnlessTheyAreNamed) {
  tensor_info variance{"norm.running_var", 100, tensor_role::buffer};
  EXPECT_EQ(chosen(codec_choice{eight}, variance), none);
  EXPECT_EQ(chosen(by_size(10, half, eight), variance), none);
  EXPECT_EQ(chosen(by_role({{tensor_role::gradient, eight}}, half), variance), none);
  EXPECT_EQ(chosen(by_role({{tensor_role::buffer, half}}, eight), variance), half);
  auto named = by_role({{tensor_role::buffer, half}}, eight);
  EXPECT_EQ(chosen(by_size(1'000, named, eight), variance), half);
  EXPECT_EQ(chosen(per_index({half}), variance), half);
  EXPECT_EQ(chosen(per_key({{"norm.running_var", half}}), variance), half);
}

// A rounded loss may overflow, and an aggregator that measures distances must not compare it with
// gradients.
TEST(CodecChoice, MetricsAreNeverRoundedAndARunOfTheirOwn) {
  tensor_info loss{"schedule/loss", 1, tensor_role::metric};
  EXPECT_EQ(chosen(codec_choice{eight}, loss), none);
  EXPECT_EQ(chosen(by_role({{tensor_role::buffer, half}}, eight), loss), none);
  EXPECT_EQ(chosen(per_index({half}), loss), none);
  EXPECT_EQ(chosen(per_key({{"schedule/loss", half}}), loss), none);
  std::vector<tensor_info> tensors{
    {"w", 8, tensor_role::gradient}, {"running_mean", 3, tensor_role::buffer}, loss};
  auto plan = plan_codecs(none, tensors);
  ASSERT_EQ(plan->size(), 3U);
  EXPECT_EQ(plan->back().elements, 1U);
}

TEST(CodecChoice, GradientsBehindParametersAreARunOfTheirOwn) {
  std::vector<tensor_info> tensors{{"a", 8, tensor_role::parameter},
                                   {"b", 3, tensor_role::parameter},
                                   {"gradient/a", 8, tensor_role::gradient},
                                   {"gradient/b", 3, tensor_role::gradient}};
  auto plan = plan_codecs(none, tensors);
  ASSERT_EQ(plan->size(), 2U);
  EXPECT_EQ(plan->back().elements, 11U);
}

} // namespace
} // namespace waggle
