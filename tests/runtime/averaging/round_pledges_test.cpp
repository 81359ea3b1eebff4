#include "runtime/averaging/round_pledges.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

digest named(const std::string& what) {
  return sha256(what);
}

/// Members 0 and 1 contribute two parts, member 2 is an auxiliary.
class RoundPledges : public ::testing::Test {
protected:
  std::vector<digest> list(std::size_t member) const {
    auto who = std::to_string(member);
    return {named(who + " to part 0"), named(who + " to part 1")};
  }
  digest share(std::size_t member, std::uint32_t view) const {
    return named("share of " + std::to_string(member) + " in " + std::to_string(view));
  }
  bool pledge(std::size_t member, std::uint32_t number) {
    return pledges_.add(member, number,
                        share_commitment(round_, number, member, share(member, number)),
                        member < 2 ? list(member) : std::vector<digest>{});
  }
  round_view view(std::uint32_t number) const { return {number, 0b011, 0b111, false, {}}; }

  const round_id round_ = plan_for(2).id;
  round_pledges pledges_{members_of({0, 1}), 2};
};

TEST_F(RoundPledges, AreAwaitedFromAllParticipantsOfEachView) {
  EXPECT_EQ(pledges_.missing(view(0)), members_of({0, 1, 2}));
  EXPECT_TRUE(pledge(0, 0));
  EXPECT_TRUE(pledge(1, 0));
  EXPECT_EQ(pledges_.missing(view(0)), members_of({2}));
  EXPECT_TRUE(pledge(2, 0));
  EXPECT_TRUE(pledges_.missing(view(0)).empty());
  EXPECT_EQ(pledges_.missing(view(1)), members_of({0, 1, 2}));
}

TEST_F(RoundPledges, CoverWhatWasListed) {
  EXPECT_FALSE(pledges_.covers(0, 1, list(0)[1]));
  EXPECT_TRUE(pledge(0, 0));
  EXPECT_TRUE(pledges_.covers(0, 1, list(0)[1]));
  EXPECT_FALSE(pledges_.covers(0, 0, list(0)[1]));
  EXPECT_FALSE(pledges_.covers(1, 1, list(0)[1]));
  EXPECT_FALSE(pledges_.covers(0, 2, list(0)[1]));
}

TEST_F(RoundPledges, AreRefusedIfTheListIsNotTheContribution) {
  auto commitment = named("any");
  EXPECT_FALSE(pledges_.add(0, 0, commitment, {}));
  EXPECT_FALSE(pledges_.add(0, 0, commitment, {named("one")}));
  EXPECT_FALSE(pledges_.add(2, 0, commitment, list(0))) << "an auxiliary contributes nothing";
  EXPECT_TRUE(pledge(0, 0));
  EXPECT_FALSE(pledges_.add(0, 1, commitment, list(1))) << "contributions do not change";
  EXPECT_TRUE(pledge(0, 1));
}

TEST_F(RoundPledges, BindTheShareOfTheirView) {
  EXPECT_TRUE(pledge(0, 0));
  EXPECT_TRUE(pledges_.opens(round_, view(0), 0, share(0, 0)));
  EXPECT_FALSE(pledges_.opens(round_, view(0), 0, share(0, 1)));
  EXPECT_FALSE(pledges_.opens(round_, view(1), 0, share(0, 1))) << "not pledged yet";
  EXPECT_FALSE(pledges_.opens(round_, view(0), 1, share(1, 0)));
  // The first one counts; one for an earlier view does not replace it.
  EXPECT_TRUE(pledges_.add(0, 0, named("another"), list(0)));
  EXPECT_TRUE(pledges_.opens(round_, view(0), 0, share(0, 0)));
  EXPECT_TRUE(pledge(0, 1));
  EXPECT_TRUE(pledge(0, 0));
  EXPECT_TRUE(pledges_.opens(round_, view(1), 0, share(0, 1)));
}

TEST_F(RoundPledges, OfOneMemberDoNotServeAnother) {
  auto same = named("share");
  EXPECT_NE(share_commitment(round_, 0, 0, same), share_commitment(round_, 0, 1, same));
  EXPECT_NE(share_commitment(round_, 0, 0, same), share_commitment(round_, 1, 0, same));
  EXPECT_NE(share_commitment(round_, 0, 0, same), share_commitment(round_id{}, 0, 0, same));
}

TEST_F(RoundPledges, DigestsDependOnEachOfThem) {
  for (std::size_t member : {0, 1, 2})
    EXPECT_TRUE(pledge(member, 0));
  round_pledges other{members_of({0, 1}), 2};
  for (std::size_t member : {0, 1})
    EXPECT_TRUE(
      other.add(member, 0, share_commitment(round_, 0, member, share(member, 0)), list(member)));
  EXPECT_TRUE(other.add(2, 0, named("another"), {}));
  auto ours = pledges_.each_of(view(0));
  auto theirs = other.each_of(view(0));
  EXPECT_EQ(ours[0], theirs[0]);
  EXPECT_EQ(ours[1], theirs[1]);
  EXPECT_NE(ours[2], theirs[2]);
  EXPECT_NE(pledges_.of(view(0)), other.of(view(0)));
}

TEST(ContributionDigest, CoversWeightAndValues) {
  auto values = as_byte_span("values");
  EXPECT_NE(contribution_digest(1, values), contribution_digest(2, values));
  EXPECT_NE(contribution_digest(1, values), contribution_digest(1, as_byte_span("other")));
}

// -- pledges that differ -------------------------------------------------------------------------

class UnequalPledges : public ::testing::Test {
protected:
  member_set unequal(std::size_t self) const { return round_pledges::unequal(view_, lists_, self); }

  const digest usual_ = named("usual");
  const digest other_ = named("other");
  const round_view view_{0, 0b1111, 0b1111, false, {}};
  std::map<std::size_t, std::vector<digest>> lists_{{0, std::vector<digest>(4, usual_)},
                                                    {1, std::vector<digest>(4, usual_)},
                                                    {2, std::vector<digest>(4, usual_)},
                                                    {3, std::vector<digest>(4, usual_)}};
};

TEST_F(UnequalPledges, AreNoneIfAllHeardTheSame) {
  EXPECT_TRUE(unequal(0).empty());
}

TEST_F(UnequalPledges, AreOfAMemberOfWhichNotMostHeardTheSame) {
  lists_[0][3] = lists_[1][3] = other_;
  for (std::size_t self : {0, 1, 2})
    EXPECT_EQ(unequal(self), members_of({3}));
}

TEST_F(UnequalPledges, AreOfAMemberThatSaysSomethingElseThanMostHeard) {
  lists_[3][3] = other_;
  EXPECT_EQ(unequal(0), members_of({3}));
}

TEST_F(UnequalPledges, AreKnownToTheMemberThatHeardThem) {
  lists_[1][3] = other_;
  EXPECT_EQ(unequal(1), members_of({3}));
  EXPECT_TRUE(unequal(0).empty()) << "member 1 or member 3 may lie";
}

} // namespace
} // namespace waggle
