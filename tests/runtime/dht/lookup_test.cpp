#include "runtime/dht/lookup.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

const steady_time t0{};

/// Peers with full routing tables; the dead ones do not answer.
struct swarm {
  swarm(std::size_t n, std::uint64_t seed) : random(seed) {
    for (std::size_t i = 0; i < n; ++i)
      peers.push_back(random_peer(random));
    for (const auto& p : peers) {
      auto& table = tables.emplace(p.id, routing_table{p.id, {}, t0}).first->second;
      auto others = peers;
      random.shuffle(others);
      for (const auto& other : others)
        (void)table.seen(other, t0);
    }
  }

  struct outcome {
    std::vector<peer_record> nearest;
    std::size_t asked = 0;
    std::size_t at_once_max = 0;
    unsigned hops = 0;
  };

  outcome find(const dht_id& target, const peer_record& from, lookup::options options = {}) {
    lookup search{target, from.id, options, tables.at(from.id).nearest(target, options.beam)};
    std::deque<peer_record> asked;
    std::set<peer_id> ever;
    outcome out;
    while (!search.finished()) {
      for (auto& p : search.next()) {
        EXPECT_TRUE(ever.insert(p.id).second) << "no peer is queried twice";
        asked.push_back(p);
        ++out.asked;
      }
      out.at_once_max = std::max(out.at_once_max, asked.size());
      if (asked.empty()) {
        ADD_FAILURE() << "the lookup neither queries nor finishes";
        break;
      }
      std::swap(asked.front(), asked[random.below(asked.size())]);
      auto peer = asked.front();
      asked.pop_front();
      if (dead.contains(peer.id))
        search.failed(peer.id);
      else
        search.answered(peer.id, tables.at(peer.id).nearest(target, 20, from.id));
    }
    out.nearest = search.nearest(options.beam);
    out.hops = search.hops();
    return out;
  }

  std::vector<peer_record> truth(const dht_id& target, const peer_id& except, std::size_t k) const {
    auto all = peers;
    std::erase_if(all, [&](const auto& p) { return p.id == except || dead.contains(p.id); });
    sort_nearest(target, all, k);
    return all;
  }

  random_source random;
  std::vector<peer_record> peers;
  std::map<peer_id, routing_table> tables;
  std::set<peer_id> dead;
};

TEST(Lookup, FindsTheNearestPeersOfTheSwarm) {
  swarm s{200, 4};
  std::size_t right = 0;
  for (int turn = 0; turn < 40; ++turn) {
    auto target = dht_id_of(random_peer(s.random).id);
    const auto& from = s.peers[s.random.below(s.peers.size())];
    auto got = s.find(target, from);
    auto truth = s.truth(target, from.id, 20);
    ASSERT_EQ(got.nearest.size(), 20u);
    EXPECT_TRUE(
      std::is_sorted(got.nearest.begin(), got.nearest.end(), [&](const auto& a, const auto& b) {
        return distance(target, a.id) < distance(target, b.id);
      }));
    EXPECT_EQ(got.nearest.front().id, truth.front().id) << "turn " << turn;
    for (const auto& p : got.nearest)
      right += std::any_of(truth.begin(), truth.end(), [&](const auto& t) { return t.id == p.id; })
                 ? 1
                 : 0;
    EXPECT_LE(got.at_once_max, 4u);
    EXPECT_LE(got.hops, 6u);
  }
  EXPECT_GE(right, 40 * 20 * 95 / 100u);
}

TEST(Lookup, ReturnsOnlyPeersThatAnswered) {
  swarm s{120, 9};
  for (std::size_t i = 0; i < 40; ++i)
    s.dead.insert(s.peers[i].id);
  for (int turn = 0; turn < 20; ++turn) {
    auto target = dht_id_of(random_peer(s.random).id);
    auto got = s.find(target, s.peers[100]);
    for (const auto& p : got.nearest)
      EXPECT_FALSE(s.dead.contains(p.id));
    EXPECT_EQ(got.nearest.front().id, s.truth(target, s.peers[100].id, 1).front().id);
  }
}

TEST(Lookup, WithoutSeedsItEndsAtOnceAndEmpty) {
  lookup search{dht_id{}, peer_at(1).id, {}, {}};
  EXPECT_TRUE(search.finished());
  EXPECT_TRUE(search.next().empty());
  EXPECT_TRUE(search.nearest(5).empty());
}

TEST(Lookup, EndsWhenNobodyAnswers) {
  swarm s{40, 2};
  for (const auto& p : s.peers)
    s.dead.insert(p.id);
  EXPECT_TRUE(s.find(dht_id{}, s.peers[0]).nearest.empty());
}

TEST(Lookup, ByzantinePeersCannotMakeItRememberEverything) {
  lookup::options options{.known_max = 64};
  random_source random{3};
  std::vector<peer_record> seeds{peer_at(0x40)};
  lookup search{dht_id{}, peer_at(1).id, options, seeds};
  std::size_t asked = 0;
  while (!search.finished() && asked < 10'000)
    for (auto& p : search.next()) {
      ++asked;
      std::vector<peer_record> invented;
      for (int i = 0; i < 20; ++i)
        invented.push_back(random_peer(random));
      search.answered(p.id, invented);
    }
  EXPECT_TRUE(search.finished());
  EXPECT_LT(asked, 2'000u);
}

TEST(Lookup, UnrequestedAnswersChangeNothing) {
  lookup search{dht_id{}, peer_at(1).id, {}, {peer_at(0x40)}};
  search.answered(peer_at(0x50).id, {peer_at(0x51)});
  search.failed(peer_at(0x40).id);
  EXPECT_EQ(search.next().size(), 1u);
  search.answered(peer_at(0x40).id, {peer_at(1), peer_at(0x40)}); // names ourselves and itself
  search.answered(peer_at(0x40).id, {peer_at(0x60)});
  EXPECT_TRUE(search.finished());
  EXPECT_EQ(search.nearest(9).size(), 1u);
}

} // namespace
} // namespace waggle
