// The guarantees of each family of codecs. The formulas are in the headers.

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/half.hpp"
#include "tests/runtime/codec/samples.hpp"

namespace waggle {
namespace {

using namespace codec_samples;

template <class T>
T read_at(const std::vector<std::byte>& bytes, std::size_t offset) {
  T out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}
template <class T>
void write_at(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (auto x : values)
    sum += static_cast<double>(x);
  return sum / static_cast<double>(values.size());
}
double squares_of(const std::vector<float>& values, double mean) {
  double sum = 0;
  for (auto x : values)
    sum += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  return sum;
}

// -- bfloat16 -------------------------------------------------------------------------------------

TEST(Bfloat16, Every65536BfloatsSurviveTheRoundTrip) {
  std::vector<float> wide(65'536);
  for (std::uint32_t i = 0; i < wide.size(); ++i)
    wide[i] = std::bit_cast<float>(i << 16U);
  auto bytes = encoded(codec_id::bfloat16, wide);
  EXPECT_EQ(bytes.size(), 2 * wide.size()) << "two bytes, always";
  for (std::uint32_t i = 0; i < wide.size(); ++i) {
    auto got = read_at<std::uint16_t>(bytes, std::size_t{2} * i);
    ASSERT_EQ(got, std::isnan(wide[i]) ? i | 0x40U : i);
  }
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(codecs::to_bfloat(1.0F), 0x3f80);
  EXPECT_EQ(codecs::to_bfloat(1.0F + 0x1p-8F), 0x3f80) << "a tie goes to the even one, below";
  EXPECT_EQ(codecs::to_bfloat(1.0F + 3 * 0x1p-8F), 0x3f82) << "and above";
  EXPECT_EQ(codecs::to_bfloat(std::nextafter(1.0F + 0x1p-8F, 2.0F)), 0x3f81);
  EXPECT_EQ(codecs::to_bfloat(-0.0F), 0x8000);
  EXPECT_EQ(codecs::to_bfloat(std::numeric_limits<float>::max()), 0x7f7f) << "finite stays finite";
  EXPECT_EQ(codecs::to_bfloat(std::numeric_limits<float>::lowest()), 0xff7f);
  EXPECT_EQ(codecs::to_bfloat(-std::numeric_limits<float>::infinity()), 0xff80);
}

TEST(Bfloat16, TheErrorIsAtMostHalfAnUnit) {
  auto values = of_kind("tails", 31, 50'000);
  auto back = travelled(codec_id::bfloat16, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_LE(std::fabs(back[i] - values[i]), std::fabs(values[i]) * 0x1p-8F) << "seed 31, " << i;
}

// -- float16 --------------------------------------------------------------------------------------

TEST(Float16, TheErrorIsWithinItsBound) {
  for (const auto* kind : {"bell", "tails", "tiny"}) {
    auto values = of_kind(kind, 32, 20'000);
    auto back = travelled(codec_id::float16, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::fabs(values[i]) > 65'504)
        continue;
      ASSERT_LE(std::fabs(back[i] - values[i]), std::max(std::fabs(values[i]) * 0x1p-11F, 0x1p-25F))
        << kind << ", seed 32, " << values[i];
    }
  }
}

// -- scaled float16 -------------------------------------------------------------------------------

TEST(ScaledFloat16, TheErrorIsSmallAgainstTheDeviation) {
  for (const auto* kind : {"bell", "offset", "tails", "huge", "sparse", "steps"})
    for (std::size_t n : {5U, 1'000U, 30'001U}) {
      auto values = of_kind(kind, 33, n);
      auto mean = mean_of(values);
      auto s = std::max(std::sqrt(squares_of(values, mean) / static_cast<double>(n)), 0x1p-23);
      auto back = travelled(codec_id::scaled_float16, values);
      ASSERT_EQ(back.size(), n);
      for (std::size_t i = 0; i < n; ++i) {
        auto x = static_cast<double>(values[i]);
        auto q = std::fabs(x - mean) / s;
        // The rounding of the mean costs at most as much as that of the value.
        auto bound = s * 0x1p-11 * std::max(1.0, q) + (std::fabs(x) + std::fabs(mean)) * 0x1p-23;
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - x), bound)
          << kind << ", seed 33, " << n << " values, " << x;
      }
    }
}

TEST(ScaledFloat16, KeepsWhatAPlainHalfLoses) {
  auto small = bells(34, 10'000, 0, 1e-6);
  EXPECT_LT(mean_square_error(small, travelled(codec_id::scaled_float16, small)),
            mean_square_error(small, travelled(codec_id::float16, small)) / 1'000);
  auto large = bells(34, 10'000, 1e6, 1);
  EXPECT_LT(mean_square_error(large, travelled(codec_id::scaled_float16, large)), 1e-2);
}

TEST(ScaledFloat16, AnHeaderThatNoEncoderWritesIsRefused) {
  auto good = encoded(codec_id::scaled_float16, of_kind("bell", 35, 100));
  auto infinity = std::numeric_limits<float>::infinity();
  std::vector<float> out(100);
  auto refuses = [&](float mean, float deviation) {
    auto bytes = good;
    write_at(bytes, 0, mean);
    write_at(bytes, 4, deviation);
    auto decoded = decode(codec_id::scaled_float16, bytes, out);
    return !decoded.ok() && decoded.error().code == ec::malformed;
  };
  EXPECT_FALSE(refuses(0, 1));
  EXPECT_FALSE(refuses(std::bit_cast<float>(0x7fc00000U), 0))
    << "the mark of a part that is not finite";
  EXPECT_TRUE(refuses(infinity, 1));
  EXPECT_TRUE(refuses(std::nanf(""), 1));
  EXPECT_TRUE(refuses(0, infinity));
  EXPECT_TRUE(refuses(0, std::nanf("")));
  EXPECT_TRUE(refuses(0, -1));
  EXPECT_TRUE(refuses(0, 0));
  EXPECT_TRUE(refuses(0, -0.0F));
  EXPECT_TRUE(refuses(0, 0x1p-24F));
}

TEST(ScaledFloat16, WhateverHalvesAStrangerSendsNothingOverflows) {
  auto most = std::numeric_limits<float>::max();
  auto bytes = encoded(codec_id::scaled_float16, of_kind("bell", 36, 100));
  write_at(bytes, 0, most);
  write_at(bytes, 4, most);
  write_at(bytes, 8, std::uint16_t{0x7bff});
  write_at(bytes, 10, std::uint16_t{0x7e00});
  std::vector<float> out(100);
  ASSERT_TRUE(decode(codec_id::scaled_float16, bytes, out).ok());
  EXPECT_EQ(out[0], most);
  EXPECT_TRUE(std::isnan(out[1])) << "a NaN among the halves is seen";
}

// -- uniform and quantile -------------------------------------------------------------------------

TEST(Uniform8, CodesAndCodebookFollowTheFormula) {
  for (const auto* kind : {"bell", "offset", "tails", "huge", "tiny", "sparse", "steps"}) {
    constexpr std::size_t n = 5'003;
    auto values = of_kind(kind, 41, n);
    auto bytes = encoded(codec_id::uniform8, values);
    ASSERT_EQ(bytes.size(), 1'024 + n);
    auto mean = mean_of(values);
    auto step = 6 * std::sqrt(squares_of(values, mean) / (n - 1)) / 256;
    std::array<double, 256> sums{};
    std::array<double, 256> counts{};
    for (std::size_t i = 0; i < n; ++i) {
      auto code = std::to_integer<std::size_t>(bytes[1'024 + i]);
      auto steps = (static_cast<double>(values[i]) - mean) / step;
      // Half a step either way, slightly more at a border.
      auto nearest = std::clamp(steps, -128.0, 127.0) + 128;
      ASSERT_LE(std::fabs(static_cast<double>(code) - nearest), 0.5 + 1e-6)
        << kind << ", seed 41, value " << i;
      sums[code] += static_cast<double>(values[i]);
      counts[code] += 1;
    }
    for (std::size_t k = 0; k < 256; ++k) {
      auto want = counts[k] == 0 ? 0.0 : sums[k] / counts[k];
      ASSERT_NEAR(static_cast<double>(read_at<float>(bytes, 4 * k)), want,
                  std::fabs(want) * 1e-6 + 1e-45)
        << kind << ", seed 41, entry " << k;
    }
  }
}

TEST(Uniform8, TheErrorIsAtMostOneStepWithinThreeDeviations) {
  auto values = bells(42, 100'000, 3, 0.5);
  auto mean = mean_of(values);
  auto sigma = std::sqrt(squares_of(values, mean) / static_cast<double>(values.size() - 1));
  auto back = travelled(codec_id::uniform8, values);
  std::size_t inside = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto distance = (static_cast<double>(values[i]) - mean) / sigma;
    if (distance < -2.98 || distance > 2.96) // the outer cells begin there
      continue;
    ++inside;
    ASSERT_LE(std::fabs(back[i] - values[i]), 6 * sigma / 256 + 1e-6) << "seed 42, " << i;
  }
  EXPECT_GT(inside, 99'000U);
}

/// The codes by definition: sorted values, 257 quantiles by linear interpolation; a value on a
/// border goes below it.
std::vector<std::size_t> quantile_codes(const std::vector<float>& values) {
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<float> borders;
  for (int k = 1; k < 256; ++k) {
    auto position = k / 256.0 * static_cast<double>(sorted.size() - 1);
    auto below = static_cast<std::size_t>(position);
    auto above = std::min(below + 1, sorted.size() - 1);
    borders.push_back(static_cast<float>(
      static_cast<double>(sorted[below])
      + (position - static_cast<double>(below))
          * (static_cast<double>(sorted[above]) - static_cast<double>(sorted[below]))));
  }
  std::vector<std::size_t> codes;
  for (auto x : values)
    codes.push_back(static_cast<std::size_t>(std::lower_bound(borders.begin(), borders.end(), x)
                                             - borders.begin()));
  return codes;
}

TEST(Quantile8, CodesAreThoseOfTheDefinitionWhileEveryValueIsSampled) {
  for (const auto& kind : kinds())
    for (std::size_t n : {350U, 5'003U, 16'384U}) {
      auto values = of_kind(kind, 43, n);
      auto bytes = encoded(codec_id::quantile8, values);
      auto want = quantile_codes(values);
      std::size_t different = 0;
      for (std::size_t i = 0; i < n; ++i)
        different +=
          static_cast<std::size_t>(std::to_integer<std::size_t>(bytes[1'024 + i]) != want[i]);
      EXPECT_EQ(different, 0U) << kind << ", seed 43, " << n << " values";
    }
}

TEST(Quantile8, TheCellsOfASampleHoldAboutAsManyValuesEach) {
  constexpr std::size_t n = 400'000;
  for (const auto* kind : {"bell", "offset", "tails"}) {
    // The offset is small enough that a cell contains many floats.
    auto values = kind == std::string{"offset"} ? bells(44, n, 100) : of_kind(kind, 44, n);
    auto bytes = encoded(codec_id::quantile8, values);
    std::array<std::size_t, 256> counts{};
    for (std::size_t i = 0; i < n; ++i)
      ++counts[std::to_integer<std::size_t>(bytes[1'024 + i])];
    auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    EXPECT_GT(*least, n / 256 / 2) << kind << ", seed 44";
    EXPECT_LT(*most, n / 256 * 2) << kind << ", seed 44";
  }
}

TEST(Quantile8, APeriodInTheDataDoesNotFoolTheSample) {
  // Every 32nd value is large: a sample of every 32nd value would consist of these only, or of
  // none.
  std::vector<float> values = bells(45, 1U << 19U);
  for (std::size_t i = 0; i < values.size(); i += 32)
    values[i] += 100;
  auto bytes = encoded(codec_id::quantile8, values);
  int large = 0; // a 32nd of the 256 cells are for these values
  for (std::size_t k = 0; k < 256; ++k)
    large += static_cast<int>(read_at<float>(bytes, 4 * k) > 90);
  EXPECT_GE(large, 6) << "seed 45";
  EXPECT_LE(large, 10) << "seed 45";
}

TEST(Quantile8, BeatsUniformOnSkewedValues) {
  random_source random{46};
  std::vector<float> values(200'000);
  for (auto& x : values)
    x = static_cast<float>(std::pow(random.unit(), 8));
  auto quantile = mean_square_error(values, travelled(codec_id::quantile8, values));
  auto uniform = mean_square_error(values, travelled(codec_id::uniform8, values));
  EXPECT_LT(quantile, 1e-5);
  EXPECT_LT(quantile * 10, uniform);
}

TEST(TableCodecs, TheSumOfAPartSurvives) {
  for (auto codec : {codec_id::uniform8, codec_id::quantile8})
    for (const auto* kind : {"bell", "offset", "tails", "sparse"}) {
      auto values = of_kind(kind, 47, 50'000);
      auto back = travelled(codec, values);
      double magnitude = 0;
      for (auto x : values)
        magnitude += std::fabs(static_cast<double>(x));
      EXPECT_NEAR(mean_of(back), mean_of(values), magnitude / 50'000 * 1e-7)
        << to_string(codec) << ", " << kind << ", seed 47";
    }
}

TEST(TableCodecs, ACodebookThatNoEncoderWritesIsRefused) {
  for (auto codec : {codec_id::uniform8, codec_id::quantile8}) {
    auto good = encoded(codec, of_kind("bell", 48, 1'000));
    std::vector<float> out(1'000);
    for (std::size_t entry : {0U, 1U, 128U, 255U})
      for (float nonsense : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        auto bytes = good;
        write_at(bytes, 4 * entry, nonsense);
        EXPECT_EQ(decode(codec, bytes, out).error().code, ec::malformed);
      }
  }
}

// -- blockwise ------------------------------------------------------------------------------------

/// The values of all codes in a block whose largest magnitude is 1.
std::vector<float> blockwise_codebook() {
  std::vector<float> values(1024, 1);
  auto bytes = encoded(codec_id::blockwise8, values);
  for (std::size_t k = 0; k < 256; ++k)
    bytes[4 + k] = static_cast<std::byte>(k);
  EXPECT_TRUE(decode(codec_id::blockwise8, bytes, values).ok());
  values.resize(256);
  return values;
}

TEST(Blockwise8, TheCodebookIsTheOneOfTheSpecification) {
  std::vector<double> want{0, 1};
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < (1 << i); ++j)
      for (double sign : {-1.0, 1.0})
        want.push_back(sign * (0.1 + 0.9 * (j + 0.5) / (1 << i)) * std::pow(10.0, i - 6));
  std::sort(want.begin(), want.end());
  auto got = blockwise_codebook();
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got[i]), want[i], std::fabs(want[i]) * 1e-7) << i;
  EXPECT_NEAR(got[128], 5.5e-7, 1e-12);
  EXPECT_NEAR(got[254], 0.99297, 1e-5);
}

TEST(Blockwise8, TheCodeIsTheNearestEntry) {
  random_source random{51};
  auto codebook = blockwise_codebook();
  std::vector<float> values(codecs::block_values);
  for (auto& x : values)
    x = static_cast<float>(std::ldexp(random.unit() * 2 - 1, -static_cast<int>(random.below(26))));
  for (std::size_t k = 0; k + 1 < codebook.size(); ++k) // also near the borders
    values[k] = std::nextafter((codebook[k] + codebook[k + 1]) / 2, random.below(2) == 0 ? -2 : 2);
  values.back() = 1;
  auto bytes = encoded(codec_id::blockwise8, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto code = std::to_integer<std::size_t>(bytes[4 + i]);
    auto distance = [&](float entry) {
      return std::fabs(static_cast<double>(entry) - static_cast<double>(values[i]));
    };
    auto best = *std::min_element(codebook.begin(), codebook.end(),
                                  [&](float a, float b) { return distance(a) < distance(b); });
    // On a border both sides are correct.
    ASSERT_LE(distance(codebook[code]), distance(best) + std::fabs(values[i]) * 1e-6)
      << "seed 51, " << values[i];
  }
}

TEST(Blockwise8, TheErrorIsWithinItsBoundInEveryBlock) {
  for (const auto* kind :
       {"bell", "offset", "tails", "tiny", "huge", "sparse", "bits", "largest"}) {
    auto values = of_kind(kind, 52, 30'001);
    auto back = travelled(codec_id::blockwise8, values);
    for (std::size_t begin = 0; begin < values.size(); begin += codecs::block_values) {
      auto end = std::min(begin + codecs::block_values, values.size());
      double largest = 0;
      for (auto i = begin; i < end; ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
      for (auto i = begin; i < end; ++i)
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - static_cast<double>(values[i])),
                  0.00704 * largest + 1e-45)
          << kind << ", seed 52, " << i;
    }
  }
}

TEST(Blockwise8, TheLargestValueIsExactAndTheSmallestNearly) {
  std::vector<float> values(500);
  values[0] = 0.37F;
  values[1] = -0.37F;
  auto back = travelled(codec_id::blockwise8, values);
  EXPECT_EQ(back[0], 0.37F);
  EXPECT_NEAR(back[1], -0.99297F * 0.37F, 1e-5);
  EXPECT_EQ(back[2], 0);
}

TEST(Blockwise8, APoisonedBlockLeavesTheOthersAlone) {
  auto values = of_kind("bell", 53, 3 * codecs::block_values);
  auto clean = travelled(codec_id::blockwise8, values);
  values[codecs::block_values + 5] = std::nanf("");
  auto back = travelled(codec_id::blockwise8, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / codecs::block_values == 1)
      ASSERT_TRUE(std::isnan(back[i]));
    else
      ASSERT_EQ(back[i], clean[i]);
  }
}

TEST(Blockwise8, AMaximumThatNoEncoderWritesIsRefused) {
  auto good = encoded(codec_id::blockwise8, of_kind("bell", 54, 3 * codecs::block_values));
  std::vector<float> out(3 * codecs::block_values);
  for (std::size_t block : {0U, 2U})
    for (std::uint32_t nonsense :
         {0x7f800000U, 0xff800000U, 0x7fc00001U, 0xffc00000U, 0x80000000U, 0xbf800000U}) {
      auto bytes = good;
      write_at(bytes, 4 * block, nonsense);
      EXPECT_EQ(decode(codec_id::blockwise8, bytes, out).error().code, ec::malformed)
        << std::hex << nonsense;
    }
}

} // namespace
} // namespace waggle
