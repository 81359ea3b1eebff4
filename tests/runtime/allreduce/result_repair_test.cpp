#include "runtime/allreduce/result_repair.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

/// Member 3 lacks some groups of a result that members 0 and 1 say they hold.
class ResultRepair : public ::testing::Test {
protected:
  ResultRepair() {
    terms_.contributors = 7;
    terms_.weight_sum = 3;
    for (std::size_t group = 0; group < groups_.size(); ++group)
      right_.push_back(digest_of(group, 1));
  }

  std::shared_ptr<float_vector> values(std::uint32_t part, float value) const {
    return std::make_shared<float_vector>(parts_[part].count, value);
  }
  digest digest_of(std::size_t group, float value) const {
    std::map<std::uint32_t, std::shared_ptr<float_vector>> all;
    for (auto part : groups_[group])
      all[part] = values(part, value);
    return group_digest(terms_, groups_[group],
                        [&](std::uint32_t part) { return std::span<const float>{*all.at(part)}; });
  }
  result_repair begin(std::vector<digest> ours) const {
    auto of = terms_;
    of.weight_sum = 0; // not known here
    return {groups_, of, result_digest(terms_, right_), members_of({0, 1}), std::move(ours)};
  }
  /// All but the first group is here.
  [[nodiscard]] std::vector<digest> all_but_one() const {
    auto ours = right_;
    ours.front() = {};
    return ours;
  }
  /// False: one of the parts was refused.
  bool send_first_group(result_repair& repair, std::size_t from, float value = 1) const {
    bool good = true;
    for (auto part : groups_[0])
      good = repair.add_part(from, part, 3, values(part, value)) && good;
    return good;
  }

  const round_plan plan_ = plan_for(4);
  const part_table parts_{plan_};
  const part_groups groups_{parts_};
  result_terms terms_;
  std::vector<digest> right_;
};

TEST_F(ResultRepair, TakesTheGroupsThatDiffer) {
  auto repair = begin(all_but_one());
  EXPECT_FALSE(repair.done());
  ASSERT_TRUE(repair.add_list(0, right_));
  EXPECT_FALSE(repair.wants(0, groups_[1].front())) << "it is here already";
  EXPECT_FALSE(repair.wants(2, groups_[0].front())) << "not asked";
  ASSERT_TRUE(send_first_group(repair, 0));
  EXPECT_TRUE(repair.done());
  EXPECT_EQ(repair.take_checked().size(), groups_[0].size());
  EXPECT_TRUE(repair.take_checked().empty());
  EXPECT_EQ(repair.weight_sum(), 3);
  EXPECT_EQ(repair.groups(), right_);
}

TEST_F(ResultRepair, PartsMayOvertakeTheList) {
  auto repair = begin(all_but_one());
  ASSERT_TRUE(send_first_group(repair, 0));
  EXPECT_TRUE(repair.take_checked().empty()) << "not checked yet";
  ASSERT_TRUE(repair.add_list(1, right_));
  EXPECT_TRUE(repair.done());
}

TEST_F(ResultRepair, AListOfAnotherResultIsRefused) {
  auto repair = begin(all_but_one());
  auto wrong = right_;
  wrong.back() = digest_of(0, 2);
  EXPECT_FALSE(repair.add_list(0, wrong));
  EXPECT_EQ(repair.asked(), members_of({1}));
  wrong.pop_back();
  EXPECT_FALSE(repair.add_list(1, wrong));
  EXPECT_FALSE(repair.done());
}

TEST_F(ResultRepair, WrongBytesAreNotUsedAndAnotherMembersAre) {
  auto repair = begin(std::vector<digest>(groups_.size()));
  ASSERT_TRUE(repair.add_list(0, right_));
  EXPECT_FALSE(send_first_group(repair, 0, 2));
  EXPECT_FALSE(repair.wants(0, groups_[0].front())) << "it lied";
  EXPECT_TRUE(repair.take_checked().empty());
  EXPECT_TRUE(repair.wants(1, groups_[0].front()));
  EXPECT_TRUE(send_first_group(repair, 1));
  EXPECT_EQ(repair.take_checked().size(), groups_[0].size());
  EXPECT_FALSE(repair.done()) << "the other groups are missing";
}

TEST_F(ResultRepair, EachPartIsKeptOnceOfEachMember) {
  auto repair = begin(all_but_one());
  auto part = groups_[0].front();
  EXPECT_TRUE(repair.wants(0, part));
  (void)repair.add_part(0, part, 3, values(part, 2));
  EXPECT_FALSE(repair.wants(0, part));
}

} // namespace
} // namespace waggle
