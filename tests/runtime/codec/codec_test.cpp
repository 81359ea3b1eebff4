#include "runtime/codec/codec.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

std::vector<std::byte> halves(const std::vector<float>& values) {
  std::vector<std::byte> out(encoded_size(codec_id::float16, values.size()));
  encode(codec_id::float16, values, out);
  return out;
}
/// Single values take the portable path, eight together the processor's.
std::uint16_t half_alone(float x) {
  auto bytes = halves({x});
  std::uint16_t out = 0;
  std::memcpy(&out, bytes.data(), 2);
  return out;
}
float float_alone(std::uint16_t half) {
  float out = 0;
  EXPECT_TRUE(
    decode(codec_id::float16, std::as_bytes(std::span{&half, 1}), std::span{&out, 1}).ok());
  return out;
}
bool is_nan(std::uint16_t half) {
  return (half & 0x7c00U) == 0x7c00U && (half & 0x3ffU) != 0;
}

/// By definition, in doubles: the nearest half, ties to the even one.
std::uint16_t reference_half(float x) {
  std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  double magnitude = std::min(std::fabs(static_cast<double>(x)), 65'504.0);
  int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  double unit = std::ldexp(1.0, exponent - 10);
  double steps = std::nearbyint(magnitude / unit); // ties to even
  double rounded = steps * unit;
  if (rounded < std::ldexp(1.0, -14))
    return static_cast<std::uint16_t>(
      sign | static_cast<std::uint16_t>(std::lround(std::ldexp(rounded, 24))));
  exponent = std::ilogb(rounded);
  auto mantissa = static_cast<unsigned>(std::lround(std::ldexp(rounded, 10 - exponent))) & 0x3ffU;
  return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + 15) << 10U)
                                    | mantissa);
}

TEST(Float16, Every65536HalvesSurviveTheRoundTrip) {
  std::vector<std::uint16_t> all(65'536);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  ASSERT_TRUE(decode(codec_id::float16, std::as_bytes(std::span{all}), wide).ok());
  auto back = halves(wide);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint16_t got = 0;
    std::memcpy(&got, back.data() + 2 * i, 2);
    if (is_nan(all[i])) {
      EXPECT_TRUE(is_nan(got)) << i;
    } else {
      ASSERT_EQ(got, all[i]);
    }
  }
}

TEST(Float16, TheProcessorAndThePortableCodeGiveTheSameBits) {
  std::vector<std::uint16_t> all(65'536);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> together(all.size());
  ASSERT_TRUE(decode(codec_id::float16, std::as_bytes(std::span{all}), together).ok());
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(together[i]),
              std::bit_cast<std::uint32_t>(float_alone(all[i])))
      << i;

  random_source random{11};
  std::vector<float> values(80'000);
  for (auto& x : values)
    x = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  auto together_again = halves(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t got = 0;
    std::memcpy(&got, together_again.data() + 2 * i, 2);
    ASSERT_EQ(got, half_alone(values[i])) << std::bit_cast<std::uint32_t>(values[i]);
  }
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(half_alone(1.0F), 0x3c00);
  EXPECT_EQ(half_alone(1.0F + 0x1p-11F), 0x3c00) << "a tie goes to the even one, below";
  EXPECT_EQ(half_alone(1.0F + 3 * 0x1p-11F), 0x3c02) << "and above";
  EXPECT_EQ(half_alone(std::nextafter(1.0F + 0x1p-11F, 2.0F)), 0x3c01);
  EXPECT_EQ(half_alone(0x1p-25F), 0x0000) << "half of the smallest ties to zero";
  EXPECT_EQ(half_alone(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(half_alone(-0.0F), 0x8000);
  EXPECT_EQ(half_alone(0x1.ffcp-15F), 0x03ff + 1)
    << "a subnormal that rounds up to the smallest normal";
  random_source random{5};
  for (int i = 0; i < 200'000; ++i) {
    auto x = static_cast<float>(
      std::ldexp(random.unit() * 2 - 1, static_cast<int>(random.below(44)) - 27));
    ASSERT_EQ(half_alone(x), reference_half(x)) << x;
  }
}

TEST(Float16, ClampsFiniteValuesAndKeepsInfinityAndNaN) {
  auto infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_alone(half_alone(1e30F)), 65'504.0F);
  EXPECT_EQ(float_alone(half_alone(-infinity)), -infinity)
    << "a part that is not finite must be recognized";
  EXPECT_TRUE(std::isnan(float_alone(half_alone(std::nanf("")))));
  auto eight =
    halves(std::vector<float>{infinity, -infinity, 65'519, 65'520, std::nanf(""), 1e9F, -1e9F, 0});
  std::vector<float> back(8);
  ASSERT_TRUE(decode(codec_id::float16, eight, back).ok());
  EXPECT_EQ(back[0], infinity);
  EXPECT_EQ(back[1], -infinity);
  EXPECT_EQ(back[3], 65'504.0F);
  EXPECT_TRUE(std::isnan(back[4]));
  EXPECT_EQ(back[6], -65'504.0F);
}

TEST(Codec, PlainFloatsKeepEveryBit) {
  random_source random{1};
  std::vector<float> values(1'001);
  for (auto& x : values)
    x = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  std::vector<std::byte> bytes(encoded_size(codec_id::none, values.size()));
  encode(codec_id::none, values, bytes);
  std::vector<float> back(values.size());
  ASSERT_TRUE(decode(codec_id::none, bytes, back).ok());
  EXPECT_EQ(std::memcmp(back.data(), values.data(), bytes.size()), 0);
}

TEST(Codec, NamesAreReadBack) {
  for (auto codec : all_codecs()) {
    EXPECT_EQ(*parse_codec(to_string(codec)), codec);
    EXPECT_TRUE(is_known(codec));
  }
  EXPECT_FALSE(is_known(static_cast<codec_id>(codec_table.size())));
  EXPECT_FALSE(parse_codec("median64").ok()) << "the vector says where numbers are";
  auto wrong = parse_codec("float17");
  EXPECT_EQ(wrong.error().code, ec::bad_config);
  EXPECT_NE(wrong.error().detail.find("none, float16, bfloat16"), std::string::npos);
}

// The numbers are sent to peers, and the names stand in agreements: both only grow.
TEST(Codec, TheNumberOfACodecIsItsRow) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < codec_table.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(codec_table[i]->id), i) << codec_table[i]->name;
    names.emplace_back(codec_table[i]->name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"none", "float16", "bfloat16", "scaled_float16",
                                             "uniform8", "quantile8", "blockwise8", "median64",
                                             "largest64", "e3m0", "sparse2", "mean64"}));
}

} // namespace
} // namespace waggle
