#include "runtime/codec/part_reader.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(PartReader, PlainFloatsAreSeenWhereTheyLie) {
  std::vector<float> values{1, 2, 3, 4};
  auto reader = part_reader::open(codec_id::none, std::as_bytes(std::span{values}), 4);
  std::vector<float> scratch(2);
  EXPECT_EQ(reader->view(1, scratch), values.data() + 1);

  std::vector<std::byte> shifted(17);
  std::memcpy(shifted.data() + 1, values.data(), 16);
  auto odd = part_reader::open(codec_id::none, byte_span{shifted}.subspan(1), 4);
  EXPECT_EQ(odd->view(1, scratch), scratch.data()) << "not aligned: copied";
  EXPECT_EQ(scratch[0], 2);
}

TEST(PartReader, AnUnknownCodecIsRefused) {
  std::vector<std::byte> bytes(8);
  for (auto codec : {static_cast<codec_id>(codec_table.size()), static_cast<codec_id>(255)})
    EXPECT_EQ(part_reader::open(codec, bytes, 2).error().code, ec::wrong_shape);
}

} // namespace
} // namespace waggle
