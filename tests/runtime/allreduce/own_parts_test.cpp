#include "runtime/allreduce/own_parts.hpp"

#include <gtest/gtest.h>

#include "runtime/core/float_vector.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

class OwnParts : public ::testing::Test {
protected:
  payload values(float value) const {
    return payload_of(std::make_shared<const float_vector>(table_[0].count, value));
  }
  void come(std::initializer_list<std::size_t> members) {
    for (auto member : members)
      ASSERT_TRUE(own_.add(0, member, 1, values(static_cast<float>(member))));
  }

  const round_plan plan_ = plan_for(3);
  const part_table table_{plan_};
  own_parts own_{table_, {}};
};

TEST_F(OwnParts, APartIsDueOnceAllThatAreWantedAreHere) {
  own_.want(0, members_of({0, 1, 2}));
  come({2, 0});
  EXPECT_FALSE(own_.due(0));
  come({1});
  EXPECT_EQ(own_.due(0), members_of({0, 1, 2}));
  EXPECT_FALSE(own_.due(0)) << "it is being summed";
}

TEST_F(OwnParts, WhatCameBeforeThePartIsWantedCounts) {
  come({0, 1, 2});
  EXPECT_FALSE(own_.due(0)) << "it is not wanted yet";
  own_.want(0, members_of({0, 2}));
  EXPECT_EQ(own_.due(0), members_of({0, 2})) << "also over fewer than have arrived";
}

TEST_F(OwnParts, ASumThatWasSentIsNotWantedAgainUnlessOthersMayHaveDroppedIt) {
  come({0, 1, 2});
  auto all = members_of({0, 1, 2});
  EXPECT_TRUE(own_.mark_sent(0, all.bits()));
  EXPECT_FALSE(own_.mark_sent(0, all.bits()));
  own_.want(0, all);
  EXPECT_FALSE(own_.due(0));
  own_.forget_sent();
  own_.want(0, all);
  EXPECT_EQ(own_.due(0), all);
}

TEST_F(OwnParts, TheFirstContributionOfAMemberCounts) {
  come({1});
  EXPECT_EQ(own_.add(0, 1, 1, values(7)).error().code, ec::duplicate_peer);
}

} // namespace
} // namespace waggle
