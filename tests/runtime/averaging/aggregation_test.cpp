#include "runtime/averaging/aggregation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/named.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

constexpr aggregator robust[] = {aggregator::trimmed_mean, aggregator::median,
                                 aggregator::centered_clip, aggregator::krum,
                                 aggregator::median_norm};

TEST(Aggregation, AnUnknownNumberHasNoName) {
  EXPECT_EQ(to_string(static_cast<aggregator>(6)), "unknown");
}

TEST(Aggregation, TheNumberOfAnAggregatorIsItsRow) {
  for (std::size_t i = 0; i < aggregator_table.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(aggregator_table[i]->id), i) << aggregator_table[i]->name;
  EXPECT_EQ(selected(aggregator_table, &aggregator_row::robust).size(), aggregator_table.size() - 1)
    << "all but the mean";
}

TEST(Aggregation, EnoughContributorsAreWhatThePapersSay) {
  for (std::uint32_t f = 1; f <= 20; ++f) {
    EXPECT_EQ(contributors_needed({aggregator::trimmed_mean, f}), 2 * f + 1);
    EXPECT_EQ(contributors_needed({aggregator::median, f}), 2 * f + 1);
    EXPECT_EQ(contributors_needed({aggregator::centered_clip, f}), 2 * f + 1);
    EXPECT_EQ(contributors_needed({aggregator::krum, f}), 2 * f + 3);
    EXPECT_EQ(contributors_needed({aggregator::median_norm, f}), 2 * f + 1);
    for (auto how : robust) {
      auto needed = contributors_needed({how, f});
      EXPECT_TRUE(check_aggregation({how, f}, needed));
      EXPECT_EQ(effective_aggregator({how, f}, needed), how);
      auto few = check_aggregation({how, f}, needed - 1);
      EXPECT_EQ(few.error().code, ec::bad_config);
      EXPECT_THAT(few.error().detail, HasSubstr(std::string{to_string(how)}));
      EXPECT_THAT(few.error().detail, HasSubstr("needs " + std::to_string(needed)));
    }
  }
  EXPECT_EQ(contributors_needed({aggregator::krum, 0xffffffffU}), 0x200000001U) << "no wrap-around";
}

TEST(Aggregation, ARoundThatShrankTooMuchEndsWithTheMedian) {
  EXPECT_EQ(effective_aggregator({aggregator::trimmed_mean, 2}, 4), aggregator::median);
  EXPECT_EQ(effective_aggregator({aggregator::krum, 2}, 6), aggregator::median);
  EXPECT_EQ(effective_aggregator({aggregator::centered_clip, 2}, 2), aggregator::centered_clip);
  EXPECT_EQ(effective_aggregator({aggregator::median, 2}, 1), aggregator::median);
}

TEST(Aggregation, ContradictorySettingsAreRefused) {
  EXPECT_TRUE(check_aggregation({}, 1));
  auto mean = check_aggregation({aggregator::mean, 2}, 10);
  EXPECT_THAT(mean.error().detail, HasSubstr("one Byzantine contributor"));
  for (auto how : {aggregator::trimmed_mean, aggregator::krum}) {
    auto nobody = check_aggregation({how, 0}, 10);
    EXPECT_THAT(nobody.error().detail, HasSubstr("contributors that may be Byzantine"));
    EXPECT_EQ(effective_aggregator({how, 0}, 10), aggregator::mean);
  }
  EXPECT_TRUE(check_aggregation({aggregator::median, 0}, 1));
  EXPECT_EQ(check_aggregation({static_cast<aggregator>(9), 0}, 10).error().code, ec::bad_config);
}

} // namespace
} // namespace waggle
