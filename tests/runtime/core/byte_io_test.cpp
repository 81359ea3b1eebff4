#include "runtime/core/byte_io.hpp"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(ByteIo, ReadsBackWhatWasWritten) {
  auto id = *round_id::from_raw("0123456789abcdef");
  byte_writer out;
  out.put(std::uint8_t{200}).put(std::uint64_t{1} << 40U).put(-2.5F).put(id).put_raw("tail");
  auto text = out.take();
  byte_reader in{text};
  EXPECT_EQ(in.get<std::uint8_t>(), 200);
  EXPECT_EQ(in.get<std::uint64_t>(), std::uint64_t{1} << 40U);
  EXPECT_EQ(in.get<float>(), -2.5F);
  EXPECT_EQ(in.get<round_id>(), id);
  EXPECT_EQ(in.left(), 4U);
  EXPECT_EQ(in.get_raw(4), "tail");
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.left(), 0U);
}

TEST(ByteIo, ReadsSeveralFieldsWithTextsAndRanges) {
  std::array<std::uint16_t, 2> pair{1, 2};
  auto text = byte_writer{}.put(true, epoch_id{7}, pair).put_text<std::uint8_t>("abc").take();
  byte_reader in{text};
  bool yes = false;
  epoch_id epoch;
  std::array<std::uint16_t, 2> read{};
  in.read(yes, epoch, read);
  EXPECT_TRUE(yes);
  EXPECT_EQ(epoch, epoch_id{7});
  EXPECT_EQ(read, pair);
  EXPECT_EQ(in.get_text<std::uint8_t>(), "abc");
  EXPECT_TRUE(in.ok());
}

TEST(ByteIo, NumbersAreLittleEndian) {
  EXPECT_EQ(byte_writer{}.put(std::uint32_t{0x01020304}).take(), "\x04\x03\x02\x01");
}

TEST(ByteIo, AReadPastTheEndYieldsZerosAndStaysNotOk) {
  byte_reader in{std::string_view{"abc"}};
  EXPECT_EQ(in.get<std::uint32_t>(), 0U);
  EXPECT_FALSE(in.ok());
  in.get<std::uint8_t>(); // a byte is left, but the parse has failed
  EXPECT_FALSE(in.ok());
}

TEST(ByteIo, ALengthFromOutsideCannotOverflow) {
  byte_reader in{std::string_view{"abc"}};
  EXPECT_TRUE(in.get_raw(std::numeric_limits<std::size_t>::max()).empty());
  EXPECT_FALSE(in.ok());
}

} // namespace
} // namespace waggle
