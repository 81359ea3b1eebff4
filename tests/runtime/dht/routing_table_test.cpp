#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

const steady_time t0{};

std::vector<peer_id> ids(const std::vector<peer_record>& peers) {
  std::vector<peer_id> out;
  for (const auto& p : peers)
    out.push_back(p.id);
  return out;
}

struct filled {
  filled(std::size_t n, routing_options options, std::uint64_t seed = 1)
    : random(seed), table(self(random), options, t0) {
    for (std::size_t i = 0; i < n; ++i) {
      offered.push_back(random_peer(random));
      (void)table.seen(offered.back(), t0);
    }
  }
  static peer_id self(random_source& random) { return random_peer(random).id; }
  random_source random;
  routing_table table;
  std::vector<peer_record> offered;
};

TEST(DhtDistance, IsXorComparedAsABigEndianNumber) {
  random_source random{5};
  for (int i = 0; i < 100; ++i) {
    auto a = dht_id_of(random_peer(random).id);
    auto b = dht_id_of(random_peer(random).id);
    EXPECT_EQ(distance(a, a), dht_distance{});
    EXPECT_GT(distance(a, b), dht_distance{});
    EXPECT_EQ(distance(a, b), distance(b, a));
  }
  dht_id zero;
  EXPECT_LT(distance(zero, peer_at(0x01).id), distance(zero, peer_at(0x80).id));
}

TEST(RoutingTable, OnlyPeersThatWereReachedAreNamedToOthers) {
  filled f{3, {}};
  auto named = [&] { return ids(f.table.nearest(dht_id{}, 9, {}, routing_table::of::reached)); };
  EXPECT_TRUE(named().empty());
  EXPECT_EQ(f.table.nearest(dht_id{}, 9).size(), 3U);
  auto peer = f.offered[1];
  f.table.reached(peer.id);
  EXPECT_EQ(named(), std::vector{peer.id});
  (void)f.table.seen(peer, t0);
  EXPECT_TRUE(f.table.is_reached(peer.id));
  peer.addresses[0].port = 7701;
  (void)f.table.seen(peer, t0);
  EXPECT_FALSE(f.table.is_reached(peer.id)) << "nobody has reached it there";
}

TEST(RoutingTable, APeerThatWasReachedTakesThePlaceOfOneThatWasNot) {
  routing_options options{.bucket_size = 2};
  routing_table table{peer_at(0xff).id, options, t0};
  // The half without ourselves is split until its depth is a multiple of depth_modulo.
  for (unsigned last : {1U, 2U, 3U})
    (void)table.seen(peer_at(0x01, last), t0);
  ASSERT_EQ(table.replacements(), 1U);
  table.reached(peer_at(0x01, 1).id);
  table.reached(peer_at(0x01, 3).id);
  EXPECT_EQ(ids(table.nearest(dht_id_of(peer_at(0x01).id), 9)),
            (std::vector{peer_at(0x01, 1).id, peer_at(0x01, 3).id}));
  EXPECT_EQ(table.replacements(), 1U);
}

TEST(RoutingTable, HundredPeersAreAllActive) {
  filled f{100, {}};
  EXPECT_EQ(f.table.size(), 100u);
  EXPECT_EQ(f.table.replacements(), 0u);
  EXPECT_GE(f.table.buckets(), 3u);
  EXPECT_LE(f.table.buckets(), 10u);
  for (const auto& p : f.offered)
    EXPECT_TRUE(f.table.find(p.id));
}

TEST(RoutingTable, TenThousandPeersMakeTheExpectedNumberOfBuckets) {
  auto buckets = [](std::size_t k, std::size_t b) {
    routing_options options{.bucket_size = k, .depth_modulo = b};
    return filled{10'000, options}.table.buckets();
  };
  EXPECT_GE(buckets(20, 5), 45u);
  EXPECT_LE(buckets(20, 5), 65u);
  EXPECT_GE(buckets(50, 5), 35u);
  EXPECT_LE(buckets(50, 5), 45u);
  EXPECT_GE(buckets(20, 10), 650u);
  EXPECT_LE(buckets(20, 10), 800u);
  EXPECT_GE(buckets(20, 1), 7u);
  EXPECT_LE(buckets(20, 1), 15u);
}

TEST(RoutingTable, BoundsActivePeersAndReplacementsOfTenThousand) {
  EXPECT_EQ(filled(10, {}).table.size(), 10u);
  filled f{10'000, {}};
  EXPECT_GE(f.table.size(), 800u);
  EXPECT_LE(f.table.size(), 1'100u);
  EXPECT_LE(f.table.replacements(), 20 * f.table.buckets());
}

TEST(RoutingTable, TheNearestAreThoseThatBruteForceFinds) {
  filled f{1'000, {}};
  std::vector<peer_record> active;
  for (const auto& p : f.table.nearest(dht_id{}, 100'000))
    active.push_back(p);
  ASSERT_EQ(active.size(), f.table.size());
  for (int turn = 0; turn < 1'000; ++turn) {
    auto k = 1 + f.random.below(100);
    bool known = f.random.below(3) == 0;
    auto peer = active[f.random.below(active.size())].id;
    auto target = known ? dht_id_of(peer) : dht_id_of(random_peer(f.random).id);
    auto exclude = f.random.below(2) == 0 ? peer : peer_id{};
    auto expected = active;
    std::erase_if(expected, [&](const auto& p) { return p.id == exclude; });
    std::sort(expected.begin(), expected.end(), [&](const auto& a, const auto& b) {
      return distance(target, a.id) < distance(target, b.id);
    });
    expected.resize(std::min<std::size_t>(k, expected.size()));
    auto got = f.table.nearest(target, k, exclude);
    ASSERT_EQ(ids(got), ids(expected)) << "turn " << turn;
    if (known && exclude.is_zero()) {
      EXPECT_EQ(got.front().id, peer);
    }
  }
}

TEST(RoutingTable, ThePeerInTheMiddleOfTheSpaceCanBeAddedAndRemoved) {
  routing_options options{.bucket_size = 2};
  routing_table table{peer_at(0x00, 1).id, options, t0};
  for (unsigned i = 0; i < 12; ++i)
    (void)table.seen(peer_at(0x10 * i, 2), t0);
  auto middle = peer_at(0x80);
  (void)table.seen(middle, t0);
  ASSERT_TRUE(table.find(middle.id));
  table.remove(middle.id);
  EXPECT_FALSE(table.find(middle.id));
}

TEST(RoutingTable, HoldsNeitherItselfNorClientsNorPeersWithoutAnAddress) {
  routing_table table{peer_at(1).id, {}, t0};
  (void)table.seen(peer_at(1), t0);
  auto client = peer_at(2);
  client.client_mode = true;
  (void)table.seen(client, t0);
  auto nowhere = peer_at(3);
  nowhere.addresses.clear();
  (void)table.seen(nowhere, t0);
  EXPECT_EQ(table.size(), 0u);
}

/// A table with a bucket that cannot split: our own id is far away, b = 1.
struct full_bucket {
  full_bucket() : table(peer_at(0x00, 1).id, options(), t0) {
    for (unsigned i = 0; i < 3; ++i)
      (void)table.seen(peer_at(0x01 + i), t0); // our half
    for (unsigned i = 0; i < 3; ++i)
      (void)table.seen(peer_at(0x80 + i), t0);
  }
  static routing_options options() { return routing_options{.bucket_size = 3, .depth_modulo = 1}; }
  routing_table table;
};

TEST(RoutingTable, AFullBucketPingsItsOldestPeerBeforeItAddsANewOne) {
  full_bucket f;
  auto ping = f.table.seen(peer_at(0x90), t0);
  ASSERT_TRUE(ping);
  EXPECT_EQ(ping->id, peer_at(0x80).id);
  auto second = f.table.seen(peer_at(0x91), t0);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->id, peer_at(0x81).id) << "one pending ping per peer";
  EXPECT_EQ(f.table.replacements(), 2u);
  (void)f.table.seen(peer_at(0x80), t0); // it answers
  EXPECT_TRUE(f.table.find(peer_at(0x80).id));
}

TEST(RoutingTable, AfterTwoConsecutiveFailuresTheNewestReplacementIsActive) {
  full_bucket f;
  (void)f.table.seen(peer_at(0x90), t0);
  (void)f.table.seen(peer_at(0x91), t0);
  f.table.failed(peer_at(0x80).id, t0);
  EXPECT_TRUE(f.table.find(peer_at(0x80).id)) << "one failure is not enough";
  (void)f.table.seen(peer_at(0x80), t0);
  f.table.failed(peer_at(0x80).id, t0);
  EXPECT_TRUE(f.table.find(peer_at(0x80).id)) << "the failures were not consecutive";
  f.table.failed(peer_at(0x80).id, t0);
  EXPECT_FALSE(f.table.find(peer_at(0x80).id));
  EXPECT_EQ(ids(f.table.nearest(dht_id_of(peer_at(0x91).id), 1)).front(), peer_at(0x91).id);
}

TEST(RoutingTable, AFailureOfOurOwnNetworkEvictsNoPeer) {
  filled f{30, {}};
  for (int twice = 0; twice < 3; ++twice)
    for (const auto& p : f.offered)
      f.table.failed(p.id, t0 + milliseconds{twice});
  EXPECT_TRUE(f.table.suspended(t0 + 3ms));
  EXPECT_GE(f.table.size(), 15u) << "the table must not be emptied";
  EXPECT_FALSE(f.table.suspended(t0 + 1h));
}

TEST(RoutingTable, PeersThatStrangersMakeUpAreNoFailureOfOurNetwork) {
  filled f{30, {}};
  for (int i = 0; i < 1'000; ++i)
    f.table.failed(random_peer(f.random).id, t0);
  EXPECT_FALSE(f.table.suspended(t0));
  auto dead = f.table.nearest(dht_id_of(f.offered.front().id), 1).front().id;
  f.table.failed(dead, t0);
  f.table.failed(dead, t0);
  EXPECT_FALSE(f.table.find(dead)) << "a peer that does not answer still leaves";
}

TEST(RoutingTable, StaleBucketsAreRefreshedWithinTheirRange) {
  filled f{2'000, {}};
  EXPECT_TRUE(f.table.stale_targets(t0, f.random).empty());
  auto targets = f.table.stale_targets(t0 + 1s, f.random);
  EXPECT_EQ(targets.size(), f.table.buckets());
  std::set<peer_id> nearest;
  for (const auto& target : targets)
    nearest.insert(f.table.nearest(target, 1).front().id);
  EXPECT_GT(nearest.size(), targets.size() / 2) << "the targets lie in different buckets";
}

} // namespace
} // namespace waggle
