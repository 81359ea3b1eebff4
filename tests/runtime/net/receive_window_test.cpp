#include "runtime/net/receive_window.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

TEST(ReceiveWindow, TakesAWindowAndNotAByteMore) {
  receive_window window{100};
  EXPECT_FALSE(window.take(101));
  EXPECT_TRUE(window.take(60));
  EXPECT_FALSE(window.take(41)) << "what was refused is not taken";
  EXPECT_TRUE(window.take(40));
  EXPECT_FALSE(window.take(1));
  EXPECT_TRUE(window.take(0));
}

TEST(ReceiveWindow, GrantsInStepsOfAQuarter) {
  receive_window window{100};
  ASSERT_TRUE(window.take(100));
  EXPECT_EQ(window.give_back(24), 0u);
  EXPECT_FALSE(window.take(1)) << "the grant was not sent yet";
  EXPECT_EQ(window.give_back(1), 25u);
  EXPECT_TRUE(window.take(25));
  EXPECT_FALSE(window.take(1));
}

TEST(ReceiveWindow, GrantsNeverMoreThanWasTaken) {
  receive_window window{100};
  EXPECT_EQ(window.give_back(1'000), 0u) << "nothing was taken";
  ASSERT_TRUE(window.take(30));
  EXPECT_EQ(window.give_back(static_cast<std::size_t>(-1)), 30u);
  EXPECT_EQ(window.give_back(30), 0u);
  EXPECT_TRUE(window.take(100));
  EXPECT_FALSE(window.take(1));
}

TEST(ReceiveWindow, HasNoRoundingThatBytesGetLostIn) {
  receive_window window{3}; // a quarter of it is less than a byte
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(window.take(3));
    EXPECT_EQ(window.give_back(1), 1u);
    EXPECT_EQ(window.give_back(2), 2u);
  }
}

TEST(ReceiveWindow, ASizeNearTheLargestNumberDoesNotWrapAround) {
  receive_window window{100};
  ASSERT_TRUE(window.take(50));
  EXPECT_FALSE(window.take(static_cast<std::size_t>(-1)));
  EXPECT_FALSE(window.take(static_cast<std::size_t>(-49)));
}

} // namespace
} // namespace waggle::net
