// Which samples a peer draws, while others do the same: each enters one update a pass.

#include "runtime/training/sample_draws.hpp"

#include <deque>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

using batch = std::vector<std::uint64_t>;

peer_id peer(int i) {
  return *peer_id::from_raw(sha256("peer " + std::to_string(i)).raw());
}

std::vector<float> claims_of(const std::array<std::uint64_t, sample_ledger::ranges>& drawn,
                             std::uint64_t samples) {
  std::vector<float> out(sample_ledger::ranges);
  sample_ledger::write_claims(drawn, samples, std::span{out}.first<sample_ledger::ranges>());
  return out;
}

std::uint64_t samples_of(const std::deque<batch>& batches) {
  return std::accumulate(batches.begin(), batches.end(), std::uint64_t{0},
                         [](auto n, const auto& each) { return n + each.size(); });
}

/// As blocks of a stream: how many records are in there.
std::uint64_t records_of(const batch& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0},
                         [](auto n, auto block) { return n + 1 + block * 37 % 700; });
}

/// A peer, and the truth about its samples.
struct drawer {
  drawer(int i, std::uint64_t samples)
    : id(peer(i)), draws(std::make_unique<sample_draws>(id, samples, "run")) {}

  peer_id id;
  std::unique_ptr<sample_draws> draws;
  std::deque<batch> gradient;
  bool blocks = false;

  [[nodiscard]] std::uint64_t weight_of(const batch& each) const {
    return blocks ? records_of(each) : each.size();
  }
  [[nodiscard]] std::uint64_t weight() const {
    return std::accumulate(gradient.begin(), gradient.end(), std::uint64_t{0},
                           [this](auto n, const auto& each) { return n + weight_of(each); });
  }
  void drop() {
    draws->drop(weight());
    gradient.clear();
  }
};

/// Draws the samples of a pass when it begins.
struct training_peer : drawer {
  using drawer::drawer;
  batch running; // a pass that has not ended; it may outlast a round

  void end_pass() {
    auto samples = running.size();
    gradient.push_back(std::exchange(running, {}));
    if (!draws->pass_ended(samples))
      drop();
  }
  void compute(random_source& random, std::uint64_t size) {
    if (!running.empty())
      end_pass();
    running = draws->draw(size);
    if (random.below(20) == 0) // not finite
      draws->refuse(std::exchange(running, {}).size(), 0);
    else if (random.below(3) > 0)
      end_pass();
  }
  void round_ended() {}
};

/// Draws ahead of its passes, as the workers of a DataLoader do.
struct loop : drawer {
  using drawer::drawer;
  std::deque<batch> ahead;
  std::uint64_t of_running = 0; // the newest in the gradient is of a pass that has not ended

  void compute(random_source& random, std::uint64_t size) {
    while (ahead.size() < 3 && draws->any_left())
      ahead.push_back(draws->draw(size));
    ASSERT_EQ(draws->ahead(), samples_of(ahead));
    if (!ahead.empty())
      step(random);
    if (random.below(20) == 0) { // another iteration
      draws->put_back(draws->ahead());
      ahead.clear();
    }
  }
  void step(random_source& random) {
    round_ended();
    auto next = std::move(ahead.front());
    ahead.pop_front();
    auto weight = weight_of(next);
    if (blocks)
      draws->weigh(weight, next.size());
    if (random.below(20) == 0) { // of outdated parameters
      draws->put_back(weight);
    } else if (draws->offer(weight)) {
      if (random.below(20) == 0) { // not finite, and found in the sum
        auto lost = blocks && !gradient.empty() ? weight_of(gradient.back()) : 0;
        if (lost > 0)
          gradient.pop_back();
        draws->refuse(weight, lost);
        return;
      }
      of_running = weight;
      gradient.push_back(std::move(next));
      if (random.below(2) == 0)
        round_ended(); // otherwise a round may take it before
    }
  }
  void round_ended() {
    if (auto samples = std::exchange(of_running, 0); samples > 0 && !draws->pass_ended(samples))
      drop();
  }
};

/// Its samples are blocks, and weigh as their records do.
struct block_loop : loop {
  block_loop(int i, std::uint64_t samples) : loop(i, samples) { blocks = true; }
};

/// Peers die, join, are left out of rounds, compute what is not finite, and are in the middle of a
/// pass at any moment; rounds fail and are tried again.
template <class Peer>
void expect_each_sample_in_one_update_a_pass(std::uint64_t seed) {
  SCOPED_TRACE(seed);
  random_source random{seed};
  auto samples = 1 + random.below(seed % 3 == 0 ? 40 : 3'000);
  auto size = 1 + random.below(24);
  std::vector<std::uint64_t> seen(samples);
  sample_ledger shared{samples};
  std::map<int, Peer> peers;
  int born = 0;
  auto join = [&] {
    auto [it, added] = peers.emplace(born, Peer{born, samples});
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
      for (auto passes = random.below(4); passes > 0; --passes)
        p.compute(random, size);
      if (random.below(30) == 0)
        p.drop();
    }
    double weight = 0;
    std::vector<peer_id> members;
    std::vector<double> sums(sample_ledger::ranges);
    bool fails = random.below(20) == 0; // the mean is not finite
    for (auto& [i, p] : peers) {
      members.push_back(p.id);
      auto own = p.weight();
      auto given = p.draws->take(own);
      EXPECT_TRUE(given.holds);
      auto all = std::exchange(p.gradient, {});
      bool left_out = random.below(15) == 0;
      if (left_out || fails)
        p.draws->take_back();
      else
        for (const auto& each : all)
          for (auto sample : each)
            ++seen[sample];
      if (left_out)
        continue;
      weight += static_cast<double>(own);
      auto claims = claims_of(given.counts, own);
      for (std::size_t r = 0; r < sums.size(); ++r)
        sums[r] += static_cast<double>(claims[r]) * static_cast<double>(own);
    }
    std::vector<float> mean;
    for (auto sum : sums)
      mean.push_back(weight > 0 ? static_cast<float>(sum / weight) : 0);
    bool none = fails || weight == 0;
    shared.end_epoch(none ? std::span<const float>{} : mean, weight, members);
    for (auto& [i, p] : peers) {
      bool all_hold = p.draws->follow(shared);
      p.round_ended();
      if (!all_hold)
        p.drop();
    }
    for (auto n : seen) {
      ASSERT_LE(n, shared.passes() + 1);
      ASSERT_GE(n, shared.passes());
    }
    ASSERT_EQ(std::accumulate(seen.begin(), seen.end(), std::uint64_t{0}),
              shared.passes() * samples + shared.present().once);
    ASSERT_EQ(shared.present().twice, 0U);
  }
}

TEST(Draws, EachSampleEntersOneUpdateAPassWhoeverDiesOrJoins) {
  for (std::uint64_t seed = 1; seed <= 150 && !HasFatalFailure(); ++seed)
    expect_each_sample_in_one_update_a_pass<training_peer>(seed);
}

TEST(DrawsAhead, EachSampleEntersOneUpdateAPassWhoeverDiesOrJoins) {
  for (std::uint64_t seed = 1; seed <= 150 && !HasFatalFailure(); ++seed)
    expect_each_sample_in_one_update_a_pass<loop>(seed);
}

TEST(DrawsOfBlocks, EachBlockEntersOneUpdateAPassWhoeverDiesOrJoins) {
  for (std::uint64_t seed = 1; seed <= 150 && !HasFatalFailure(); ++seed)
    expect_each_sample_in_one_update_a_pass<block_loop>(seed);
}

TEST(Draws, APassThatOutlastsARoundIsInTheNextOne) {
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

TEST(Draws, WhatIsDrawnAfterASampleThatNoUpdateHasDoesNotHold) {
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

TEST(Draws, WhatIsReturnedIsGivenAgainBeforeTheRest) {
  for (bool blocks : {false, true}) {
    sample_ledger shared{1'000};
    shared.end_epoch({}, 0, std::vector{peer(1)});
    sample_draws draws{peer(1), 1'000, "run"};
    ASSERT_TRUE(draws.follow(shared));
    auto pass = [&](std::uint64_t claims, std::uint64_t samples) {
      (void)draws.draw(claims);
      if (blocks)
        draws.weigh(samples, claims);
      EXPECT_TRUE(!blocks || draws.offer(samples));
      EXPECT_TRUE(draws.pass_ended(blocks ? samples : claims));
    };
    pass(2, 20);
    auto first = draws.take(blocks ? 20 : 2).counts;
    pass(3, 30);
    draws.return_taken();
    EXPECT_EQ(draws.take(blocks ? 20 : 2).counts, first);
    draws.return_taken();
    auto all = draws.take(blocks ? 50 : 5);
    EXPECT_TRUE(all.holds);
    EXPECT_EQ(std::accumulate(all.counts.begin(), all.counts.end(), 0UL), 5U);
    shared.end_epoch(claims_of(all.counts, blocks ? 50 : 5), blocks ? 50 : 5, std::vector{peer(1)});
    EXPECT_TRUE(draws.follow(shared));
    EXPECT_EQ(shared.present().once, 5U);
  }
}

TEST(Draws, TheGradientMayBeTakenBeforeItsLastPassIsKnownToHaveEnded) {
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

TEST(DrawsAhead, AStepOverSamplesThatAnotherMemberHasNowIsNotInTheGradient) {
  sample_ledger shared{256}; // one in each range
  shared.end_epoch({}, 0, std::vector{peer(1)});
  sample_draws draws{peer(1), 256, "run"};
  ASSERT_TRUE(draws.follow(shared));
  (void)draws.draw(2);
  auto lost = draws.draw(254);
  ASSERT_TRUE(draws.offer(2));
  ASSERT_TRUE(draws.pass_ended(2));
  shared.end_epoch({}, 0, std::vector{peer(1), peer(2)}); // gets half of the ranges
  EXPECT_TRUE(draws.follow(shared)) << "what is in the gradient";
  EXPECT_EQ(draws.ahead(), 254U);
  EXPECT_TRUE(draws.has_samples());
  EXPECT_FALSE(draws.offer(254));
  EXPECT_EQ(draws.ahead(), 0U);
  EXPECT_EQ(draws.draw(1'000), batch(lost.begin(), lost.begin() + 126));
  EXPECT_TRUE(draws.take(2).holds);
}

TEST(DrawsAhead, NothingIsDrawnOfAnotherPass) {
  sample_ledger shared{10};
  shared.end_epoch({}, 0, std::vector{peer(1)});
  sample_draws draws{peer(1), 10, "run"};
  ASSERT_TRUE(draws.follow(shared));
  EXPECT_TRUE(draws.draw(4, 1).empty());
  EXPECT_EQ(draws.draw(4, 0).size(), 4U);
}

} // namespace
} // namespace waggle
