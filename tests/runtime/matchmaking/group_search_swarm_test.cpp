// Several searches that exchange messages through a seeded network: whatever messages are lost,
// every search ends, and the members of a group agree on it.

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "tests/runtime/matchmaking/search_swarm.hpp"

namespace waggle {
namespace {

using testing::conditions;

struct swarm : testing::swarm {
  /// One that has ended, as the contract says.
  swarm(std::uint64_t seed, const conditions& given) : testing::swarm(seed, given) {
    run();
    expect_contract(*this, given);
  }
};

/// Until one fails.
void for_each_seed(std::uint64_t seeds, const std::function<void(std::uint64_t)>& test) {
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test(seed);
  }
}

void expect_one_group(const swarm& s, milliseconds within) {
  for (const auto& m : s.members()) {
    ASSERT_TRUE(m.formed) << (m.failed ? to_string(*m.failed) : "");
    EXPECT_EQ(m.formed->members.size(), s.members().size());
    EXPECT_LE(m.ended - s.members().back().started, within);
  }
}

TEST(GroupSearchSwarm, ConnectedPeersThatStartTogetherMeetAtOnce) {
  steady_time::duration sum{};
  for_each_seed(300, [&](std::uint64_t seed) {
    conditions given;
    given.peers = given.options.expected_peers = 2 + seed % 7;
    swarm s{seed, given};
    expect_one_group(s, 1s);
    sum += s.members()[0].ended - s.members()[0].started;
  });
  EXPECT_LT(seconds_of(sum) / 300, 0.2);
}

TEST(GroupSearchSwarm, PeersThatMeetInTheTableFormOneGroup) {
  for_each_seed(300, [&](std::uint64_t seed) {
    conditions given{.start_spread = 500ms, .connected = false};
    given.peers = given.options.expected_peers = 2 + seed % 7;
    swarm s{seed, given};
    expect_one_group(s, 4s);
  });
}

TEST(GroupSearchSwarm, WithoutExpectationsTheFirstToExpireGathersAll) {
  for_each_seed(200, [&](std::uint64_t seed) {
    conditions given{.peers = 2 + seed % 7, .start_spread = 1s};
    swarm s{seed, given};
    expect_one_group(s, given.options.min_matchmaking_time + 100ms);
  });
}

TEST(GroupSearchSwarm, ClientsOnlyFollow) {
  for_each_seed(200, [&](std::uint64_t seed) {
    conditions given;
    given.peers = given.options.expected_peers = 2 + seed % 7;
    given.clients = 1 + seed % (given.peers - 1);
    swarm s{seed, given};
    expect_one_group(s, 2s);
  });
}

TEST(GroupSearchSwarm, OnlyClientsFindNobody) {
  conditions given;
  given.clients = given.peers;
  swarm s{1, given};
  for (const auto& m : s.members())
    EXPECT_EQ(m.failed.value_or(failure{}).code, ec::nobody_declared);
}

// Three peers in pairs: one is always left over, but never the one that was left over before,
// whatever its id.
TEST(GroupSearchSwarm, APeerThatWasLeftOverIsInTheNextGroup) {
  for (std::size_t id : {31, 131, 200}) // the smallest, the second, the largest
    for (auto delay : {2ms, 40ms})
      for (auto spread : {0ms, 2ms, 20ms}) {
        SCOPED_TRACE("id " + std::to_string(id) + ", delay " + std::to_string(delay.count())
                     + " ms, spread " + std::to_string(spread.count()) + " ms");
        constexpr std::uint64_t seeds = 100;
        std::uint64_t in_group = 0;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          conditions given{.peers = 3, .first_id = id};
          given.options.target_group_size = 2;
          given.delay_max = delay;
          given.start_spread = spread;
          given.head_start = 250ms;
          given.patience = 1500ms;
          swarm s{seed, given};
          const auto& first = s.members()[0].formed;
          auto agrees = [&](std::size_t other) { return s.members()[other].formed == first; };
          in_group += first && (agrees(1) || agrees(2)) ? 1 : 0; // otherwise the other declined
        }
        EXPECT_EQ(in_group, seeds);
      }
}

// 16 peers in one bucket, groups of 2, five rounds.
TEST(GroupSearchSwarm, CrowdedBucketSplitsIntoPairsEveryRound) {
  for (bool connected : {true, false})
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
      for (std::uint64_t round = 1; round <= 5; ++round) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round)
                     + (connected ? ", connected" : ", through the table"));
        conditions given{.peers = 16, .connected = connected};
        given.options.target_group_size = 2;
        given.patience = 5s;
        swarm s{100 * seed + round, given};
        std::size_t formed = 0;
        for (const auto& m : s.members())
          formed += m.formed && m.formed->members.size() == 2 ? 1 : 0;
        EXPECT_GE(formed, 15u);
        if (::testing::Test::HasFailure())
          return;
      }
}

// No peer finds another, and every peer learns that in time.
TEST(GroupSearchSwarm, PeersAloneInTheirBucketsFail) {
  conditions given{.connected = false};
  given.keys = {"p.0b00", "p.0b01", "p.0b10", "p.0b11"};
  given.options.target_group_size = 2;
  given.options.min_matchmaking_time = 1s;
  given.options.request_timeout = 500ms;
  given.patience = 2s;
  swarm s{1, given};
  for (const auto& m : s.members()) {
    ASSERT_TRUE(m.failed);
    EXPECT_EQ(m.failed->code, ec::nobody_declared);
  }
}

TEST(GroupSearchSwarm, PeersOfOtherBucketsAreTheReason) {
  conditions given{.peers = 2};
  given.keys = {"p.0b0", "p.0b1"}; // but they are connected, and ask each other
  given.patience = 2s;
  swarm s{1, given};
  for (const auto& m : s.members())
    EXPECT_EQ(m.failed.value_or(failure{}).code, ec::wrong_group_key);
}

TEST(GroupSearchSwarm, EverySearchEndsWhateverIsLost) {
  for_each_seed(600, [&](std::uint64_t seed) {
    random_source random{seed};
    conditions given{.peers = 2 + random.below(7)};
    given.clients = random.below(given.peers);
    given.crashes = random.below(3);
    given.crashes = std::min(given.crashes, given.peers);
    given.loss = std::array{0.0, 0.05, 0.3, 0.9}[random.below(4)];
    given.delay_max = std::array{1ms, 50ms, 1500ms}[random.below(3)];
    given.start_spread = std::array{1ms, 300ms, 6000ms}[random.below(3)];
    given.connected = random.below(2) == 0;
    given.patience = std::array{200ms, 5000ms, 20'000ms}[random.below(3)];
    given.options.expected_peers = random.below(2) == 0 ? 0 : given.peers;
    given.options.min_group_size = 1 + random.below(3);
    given.options.target_group_size =
      std::max<std::size_t>(given.options.min_group_size, 2) + random.below(6);
    swarm s{seed, given};
  });
}

TEST(GroupSearchSwarm, TheSameSeedEndsTheSameWay) {
  auto trace = [] {
    conditions given{.peers = 8, .loss = 0.1, .delay_max = 50ms};
    swarm s{7, given};
    std::vector<std::pair<steady_time, std::size_t>> out;
    for (const auto& m : s.members())
      out.emplace_back(m.ended, m.formed ? m.formed->leader : 99);
    return out;
  };
  EXPECT_EQ(trace(), trace());
}

} // namespace
} // namespace waggle
