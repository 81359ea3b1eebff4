#include "runtime/matchmaking/group_key.hpp"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

round_id some_round(std::uint64_t seed) {
  round_id id;
  random_source{seed}.fill(id.bytes);
  return id;
}

std::string why(const result<group_key>& key) {
  return key ? "" : key.error().detail;
}

// -- the text ------------------------------------------------------------------------------------

TEST(GroupKey, IsPrefixAndBits) {
  EXPECT_EQ(group_key::make("bert_avg", "0110")->text(), "bert_avg.0b0110");
  EXPECT_EQ(group_key::make("bert_avg", "")->text(), "bert_avg.0b");
}

TEST(GroupKey, NamesWhatIsWrong) {
  EXPECT_THAT(why(group_key::make("", "0")), testing::HasSubstr("empty"));
  EXPECT_THAT(why(group_key::make("a.b", "0")), testing::HasSubstr("a.b"));
  EXPECT_THAT(why(group_key::make("a", "012")), testing::HasSubstr("012"));
  EXPECT_THAT(why(group_key::make("a", std::string(65, '0'))), testing::HasSubstr("65"));
  EXPECT_THAT(why(group_key::make(std::string(129, 'a'), "")), testing::HasSubstr("129"));
  EXPECT_EQ(group_key::make("", "0").error().code, ec::bad_config);
}

// -- re-keying -----------------------------------------------------------------------------------

TEST(GroupKey, DigitsHaveTheWidthOfTheBuckets) {
  EXPECT_EQ(bucket_digits(0, 2), "0");
  EXPECT_EQ(bucket_digits(1, 2), "1");
  EXPECT_EQ(bucket_digits(2, 3), "10");
  EXPECT_EQ(bucket_digits(3, 8), "011");
  EXPECT_EQ(bucket_digits(7, 8), "111");
  EXPECT_EQ(bucket_digits(8, 9), "1000");
  EXPECT_EQ(bucket_digits(0, 1), "0");
}

TEST(GroupKey, MembersOfAGroupGetDifferentBuckets) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random{seed};
    auto buckets = 1 + random.below(64);
    auto members = 1 + random.below(buckets);
    auto indices = distinct_indices(some_round(seed), members, buckets);
    EXPECT_EQ(indices.size(), members);
    EXPECT_EQ(std::set(indices.begin(), indices.end()).size(), members);
    EXPECT_THAT(indices, testing::Each(testing::Lt(buckets)));
    EXPECT_EQ(indices, distinct_indices(some_round(seed), members, buckets)) << "at every member";
  }
}

TEST(GroupKey, EveryArrangementIsAsLikely) {
  std::map<std::vector<std::uint32_t>, int> seen;
  constexpr int rounds = 24'000;
  for (int i = 0; i < rounds; ++i)
    ++seen[distinct_indices(some_round(static_cast<std::uint64_t>(i)), 2, 4)];
  EXPECT_EQ(seen.size(), 12u); // 4·3
  for (const auto& [indices, times] : seen)
    EXPECT_NEAR(times, rounds / 12, 200) << testing::PrintToString(indices); // 4.7 sigma
}

TEST(GroupKey, TheNumbersAreTheseOnEveryMachine) {
  round_id id;
  EXPECT_THAT(distinct_indices(id, 8, 8), testing::ElementsAre(5, 4, 6, 3, 2, 7, 1, 0));
}

TEST(GroupKey, ShiftsItsNewDigitsIn) {
  auto id = some_round(1);
  for (const std::string bits : {"1", "10", "0110", "1111111"}) {
    for (std::size_t position = 0; position < 4; ++position) {
      auto key = *group_key::make("p", bits);
      key.move_on(id, position, 4, 4);
      auto digits = bucket_digits(distinct_indices(id, 4, 4)[position], 4);
      auto expected = bits + digits;
      EXPECT_EQ(key.bits(), expected.substr(expected.size() - bits.size()));
      EXPECT_EQ(key.prefix(), "p");
    }
  }
}

TEST(GroupKey, WithoutBitsItStaysWithoutBits) {
  auto key = *group_key::make("p", "");
  for (std::uint64_t seed = 1; seed < 10; ++seed)
    key.move_on(some_round(seed), 0, 2, 64);
  EXPECT_EQ(key.bits(), "");
}

TEST(GroupKey, MembersOfAGroupDoNotMeetAgainBeforeTheirDigitsAreGone) {
  std::set<std::string> keys;
  for (std::size_t position = 0; position < 8; ++position) {
    auto key = *group_key::make("p", "010010");
    key.move_on(some_round(3), position, 8, 8);
    EXPECT_TRUE(keys.insert(key.text()).second);
    EXPECT_EQ(key.bits().substr(0, 3), "010");
  }
}

} // namespace
} // namespace waggle
