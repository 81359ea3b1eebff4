// Several codecs in one vector, for two peers whose parts are averaged here.

#include <gtest/gtest.h>

#include "runtime/codec/codec_choice.hpp"
#include "runtime/codec/part_reader.hpp"
#include "tests/runtime/codec/choices.hpp"
#include "tests/runtime/codec/samples.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

using namespace codec_samples;

constexpr std::size_t roots = 501;
constexpr std::size_t normals = 2'000;

/// √0 … √500, then normal values; the other peer has normal values throughout.
std::vector<float> vector_of(int peer) {
  auto values = bells(81 + static_cast<std::uint64_t>(peer), roots + normals);
  if (peer == 0)
    for (std::size_t i = 0; i < roots; ++i)
      values[i] = std::sqrt(static_cast<float>(i));
  return values;
}

/// The vector that both peers receive: each part is sent encoded, and its mean is returned encoded.
std::vector<float> averaged(const codec_choice& choice) {
  auto plan = plan_codecs(choice, std::vector<tensor_info>{{"0", roots}, {"1", normals}});
  EXPECT_TRUE(plan.ok());
  auto a = vector_of(0);
  auto b = vector_of(1);
  std::vector<float> out;
  for (const auto& run : *plan) {
    auto begin = static_cast<std::ptrdiff_t>(out.size());
    auto end = begin + static_cast<std::ptrdiff_t>(run.elements);
    auto left = travelled(run.codec, {a.begin() + begin, a.begin() + end});
    auto right = travelled(run.codec, {b.begin() + begin, b.begin() + end});
    for (std::size_t i = 0; i < left.size(); ++i)
      left[i] =
        static_cast<float>((static_cast<double>(left[i]) + static_cast<double>(right[i])) / 2);
    auto mean = travelled(run.codec, left);
    out.insert(out.end(), mean.begin(), mean.end());
  }
  return out;
}

std::vector<float> first(const std::vector<float>& both) {
  return {both.begin(), both.begin() + roots};
}
std::vector<float> second(const std::vector<float>& both) {
  return {both.begin() + roots, both.end()};
}

TEST(MixedCodecs, ATensorsResultDependsOnItsOwnCodecAlone) {
  for (auto mine : all_codecs()) {
    auto alone = averaged(per_index({mine, codec_id::none}));
    auto last = averaged(per_index({codec_id::none, mine}));
    for (auto other : all_codecs()) {
      if (other == mine)
        continue; // one run: a table codec would take one codebook for both
      SCOPED_TRACE(std::string{to_string(mine)} + " beside " + std::string{to_string(other)});
      EXPECT_EQ(first(averaged(per_index({mine, other}))), first(alone));
      EXPECT_EQ(second(averaged(per_index({other, mine}))), second(last));
    }
  }
}

TEST(MixedCodecs, TheErrorIsThatOfTheCodec) {
  auto exact = averaged(codec_id::none);
  for (auto codec : all_codecs()) {
    SCOPED_TRACE(to_string(codec));
    for (auto error :
         {mean_square_error(first(exact), first(averaged(per_index({codec, codec_id::none})))),
          mean_square_error(second(exact), second(averaged(per_index({codec_id::none, codec}))))}) {
      auto bits = bits_per_value(codec);
      if (codec == codec_id::none) {
        EXPECT_EQ(error, 0);
      } else if (codec == codec_id::bfloat16) {
        EXPECT_GT(error, 0);
        EXPECT_LE(error, 1e-3);
      } else {
        EXPECT_GT(error, bits == 16 ? 0 : 1e-5);
        EXPECT_LE(error, bits == 16 ? 1e-5 : bits == 8 ? 1e-2 : 400);
      }
    }
  }
}

} // namespace
} // namespace waggle
