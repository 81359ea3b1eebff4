#include "runtime/averaging/transfer_state.hpp"

#include <set>

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using arrival = transfer_state::arrival;
const steady_time t0{};
const auto all3 = member_set::first(3).bits();

// 3 members × 10 elements in parts of 4: parts 0-2 of member 0, 3-5 of member 1, 6-8 of member 2.
transfer_state books(std::size_t self) {
  return {plan_for(3), self, t0};
}

TEST(TransferState, ShipsEachContributionOnceBeginningBehindItself) {
  auto b = books(1);
  auto outgoing = b.take_outgoing();
  ASSERT_EQ(outgoing.size(), 9u);
  EXPECT_EQ(outgoing[0].owner, 2u);
  EXPECT_EQ(outgoing[1].owner, 0u);
  EXPECT_EQ(outgoing[2].owner, 1u);
  std::set<std::uint32_t> parts;
  for (const auto& s : outgoing) {
    parts.insert(s.part);
    EXPECT_EQ(s.owner, b.parts()[s.part].default_owner);
  }
  EXPECT_EQ(parts.size(), 9u);
  EXPECT_TRUE(b.take_outgoing().empty());
}

TEST(TransferState, WhatIsGivenBackIsShippedLater) {
  auto b = books(0);
  auto taken = b.take_outgoing();
  b.give_back(taken[2]);
  auto again = b.take_outgoing();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].part, taken[2].part);
  EXPECT_EQ(again[0].owner, taken[2].owner);
}

TEST(TransferState, ContributionsAreKeptAndCountOnce) {
  auto b = books(0);
  EXPECT_EQ(b.contribution(0, 1, 0, t0), arrival::accept);
  EXPECT_EQ(b.contribution(0, 1, 0, t0), arrival::refuse);
  EXPECT_EQ(b.contribution(3, 1, 0, t0), arrival::ignore) << "a part of another owner";
  EXPECT_EQ(b.contribution(3, 2, 5, t0), arrival::later) << "ours in a view to come, perhaps";
  EXPECT_EQ(b.contribution(9, 1, 0, t0), arrival::refuse) << "no such part";
  EXPECT_EQ(b.contribution(0, 3, 0, t0), arrival::refuse) << "no such member";
}

TEST(TransferState, ANewcomerIsLateWhenAllOthersHaveContributedForAsLongAsTheyTook) {
  auto b = books(0);
  auto newcomer = members_of({2});
  EXPECT_TRUE(b.late(newcomer, t0 + 1h, 1s).empty()) << "the other one is missing, too";
  for (std::uint32_t part = 0; part < 3; ++part)
    EXPECT_EQ(b.contribution(part, 1, 0, t0 + 3s), arrival::accept);
  EXPECT_TRUE(b.late(newcomer, t0 + 6s - 1ms, 1s).empty());
  EXPECT_EQ(b.late(newcomer, t0 + 6s, 1s), newcomer);
  EXPECT_TRUE(b.late(newcomer, t0 + 6s, 4s).empty());
  for (std::uint32_t part = 0; part < 3; ++part)
    EXPECT_EQ(b.contribution(part, 2, 0, t0 + 3s), arrival::accept);
  EXPECT_TRUE(b.late(newcomer, t0 + 1h, 1s).empty());
}

TEST(TransferState, IsCompleteWhenEveryPartOfTheResultIsHere) {
  auto b = books(2);
  for (std::uint32_t part = 0; part < 9; ++part) {
    EXPECT_FALSE(b.complete());
    EXPECT_EQ(b.result(part, part / 3, all3, 0, t0), arrival::accept);
    EXPECT_EQ(b.result(part, part / 3, all3, 0, t0), arrival::ignore);
  }
  EXPECT_TRUE(b.complete());
  b.forget_result(4);
  EXPECT_FALSE(b.complete());
  EXPECT_EQ(b.result(4, 1, all3, 0, t0), arrival::accept);
  EXPECT_TRUE(b.complete());
}

TEST(TransferState, ResultsOfTheWrongOwnerOrSetAreRefused) {
  auto b = books(2);
  EXPECT_EQ(b.result(0, 1, all3, 0, t0), arrival::refuse);
  EXPECT_EQ(b.result(0, 0, 3, 0, t0), arrival::refuse);
  EXPECT_EQ(b.result(0, 0, 3, 4, t0), arrival::later);
  EXPECT_EQ(b.result(99, 0, all3, 0, t0), arrival::refuse);
  EXPECT_EQ(b.result(0, 77, all3, 0, t0), arrival::refuse);
}

TEST(TransferState, AViewWithFewerContributorsForgetsResultsAndKeepsContributions) {
  auto b = books(0);
  EXPECT_EQ(b.contribution(0, 1, 0, t0), arrival::accept);
  EXPECT_EQ(b.result(3, 1, all3, 0, t0), arrival::accept);
  EXPECT_EQ(b.take_outgoing().size(), 9u);
  b.enter({3, 3, 3, false}, t0 + 1s); // member 2 is lost
  EXPECT_EQ(b.result(3, 1, all3, 0, t0), arrival::ignore) << "of the view before";
  EXPECT_EQ(b.result(3, 1, 3, 3, t0), arrival::accept);
  EXPECT_EQ(b.contribution(0, 1, 3, t0), arrival::refuse) << "it must not be sent again";
  // Parts 6-8 are spread over members 0 and 1.
  std::set<std::size_t> owners;
  for (const auto& s : b.take_outgoing()) {
    EXPECT_GE(s.part, 6u);
    owners.insert(s.owner);
  }
  EXPECT_EQ(owners, (std::set<std::size_t>{0, 1}));
}

TEST(TransferState, AViewWithTheSameContributorsKeepsResults) {
  auto b = books(1);
  EXPECT_EQ(b.result(0, 0, all3, 0, t0), arrival::accept);
  b.enter({3, all3, 3, false}, t0);
  EXPECT_EQ(b.result(0, 0, all3, 3, t0), arrival::ignore);
}

TEST(TransferState, ContributorsAreStalledAfterTheTimeoutAndReducersAfterTwice) {
  auto b = books(0);
  for (std::uint32_t part = 0; part < 3; ++part)
    EXPECT_EQ(b.contribution(part, 1, 0, t0), arrival::accept);
  EXPECT_TRUE(b.stalled(t0 + 999ms, 1s, 2s).empty());
  EXPECT_EQ(b.stalled(t0 + 1s, 1s, 2s), members_of({2}));
  EXPECT_EQ(b.stalled(t0 + 2s, 1s, 2s), members_of({1, 2}));
  EXPECT_EQ(b.result(3, 1, all3, 0, t0 + 1'500ms), arrival::accept);
  EXPECT_EQ(b.stalled(t0 + 2s, 1s, 2s), members_of({2})) << "progress counts";
}

TEST(TransferState, AResultIsLateWhenAllElseHasBeenHereForAWhile) {
  auto b = books(0);
  auto slow = members_of({2});
  EXPECT_TRUE(b.late_results(slow, t0 + 1h, 1s).empty()) << "contributions are missing";
  for (std::uint32_t part = 0; part < 3; ++part)
    for (std::size_t member : {0, 1, 2})
      EXPECT_EQ(b.contribution(part, member, 0, t0 + 1s), arrival::accept);
  for (std::uint32_t part = 0; part < 3; ++part)
    EXPECT_EQ(b.result(part, 0, all3, 0, t0 + 1s), arrival::accept);
  EXPECT_TRUE(b.late_results(slow, t0 + 1h, 1s).empty()) << "as are the other's results";
  for (std::uint32_t part = 3; part < 6; ++part)
    EXPECT_EQ(b.result(part, 1, all3, 0, t0 + 2s), arrival::accept);
  EXPECT_TRUE(b.late_results(slow, t0 + 3s - 1ms, 1s).empty());
  EXPECT_EQ(b.late_results(slow, t0 + 3s, 1s), slow);
  EXPECT_TRUE(b.late_results({}, t0 + 3s, 1s).empty());
}

TEST(TransferState, NobodyWaitsForItself) {
  EXPECT_EQ(books(0).stalled(t0 + 1h, 1s, 2s), members_of({1, 2}));
}

TEST(TransferState, AViewOfClientsAloneCannotComplete) {
  auto plan = plan_for(3);
  plan.members[1].mode = plan.members[2].mode = member_mode::client;
  plan.shares = {30, 0, 0};
  transfer_state b{plan, 1, t0};
  b.enter({3, 6, 6, false}, t0);
  EXPECT_TRUE(b.take_outgoing().empty());
  EXPECT_TRUE(b.owned().empty());
  EXPECT_FALSE(b.complete());
  EXPECT_EQ(b.result(0, 0, 6, 3, t0), arrival::refuse);
}

TEST(TransferState, AContributionIsSentAgainToAnOwnerThatReducesThePartAgain) {
  transfer_state b{plan_for(4), 0, t0};
  (void)b.take_outgoing();
  round_view without3{4, 0b0111, 0b0111, false, {}};
  b.enter(without3, t0);
  auto moved = b.take_outgoing();
  ASSERT_EQ(moved.size(), 3U) << "the parts of member 3";
  // Another leader, which never received that view, includes member 3 and leaves out member 2.
  b.enter({5, 0b1011, 0b1011, false}, t0);
  (void)b.take_outgoing();
  b.enter({8, 0b0111, 0b0111, false}, t0);
  std::erase_if(moved, [](const auto& outgoing_part) { return outgoing_part.owner == 0; });
  EXPECT_EQ(moved.size(), 2U);
  auto again = b.take_outgoing();
  ASSERT_EQ(again.size(), moved.size())
    << "a member that skipped the first of these views dropped them; "
       "what we gave ourselves is still here";
  for (std::size_t i = 0; i < moved.size(); ++i) {
    EXPECT_EQ(again[i].part, moved[i].part);
    EXPECT_EQ(again[i].owner, moved[i].owner);
  }
}

TEST(TransferState, AContributionIsSentAgainToAnOwnerThatMayHaveSkippedAView) {
  transfer_state b{plan_for(5), 0, t0};
  (void)b.take_outgoing();
  b.enter({1, 0b01111, 0b01111, false}, t0);
  auto first = b.take_outgoing();
  std::erase_if(first, [](const auto& outgoing_part) { return outgoing_part.owner == 0; });
  EXPECT_EQ(first.size(), 2U) << "three parts of member 4, of which we reduce one";
  b.enter({2, 0b01111, 0b01111, false}, t0);
  EXPECT_TRUE(b.take_outgoing().empty()) << "the leader's next view: all members were in the last";
  b.enter({5 * views_per_term, 0b01111, 0b01111, true}, t0);
  EXPECT_TRUE(b.take_outgoing().empty()) << "nothing is summed any more";
  b.enter({10 * views_per_term, 0b01111, 0b01111, false}, t0);
  auto again = b.take_outgoing();
  ASSERT_EQ(again.size(), first.size());
  for (std::size_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(again[i].part, first[i].part);
}

TEST(TransferState, AContributionMayComeTwiceToAPartThatIsReducedForAnother) {
  auto b = books(0);
  b.enter({3, 0b011, 0b011, false}, t0);
  EXPECT_EQ(b.contribution(6, 1, 3, t0), arrival::accept) << "a part of member 2";
  EXPECT_EQ(b.contribution(6, 1, 4, t0), arrival::ignore);
  EXPECT_EQ(b.contribution(0, 1, 3, t0), arrival::accept);
  EXPECT_EQ(b.contribution(0, 1, 4, t0), arrival::refuse) << "this was our part from the beginning";
}

} // namespace
} // namespace waggle
