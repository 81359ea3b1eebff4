#include "runtime/dht/known_peers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/dht/peers.hpp"

namespace waggle {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

peer_record peer_with(unsigned id, std::vector<endpoint> addresses) {
  auto peer = peer_at(id);
  peer.addresses = std::move(addresses);
  return peer;
}

std::vector<peer_id> ids(const known_peers& all) {
  std::vector<peer_id> out;
  for (const auto& peer : all.newest_first())
    out.push_back(peer.id);
  return out;
}

TEST(KnownPeers, TheNewestComesFirst) {
  known_peers all;
  EXPECT_TRUE(all.linked(peer_at(1)));
  EXPECT_TRUE(all.linked(peer_at(2)));
  EXPECT_FALSE(all.linked(peer_at(2))) << "nothing changed";
  EXPECT_TRUE(all.linked(peer_at(1)));
  EXPECT_THAT(ids(all), ElementsAre(peer_at(1).id, peer_at(2).id));
}

TEST(KnownPeers, APeerThatMovedIsKnownAtItsNewAddresses) {
  known_peers all;
  all.linked(peer_with(1, {{"old", 1}}));
  EXPECT_TRUE(all.linked(peer_with(1, {{"new", 2}, {"10.0.0.1", 3}})));
  ASSERT_THAT(all.newest_first(), SizeIs(1));
  EXPECT_THAT(all.newest_first()[0].addresses,
              ElementsAre(endpoint{"new", 2}, endpoint{"10.0.0.1", 3}));
}

TEST(KnownPeers, APeerWithoutAnAddressIsNotKept) {
  known_peers all;
  EXPECT_FALSE(all.linked(peer_with(1, {})));
  EXPECT_FALSE(all.linked(peer_with(2, {{"two words", 1}, {"two\nlines", 1}, {"portless", 0}})));
  EXPECT_THAT(all.newest_first(), IsEmpty());
}

TEST(KnownPeers, TheOldestIsForgottenFirst) {
  known_peers all;
  for (unsigned i = 0; i < known_peers::peers_max + 3; ++i)
    all.linked(peer_at(1, i));
  ASSERT_THAT(all.newest_first(), SizeIs(known_peers::peers_max));
  EXPECT_EQ(all.newest_first().back().id, peer_at(1, 3).id);
}

TEST(KnownPeers, ReadsWhatItWrote) {
  known_peers all;
  all.linked(peer_with(1, {{"10.0.0.1", 7700}}));
  all.linked(peer_with(2, {{"fe80::1", 7701}, {"host.example", 7702}}));
  auto text = all.text("demo");
  EXPECT_THAT(text, HasSubstr(to_string(peer_at(2).id) + " [fe80::1]:7701 host.example:7702\n"));
  EXPECT_EQ(known_peers::parse(text, "demo")->newest_first(), all.newest_first());
  EXPECT_THAT(known_peers::parse(known_peers{}.text("demo"), "demo")->newest_first(), IsEmpty());
}

TEST(KnownPeers, TheLargestListFitsIntoItsBounds) {
  known_peers all;
  for (unsigned i = 0; i < known_peers::peers_max; ++i) {
    std::vector<endpoint> addresses(addresses_max, {std::string(host_bytes_max, 'h'), 65'535});
    all.linked(peer_with(i, std::move(addresses)));
  }
  EXPECT_LE(all.text("demo").size(), known_peers::text_bytes_max);
  EXPECT_TRUE(known_peers::parse(all.text("demo"), "demo"));
}

TEST(KnownPeers, PeersOfAnotherRunAreIgnored) {
  known_peers all;
  all.linked(peer_at(1));
  EXPECT_THAT(known_peers::parse(all.text("demo"), "another")->newest_first(), IsEmpty());
}

TEST(KnownPeers, WhatIsDamagedIsRefusedWithItsLine) {
  known_peers all;
  all.linked(peer_at(1));
  all.linked(peer_at(2));
  auto good = all.text("demo");
  auto refusal = [](const std::string& text) {
    auto read = known_peers::parse(text, "demo");
    return read ? std::string{"accepted"} : to_string(read.error());
  };
  auto id = to_string(peer_at(3).id);
  EXPECT_EQ(refusal(""), "malformed: line 1: not a list of known peers");
  EXPECT_EQ(refusal(std::string(200, '\0')), "malformed: line 1: not a list of known peers");
  EXPECT_EQ(refusal(good + "nobody 10.0.0.1:7700\n"), "malformed: line 5: not a peer id");
  EXPECT_EQ(refusal(good + id + "\n"), "malformed: line 5: no address, or too many");
  EXPECT_EQ(refusal(good + id + " 10.0.0.1\n"), "malformed: line 5: not an address");
  EXPECT_EQ(refusal(good + id + " 10.0.0.1:0\n"), "malformed: line 5: not an address");
  EXPECT_EQ(refusal(good + id + " a:1 b:1 c:1 d:1 e:1\n"),
            "malformed: line 5: no address, or too many");
  EXPECT_EQ(refusal(good + to_string(peer_at(1).id) + " a:1\n"),
            "malformed: line 5: a peer named twice");
  for (std::size_t cut_off : {1U, 3U, 30U})
    EXPECT_EQ(refusal(good.substr(0, good.size() - cut_off)),
              "malformed: it ends in the middle of a line");
}

TEST(KnownPeers, NoiseIsSurvived) {
  constexpr std::uint64_t seed = 41;
  SCOPED_TRACE(seed);
  random_source random{seed};
  known_peers all;
  for (unsigned i = 1; i < 9; ++i)
    all.linked(peer_at(i));
  for (int trial = 0; trial < 2000; ++trial) {
    auto text = all.text("demo");
    for (auto changes = 1 + random.below(8); changes > 0; --changes)
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    if (auto read = known_peers::parse(text, "demo")) {
      for (const auto& peer : read->newest_first()) {
        EXPECT_FALSE(peer.addresses.empty());
      }
    }
  }
}

} // namespace
} // namespace waggle
