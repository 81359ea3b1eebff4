// The codecs below eight bits, against vectors that a script computes, and what no encoder writes.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/error_feedback.hpp"
#include "runtime/codec/part_reader.hpp"
#include "runtime/codec/sparse2.hpp"
#include "tests/runtime/codec/samples.hpp"

namespace waggle {
namespace {

using namespace codec_samples;

nlohmann::json vectors() {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/codec/codec_vectors.json"};
  return nlohmann::json::parse(file);
}

/// As in codec_vectors.py.
std::vector<float> values_of(std::size_t n, std::size_t seed) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto x = static_cast<double>((i * 7'919 + seed * 131) % 2'003) - 1'001;
    out[i] = static_cast<float>(x * x * x / 0x1p20);
  }
  return out;
}

codec_id codec_of(const nlohmann::json& vector) {
  return *parse_codec(vector["codec"].get<std::string>());
}

TEST(LowBits, TheBytesAreThoseOfTheDefinition) {
  auto all = vectors()["encoded"];
  ASSERT_GT(all.size(), 10U);
  for (const auto& vector : all) {
    std::size_t n = vector["n"];
    SCOPED_TRACE(vector["codec"].get<std::string>() + ", " + std::to_string(n) + " values");
    auto bytes = encoded(codec_of(vector), values_of(n, n));
    EXPECT_EQ(to_hex(bytes), vector["bytes"].get<std::string>());
    std::vector<float> back(n);
    ASSERT_TRUE(decode(codec_of(vector), bytes, back).ok());
    for (const auto& [place, value] : vector["decoded"].items())
      EXPECT_EQ(static_cast<double>(back[std::stoul(place)]), value.get<double>()) << place;
  }
}

TEST(LowBits, FeedbackDecaysAsDefined) {
  const auto all = vectors();
  for (const auto& run : all["feedback"]) {
    auto codec = codec_of(run);
    std::size_t n = run["n"];
    SCOPED_TRACE(run["codec"].get<std::string>() + ", decay " + run["decay"].dump());
    error_feedback feedback{run["decay"].get<double>()};
    std::vector<float> sent(n);
    for (std::size_t round = 0; round < run["rounds"]; ++round) {
      feedback.begin(values_of(n, round), sent);
      feedback.commit(sent, std::vector<coded_part>{{0, static_cast<std::uint32_t>(n), codec}});
    }
    EXPECT_EQ(sent, run["sent"].get<std::vector<float>>());
    auto kept = feedback.residual();
    EXPECT_EQ(std::vector(kept.begin(), kept.end()), run["residual"].get<std::vector<float>>());
  }
}

TEST(Sparse2, KeepsTheLargestAndOfEqualOnesTheFirst) {
  for (const auto* kind : {"bell", "tails", "alike", "steps", "sparse", "tiny", "zeros"})
    for (std::size_t n : {3U, 64U, 500U, 4'096U, 9'000U}) {
      SCOPED_TRACE(std::string{kind} + ", seed 91, " + std::to_string(n) + " values");
      auto values = of_kind(kind, 91, n);
      auto bytes = encoded(codec_id::sparse2, values);
      auto reader = part_reader::open(codec_id::sparse2, bytes, n);
      ASSERT_TRUE(reader->is_sparse());
      for (std::size_t begin = 0; begin < n; begin += sparse_chunk) {
        auto count = std::min(sparse_chunk, n - begin);
        std::vector<std::uint16_t> want(count);
        for (std::size_t i = 0; i < count; ++i)
          want[i] = static_cast<std::uint16_t>(i);
        std::ranges::stable_sort(want, std::greater<>{},
                                 [&](auto place) { return std::fabs(values[begin + place]); });
        want.resize(codecs::kept_of(count));
        std::ranges::sort(want);
        std::array<std::uint16_t, sparse_chunk> places;
        std::array<float, sparse_chunk> kept;
        auto some = reader->kept(begin / sparse_chunk, places, kept);
        ASSERT_EQ(std::vector(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(some)),
                  want);
        for (std::size_t i = 0; i < some; ++i)
          ASSERT_EQ(values[begin + places[i]] < 0, std::signbit(kept[i]));
      }
    }
}

TEST(Sparse2, APoisonedChunkLeavesTheOthersAlone) {
  auto values = of_kind("bell", 92, 3 * sparse_chunk);
  auto clean = travelled(codec_id::sparse2, values);
  values[sparse_chunk + 5] = std::nanf("");
  auto back = travelled(codec_id::sparse2, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / sparse_chunk == 1)
      ASSERT_TRUE(std::isnan(back[i]));
    else
      ASSERT_EQ(back[i], clean[i]);
  }
}

class MalformedSparse2 : public ::testing::Test {
protected:
  /// 200 values, of which 4 are kept: magnitudes, six bytes of places, one of codes.
  std::vector<std::byte> bytes = encoded(codec_id::sparse2, of_kind("bell", 93, 200));

  [[nodiscard]] std::string refusal() const {
    std::vector<float> out(200);
    auto got = decode(codec_id::sparse2, bytes, out);
    if (got)
      return "";
    EXPECT_EQ(got.error().code, ec::malformed);
    return got.error().detail;
  }
  void set_places(std::initializer_list<std::size_t> places) {
    std::uint64_t bits = 0;
    for (auto at = std::rbegin(places); at != std::rend(places); ++at)
      bits = bits << 12U | *at;
    std::memcpy(bytes.data() + 8, &bits, 6);
  }
  void set_scale(std::size_t which, std::uint32_t bits) {
    std::memcpy(bytes.data() + 4 * which, &bits, 4);
  }
};

TEST_F(MalformedSparse2, PlacesOutOfOrderTwiceOrOutsideAreRefused) {
  set_places({0, 1, 2, 199});
  EXPECT_EQ(refusal(), "");
  set_places({0, 1, 2, 200});
  EXPECT_NE(refusal().find("outside"), std::string::npos);
  set_places({0, 1, 1, 2});
  EXPECT_NE(refusal().find("twice"), std::string::npos);
  set_places({0, 2, 1, 3});
  EXPECT_NE(refusal().find("order"), std::string::npos);
  set_places({4'095, 0, 1, 2});
  EXPECT_NE(refusal(), "");
}

TEST_F(MalformedSparse2, MagnitudesThatNoEncoderWritesAreRefused) {
  auto good = bytes;
  for (std::uint32_t nonsense : {0x7f800000U, 0xff800000U, 0x7fc00000U, 0x7fc00001U, 0x80000000U})
    for (std::size_t which : {0U, 1U}) {
      bytes = good;
      set_scale(which, nonsense);
      EXPECT_NE(refusal(), "") << std::hex << nonsense;
    }
  bytes = good;
  set_scale(1, 0); // high below low
  EXPECT_NE(refusal(), "");
  set_scale(0, 0x7fc00000U);
  set_scale(1, 0x7fc00000U);
  EXPECT_NE(refusal().find("NaN"), std::string::npos);
}

TEST_F(MalformedSparse2, BitsBehindTheLastPlaceOrCodeAreRefused) {
  bytes = encoded(codec_id::sparse2, of_kind("bell", 93, 190)); // 3 are kept
  auto good = bytes;
  std::vector<float> out(190);
  ASSERT_TRUE(decode(codec_id::sparse2, bytes, out).ok());
  for (auto [at, bit] : {std::pair{12U, 0x10U}, {12U, 0x80U}, {13U, 0x40U}, {13U, 0x80U}}) {
    bytes = good;
    bytes[at] |= static_cast<std::byte>(bit);
    EXPECT_EQ(decode(codec_id::sparse2, bytes, out).error().code, ec::malformed) << at;
  }
}

TEST(E3m0, TheCodeIsTheNearestEntryAndTheErrorWithinAThird) {
  for (const auto* kind : {"bell", "offset", "tails", "huge", "sparse", "bits", "largest"}) {
    auto values = of_kind(kind, 94, 5'001);
    auto back = travelled(codec_id::e3m0, values);
    for (std::size_t begin = 0; begin < values.size(); begin += codecs::e3m0_block) {
      auto end = std::min(begin + codecs::e3m0_block, values.size());
      double largest = 0;
      for (auto i = begin; i < end; ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
      for (auto i = begin; i < end; ++i) {
        auto x = std::fabs(static_cast<double>(values[i]));
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - static_cast<double>(values[i])),
                  std::max(x / 3, largest / 128) * 1.000001 + 1e-45)
          << kind << ", seed 94, " << i;
      }
    }
  }
}

} // namespace
} // namespace waggle
