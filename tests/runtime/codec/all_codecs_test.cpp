// What holds for every codec.

#include "tests/support/all_codecs.hpp"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/part_reader.hpp"
#include "tests/runtime/codec/samples.hpp"

namespace waggle {
namespace {

using namespace codec_samples;

const std::vector<std::size_t> lengths{1,   2,   3,     4,     5,     16,    33,    100,   341,
                                       342, 343, 1'000, 4'095, 4'096, 4'097, 8'192, 40'003};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

class AllCodecs : public ::testing::TestWithParam<codec_id> {};
INSTANTIATE_TEST_SUITE_P(, AllCodecs, ::testing::ValuesIn(all_codecs().begin(), all_codecs().end()),
                         [](const auto& info) { return std::string{to_string(info.param)}; });

TEST_P(AllCodecs, TheProcessorAndThePortableCodeGiveTheSameBits) {
  auto codec = GetParam();
  for (const auto& kind : kinds())
    for (auto n : lengths) {
      SCOPED_TRACE(kind + ", " + std::to_string(n) + " values, seed 21");
      auto values = of_kind(kind, 21, n);
      auto bytes = encoded(codec, values);
      ASSERT_EQ(bytes, encoded(codec, values, instructions::portable));
      std::vector<float> fast(n);
      std::vector<float> portable(n);
      ASSERT_TRUE(decode(codec, bytes, fast).ok());
      ASSERT_TRUE(decode(codec, bytes, portable, instructions::portable).ok());
      ASSERT_TRUE(same_bits(fast, portable));
    }
}

TEST_P(AllCodecs, FiniteValuesStayFinite) {
  for (const auto& kind : kinds())
    for (auto n : lengths) {
      auto back = travelled(GetParam(), of_kind(kind, 22, n));
      ASSERT_EQ(back.size(), n);
      EXPECT_TRUE(std::all_of(back.begin(), back.end(), [](float x) { return std::isfinite(x); }))
        << kind << ", " << n << " values, seed 22";
    }
}

TEST_P(AllCodecs, APoisonedPartIsNotFiniteAfterDecodingEither) {
  auto codec = GetParam();
  random_source random{23};
  for (auto poison : {std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity(), std::nanf(""), -std::nanf("")})
    for (auto n : lengths) {
      auto values = of_kind("bell", 23, n);
      auto at = random.below(n);
      values[at] = poison;
      SCOPED_TRACE(std::to_string(n) + " values, seed 23, poison at " + std::to_string(at));
      auto bytes = encoded(codec, values);
      ASSERT_EQ(bytes, encoded(codec, values, instructions::portable));
      std::vector<float> back(n);
      ASSERT_TRUE(decode(codec, bytes, back).ok()) << "not finite, but not malformed";
      EXPECT_FALSE(std::isfinite(back[at]));
    }
}

TEST_P(AllCodecs, TwoInfinitiesThatCancelAreSeenToo) {
  auto values = of_kind("bell", 24, 5'000);
  values[4'500] = std::numeric_limits<float>::infinity();
  values[4'516] = -std::numeric_limits<float>::infinity();
  auto back = travelled(GetParam(), values);
  ASSERT_FALSE(back.empty());
  EXPECT_FALSE(std::isfinite(back[4'500]));
  EXPECT_FALSE(std::isfinite(back[4'516]));
}

TEST_P(AllCodecs, ValuesThatAreAllAlikeSurviveExactlyOrNearly) {
  auto codec = GetParam();
  if (codec == codec_id::sparse2)
    GTEST_SKIP() << "keeps one of 64";
  for (auto n : lengths)
    for (float x : {0.0F, 0.1F, -3.0e7F, 1e-30F}) {
      if (codec == codec_id::float16 && x < -65'504)
        continue;
      auto back = travelled(codec, std::vector<float>(n, x));
      auto tolerance = codec == codec_id::float16      ? std::fabs(x) * 0x1p-11F + 0x1p-25F
                       : codec == codec_id::bfloat16   ? std::fabs(x) * 0x1p-8F
                       : codec == codec_id::blockwise8 ? std::fabs(x) * 0.00704F
                                                       : 0.0F;
      for (auto y : back)
        ASSERT_NEAR(y, x, tolerance) << n << " values";
    }
}

TEST_P(AllCodecs, APartIsNeverLongerThanItsFloats) {
  auto codec = GetParam();
  EXPECT_EQ(encoded_size(codec, 0), 0U);
  for (std::size_t n = 1; n < 3'000; ++n) {
    ASSERT_LE(encoded_size(codec, n), 4 * n);
    ASSERT_EQ(written_as(codec, n) == codec_id::none, encoded_size(codec, n) == 4 * n);
    ASSERT_GE(8.0 * static_cast<double>(encoded_size(codec, n)), n * bits_per_value(codec));
  }
  EXPECT_LE(static_cast<double>(encoded_size(codec, 1U << 20U)),
            (1U << 17U) * bits_per_value(codec) + 2'048);
}

TEST_P(AllCodecs, APartTooSmallToGainIsExact) {
  auto codec = GetParam();
  for (std::size_t n = 1; n < 400; ++n) {
    if (written_as(codec, n) != codec_id::none)
      continue;
    auto values = of_kind("bits", 25, n);
    ASSERT_TRUE(same_bits(travelled(codec, values), values)) << n << " values, seed 25";
  }
}

TEST_P(AllCodecs, AnyRangeHasTheBitsOfTheWhole) {
  auto codec = GetParam();
  for (std::size_t n : {200U, 10'007U})
    for (auto path : {instructions::portable, best_instructions()}) {
      SCOPED_TRACE(std::to_string(n) + " values, seed 3");
      random_source random{3};
      auto bytes = encoded(codec, of_kind("tails", 3, n));
      std::vector<float> whole(n);
      ASSERT_TRUE(decode(codec, bytes, whole).ok());
      auto reader = part_reader::open(codec, bytes, n, path);
      EXPECT_EQ(reader->elements(), n);
      for (int i = 0; i < 200; ++i) {
        auto begin = random.below(n);
        std::vector<float> some(random.below(n - begin) + 1);
        reader->read(begin, some);
        ASSERT_EQ(std::memcmp(some.data(), whole.data() + begin, some.size() * 4), 0)
          << begin << " + " << some.size();
        std::vector<float> scratch(some.size());
        ASSERT_EQ(std::memcmp(reader->view(begin, scratch), whole.data() + begin, some.size() * 4),
                  0);
      }
      reader->read(n, {});
    }
}

TEST_P(AllCodecs, LengthsThatDoNotFitAreRefused) {
  auto codec = GetParam();
  for (std::size_t n : {1U, 7U, 500U, 5'000U}) {
    auto bytes = encoded(codec, of_kind("bell", 4, n));
    std::vector<float> out(n);
    for (auto wrong : {bytes.size() - 1, bytes.size() + 1, std::size_t{0}}) {
      auto other = bytes;
      other.resize(wrong);
      EXPECT_EQ(decode(codec, other, out).error().code, ec::wrong_shape);
    }
    EXPECT_EQ(part_reader::open(codec, bytes, n + 64).error().code, ec::wrong_shape);
    EXPECT_EQ(part_reader::open(codec, bytes, n + (std::size_t{1} << 62U)).error().code,
              ec::wrong_shape)
      << "sizes that overflow";
  }
  EXPECT_TRUE(decode(codec, {}, {}).ok());
}

TEST_P(AllCodecs, RandomBytesNeverCrashTheDecoder) {
  auto codec = GetParam();
  random_source random{26};
  int opened = 0;
  for (int i = 0; i < 2'000; ++i) {
    auto n = 1 + random.below(6'000);
    std::vector<std::byte> bytes(encoded_size(codec, n));
    random.fill(bytes);
    std::vector<float> out(n);
    auto decoded = decode(codec, bytes, out);
    opened += static_cast<int>(decoded.ok());
    if (!decoded) {
      ASSERT_EQ(decoded.error().code, ec::malformed) << "seed 26, case " << i;
    }
  }
  if (codec == codec_id::uniform8 || codec == codec_id::quantile8) {
    EXPECT_LT(opened, 1'000) << "a random codebook has an infinite entry more often than not";
  }
}

struct expected {
  codec_id codec;
  double error_max;    // the mean square, of normally distributed values
  std::uint64_t bytes; // FNV-1a
};
constexpr expected all_expected[]{
  {codec_id::none, 5e-324, 0xc0b326442c26eff1U},
  {codec_id::float16, 5e-8, 0x59eeef9610dc21c2U},
  {codec_id::scaled_float16, 5e-8, 0x54d913858971d4e0U},
  {codec_id::bfloat16, 4e-6, 0xbe62023af9705edeU}, // three bits less than a half
  {codec_id::uniform8, 8e-4, 0xc36dda2c95e78f98U},
  {codec_id::quantile8, 8e-4, 0xff27d39c854c7af2U},
  {codec_id::blockwise8, 8e-4, 0xd81493132a8e76f3U},
  {codec_id::e3m0, 0.05, 0xd88c3c4f741453bdU},
  // The largest 64 of 4096 are beyond ±2.4 deviations.
  {codec_id::sparse2, 0.9, 0xa200558305896b70U}};

expected expected_of(codec_id codec) {
  const auto* found = std::ranges::find(all_expected, codec, &expected::codec);
  EXPECT_NE(found, std::end(all_expected)) << "bytes and bound of a new codec are missing";
  return found == std::end(all_expected) ? expected{} : *found;
}

TEST_P(AllCodecs, TheErrorOnNormalValuesIsSmall) {
  auto codec = GetParam();
  auto values = bells(27, 128 * 128 * 64);
  auto back = travelled(codec, values);
  ASSERT_EQ(back.size(), values.size());
  auto error = mean_square_error(values, back);
  EXPECT_LT(error, expected_of(codec).error_max);
  RecordProperty("mean_square_error", std::to_string(error));
  for (auto zero : travelled(codec, std::vector<float>(25)))
    EXPECT_EQ(zero, 0);
}

std::uint64_t fingerprint(std::uint64_t so_far, const std::vector<std::byte>& bytes) { // FNV-1a
  for (auto b : bytes)
    so_far = (so_far ^ static_cast<std::uint64_t>(b)) * 0x100000001b3U;
  return so_far;
}

// The bytes are part of the protocol: they must not change with the compiler or the processor.
TEST_P(AllCodecs, TheBytesAreTheSameOnEveryMachine) {
  std::uint64_t got = 0xcbf29ce484222325U;
  for (const auto& kind : kinds())
    for (auto n : lengths)
      got = fingerprint(got, encoded(GetParam(), of_kind(kind, 28, n)));
  EXPECT_EQ(got, expected_of(GetParam()).bytes) << std::hex << got;
}

} // namespace
} // namespace waggle
