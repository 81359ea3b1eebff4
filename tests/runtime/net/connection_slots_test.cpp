#include "runtime/net/connection_slots.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

TEST(ConnectionSlots, TheOldestOfTheHostWithMostMakesRoom) {
  connection_slots slots{{4, 4}};
  EXPECT_FALSE(slots.add(1, "quiet"));
  EXPECT_FALSE(slots.add(2, "flood"));
  EXPECT_FALSE(slots.add(3, "flood"));
  EXPECT_FALSE(slots.add(4, "flood"));
  EXPECT_EQ(slots.add(5, "third"), 2U);
  EXPECT_EQ(slots.add(6, "flood"), 3U) << "its own";
  slots.remove(4);
  slots.remove(4);
  EXPECT_EQ(slots.size(), 3U);
  EXPECT_FALSE(slots.add(7, "flood"));
}

TEST(ConnectionSlots, OneHostGetsItsShareOnly) {
  connection_slots slots{{10, 2}};
  EXPECT_FALSE(slots.add(1, "a"));
  EXPECT_FALSE(slots.add(2, "a"));
  EXPECT_EQ(slots.add(3, "a"), 1U);
  EXPECT_FALSE(slots.add(4, "b"));
}

} // namespace
} // namespace waggle::net
