#include "runtime/core/filling.hpp"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace waggle {
namespace {

TEST(Filling, HasWhatWasFilledInAnyOrder) {
  filling of;
  EXPECT_FALSE(of.has(0, 1));
  of.filled(8, 10);
  of.filled(2, 4);
  EXPECT_TRUE(of.has(8, 10));
  EXPECT_TRUE(of.has(3, 4));
  EXPECT_FALSE(of.has(3, 5));
  EXPECT_FALSE(of.has(2, 10));
  of.filled(4, 8); // between both
  EXPECT_TRUE(of.has(2, 10));
  EXPECT_FALSE(of.has(1, 10));
  of.filled(0, 3); // overlaps
  EXPECT_TRUE(of.has(0, 10));
  EXPECT_FALSE(of.has(0, 11));
  EXPECT_FALSE(of.ended());
  of.complete();
  EXPECT_TRUE(of.has(0, 11));
  EXPECT_TRUE(of.ended());
  EXPECT_FALSE(of.failed());
}

TEST(Filling, AfterAFailureNothingIsThere) {
  filling of;
  of.filled(0, 4);
  of.fail();
  EXPECT_FALSE(of.has(0, 4));
  of.filled(0, 4);
  of.complete();
  EXPECT_FALSE(of.has(0, 4));
  EXPECT_TRUE(of.failed());
  EXPECT_TRUE(of.ended());
}

TEST(Filling, TellsTheLastListenerOfEachChange) {
  filling of;
  int first = 0;
  int second = 0;
  of.listen([&] { ++first; });
  of.filled(0, 1);
  EXPECT_EQ(first, 1);
  of.listen([&] { second += of.ended() ? 10 : 1; }); // may ask
  of.filled(1, 2);
  of.complete();
  of.complete(); // changes nothing
  of.filled(3, 4);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 11);
}

TEST(Filling, WhoSeesThatValuesAreThereSeesTheValues) {
  std::vector<float> values(1000);
  filling of;
  std::thread writer{[&] {
    for (std::size_t i = values.size(); i-- > 0;) {
      values[i] = static_cast<float>(i);
      of.filled(i, i + 1);
    }
    of.complete();
  }};
  for (std::size_t i = values.size(); i-- > 0;) {
    while (!of.has(i, values.size()))
      std::this_thread::yield();
    EXPECT_EQ(values[i], static_cast<float>(i));
  }
  writer.join();
}

} // namespace
} // namespace waggle
