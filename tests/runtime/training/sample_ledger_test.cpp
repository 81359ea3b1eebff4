#include "runtime/training/sample_ledger.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {
namespace {

using counts = std::array<std::uint64_t, sample_ledger::ranges>;

peer_id peer(int i) {
  return *peer_id::from_raw(sha256("peer " + std::to_string(i)).raw());
}

std::vector<float> claims_of(const counts& drawn, std::uint64_t samples) {
  std::vector<float> out(sample_ledger::ranges);
  sample_ledger::write_claims(drawn, samples, std::span{out}.first<sample_ledger::ranges>());
  return out;
}

/// Of a round of one.
void claim(sample_ledger& ledger, std::size_t range, std::uint64_t samples,
           const std::vector<peer_id>& members) {
  counts drawn{};
  drawn[range] = samples;
  ledger.end_epoch(claims_of(drawn, samples), static_cast<double>(samples), members);
}

std::map<peer_id, std::size_t> dealt(const sample_ledger& ledger, const std::vector<peer_id>& to) {
  std::map<peer_id, std::size_t> out;
  for (const auto& who : to)
    for (std::size_t r = 0; r < sample_ledger::ranges; ++r)
      out[who] += ledger.owns(who, r) ? 1 : 0;
  return out;
}

TEST(SampleLedger, DealsAllRangesOnceAndThoseOfTheDeadToTheOthers) {
  sample_ledger ledger{10'000};
  EXPECT_EQ(ledger.left_to(peer(1)), 0U) << "nothing is dealt before the first epoch ends";
  std::vector<peer_id> three{peer(1), peer(2), peer(3)};
  ledger.end_epoch({}, 0, three);
  for (const auto& [who, ranges] : dealt(ledger, three))
    EXPECT_NEAR(static_cast<double>(ranges), 256 / 3.0, 1);
  EXPECT_EQ(ledger.left_to(peer(1)) + ledger.left_to(peer(2)) + ledger.left_to(peer(3)), 10'000U);
  auto before = ledger;
  std::vector<peer_id> two{peer(3), peer(1)}; // in another order
  ledger.end_epoch({}, 0, two);
  EXPECT_EQ(ledger.left_to(peer(2)), 0U);
  EXPECT_EQ(ledger.left_to(peer(1)) + ledger.left_to(peer(3)), 10'000U);
  for (std::size_t r = 0; r < sample_ledger::ranges; ++r)
    for (const auto& who : two)
      EXPECT_TRUE(!before.owns(who, r) || ledger.owns(who, r)) << "a range in use has moved";
}

TEST(SampleLedger, ANewcomerGetsItsShareAndNoRangeThatIsBegun) {
  sample_ledger ledger{10'000};
  ledger.end_epoch({}, 0, std::vector{peer(1)});
  ASSERT_EQ(ledger.seen_of(0), 0U);
  std::vector<peer_id> two{peer(1), peer(2)};
  claim(ledger, 0, 7, two);
  EXPECT_EQ(ledger.seen_of(0), 7U);
  EXPECT_TRUE(ledger.owns(peer(1), 0));
  auto has = dealt(ledger, two);
  EXPECT_EQ(has[peer(1)], 128U);
  EXPECT_EQ(has[peer(2)], 128U);
}

TEST(SampleLedger, APassEndsWithTheLastSampleAndTheNextIsDealt) {
  sample_ledger ledger{300}; // ranges of one sample, and of two
  std::vector<peer_id> one{peer(1)};
  ledger.end_epoch({}, 0, one);
  for (std::size_t r = 0; r < sample_ledger::ranges; ++r) {
    EXPECT_EQ(ledger.passes(), 0U);
    EXPECT_EQ(ledger.present().once, ledger.begin_of(r));
    claim(ledger, r, ledger.size_of(r), one);
  }
  EXPECT_EQ(ledger.passes(), 1U);
  EXPECT_EQ(ledger.last(), (sample_ledger::account{300, 0, 0}));
  EXPECT_EQ(ledger.present(), (sample_ledger::account{0, 0, 300}));
  EXPECT_EQ(ledger.left_to(peer(1)), 300U);
}

TEST(SampleLedger, FewerSamplesThanRanges) {
  sample_ledger ledger{3};
  ledger.end_epoch({}, 0, std::vector{peer(1), peer(2)});
  EXPECT_EQ(ledger.left_to(peer(1)), 2U);
  EXPECT_EQ(ledger.left_to(peer(2)), 1U);
}

TEST(SampleLedger, TheLastRangeOfAMemberThatAddsNothingGoesToAnother) {
  sample_ledger ledger{2};
  std::vector<peer_id> two{peer(1), peer(2)};
  ledger.end_epoch({}, 0, two);
  ASSERT_EQ(ledger.left_to(peer(1)), 1U);
  ASSERT_EQ(ledger.left_to(peer(2)), 1U);
  ASSERT_TRUE(ledger.owns(peer(1), 127));
  claim(ledger, 255, 1, two);
  EXPECT_EQ(ledger.left_to(peer(1)), 1U) << "the update may have begun before it had the range";
  for (int updates = 0; updates < 2; ++updates) {
    ASSERT_EQ(sample_ledger::decode(2, ledger.encode()).value(), ledger);
    ledger.end_epoch({}, 0, two);
    EXPECT_EQ(ledger.left_to(peer(1)), 0U);
    EXPECT_EQ(ledger.left_to(peer(2)), 1U);
  }
  ledger.end_epoch({}, 0, two);
  EXPECT_EQ(ledger.left_to(peer(1)), 1U);
}

/// Each round begins with what the members have drawn, and their passes go on: what they draw of a
/// range that they have just got is in the round after it.
TEST(SampleLedger, APassEndsWherePassesGoOnDuringRounds) {
  constexpr std::uint64_t micro_batch = 7; // of ranges of 8 samples
  for (std::uint64_t samples : {3U, 16U, 2'048U}) {
    SCOPED_TRACE(samples);
    std::vector<peer_id> members{peer(1), peer(2), peer(3)};
    std::deque<sample_draws> draws;
    for (const auto& who : members)
      draws.emplace_back(who, samples, "run");
    sample_ledger ledger{samples};
    std::vector<std::uint64_t> drawn(members.size());
    for (std::uint64_t rounds = 0; ledger.passes() < 3; ++rounds) {
      ASSERT_LT(rounds, samples + 16) << ledger.present().never;
      counts sum{};
      std::uint64_t weight = 0;
      for (std::size_t i = 0; i < members.size(); ++i) {
        auto given = draws[i].take(drawn[i]).counts;
        std::ranges::transform(sum, given, sum.begin(), std::plus<>{});
        weight += std::exchange(drawn[i], draws[i].draw(micro_batch).size());
        ASSERT_TRUE(draws[i].pass_ended(drawn[i]));
      }
      ledger.end_epoch(claims_of(sum, weight), static_cast<double>(weight), members);
      for (std::size_t i = 0; i < members.size(); ++i)
        if (!draws[i].follow(ledger)) // another member has the range now
          draws[i].drop(std::exchange(drawn[i], 0));
    }
    EXPECT_EQ(ledger.last(), (sample_ledger::account{samples, 0, 0}));
  }
}

TEST(SampleLedger, RefusesClaimsBeyondARangeOrBeyondTheUpdate) {
  sample_ledger ledger{2'560}; // ten each
  std::vector<peer_id> one{peer(1)};
  ledger.end_epoch({}, 0, one);
  claim(ledger, 4, 8, one);
  claim(ledger, 4, 3, one); // two were left
  EXPECT_EQ(ledger.seen_of(4), 8U);
  EXPECT_EQ(ledger.present(), (sample_ledger::account{5, 3, 2'552}));
  counts all{};
  all.fill(10);
  ledger.end_epoch(claims_of(all, 32), 32, one); // 2560 of 32 samples
  EXPECT_EQ(ledger.present().never, 2'552U);
  for (auto bad : {std::numeric_limits<float>::quiet_NaN(), -1.0F, 1e30F,
                   std::numeric_limits<float>::infinity()}) {
    auto before = ledger.present().never;
    std::vector<float> claims(sample_ledger::ranges);
    claims[9] = bad;
    ledger.end_epoch(claims, 16, one);
    EXPECT_EQ(ledger.present().never, before) << bad;
  }
}

/// One member of two lies in each round: whatever it claims, and however much it says its gradient
/// weighs, a pass ends, and the account names what was never seen.
TEST(SampleLedger, NoLiarKeepsAPassFromEnding) {
  constexpr std::uint64_t samples = 2'560;
  constexpr std::uint64_t batch = 16;
  using lie = std::function<void(std::vector<float>&, random_source&)>; // in a mean of claims
  auto to_all = [](float claim) {
    return [claim](std::vector<float>& mean, random_source&) {
      for (auto& each : mean)
        each += claim;
    };
  };
  const std::pair<lie, double> lies[]{
    {to_all(1), 1},  // more than there are: void
    {to_all(-1), 1}, // what others claim is not seen
    {to_all(std::numeric_limits<float>::quiet_NaN()), 1},
    {to_all(0), 1e30}, // its weight hides the others
    {[](auto& mean, auto& random) { mean[random.below(mean.size())] += 0.4F; }, 1},
    {[](auto& mean, auto&) { mean[7] += 0.4F; }, 1}, // one range, for ever
    {[](auto& mean, auto& random) {
       if (random.below(4) > 0)
         mean[0] = 1e20F;
     },
     1}};
  for (const auto& [how, weight] : lies) {
    SCOPED_TRACE(&how - &lies[0].first);
    random_source random{1};
    std::vector<peer_id> two{peer(1), peer(2)};
    sample_ledger ledger{samples};
    sample_draws draws{peer(1), samples, "run"};
    ledger.end_epoch({}, 0, two);
    std::uint64_t updates = 0;
    for (; ledger.passes() < 2; ++updates) {
      ASSERT_LT(updates, 2 * (10 * samples / batch + 64 + 256)) << ledger.present().never;
      if (!draws.follow(ledger))
        draws.drop(0);
      auto own = draws.draw(batch).size();
      EXPECT_TRUE(draws.pass_ended(own));
      auto claims = claims_of(draws.take(own).counts, 2 * own); // the liar's weight is as much
      how(claims, random);
      ledger.end_epoch(claims, 2 * static_cast<double>(own) * weight, two);
      auto [once, twice, never] = ledger.last();
      EXPECT_EQ(once + twice + never, ledger.passes() == 0 ? 0 : samples);
    }
    EXPECT_EQ(*sample_ledger::decode(samples, ledger.encode()), ledger);
  }
}

TEST(SampleLedger, IsTheSameAfterEncodingAndRefusesWhatIsNone) {
  sample_ledger ledger{5'000};
  std::vector<peer_id> two{peer(1), peer(2)};
  ledger.end_epoch({}, 0, two);
  claim(ledger, 100, 5, two);
  auto values = ledger.encode();
  ASSERT_EQ(values.size(), sample_ledger::value_count);
  EXPECT_EQ(*sample_ledger::decode(5'000, values), ledger);
  EXPECT_FALSE(sample_ledger::decode(5'000, std::span{values}.first(10)));
  EXPECT_FALSE(sample_ledger::decode(50, values)) << "more seen than there is";
  random_source random{3};
  for (int i = 0; i < 2'000; ++i) {
    auto broken = values;
    auto& value = broken[random.below(broken.size())];
    constexpr float bad[]{-1, 0.5F, 3e7F, 1e30F};
    value = i % 8 == 0 ? std::numeric_limits<float>::quiet_NaN() : bad[random.below(4)];
    EXPECT_FALSE(sample_ledger::decode(5'000, broken));
  }
}

TEST(SampleOrder, IsAPermutationThatDiffersByRunAndPass) {
  for (std::uint64_t samples : {1U, 2U, 3U, 255U, 4'097U}) {
    std::set<std::uint64_t> all;
    for (std::uint64_t i = 0; i < samples; ++i) {
      auto at = sample_order{samples, "birds", 0}.at(i);
      EXPECT_LT(at, samples);
      all.insert(at);
    }
    EXPECT_EQ(all.size(), samples);
  }
  int equal = 0;
  int ascending = 0;
  sample_order one{1'000, "birds", 0};
  for (std::uint64_t i = 0; i + 1 < 1'000; ++i) {
    equal += one.at(i) == sample_order{1'000, "birds", 1}.at(i) ? 1 : 0;
    equal += one.at(i) == sample_order{1'000, "bees", 0}.at(i) ? 1 : 0;
    ascending += one.at(i) < one.at(i + 1) ? 1 : 0;
  }
  EXPECT_LT(equal, 15);
  EXPECT_NEAR(ascending, 500, 80);
}

} // namespace
} // namespace waggle
