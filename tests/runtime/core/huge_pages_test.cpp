#include "runtime/core/huge_pages.hpp"

#include <cstdint>

#include <gtest/gtest.h>

#include "runtime/core/float_vector.hpp"

namespace waggle {
namespace {

TEST(HugePages, LargeBlocksBeginAtOne) {
  huge_page_resource memory;
  float_vector large(1U << 20U, 1.0F, &memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data()) % huge_page_bytes, 0U);
  float_vector small(100, 1.0F, &memory);
  EXPECT_EQ(small[99] + large[(1U << 20U) - 1], 2.0F);
}

TEST(HugePages, OfMemoryThatHasNoneNothingIsAsked) {
  std::vector<char> small(huge_page_bytes);
  prefer_huge_pages(small.data() + 1, small.size() - 1);
  prefer_huge_pages(nullptr, 0);
}

} // namespace
} // namespace waggle
