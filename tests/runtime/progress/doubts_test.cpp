#include "runtime/progress/doubts.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

TEST(Doubts, AreLoggedWhenTheHistoryIsNewAndOnceAMinute) {
  doubts it;
  auto now = steady_time{} + milliseconds{1'000'000};
  history_choice::doubt found{sha256("theirs"), 5, 2, {}};
  EXPECT_TRUE(it.note(found, now));
  EXPECT_FALSE(it.note(found, now));
  EXPECT_EQ(it.strangers(), 3U);
  EXPECT_TRUE(it.seen(now).text().starts_with("5 peers"));
  found.supporters = 4;
  EXPECT_FALSE(it.note(found, now)) << "fewer are shown, and not logged";
  EXPECT_TRUE(it.seen(now).text().starts_with("4 peers"));
  EXPECT_TRUE(it.note(found, now + milliseconds{60'000}));
  found.branch = sha256("of others");
  EXPECT_TRUE(it.note(found, now + milliseconds{60'001}));
  EXPECT_FALSE(it.note(std::nullopt, now));
  EXPECT_EQ(it.strangers(), 0U);
  EXPECT_TRUE(it.seen(now).text().empty());
}

TEST(Doubts, AClaimThatIsNotSoIsShownForAMinute) {
  doubts it;
  auto now = steady_time{} + milliseconds{1'000'000};
  it.show("peer 7 lies", now);
  EXPECT_EQ(it.seen(now + milliseconds{59'999}).text(), "peer 7 lies");
  EXPECT_EQ(it.seen(now + milliseconds{60'000}).text(), "");
}

} // namespace
} // namespace waggle
