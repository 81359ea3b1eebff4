#include "runtime/codec/part_reader.hpp"

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

std::vector<float> random_values(random_source& random, std::size_t n) {
  std::vector<float> values(n);
  for (auto& x : values)
    x = static_cast<float>(random.unit() * 8 - 4);
  return values;
}

TEST(PartReader, AnyRangeHasTheBitsOfTheWhole) {
  for (auto codec : {codec_id::none, codec_id::float16})
    for (auto path : {instructions::portable, best_instructions()}) {
      SCOPED_TRACE(std::string{to_string(codec)} + ", seed 3");
      random_source random{3};
      auto values = random_values(random, 10'007);
      std::vector<std::byte> bytes(encoded_size(codec, values.size()));
      encode(codec, values, bytes);
      std::vector<float> whole(values.size());
      ASSERT_TRUE(decode(codec, bytes, whole).ok());
      auto reader = part_reader::open(codec, bytes, values.size(), path);
      ASSERT_TRUE(reader.ok());
      EXPECT_EQ(reader->elements(), values.size());
      for (int i = 0; i < 200; ++i) {
        auto begin = random.below(values.size() + 1);
        std::vector<float> some(random.below(values.size() - begin + 1));
        reader->read(begin, some);
        ASSERT_TRUE(some.empty()
                    || std::memcmp(some.data(), whole.data() + begin, some.size() * 4) == 0)
          << begin << " + " << some.size();
        std::vector<float> scratch(some.size());
        ASSERT_TRUE(
          some.empty()
          || std::memcmp(reader->view(begin, scratch), whole.data() + begin, some.size() * 4) == 0);
      }
    }
}

TEST(PartReader, PlainFloatsAreSeenWhereTheyLie) {
  std::vector<float> values{1, 2, 3, 4};
  auto reader = part_reader::open(codec_id::none, std::as_bytes(std::span{values}), 4);
  ASSERT_TRUE(reader.ok());
  std::vector<float> scratch(2);
  EXPECT_EQ(reader->view(1, scratch), values.data() + 1);

  std::vector<std::byte> shifted(17);
  std::memcpy(shifted.data() + 1, values.data(), 16);
  auto odd = part_reader::open(codec_id::none, byte_span{shifted}.subspan(1), 4);
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->view(1, scratch), scratch.data()) << "not aligned: copied";
  EXPECT_EQ(scratch[0], 2);
}

TEST(PartReader, LengthsThatDoNotFitAreRefused) {
  std::vector<std::byte> bytes(7);
  for (auto codec : {codec_id::none, codec_id::float16, static_cast<codec_id>(99)})
    EXPECT_EQ(part_reader::open(codec, bytes, 2).error().code, ec::wrong_shape);
}

} // namespace
} // namespace waggle
