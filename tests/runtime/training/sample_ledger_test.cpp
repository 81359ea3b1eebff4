#include "runtime/training/sample_ledger.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

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
  EXPECT_EQ(ledger.left_to(peer(1)), 0U);
  EXPECT_EQ(ledger.left_to(peer(2)), 1U);
  ledger.end_epoch({}, 0, two);
  EXPECT_EQ(ledger.left_to(peer(1)), 1U);
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
    auto again = sample_ledger::decode(samples, ledger.encode());
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, ledger);
  }
}

TEST(SampleLedger, IsTheSameAfterEncodingAndRefusesWhatIsNone) {
  sample_ledger ledger{5'000};
  std::vector<peer_id> two{peer(1), peer(2)};
  ledger.end_epoch({}, 0, two);
  claim(ledger, 100, 5, two);
  auto values = ledger.encode();
  ASSERT_EQ(values.size(), sample_ledger::value_count);
  auto again = sample_ledger::decode(5'000, values);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, ledger);
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

/// Peers, and the truth about their samples.
class Draws : public ::testing::Test {
protected:
  struct member {
    explicit member(int i, std::uint64_t samples)
      : id(peer(i)), draws(std::make_unique<sample_draws>(id, samples, "run")) {}
    peer_id id;
    std::unique_ptr<sample_draws> draws;
    std::deque<std::vector<std::uint64_t>> gradient; // passes
    std::vector<std::uint64_t> running;              // a pass that has not ended
    std::vector<std::uint64_t> given;

    std::uint64_t in_gradient() const {
      return std::accumulate(gradient.begin(), gradient.end(), std::uint64_t{0},
                             [](auto n, const auto& pass) { return n + pass.size(); });
    }
    void drop() {
      draws->drop(in_gradient());
      gradient.clear();
    }
    void end_pass() {
      auto samples = running.size();
      gradient.push_back(std::exchange(running, {}));
      if (!draws->pass_ended(samples))
        drop();
    }
  };
};

/// Peers die, join, are left out of rounds, compute what is not finite, and are in the middle of a
/// pass at any moment; rounds fail and are tried again. Each sample enters one update a pass.
TEST_F(Draws, EachSampleEntersOneUpdateAPassWhoeverDiesOrJoins) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    random_source random{seed};
    auto samples = 1 + random.below(seed % 3 == 0 ? 40 : 3'000);
    auto batch = 1 + random.below(24);
    std::vector<std::uint64_t> seen(samples);
    sample_ledger shared{samples};
    std::map<int, member> peers;
    int born = 0;
    auto join = [&] {
      auto [it, added] = peers.emplace(born, member{born, samples});
      ++born;
      (void)it->second.draws->follow(shared);
    };
    join();
    for (int epoch = 0; shared.passes() < 3; ++epoch) {
      ASSERT_LT(epoch, 20'000);
      if (peers.size() < 5 && random.below(12) == 0)
        join();
      if (peers.size() > 1 && random.below(25) == 0)
        peers.erase(std::next(peers.begin(), static_cast<long>(random.below(peers.size()))));
      for (auto& [i, p] : peers) {
        for (auto passes = random.below(4); passes > 0; --passes) {
          if (!p.running.empty())
            p.end_pass();
          p.running = p.draws->draw(batch);
          if (random.below(20) == 0)
            p.draws->refuse(std::exchange(p.running, {}).size(), 0);
          else if (random.below(3) > 0)
            p.end_pass();
        }
        if (random.below(30) == 0)
          p.drop();
      }
      double weight = 0;
      std::vector<peer_id> members;
      std::vector<float> mean(sample_ledger::ranges);
      std::vector<std::pair<std::vector<float>, double>> contributions;
      std::vector<std::uint64_t> in_update;
      bool fails = random.below(20) == 0; // the mean is not finite
      for (auto& [i, p] : peers) {
        members.push_back(p.id);
        auto own = p.in_gradient();
        auto given = p.draws->take(own);
        EXPECT_TRUE(given.holds);
        auto out = claims_of(given.counts, own);
        bool left_out = random.below(15) == 0;
        for (const auto& pass : std::exchange(p.gradient, {}))
          if (!left_out && !fails)
            in_update.insert(in_update.end(), pass.begin(), pass.end());
        if (left_out || fails)
          p.draws->take_back();
        if (!left_out) {
          contributions.emplace_back(out, static_cast<double>(own));
          weight += static_cast<double>(own);
        }
      }
      for (std::size_t r = 0; r < mean.size(); ++r) {
        double sum = 0;
        for (const auto& [out, w] : contributions)
          sum += static_cast<double>(out[r]) * w;
        mean[r] = weight > 0 ? static_cast<float>(sum / weight) : 0;
      }
      for (auto i : in_update)
        ++seen[i];
      bool none = fails || weight == 0;
      shared.end_epoch(none ? std::span<const float>{} : mean, weight, members);
      for (auto& [i, p] : peers)
        if (!p.draws->follow(shared))
          p.drop();
      for (auto n : seen) {
        ASSERT_LE(n, shared.passes() + 1);
        ASSERT_GE(n, shared.passes());
      }
      auto sum = std::accumulate(seen.begin(), seen.end(), std::uint64_t{0});
      ASSERT_EQ(sum, shared.passes() * samples + shared.present().once);
      ASSERT_EQ(shared.present().twice, 0U);
    }
  }
}

TEST_F(Draws, APassThatOutlastsARoundIsInTheNextOne) {
  sample_ledger shared{1'000};
  std::vector<peer_id> one{peer(1)};
  shared.end_epoch({}, 0, one);
  sample_draws draws{peer(1), 1'000, "run"};
  ASSERT_TRUE(draws.follow(shared));
  (void)draws.draw(4);
  ASSERT_TRUE(draws.pass_ended(4));
  (void)draws.draw(4); // runs
  auto given = draws.take(4);
  shared.end_epoch(claims_of(given.counts, 4), 4, one);
  EXPECT_TRUE(draws.follow(shared));
  EXPECT_TRUE(draws.pass_ended(4));
  EXPECT_TRUE(draws.take(4).holds);
}

TEST_F(Draws, WhatIsDrawnAfterASampleThatNoUpdateHasDoesNotHold) {
  sample_ledger shared{1'000};
  std::vector<peer_id> one{peer(1)};
  shared.end_epoch({}, 0, one);
  sample_draws draws{peer(1), 1'000, "run"};
  ASSERT_TRUE(draws.follow(shared));
  auto first = draws.draw(2);
  ASSERT_TRUE(draws.pass_ended(2));
  (void)draws.draw(1);
  (void)draws.take(2);
  draws.take_back();
  EXPECT_FALSE(draws.pass_ended(1)) << "the two before it are in no update";
  draws.drop(1);
  EXPECT_EQ(draws.draw(2), first) << "drawn again";
}

TEST_F(Draws, TheGradientMayBeTakenBeforeItsLastPassIsKnownToHaveEnded) {
  sample_ledger shared{1'000};
  shared.end_epoch({}, 0, std::vector{peer(1)});
  sample_draws draws{peer(1), 1'000, "run"};
  ASSERT_TRUE(draws.follow(shared));
  (void)draws.draw(3);
  EXPECT_TRUE(draws.take(3).holds);
  EXPECT_TRUE(draws.pass_ended(3));
  (void)draws.draw(5);
  EXPECT_TRUE(draws.pass_ended(5));
  auto counts = draws.take(5).counts;
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), 5U);
}

} // namespace
} // namespace waggle
