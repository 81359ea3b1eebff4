#include "runtime/averaging/sum_checks.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

/// 4 members, 100 parts each.
class SumChecks : public ::testing::Test {
protected:
  std::vector<sum_check> draw(const std::string& key, double share, round_view view,
                              member_set able = member_set::first(4)) const {
    return draw_checks(sha256(key), share, parts_, view, able);
  }

  const round_plan plan_ = plan_for(4, 400, 4);
  const part_table parts_{plan_};
  const round_view first_ = first_view(plan_);
};

TEST_F(SumChecks, OfAllPartsCoverEachOnce) {
  auto drawn = draw("key", 1, first_);
  ASSERT_EQ(drawn.size(), parts_.size());
  for (std::uint32_t i = 0; i < parts_.size(); ++i)
    EXPECT_EQ(drawn[i].part, i);
  EXPECT_TRUE(draw("key", 0, first_).empty());
}

TEST_F(SumChecks, AreNeverOfThePartsReducerOrOfWhoMayNotCheck) {
  auto view = first_;
  view.participants = 0b1110; // the parts of member 0 have other owners
  for (const auto& check : draw("key", 1, view, members_of({0, 1, 3}))) {
    EXPECT_NE(check.checker, parts_.owner(check.part, view));
    EXPECT_TRUE(members_of({1, 3}).contains(check.checker));
  }
  // The parts of the only member that may check are not checked.
  for (const auto& check : draw("key", 1, first_, members_of({2})))
    EXPECT_NE(parts_.owner(check.part, first_), 2U);
}

TEST_F(SumChecks, DependOnTheKeyAlone) {
  EXPECT_EQ(draw("key", 0.5, first_), draw("key", 0.5, first_));
  EXPECT_NE(draw("key", 0.5, first_), draw("another", 0.5, first_));
}

TEST_F(SumChecks, HitEachPartAndCheckerEquallyOften) {
  constexpr int keys = 400;
  constexpr double share = 0.125;
  std::vector<double> of_part(parts_.size());
  std::vector<double> by_checker(4);
  double all = 0;
  for (int key = 0; key < keys; ++key)
    for (const auto& check : draw(std::to_string(key), share, first_)) {
      ++of_part[check.part];
      ++by_checker[check.checker];
      ++all;
    }
  // Binomial distributions: five standard deviations.
  auto near = [](double found, double trials, double p) {
    EXPECT_NEAR(found, trials * p, 5 * std::sqrt(trials * p * (1 - p)));
  };
  near(all, keys * static_cast<double>(parts_.size()), share);
  for (auto found : of_part)
    near(found, keys, share);
  for (auto found : by_checker)
    near(found, all, 0.25);
}

} // namespace
} // namespace waggle
