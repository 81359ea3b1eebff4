#include "runtime/averaging/result_digest.hpp"

#include <gtest/gtest.h>

#include "runtime/averaging/result_comparison.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/crypto/poly1305.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

digest named(int number) {
  return sha256(std::to_string(number));
}

TEST(Poly1305, ComputesTheTagOfTheStandard) { // RFC 8439, section 2.5.2
  auto key = digest::parse("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b");
  ASSERT_TRUE(key);
  poly1305 tagger{*key};
  for (int again = 0; again < 2; ++again) {
    tagger.begin();
    tagger.add(as_byte_span("Cryptographic Forum "));
    tagger.add(as_byte_span("Research Group"));
    EXPECT_EQ(to_hex(tagger.finish()), "a8061dc1305136c6c22b8baf0c0127a9");
  }
}

/// A result of 40 values in parts of 10.
class ResultDigest : public ::testing::Test {
protected:
  ResultDigest() : plan_(plan_for(4, 10, 10)), table_(plan_), groups_(table_) {
    values_.assign(plan_.elements, 1.5F);
  }
  part_values parts() const {
    return [this](std::uint32_t i) {
      return std::span<const float>{values_}.subspan(table_[i].offset, table_[i].count);
    };
  }
  digest plain() const {
    std::vector<digest> all;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      all.push_back(group_digest(terms_, groups_[g], parts()));
    return result_digest(terms_, all);
  }
  digest keyed(const digest& key) const {
    return keyed_result_digest(terms_, key, groups_, parts());
  }

  round_plan plan_;
  part_table table_;
  part_groups groups_;
  std::vector<float> values_;
  result_terms terms_{round_id{}, 15, 4};
};

TEST_F(ResultDigest, EveryPartIsAGroupOfItsOwnWhileThereAreFew) {
  ASSERT_EQ(groups_.size(), table_.size());
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    EXPECT_EQ(groups_[i], std::vector<std::uint32_t>{i});
    EXPECT_EQ(groups_.group_of(i), i);
  }
}

TEST_F(ResultDigest, ManyPartsShareGroupsOfOneOwner) {
  plan_.part_elements = 1;
  plan_.elements = 30'000;
  plan_.codecs = {{30'000, codec_id::none}};
  plan_.shares = {10'000, 1, 9'999, 10'000};
  part_table table{plan_};
  part_groups groups{table};
  EXPECT_LE(groups.size(), result_groups_max);
  std::size_t parts = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (auto part : groups[g]) {
      EXPECT_EQ(table[part].default_owner, table[groups[g].front()].default_owner);
      EXPECT_EQ(groups.group_of(part), g);
      ++parts;
    }
  EXPECT_EQ(parts, table.size());
}

TEST_F(ResultDigest, DependsOnEveryBitAndOnTheTerms) {
  auto before = plain();
  auto before_keyed = keyed(named(1));
  EXPECT_NE(before, before_keyed);
  EXPECT_NE(keyed(named(2)), before_keyed);
  values_.back() = -values_.back();
  EXPECT_NE(plain(), before);
  EXPECT_NE(keyed(named(1)), before_keyed);
  values_.back() = -values_.back();
  EXPECT_EQ(plain(), before);
  for (auto change : {&result_terms::weight_sum}) {
    terms_.*change += 1;
    EXPECT_NE(plain(), before);
    EXPECT_NE(keyed(named(1)), before_keyed);
    terms_.*change -= 1;
  }
  terms_.contributors = 7;
  EXPECT_NE(plain(), before);
  EXPECT_NE(keyed(named(1)), before_keyed);
}

TEST(ResultKey, NeedsAShareOfEachParticipantOfThisView) {
  by_view<digest> key;
  round_view view{3, 7, 7, false, {}};
  key.add(0, 3, named(0));
  key.add(1, 2, named(1));
  key.add(2, 3, named(2));
  EXPECT_EQ(key.missing(view), members_of({1})) << "its share is of an earlier view";
  key.add(1, 3, named(3));
  EXPECT_TRUE(key.missing(view).empty());
  auto made = result_key(key, view);
  key.add(1, 3, named(4));
  key.add(1, 2, named(4));
  EXPECT_EQ(result_key(key, view), made) << "the first share for a view counts";
  view.participants = 5;
  EXPECT_NE(result_key(key, view), made);
}

/// Four members and three groups; group g is reduced by member g.
class ResultComparison : public ::testing::Test {
protected:
  void says(std::size_t member, std::array<int, 3> groups) {
    lists_.add(member, 5, {named(groups[0]), named(groups[1]), named(groups[2])});
  }
  result_findings judge(std::size_t self) const {
    return compare_results(lists_, 5, member_set::first(4), self,
                           [](std::size_t group) { return std::optional{group}; });
  }
  result_lists lists_;
};

TEST_F(ResultComparison, EqualResultsAreNobodysFault) {
  for (std::size_t m = 0; m < 4; ++m)
    says(m, {1, 2, 3});
  EXPECT_TRUE(judge(0).at_fault.empty());
  EXPECT_TRUE(judge(0).we_hold_most);
}

TEST_F(ResultComparison, AReducerThatSaysOtherwiseThanMostIsAtFault) {
  says(0, {9, 2, 3});
  for (std::size_t m = 1; m < 4; ++m)
    says(m, {1, 2, 3});
  EXPECT_EQ(judge(3).at_fault, members_of({0}));
  EXPECT_TRUE(judge(3).we_hold_most);
  EXPECT_FALSE(judge(0).we_hold_most);
}

TEST_F(ResultComparison, AReducerOfWhichNoTwoHoldTheSameIsAtFault) {
  for (int m = 0; m < 4; ++m)
    says(static_cast<std::size_t>(m), {1, 10 + m, 3});
  EXPECT_EQ(judge(0).at_fault, members_of({1}));
  EXPECT_FALSE(judge(0).we_hold_most);
}

TEST_F(ResultComparison, NobodyIsBlamedForOneMemberThatDiffers) {
  for (std::size_t m = 0; m < 3; ++m)
    says(m, {1, 2, 3});
  says(3, {1, 9, 3});
  EXPECT_TRUE(judge(0).at_fault.empty()) << "it or the reducer may lie";
  EXPECT_TRUE(judge(0).we_hold_most);
  EXPECT_FALSE(judge(3).we_hold_most);
}

TEST_F(ResultComparison, TheFirstListForTheHighestViewCounts) {
  lists_.add(0, 5, {named(1)});
  lists_.add(0, 5, {named(2)});
  EXPECT_EQ(lists_.of(0, 5).front(), named(1));
  lists_.add(0, 4, {named(3)});
  EXPECT_NE(lists_.find(0, 5), nullptr);
  lists_.add(0, 6, {named(4)});
  EXPECT_EQ(lists_.find(0, 5), nullptr);
  EXPECT_NE(lists_.find(0, 6), nullptr);
}

} // namespace
} // namespace waggle
