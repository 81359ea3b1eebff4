#include "runtime/averaging/patience.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

const peer_id ann{{std::byte{1}}};
const peer_id bob{{std::byte{2}}};
const peer_id eve{{std::byte{3}}};

struct Patience : ::testing::Test {
  /// Rounds that waited so long for eve, `period` apart, to which she brought `weight` of 30.
  void rounds(std::size_t count, double waited, double period = 0.5, double weight = 10) {
    for (std::size_t i = 0; i < count; ++i)
      learned.add({{ann, 0, 0.01, 10}, {bob, 0.01, 0.01, 20 - weight}, {eve, waited, 0.01, weight}},
                  period + waited);
  }
  patience learned;
};

TEST_F(Patience, WhoKeepsMostRoundsWaitingIsSlow) {
  rounds(patience::late_rounds_min - 1, 1);
  EXPECT_TRUE(learned.slow().empty()) << "not for a few late rounds";
  rounds(1, 1);
  EXPECT_EQ(learned.slow(), std::vector{eve});
  rounds(patience::rounds_max - patience::late_rounds_min + 1, 0);
  EXPECT_TRUE(learned.slow().empty()) << "she has been in time since";
}

TEST_F(Patience, AWaitThatIsShortOrNotSeveralTimesThatOfTheOthersIsNone) {
  rounds(patience::rounds_max, 0.2);
  EXPECT_TRUE(learned.slow().empty());
  for (std::size_t i = 0; i < patience::rounds_max; ++i)
    learned.add({{ann, 0, 1, 10}, {bob, 0, 1, 10}, {eve, 2.9, 1, 10}}, 3);
  EXPECT_TRUE(learned.slow().empty()) << "all are slow";
}

TEST_F(Patience, WhoSavesTheOthersMoreThanTheyWaitStays) {
  rounds(patience::rounds_max, 1, 1.9); // half as much again as the others bring: 1.9 / 2 s saved
  EXPECT_EQ(learned.slow(), std::vector{eve});
  rounds(patience::rounds_max, 1, 2.1);
  EXPECT_TRUE(learned.slow().empty());
}

TEST_F(Patience, WhoWasLeftOutBeginsAnew) {
  rounds(patience::rounds_max, 1);
  learned.add({{ann, 0, 0.01, 10}, {bob, 0, 0.01, 10}}, 0.5);
  rounds(1, 1);
  EXPECT_TRUE(learned.slow().empty());
}

TEST_F(Patience, TwoCannotTellAndHalfOfAGroupIsNotLeftBehind) {
  for (std::size_t i = 0; i < patience::rounds_max; ++i)
    learned.add({{ann, 0, 0, 10}, {eve, 1, 0, 10}}, 1.1);
  EXPECT_TRUE(learned.slow().empty());
  const peer_id dan{{std::byte{4}}};
  for (std::size_t i = 0; i < patience::rounds_max; ++i)
    learned.add({{ann, 0, 0, 10}, {bob, 0, 0, 10}, {dan, 1, 0, 10}, {eve, 1, 0, 10}}, 1.1);
  EXPECT_TRUE(learned.slow().empty());
}

} // namespace
} // namespace waggle
