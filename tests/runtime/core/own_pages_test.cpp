#include "runtime/core/own_pages.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "runtime/core/bytes.hpp"

namespace waggle {
namespace {

constexpr std::size_t page = 4_KiB;

TEST(OwnPages, ExistOnceTheyAreWrittenAndUntilTheyAreReleased) {
  auto block = own_pages(8 * page);
  auto* at = block.get();
  std::array<unsigned char, 8> resident{};
  ASSERT_EQ(::mincore(at, 8 * page, resident.data()), 0);
  EXPECT_EQ(resident, (std::array<unsigned char, 8>{}));
  std::memset(at + 5 * page, 7, 1);
  ASSERT_EQ(::mincore(at, 8 * page, resident.data()), 0);
  EXPECT_EQ(resident, (std::array<unsigned char, 8>{0, 0, 0, 0, 0, 1, 0, 0}));
  auto copy = block;
  block.reset();
  EXPECT_EQ(copy.get()[5 * page], std::byte{7});
  copy.reset();
  EXPECT_EQ(::mincore(at, 8 * page, resident.data()), -1);
  EXPECT_EQ(errno, ENOMEM) << "nothing is mapped there any more";
}

} // namespace
} // namespace waggle
