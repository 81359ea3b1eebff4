#include "runtime/state/state_vote.hpp"

#include <map>
#include <optional>
#include <source_location>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

using verdict = state_vote::standing;

peer_record donor(std::uint8_t n) {
  peer_record who;
  who.id.bytes[0] = std::byte{n};
  return who;
}

std::vector<peer_record> donors(std::uint8_t count) {
  std::vector<peer_record> all;
  for (std::uint8_t n = 1; n <= count; ++n)
    all.push_back(donor(n));
  return all;
}

state_offer state(std::uint64_t epoch, const std::string& text = "honest") {
  return {epoch_id{epoch}, sha256(text + std::to_string(epoch)), sha256(text), 100, 10};
}

struct Vote {
  Vote(std::uint8_t count, state_comparison compare = state_comparison::content,
       bool rounded = false)
    : vote(donors(count), epoch_id{5}, compare, rounded) {}
  /// These donors are asked now, as "1>=5 2>=5".
  Vote& asks(const std::string& whom, std::source_location at = std::source_location::current()) {
    std::string out;
    for (const auto& q : vote.next())
      out += (out.empty() ? "" : " ") + std::to_string(static_cast<int>(q.donor.id.bytes[0]))
             + ">=" + to_string(q.epoch_min);
    EXPECT_EQ(out, whom) << "line " << at.line();
    return *this;
  }
  Vote& offers(std::uint8_t n, const state_offer& what) {
    vote.offered(donor(n).id, what);
    return *this;
  }
  Vote& offers(std::uint8_t n, std::uint64_t epoch, const std::string& text = "honest") {
    return offers(n, state(epoch, text));
  }
  Vote& refuses(std::uint8_t n, ec why) {
    vote.refused(donor(n).id, {why, "test"});
    return *this;
  }
  [[nodiscard]] std::optional<state_offer> chosen() const {
    return vote.outcome() == verdict::chosen ? std::optional{vote.chosen()} : std::nullopt;
  }

  state_vote vote;
};

TEST(StateVote, ASingleDonorSufficesIfItIsAllThereIs) {
  Vote v{1};
  v.asks("1>=5").asks("").offers(1, 9);
  EXPECT_EQ(v.chosen(), state(9));
  EXPECT_EQ(v.vote.present(), 1U);
}

TEST(StateVote, MoreThanHalfMustOfferTheSame) {
  Vote v{4};
  v.asks("1>=5 2>=5 3>=5").offers(1, 9).offers(2, 9);
  EXPECT_EQ(v.vote.outcome(), verdict::open);
  v.offers(3, 9);
  ASSERT_EQ(v.vote.outcome(), verdict::chosen);
  EXPECT_EQ(v.vote.voters().size(), 3U);
  EXPECT_TRUE(v.vote.dissenters().empty());
}

TEST(StateVote, ALiarIsOutvotedAndNamed) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 9, "poison").offers(2, 9);
  EXPECT_EQ(v.vote.outcome(), verdict::open);
  v.asks("3>=5").offers(3, 9);
  EXPECT_EQ(v.chosen(), state(9));
  EXPECT_EQ(v.vote.voters().front().donor.id, donor(2).id);
  EXPECT_EQ(v.vote.dissenters(), (std::vector{donor(1).id}));
}

TEST(StateVote, OfDonorsThatRoundDifferentlyOneSufficesAndNobodyIsALiar) {
  Vote v{3, state_comparison::content, true};
  v.asks("1>=5 2>=5").offers(1, 9, "rounded up").offers(2, 9, "rounded down").asks("3>=5");
  EXPECT_EQ(v.vote.outcome(), verdict::open);
  v.offers(3, 9);
  EXPECT_EQ(v.chosen(), state(9, "rounded up"));
  EXPECT_TRUE(v.vote.dissenters().empty());
}

TEST(StateVote, OfDonorsThatRoundDifferentlyMostDecideWhereTheyAgree) {
  Vote v{3, state_comparison::content, true};
  v.asks("1>=5 2>=5").offers(1, 9, "poison").offers(2, 9).asks("3>=5").offers(3, 9);
  EXPECT_EQ(v.chosen(), state(9));
}

TEST(StateVote, DonorsThatAreBusyKeepALiarFromBeingTheOnlyOneAlsoIfSomeRoundDifferently) {
  Vote v{3, state_comparison::content, true};
  v.asks("1>=5 2>=5").offers(1, 9, "poison").refuses(2, ec::overloaded);
  v.asks("3>=5").refuses(3, ec::overloaded);
  EXPECT_EQ(v.vote.outcome(), verdict::failed);
}

TEST(StateVote, DonorsThatAreBehindAreAskedForTheEpochThatTheOthersReached) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 9).offers(2, 10);
  v.asks("3>=5").offers(3, 8).asks("3>=9").offers(3, 9);
  EXPECT_EQ(v.chosen(), state(9));
}

TEST(StateVote, DonorsThatGoOnMeanwhileAreAskedForAnEpochAheadOfAll) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 9).offers(2, 10);
  v.asks("3>=5").offers(3, 8).asks("3>=9").offers(3, 12);
  v.asks("1>=13 2>=13 3>=13").offers(1, 13).offers(2, 13);
  EXPECT_EQ(v.vote.outcome(), verdict::chosen);
}

TEST(StateVote, OfTwoDonorsTheFirstIsBelieved) {
  Vote v{2};
  v.asks("1>=5").offers(1, 9);
  EXPECT_EQ(v.vote.outcome(), verdict::chosen);
}

TEST(StateVote, AFarEpochOfALiarIsNotAwaited) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 1'000'000, "poison").offers(2, 9);
  v.asks("3>=5").offers(3, 10).asks("2>=10").offers(2, 10);
  EXPECT_EQ(v.chosen(), state(10));
}

TEST(StateVote, AnEpochThatNoRunReachesIsNoOffer) {
  Vote v{1};
  v.asks("1>=5").offers(1, ~0ULL);
  EXPECT_EQ(v.vote.outcome(), verdict::failed);
  EXPECT_EQ(v.vote.why().code, ec::protocol_violation);
}

TEST(StateVote, DonorsThatAreGoneDoNotCount) {
  Vote v{3};
  v.asks("1>=5 2>=5").refuses(1, ec::peer_lost).refuses(2, ec::not_ready).asks("3>=5").offers(3, 9);
  EXPECT_EQ(v.vote.outcome(), verdict::chosen);
}

TEST(StateVote, DonorsThatAreBusyDo) {
  Vote v{3};
  v.asks("1>=5 2>=5").refuses(1, ec::overloaded).refuses(2, ec::overloaded);
  v.asks("3>=5").offers(3, 9, "poison");
  EXPECT_EQ(v.vote.outcome(), verdict::failed);
}

TEST(StateVote, DifferentStatesOfOneEpochAreADispute) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 9, "poison").offers(2, 9).asks("3>=5").offers(3, 9, "another");
  ASSERT_EQ(v.vote.outcome(), verdict::failed);
  EXPECT_EQ(v.vote.why().code, ec::hash_mismatch);
}

TEST(StateVote, ASlowDonorIsNotAwaited) {
  Vote v{3};
  v.asks("1>=5 2>=5").offers(1, 9);
  v.vote.hurry();
  v.asks("3>=5").offers(3, 9);
  EXPECT_EQ(v.vote.outcome(), verdict::chosen);
}

TEST(StateVote, StatesThatAreOnlyApproximatelyEqualAreTakenFromTheFirstThatHasOne) {
  Vote v{3, state_comparison::none};
  v.asks("1>=5").refuses(1, ec::overloaded).asks("2>=5").offers(2, 4).asks("3>=5").offers(3, 9);
  EXPECT_EQ(v.chosen(), state(9));
}

TEST(StateVote, WhatPassesChangeIsNotCompared) {
  Vote v{3, state_comparison::parameters};
  v.asks("1>=5 2>=5");
  auto other = state(9);
  other.content = sha256("with other running means");
  v.offers(1, other).offers(2, 9);
  ASSERT_EQ(v.vote.outcome(), verdict::chosen);
  EXPECT_EQ(v.vote.voters().back().offer, state(9)) << "each is asked for its own bytes";
  EXPECT_TRUE(v.vote.dissenters().empty());
}

TEST(StateVote, NoDonorIsAFailure) {
  Vote v{0};
  EXPECT_EQ(v.vote.outcome(), verdict::failed);
  EXPECT_EQ(v.vote.why().code, ec::no_donor);
}

/// Donors go on at any speed while they are asked. Fewer than half of them lie: they offer whatever
/// would be chosen, or refuse. The state that is chosen is always one of the run, and one is
/// chosen unless epochs end faster than answers arrive.
TEST(StateVote, FewerThanHalfNeverDecide) {
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    random_source random{seed};
    auto count = static_cast<std::uint8_t>(1 + random.below(state_vote::donors_max));
    auto liars = random.below((count + 1) / 2);
    auto all = donors(count);
    random.shuffle(all);
    std::map<peer_id, bool> lies;
    for (std::size_t i = 0; i < all.size(); ++i)
      lies[all[i].id] = i < liars;
    random.shuffle(all);
    state_vote vote{all, epoch_id{5}, state_comparison::content};
    std::uint64_t epoch = 5 + random.below(100);
    auto pace = 1 + random.below(20); // answers an epoch
    std::vector<state_vote::question> open;
    for (int step = 0; step < 200 && vote.outcome() == verdict::open; ++step) {
      for (auto& q : vote.next())
        open.push_back(q);
      ASSERT_FALSE(open.empty()) << "seed " << seed;
      auto i = random.below(open.size());
      auto q = open[i];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      epoch += random.below(pace) == 0 ? 1 : 0;
      if (!lies[q.donor.id]) { // it waits for an epoch that is near
        vote.offered(q.donor.id, state(std::max(epoch, q.epoch_min.value())));
        epoch = std::max(epoch, q.epoch_min.value());
        continue;
      }
      switch (random.below(5)) {
        case 0:
          vote.refused(q.donor.id, {random.below(2) == 0 ? ec::overloaded : ec::not_ready, {}});
          break;
        case 1:
          vote.offered(q.donor.id, state(random.below(1'000'000), "poison"));
          break;
        case 2:
          vote.offered(q.donor.id, state(epoch));
          break;
        default:
          vote.offered(q.donor.id, state(std::max(epoch, q.epoch_min.value()), "poison"));
      }
    }
    ASSERT_NE(vote.outcome(), verdict::open) << "seed " << seed;
    if (vote.outcome() == verdict::chosen) {
      EXPECT_EQ(vote.chosen(), state(vote.chosen().epoch.value())) << "seed " << seed;
      for (const auto& who : vote.dissenters())
        EXPECT_TRUE(lies[who]) << "seed " << seed;
    } else {
      ++failed;
    }
  }
  EXPECT_LT(failed, 2'000);
}

} // namespace
} // namespace waggle
