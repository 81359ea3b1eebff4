// Loops that draw their samples ahead of their passes, as the workers of a DataLoader do.

#include <deque>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {
namespace {

using batch_of_samples = std::vector<std::uint64_t>;

peer_id loop_peer(int i) {
  return *peer_id::from_raw(sha256("loop " + std::to_string(i)).raw());
}

/// A loop, and the truth about its samples.
struct looping {
  looping(int i, std::uint64_t samples)
    : id(loop_peer(i)), draws(std::make_unique<sample_draws>(id, samples, "run")) {}

  peer_id id;
  std::unique_ptr<sample_draws> draws;
  std::deque<batch_of_samples> ahead;
  std::deque<batch_of_samples> gradient; // the newest may be of a pass that has not ended
  std::uint64_t of_running = 0;

  std::uint64_t in_gradient() const {
    return std::accumulate(gradient.begin(), gradient.end(), std::uint64_t{0},
                           [](auto n, const auto& each) { return n + each.size(); });
  }
  void drop() {
    draws->drop(in_gradient());
    gradient.clear();
  }
  void end_pass() {
    if (auto samples = std::exchange(of_running, 0); samples > 0 && !draws->pass_ended(samples))
      drop();
  }
  void step(random_source& random) {
    end_pass();
    auto next = std::move(ahead.front());
    ahead.pop_front();
    if (random.below(20) == 0) { // of outdated parameters
      draws->put_back(next.size());
    } else if (draws->offer(next.size())) {
      if (random.below(20) == 0) { // not finite
        draws->refuse(next.size(), 0);
        return;
      }
      of_running = next.size();
      gradient.push_back(std::move(next));
      if (random.below(2) == 0)
        end_pass(); // otherwise a round may take it before
    }
  }
};

TEST(DrawsAhead, EachSampleEntersOneUpdateAPassWhoeverDiesOrJoins) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    random_source random{seed};
    auto samples = 1 + random.below(seed % 3 == 0 ? 40 : 3'000);
    auto size = 1 + random.below(24);
    std::vector<std::uint64_t> seen(samples);
    sample_ledger shared{samples};
    std::map<int, looping> peers;
    int born = 0;
    auto join = [&] {
      auto [it, added] = peers.emplace(born, looping{born, samples});
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
        for (auto steps = random.below(5); steps > 0; --steps) {
          while (p.ahead.size() < 3 && p.draws->any_left())
            p.ahead.push_back(p.draws->draw(size));
          ASSERT_EQ(p.draws->ahead(),
                    std::accumulate(p.ahead.begin(), p.ahead.end(), 0U,
                                    [](auto n, const auto& each) { return n + each.size(); }));
          if (!p.ahead.empty())
            p.step(random);
        }
        if (random.below(10) == 0) { // another iteration
          p.draws->put_back(p.draws->ahead());
          p.ahead.clear();
        }
        if (random.below(30) == 0)
          p.drop();
      }
      std::array<double, sample_ledger::ranges> claimed{};
      double weight = 0;
      std::vector<peer_id> members;
      for (auto& [i, p] : peers) {
        members.push_back(p.id);
        auto own = p.in_gradient();
        auto given = p.draws->take(own);
        EXPECT_TRUE(given.holds);
        auto all = std::exchange(p.gradient, {});
        if (random.below(15) == 0) { // left out
          p.draws->take_back();
          continue;
        }
        weight += static_cast<double>(own);
        for (std::size_t r = 0; r < claimed.size(); ++r)
          claimed[r] += static_cast<double>(given.counts[r]);
        for (const auto& each : all)
          for (auto i : each)
            ++seen[i];
      }
      std::vector<float> mean;
      for (auto each : claimed)
        mean.push_back(weight > 0 ? static_cast<float>(each / weight) : 0);
      shared.end_epoch(weight > 0 ? mean : std::span<const float>{}, weight, members);
      for (auto& [i, p] : peers) {
        bool all_hold = p.draws->follow(shared);
        p.end_pass();
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
}

TEST(DrawsAhead, AStepOverSamplesThatAnotherMemberHasNowIsNotInTheGradient) {
  sample_ledger shared{256}; // one in each range
  shared.end_epoch({}, 0, std::vector{loop_peer(1)});
  sample_draws draws{loop_peer(1), 256, "run"};
  ASSERT_TRUE(draws.follow(shared));
  (void)draws.draw(2);
  auto lost = draws.draw(254);
  ASSERT_TRUE(draws.offer(2));
  ASSERT_TRUE(draws.pass_ended(2));
  shared.end_epoch({}, 0, std::vector{loop_peer(1), loop_peer(2)}); // gets half of the ranges
  EXPECT_TRUE(draws.follow(shared)) << "what is in the gradient";
  EXPECT_EQ(draws.ahead(), 254U);
  EXPECT_TRUE(draws.has_samples());
  EXPECT_FALSE(draws.offer(254));
  EXPECT_EQ(draws.ahead(), 0U);
  EXPECT_EQ(draws.draw(1'000), batch_of_samples(lost.begin(), lost.begin() + 126));
  EXPECT_TRUE(draws.take(2).holds);
}

TEST(DrawsAhead, NothingIsDrawnOfAnotherPass) {
  sample_ledger shared{10};
  shared.end_epoch({}, 0, std::vector{loop_peer(1)});
  sample_draws draws{loop_peer(1), 10, "run"};
  ASSERT_TRUE(draws.follow(shared));
  EXPECT_TRUE(draws.draw(4, 1).empty());
  EXPECT_EQ(draws.draw(4, 0).size(), 4U);
}

} // namespace
} // namespace waggle
