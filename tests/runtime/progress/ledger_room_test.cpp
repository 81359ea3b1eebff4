// Whom the ledger remembers if there are more peers than it has room for.

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/progress/progress_ledger.hpp"

namespace waggle {
namespace {

const swarm_time now{std::chrono::hours{24 * 365 * 50}};
const swarm_time later = now + 60s;

peer_id id_of(unsigned number) {
  peer_id id;
  id.bytes[0] = std::byte(number >> 8U);
  id.bytes[1] = std::byte(number & 0xFFU);
  return id;
}

progress_report report(unsigned who, swarm_time time = now) {
  progress_report r;
  r.who.id = id_of(who);
  r.time = time;
  return r;
}

const report_source in_dht{};
report_source connected(std::string host = "192.0.2.1") {
  return {false, true, std::move(host)};
}
/// Its link had ended when its report was read.
report_source gone(std::string host = "192.0.2.1") {
  return {false, false, std::move(host)};
}
const report_source member{true, true, "192.0.2.1"};

struct LedgerRoom : ::testing::Test {
  progress_ledger ledger{id_of(0), {.peers_max = 4}};

  bool add(unsigned who, const report_source& from = in_dht, swarm_time time = now) {
    return ledger.record(report(who, time), later, from);
  }
  /// Connects, reports and is lost again.
  void pass_by(unsigned who, const std::string& host) {
    add(who, connected(host));
    ledger.lose(id_of(who), now, later);
  }
  std::set<unsigned> known() const {
    std::set<unsigned> all;
    for (const auto& peer : ledger.view(std::nullopt, now).peers)
      all.insert(256 * std::to_integer<unsigned>(peer.who.id.bytes[0])
                 + std::to_integer<unsigned>(peer.who.id.bytes[1]));
    return all;
  }
  using peers = std::set<unsigned>;
};

TEST_F(LedgerRoom, RemembersNoMorePeersThanItIsAllowed) {
  for (unsigned i = 1; i <= 20; ++i)
    EXPECT_TRUE(add(i)) << "a newcomer is never dropped for others like it";
  EXPECT_EQ(known(), (peers{17, 18, 19, 20}));
  EXPECT_EQ(ledger.size(), 4U);
  EXPECT_EQ(ledger.dropped(), 16U);
  EXPECT_TRUE(add(18, in_dht, now + 1s)) << "reports of known peers are still accepted";
  EXPECT_EQ(ledger.dropped(), 16U);
}

TEST_F(LedgerRoom, ForgetsTheOneOfWhichItHasNotHeardForLongest) {
  for (unsigned i = 1; i <= 4; ++i)
    add(i);
  EXPECT_FALSE(add(1)) << "the DHT still has its report";
  ledger.note(id_of(2), epoch_id{0}, {}, 5, 1, now);
  add(5);
  EXPECT_EQ(known(), (peers{1, 2, 4, 5}));
  add(6);
  EXPECT_EQ(known(), (peers{1, 2, 5, 6}));
  add(7);
  EXPECT_EQ(known(), (peers{2, 5, 6, 7}));
}

TEST_F(LedgerRoom, WhoeverMattersMoreTakesThePlaceOfOthers) {
  add(1, member);
  add(2, connected());
  add(3, in_dht);
  add(4, gone());
  EXPECT_EQ(known(), (peers{1, 2, 3, 4}));
  EXPECT_TRUE(add(5, in_dht));
  EXPECT_EQ(known(), (peers{1, 2, 3, 5}));
  EXPECT_TRUE(add(6, connected()));
  EXPECT_EQ(known(), (peers{1, 2, 5, 6}));
  EXPECT_TRUE(add(7, member));
  EXPECT_EQ(known(), (peers{1, 2, 6, 7}));
  EXPECT_EQ(ledger.dropped(), 3U);
  EXPECT_FALSE(add(8, in_dht));
  EXPECT_FALSE(add(8, gone()));
  EXPECT_EQ(ledger.dropped(), 5U);
  EXPECT_TRUE(add(9, member));
  EXPECT_TRUE(add(10, member));
  EXPECT_FALSE(add(11, connected()));
  EXPECT_EQ(known(), (peers{1, 7, 9, 10}));
}

TEST_F(LedgerRoom, StrangersThatPassByPushOutNobody) {
  add(1, member);
  add(2, connected("192.0.2.7"));
  add(3, in_dht);
  for (unsigned i = 100; i < 1'000; ++i)
    pass_by(i, "198.51.100.1");
  EXPECT_EQ(known(), (peers{1, 2, 3}));
  EXPECT_EQ(ledger.size(), 4U);
  EXPECT_EQ(ledger.dropped(), 0U) << "they had left already";
  EXPECT_TRUE(add(4, connected("192.0.2.8")));
  EXPECT_EQ(known(), (peers{1, 2, 3, 4}));
}

TEST_F(LedgerRoom, AHostHasNoMoreThanAnEqualShare) {
  progress_ledger small{id_of(0), {.peers_max = 6}};
  auto passes_by = [&](unsigned who, const std::string& host) {
    small.record(report(who), later, gone(host));
  };
  auto count = [&](unsigned from, unsigned to) {
    auto view = small.view(std::nullopt, now);
    return std::count_if(view.peers.begin(), view.peers.end(), [&](const auto& peer) {
      return peer.who.id >= id_of(from) && peer.who.id < id_of(to);
    });
  };
  for (unsigned i = 1; i <= 2; ++i)
    passes_by(i, "192.0.2.1");
  for (unsigned i = 100; i < 200; ++i)
    passes_by(i, "198.51.100.1");
  EXPECT_EQ(count(1, 100), 2) << "the host that has most makes room";
  EXPECT_EQ(count(100, 200), 4);
  passes_by(3, "192.0.2.1");
  EXPECT_EQ(count(1, 100), 3);
  for (unsigned i = 200; i < 300; ++i)
    passes_by(i, "198.51.100.1");
  EXPECT_EQ(count(1, 100), 3);
  for (unsigned i = 4; i < 100; ++i)
    passes_by(i, "192.0.2.1");
  EXPECT_EQ(count(1, 100), 3) << "its own host makes room for a further one";
  EXPECT_EQ(count(200, 300), 3);
}

TEST_F(LedgerRoom, WhoeverConnectsIsWorthMoreUntilItIsLost) {
  add(1);
  add(2);
  ledger.found_again(id_of(1));
  for (unsigned i = 10; i < 20; ++i)
    add(i);
  EXPECT_EQ(known(), (peers{1, 17, 18, 19}));
  ledger.lose(id_of(1), now, later);
  EXPECT_EQ(ledger.size(), 4U);
  add(20);
  EXPECT_EQ(known(), (peers{17, 18, 19, 20}));
}

TEST_F(LedgerRoom, AMemberThatWasLostStaysSo) {
  add(1, member);
  ASSERT_TRUE(ledger.lose(id_of(1), now, later));
  for (unsigned i = 10; i < 20; ++i)
    add(i);
  EXPECT_FALSE(add(1)) << "the DHT still has its report";
  EXPECT_EQ(known(), (peers{17, 18, 19}));
}

TEST_F(LedgerRoom, ThatAPeerHasAveragedCountsFromItsNextReport) {
  add(1);
  EXPECT_FALSE(add(1, {.member = true})) << "the same report";
  for (unsigned i = 10; i < 20; ++i)
    add(i);
  EXPECT_TRUE(known().contains(1));
}

TEST_F(LedgerRoom, WhatTheDhtSaysOfAConnectedPeerDoesNotHideItsHost) {
  progress_ledger small{id_of(0), {.peers_max = 5}};
  small.record(report(1), later, connected("198.51.100.1"));
  small.record(report(1, now + 1s), later, {.connected = true});
  small.lose(id_of(1), now, later);
  for (unsigned i = 2; i <= 3; ++i)
    small.record(report(i), later, gone("198.51.100.1"));
  for (unsigned i = 4; i <= 5; ++i)
    small.record(report(i), later, gone("192.0.2.1"));
  // Three are of the one host, and the oldest of them is the lost one, which the view lacks.
  small.record(report(6), later, gone("192.0.2.1"));
  EXPECT_EQ(small.view(std::nullopt, now).peers.size(), 5U);
}

/// With room for many, and for two of each rank that has no link.
struct LedgerRoomWithoutLinks : ::testing::Test {
  progress_ledger ledger{id_of(0), {.peers_max = 100, .unconnected_max = 2}};

  std::set<unsigned> known() const {
    std::set<unsigned> all;
    for (const auto& peer : ledger.view(std::nullopt, now).peers)
      all.insert(std::to_integer<unsigned>(peer.who.id.bytes[1]));
    return all;
  }
  using peers = std::set<unsigned>;
};

TEST_F(LedgerRoomWithoutLinks, PeersThatOnlyTheDhtKnowsTakeTheirOwnPlacesOnly) {
  ledger.record(report(1), later, member);
  ledger.record(report(2), later, connected());
  ledger.record(report(3), later, gone());
  for (unsigned i = 10; i < 60; ++i)
    EXPECT_TRUE(ledger.record(report(i), later));
  EXPECT_EQ(known(), (peers{1, 2, 3, 58, 59}));
  EXPECT_EQ(ledger.dropped(), 48U);
}

TEST_F(LedgerRoomWithoutLinks, ConnectedPeersHaveNoSuchLimit) {
  for (unsigned i = 1; i <= 50; ++i)
    ledger.record(report(i), later, connected());
  for (unsigned i = 51; i <= 60; ++i)
    ledger.record(report(i), later, member);
  EXPECT_EQ(known().size(), 60U);
  EXPECT_EQ(ledger.dropped(), 0U);
}

TEST_F(LedgerRoomWithoutLinks, ThoseThatLeaveTakeTheirOwnPlacesOnly) {
  ledger.record(report(1), later);
  ledger.record(report(2), later);
  for (unsigned i = 10; i < 60; ++i) {
    ledger.record(report(i), later, connected());
    ledger.lose(id_of(i), now, later);
  }
  EXPECT_EQ(known(), (peers{1, 2}));
  EXPECT_EQ(ledger.size(), 4U) << "two that left are remembered";
  EXPECT_FALSE(ledger.record(report(59), later)) << "that the last ones left is known";
  EXPECT_FALSE(ledger.record(report(58), later));
  EXPECT_TRUE(ledger.record(report(57), later));
}

TEST_F(LedgerRoomWithoutLinks, AHostThatLeavesOftenForgetsItsOwn) {
  ledger.record(report(1), later, connected("192.0.2.9"));
  ledger.lose(id_of(1), now, later);
  for (unsigned i = 10; i < 60; ++i) {
    ledger.record(report(i), later, connected("198.51.100.1"));
    ledger.lose(id_of(i), now, later);
  }
  EXPECT_FALSE(ledger.record(report(1), later)) << "it left, and that is remembered";
  for (unsigned i = 60; i < 90; ++i)
    ledger.record(report(i), later, gone("198.51.100.1"));
  EXPECT_EQ(known(), (peers{89})) << "newcomers of its own host take its place";
}

TEST_F(LedgerRoomWithoutLinks, WhoeverLosesItsLinkIsRememberedBeforeOlderOnes) {
  ledger.record(report(1), later, {.connected = true});
  ledger.record(report(10), later);
  ledger.record(report(11), later);
  ledger.record(report(1, now + 1s), later);
  EXPECT_EQ(known(), (peers{1, 11}));
  EXPECT_EQ(ledger.size(), 2U);
}

TEST_F(LedgerRoomWithoutLinks, KeepsItsLimitWhateverHappens) {
  std::uint64_t seed = 7;
  SCOPED_TRACE(seed);
  random_source random{seed};
  auto time = now;
  for (int i = 0; i < 20'000; ++i) {
    auto who = static_cast<unsigned>(1 + random.below(40));
    time += 1ms;
    auto host = random.below(2) == 0 ? "" : "host-" + std::to_string(random.below(4));
    switch (random.below(6)) {
      case 0:
        ledger.forget(id_of(who), time, later);
        break;
      case 1:
        ledger.lose(id_of(who), time, later);
        break;
      case 2:
        ledger.found_again(id_of(who));
        break;
      default:
        ledger.record(report(who, time), later, {false, random.below(3) == 0, std::move(host)});
    }
    if (i % 100 != 0)
      continue;
    // All links end: what is left has none.
    for (unsigned each = 1; each <= 40; ++each)
      ledger.lose(id_of(each), time, later);
    ASSERT_LE(ledger.size(), 4U);
  }
}

TEST_F(LedgerRoom, KeepsItsLimitWhateverHappens) {
  std::uint64_t seed = 5;
  SCOPED_TRACE(seed);
  random_source random{seed};
  progress_ledger small{id_of(0), {.peers_max = 16}};
  auto time = now;
  for (int i = 0; i < 20'000; ++i) {
    auto who = static_cast<unsigned>(1 + random.below(40));
    time += 1ms;
    switch (random.below(7)) {
      case 0:
        small.lose(id_of(who), time, time + 50ms);
        break;
      case 1:
        small.found_again(id_of(who));
        break;
      case 2:
        small.forget(id_of(who), time, time + 50ms);
        break;
      case 3:
        small.note(id_of(who), epoch_id{0}, {}, static_cast<std::uint64_t>(i), 1, time);
        break;
      case 4:
        small.purge(time);
        break;
      default:
        small.record(report(who, time), time + 50ms,
                     {random.below(4) == 0, random.below(3) == 0,
                      random.below(2) == 0 ? "" : "host-" + std::to_string(random.below(4))});
    }
    ASSERT_LE(small.size(), 16U);
  }
  small.purge(time + 1h);
  EXPECT_EQ(small.size(), 0U);
  // Nothing is left of those before: as many as there is room for come in without a loss.
  auto before = small.dropped();
  for (unsigned i = 1; i <= 16; ++i)
    EXPECT_TRUE(small.record(report(i, time), time + 1h, gone()));
  EXPECT_EQ(small.dropped(), before);
}

} // namespace
} // namespace waggle
