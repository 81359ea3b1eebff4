#include "runtime/net/connection_slots.hpp"

#include <optional>

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

struct noted_slots : connection_slots {
  using connection_slots::connection_slots;

  /// Which one was closed for it.
  std::optional<number> enter(number id, const std::string& host) {
    bool one = add(id, host, [this, id] { last = id; });
    return one ? std::optional{last} : std::nullopt;
  }

  number last = 0;
};

TEST(ConnectionSlots, TheOldestOfTheHostWithMostMakesRoom) {
  noted_slots slots{{4, 4}};
  EXPECT_FALSE(slots.enter(1, "quiet"));
  EXPECT_FALSE(slots.enter(2, "flood"));
  EXPECT_FALSE(slots.enter(3, "flood"));
  EXPECT_FALSE(slots.enter(4, "flood"));
  EXPECT_EQ(slots.enter(5, "third"), 2U);
  EXPECT_EQ(slots.enter(6, "flood"), 3U) << "its own";
  slots.remove(4);
  slots.remove(4);
  EXPECT_EQ(slots.size(), 3U);
  EXPECT_FALSE(slots.enter(7, "flood"));
}

TEST(ConnectionSlots, OneHostGetsItsShareOnly) {
  noted_slots slots{{10, 2}};
  EXPECT_FALSE(slots.enter(1, "a"));
  EXPECT_FALSE(slots.enter(2, "a"));
  EXPECT_EQ(slots.enter(3, "a"), 1U);
  EXPECT_FALSE(slots.enter(4, "b"));
}

TEST(StreamSlots, TheLastAreKeptForThisMachineAndNoneIsClosedForANewOne) {
  stream_slots slots;
  connection_slots::number id = 0;
  for (const std::string host : {"a", "b", "c"}) {
    for (int i = 0; i < 16; ++i)
      EXPECT_TRUE(slots.add(++id, host, false)) << host << i;
    EXPECT_FALSE(slots.add(++id, host, false)) << host << " has its share";
  }
  EXPECT_FALSE(slots.add(++id, "d", false)) << "what is left is not for others";
  for (int i = 0; i < 32; ++i)
    EXPECT_TRUE(slots.add(++id, "127.0.0.1", true)) << i;
  EXPECT_FALSE(slots.add(++id, "127.0.0.2", true)) << "there are eighty";
  slots.remove(1);
  EXPECT_FALSE(slots.add(++id, "d", false));
  EXPECT_TRUE(slots.add(++id, "127.0.0.2", true));
}

} // namespace
} // namespace waggle::net
