#include "runtime/training/missed_updates.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

missed_update ending(std::uint64_t epoch, const std::string& branch = "a") {
  return {
    epoch_id{epoch}, std::make_shared<float_vector>(4, 1.0F), nullptr, 0.1, {}, 10, sha256(branch),
    sha256("a")};
}

TEST(MissedUpdates, LeadFromAStateToTheGroupsEpoch) {
  missed_updates missed{1'000};
  for (std::uint64_t e : {5, 6, 7, 8})
    ASSERT_TRUE(missed.add(ending(e)));
  auto updates = missed.take(epoch_id{7}, epoch_id{9});
  ASSERT_TRUE(updates);
  ASSERT_EQ(updates->size(), 2U);
  EXPECT_EQ(updates->front().epoch, epoch_id{7});
  EXPECT_EQ(missed.size(), 0U);
}

TEST(MissedUpdates, NoneIsMissingToAStateOfTheGroupsEpoch) {
  missed_updates missed{1'000};
  ASSERT_TRUE(missed.add(ending(5)));
  auto updates = missed.take(epoch_id{6}, epoch_id{6});
  ASSERT_TRUE(updates);
  EXPECT_TRUE(updates->empty());
}

TEST(MissedUpdates, AStateFromBeforeTheFirstOrAfterTheLastLeadsNowhere) {
  missed_updates missed{1'000};
  ASSERT_TRUE(missed.add(ending(5)));
  EXPECT_FALSE(missed.take(epoch_id{4}, epoch_id{6}));
  ASSERT_TRUE(missed.add(ending(5)));
  EXPECT_FALSE(missed.take(epoch_id{7}, epoch_id{6}));
}

TEST(MissedUpdates, TooManyBytesAreForgottenAsAWhole) {
  missed_updates missed{40};
  EXPECT_TRUE(missed.add(ending(1)));
  EXPECT_TRUE(missed.add(ending(2)));
  EXPECT_FALSE(missed.add(ending(3)));
  EXPECT_EQ(missed.bytes(), 0U);
}

TEST(MissedUpdates, AHistoryGrowsByWorkAndForks) {
  history line{sha256("a"), {}, {}, 100};
  line = ending(5).after(line);
  EXPECT_EQ(line, (history{sha256("a"), {}, {}, 110}));
  line = ending(6, "b").after(line);
  EXPECT_EQ(line, (history{sha256("b"), sha256("a"), epoch_id{6}, 120}));
}

} // namespace
} // namespace waggle
