// Buckets, gathered texts, and the members' bandwidths.

#include <cmath>
#include <limits>
#include <set>

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

class GroupBits : public matchmaker_fixture {
protected:
  static matchmaking_config in_bucket(std::string bits, std::size_t target = round_members_max) {
    return {.prefix = "p", .initial_group_bits = std::move(bits), .target_group_size = target};
  }
  /// Of the next search.
  std::string next_bits_of(const peer& p) {
    find(p, search(1s));
    return bits_of(p);
  }
  /// The peers that are declared under the key, with their expirations.
  std::map<peer_id, swarm_time> active(const std::string& key) {
    record_merge merge;
    for (const auto& entry : table.get(key_of(key), wall->now()))
      merge.add(entry);
    std::map<peer_id, swarm_time> out;
    for (const auto& entry : merge.live(wall->now()))
      out[*peer_id::from_raw(entry.subkey)] = entry.expiration;
    return out;
  }
};

// -- the group key -----------------------------------------------------------------------------

TEST_F(GroupBits, K1K2DeclarationsUnderTheKeyAreRenewedAndTakenBack) {
  auto config = in_bucket("10110");
  config.min_matchmaking_time = 60s;
  auto alice = start(1, config);
  auto bob = start(2, config);
  auto t = wall->now();
  find(alice, search(100s));
  pass(1s);
  find(bob, search(100s));
  using declared = std::map<peer_id, swarm_time>;
  EXPECT_EQ(active("p.0b10110"),
            (declared{{alice.ctx.record.id, t + 60s}, {bob.ctx.record.id, t + 61s}}));
  // Alice searches for another group under the same key.
  tell(alice.maker, cancel_search{});
  pass(5s);
  find(alice, search(100s));
  EXPECT_EQ(active("p.0b10110"),
            (declared{{alice.ctx.record.id, t + 66s}, {bob.ctx.record.id, t + 61s}}));
  tell(bob.maker, cancel_search{});
  EXPECT_EQ(active("p.0b10110"), (declared{{alice.ctx.record.id, t + 66s}}));
  auto everything = table.get(key_of("p.0b10110"), wall->now());
  ASSERT_EQ(everything.size(), 2u) << "bob's tombstone hides his declaration";
  for (const auto& entry : everything)
    EXPECT_EQ(entry.tombstone, entry.owner == bob.ctx.record.key);
  EXPECT_TRUE(active("p.0b10111").empty());
  EXPECT_TRUE(active("p.0b").empty());
}

TEST_F(GroupBits, K3BitsThatAreSetAreTheBits) {
  auto a = start(1, in_bucket("00101011101010"));
  EXPECT_EQ(next_bits_of(a), "00101011101010");
}

// -- re-keying ---------------------------------------------------------------------------------

TEST_F(GroupBits, MembersMoveOnToDifferentBucketsBeforeTheyHearOfTheGroup) {
  std::vector<peer> peers;
  std::vector<pending<group_formed>> groups;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    peers.push_back(wire_up(seed, in_bucket("1101", 4)));
  for (const auto& p : peers)
    groups.push_back(find(p, search(10s)));
  // A search that begins right after the answer must not be in the old bucket.
  for (int i = 0; i < 1000 && !groups[3].answered(); ++i)
    pass(10ms);
  std::set<std::string> bits;
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(groups[i].get()) << to_string(groups[i].get().error());
    const auto plan = groups[i].get()->plan;
    ASSERT_EQ(plan.members.size(), 4u);
    std::size_t position = 0;
    while (plan.members[position].peer.id != peers[i].ctx.record.id)
      ++position;
    auto expected = *group_key::make("p", "1101");
    expected.move_on(plan.id, position, 4, 4);
    EXPECT_EQ(expected.bits().substr(0, 2), "01");
    bits.insert(expected.bits());
    EXPECT_EQ(next_bits_of(peers[i]), expected.bits());
  }
  EXPECT_EQ(bits.size(), 4u);
}

TEST_F(GroupBits, WithoutBitsEverybodyStaysInOneBucket) {
  auto a = wire_up(1, in_bucket("", 2));
  auto b = wire_up(2, in_bucket("", 2));
  auto first = find(a, search(10s));
  auto second = find(b, search(10s));
  pass(1s);
  ASSERT_TRUE(first.get());
  EXPECT_EQ(next_bits_of(a), "");
  EXPECT_EQ(next_bits_of(b), "");
}

TEST_F(GroupBits, ASearchThatFindsNoGroupStaysInItsBucket) {
  auto a = start(1, in_bucket("0110", 2));
  auto group = find(a, search(1s));
  pass(1100ms);
  EXPECT_EQ(group.get().error().code, ec::nobody_declared);
  EXPECT_EQ(next_bits_of(a), "0110");
}

TEST_F(GroupBits, APeerOfAnotherBucketIsRefused) {
  auto config = in_bucket("01", 2);
  auto a = start(1, config);
  auto asked = question(start(3, in_bucket("", 2)), in_bucket("", 2));
  find(a, search());
  asked.group_key = "p.0b00";
  EXPECT_EQ(join(a, asked, 5)->code, ec::wrong_group_key);
  asked.group_key = "p.0b01";
  EXPECT_EQ(join(a, asked, 5)->code, ec::none);
}

TEST_F(GroupBits, ConnectedPeersAreNotAskedAcrossBuckets) {
  auto a = start(1, in_bucket("01"));
  tell(a.maker, peer_connected{testing::test_peer(2)});
  find(a, search());
  tell(a.maker, peer_connected{testing::test_peer(3)});
  pass(1s);
  EXPECT_TRUE(a.around->calls.empty());
}

// -- gathered texts ----------------------------------------------------------------------------

TEST_F(GroupBits, A5EverybodyReadsWhatItsGroupmatesGave) {
  std::map<peer_id, std::string> given;
  std::vector<peer> peers;
  std::vector<pending<group_formed>> groups;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    peers.push_back(wire_up(seed, in_bucket("000", 4)));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    auto what = search(10s);
    what.gather = "{batch_size: " + std::to_string(123 + i) + ", foo: bar}" + std::string(1, '\0');
    given[peers[i].ctx.record.id] = what.gather;
    groups.push_back(find(peers[i], what));
  }
  pass(8s);
  for (const auto& group : groups) {
    ASSERT_TRUE(group.get()) << to_string(group.get().error());
    const auto plan = group.get()->plan;
    ASSERT_EQ(plan.members.size(), 4u);
    ASSERT_EQ(plan.gathered.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(plan.gathered[i], given[plan.members[i].peer.id]);
  }
}

TEST_F(GroupBits, WhatIsGivenIsBounded) {
  auto a = start(1);
  auto what = search();
  what.gather.assign(gather_bytes_max + 1, 'x');
  EXPECT_EQ(find(a, what).get().error().code, ec::oversize);
  what.gather.pop_back();
  EXPECT_EQ(find(a, what).get().error().code, ec::not_ready) << "a search is running";
}

// -- bandwidths --------------------------------------------------------------------------------

class GroupBandwidth : public GroupBits {
protected:
  /// A group of 4 in which peer 1 leads and the scripted followers announce these bandwidths.
  round_plan group_with(const peer& leader, const std::vector<std::optional<double>>& announced,
                        const matchmaking_config& like,
                        std::optional<double> measured = std::nullopt) {
    auto asked = question(start(3, like), like);
    auto what = search(10s, 1 + static_cast<std::uint32_t>(announced.size()));
    what.bandwidth = measured;
    auto group = find(leader, what);
    for (std::size_t i = 0; i < announced.size(); ++i) {
      asked.bandwidth = announced[i];
      EXPECT_EQ(join(leader, asked, 10 + i)->code, ec::none);
    }
    auto formed = group.get();
    EXPECT_TRUE(formed) << to_string(formed.error());
    return formed ? formed->plan : round_plan{};
  }
  static std::uint64_t share_of(const round_plan& plan, std::uint64_t seed) {
    for (std::size_t i = 0; i < plan.members.size(); ++i)
      if (plan.members[i].peer.id == testing::test_peer(seed).id)
        return plan.shares[i];
    return 0;
  }
};

TEST_F(GroupBandwidth, WhoHasMoreReducesMore) {
  matchmaking_config config{.bandwidth = 4e6};
  auto plan = group_with(start(1, config), {3e6, 2e6, 0.0}, {});
  ASSERT_EQ(plan.members.size(), 4u);
  EXPECT_GT(share_of(plan, 1), share_of(plan, 10));
  EXPECT_GT(share_of(plan, 10), share_of(plan, 11));
  EXPECT_EQ(share_of(plan, 12), 0u);
}

TEST_F(GroupBandwidth, WhatWasMeasuredCountsForItsSearch) {
  auto a = start(1);
  auto plan = group_with(a, {8e6, 8e6}, {}, 1e6);
  EXPECT_LT(share_of(plan, 1), share_of(plan, 10));
  plan = group_with(a, {8e6, 8e6}, {});
  EXPECT_GE(share_of(plan, 1), 33u);
}

TEST_F(GroupBandwidth, WhatIsDeclaredBeatsWhatIsMeasured) {
  matchmaking_config config{.bandwidth = 0};
  auto a = start(1, config);
  EXPECT_EQ(share_of(group_with(a, {1e6, 1e6}, {}, 1e9), 1), 0u);
}

TEST_F(GroupBandwidth, WhatIsDeclaredIsNotTakenForNoise) {
  auto shares_apart = [this](const matchmaking_config& config, std::uint64_t seed) {
    auto a = start(seed, config);
    // Declared, if `config` declares.
    auto plan =
      group_with(a, {4.4e6, 4.0e6}, config, config.bandwidth ? std::nullopt : std::optional{6e6});
    return static_cast<std::int64_t>(share_of(plan, 10))
           - static_cast<std::int64_t>(share_of(plan, 11));
  };
  matchmaking_config config;
  EXPECT_LE(std::abs(shares_apart(config, 1)), 1);
  config.bandwidth = 6e6;
  EXPECT_GT(shares_apart(config, 2), 3);
}

TEST_F(GroupBandwidth, NonsenseIsNotMeasured) {
  auto a = start(1);
  tell(a.maker, peer_connected{testing::test_peer(2)});
  for (double measured : {1e6, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                          std::numeric_limits<double>::infinity()}) {
    auto what = search();
    what.bandwidth = measured;
    find(a, what);
    ASSERT_FALSE(a.around->calls.empty());
    auto announced = std::get<wire::join_group>(a.around->calls.back().what).bandwidth;
    EXPECT_EQ(announced, measured == 1e6 ? std::optional{1e6} : std::nullopt);
    tell(a.maker, cancel_search{});
    a.around->calls.clear();
  }
}

TEST_F(GroupBandwidth, AGroupInWhichNobodyMayReduceFails) {
  matchmaking_config config{.bandwidth = 0};
  auto a = start(1, config);
  auto asked = question(start(3));
  auto group = find(a, search(10s, 2));
  asked.bandwidth = 0;
  EXPECT_EQ(join(a, asked, 10)->code, ec::none);
  EXPECT_EQ(group.get().error().code, ec::bad_config);
  EXPECT_THAT(group.get().error().detail, ::testing::HasSubstr("bandwidth 0"));
  EXPECT_EQ(told<wire::disband_group>(a).size(), 1u) << "its followers look on";
}

} // namespace
} // namespace waggle
