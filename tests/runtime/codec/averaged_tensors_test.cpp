#include "runtime/codec/averaged_tensors.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/codec/half.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

struct of_all_types {
  std::vector<float> f{1, 2, 3, 4, 5, 6};
  std::vector<double> d{0.1, 1.0 / 3, -1e30};
  std::vector<std::uint16_t> h{codecs::to_half(0.5F), codecs::to_half(-2)};
  std::vector<std::uint16_t> b{codecs::to_bfloat(1), codecs::to_bfloat(3e38F)};

  std::vector<averaged_tensor> all() {
    return {{"d", tensor_type::float64, {3}, d.data()},
            {"h", tensor_type::float16, {2}, h.data()},
            {"f", tensor_type::float32, {2, 3}, f.data()},
            {"none", tensor_type::float32, {0, 3}, nullptr},
            {"b", tensor_type::bfloat16, {1, 2}, b.data()}};
  }
  friend bool operator==(const of_all_types&, const of_all_types&) = default;
};

result<tensor_vector> made(std::vector<averaged_tensor> all,
                           const codec_choice& choice = codec_id::none) {
  return tensor_vector::make(std::move(all), choice);
}

TEST(AveragedTensors, TravelInTheirOwnTypesWithThoseOfATypeTogether) {
  of_all_types one;
  auto tensors = made(one.all());
  EXPECT_THAT(tensors->codecs(),
              ElementsAre(codec_run{6, codec_id::none}, codec_run{2, codec_id::float16},
                          codec_run{2, codec_id::bfloat16}, codec_run{9, codec_id::mean64}));
  std::vector<float> values(tensors->elements());
  ASSERT_TRUE(tensors->read(values));
  EXPECT_FLOAT_EQ(values[6], 0.5);
  of_all_types other;
  for (auto* zeros : {&other.h, &other.b})
    zeros->assign(2, 0);
  other.f.assign(6, 0);
  other.d.assign(3, 0);
  made(other.all())->write(values, {}, 1);
  EXPECT_EQ(other, one) << "bit by bit, float64 too";
}

TEST(AveragedTensors, MoveTowardsTheMeanInDoubles) {
  std::vector<double> d{1.0 / 3};
  std::vector<float> f{1};
  auto tensors =
    made({{"d", tensor_type::float64, {1}, d.data()}, {"f", tensor_type::float32, {}, f.data()}});
  std::vector<float> sent(tensors->elements());
  std::vector<float> mean(tensors->elements());
  ASSERT_TRUE(tensors->read(sent));
  d[0] = 0.1;
  f[0] = 2;
  ASSERT_TRUE(tensors->read(mean));
  tensors->write(mean, sent, 0.25);
  EXPECT_EQ(d[0], 1.0 / 3 + 0.25 * (0.1 - 1.0 / 3));
  EXPECT_FLOAT_EQ(f[0], 1.25);
}

TEST(AveragedTensors, ALossyCodecThatIsChosenTakesAllTypes) {
  of_all_types one;
  auto tensors = made(one.all(), codec_id::float16);
  EXPECT_THAT(tensors->codecs(), ElementsAre(codec_run{13, codec_id::float16}));
}

TEST(AveragedTensors, ManyNumbersAreSeveralParts) {
  std::vector<double> d(1);
  auto tensors = tensor_vector::make(
    {{"d", tensor_type::float64, {1 << 20}, d.data()}, {"e", tensor_type::float64, {5}, d.data()}},
    codec_id::none);
  ASSERT_EQ(tensors->codecs().size(), 17U);
  EXPECT_EQ(tensors->codecs().front(), (codec_run{3U << 16U, codec_id::mean64}));
  EXPECT_EQ(tensors->codecs().back(), (codec_run{15, codec_id::mean64}));
  tensors = tensor_vector::make({{"d", tensor_type::float64, {1U << 31U}, d.data()}}, {});
  ASSERT_TRUE(tensors) << "fewer, and longer";
  EXPECT_LT(tensors->codecs().size(), codec_runs_max);
  EXPECT_LE(tensors->codecs().front().elements, whole_run_max);
}

TEST(AveragedTensors, AreRefusedByName) {
  std::vector<float> f(4);
  auto why = [&](std::vector<averaged_tensor> all) {
    auto tensors = made(std::move(all));
    return tensors ? "none" : tensors.error().detail;
  };
  EXPECT_THAT(why({}), HasSubstr("nothing to average"));
  EXPECT_THAT(why({{"", tensor_type::float32, {4}, f.data()}}), HasSubstr("1 to 1024 bytes"));
  EXPECT_THAT(why({{"w", tensor_type::float32, {4}, nullptr}}), HasSubstr("'w' has no values"));
  EXPECT_THAT(
    why({{"w", tensor_type::float32, {4}, f.data()}, {"w", tensor_type::float32, {4}, f.data()}}),
    HasSubstr("two tensors have the name 'w'"));
  EXPECT_THAT(why({{"w", tensor_type::float32, {1ULL << 60U, 1ULL << 60U}, f.data()}}),
              HasSubstr("'w' has too many values"));
  for (double wrong : {std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    std::vector<double> d{1, wrong};
    auto tensors = made({{"big", tensor_type::float64, {2}, d.data()}});
    std::vector<float> values(tensors->elements());
    auto read = tensors->read(values);
    EXPECT_EQ(read.error().code, ec::non_finite);
    EXPECT_THAT(read.error().detail, HasSubstr("tensor 'big'"));
  }
  f[2] = std::nanf("");
  EXPECT_THAT(made({{"w", tensor_type::float32, {4}, f.data()}})->not_finite(),
              HasSubstr("tensor 'w'"));
}

TEST(AveragedTensors, TheFirstDifferenceIsNamed) {
  of_all_types one;
  auto here = made(one.all())->description();
  EXPECT_EQ(first_difference(here, here), "");
  auto other = one.all();
  other[2].type = tensor_type::float64;
  other[2].shape = {3, 2};
  std::vector<double> d(6);
  other[2].values = d.data();
  EXPECT_EQ(first_difference(here, made(other)->description()),
            "tensor 2 is 'f' float32 [2, 3] here, and 'f' float64 [3, 2] there");
  auto fewer = one.all();
  fewer.pop_back();
  EXPECT_EQ(first_difference(here, made(fewer)->description()), "the other has only 4 tensors");
  EXPECT_EQ(first_difference(made(fewer)->description(), here),
            "the other has more tensors than 4");
}

} // namespace
} // namespace waggle
