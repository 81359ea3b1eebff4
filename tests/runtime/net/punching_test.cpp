#include "runtime/net/punching.hpp"

#include <gtest/gtest.h>

namespace waggle::net {

namespace {

peer_id peer(unsigned char number) {
  peer_id id;
  id.bytes.fill(std::byte{number});
  return id;
}

punch_end end(unsigned char number, milliseconds round_trip = 10ms) {
  return {peer(number), true, endpoint{"192.0.2." + std::to_string(number), 40'000}, round_trip};
}

struct Punching : ::testing::Test {
  punch_broker broker;
  steady_time now{};

  ec refusal(const punch_end& one, const std::optional<punch_end>& other) {
    auto got = broker.introduce(one, other, now);
    return got ? ec::none : got.error().code;
  }
};

} // namespace

TEST_F(Punching, TheNearerPeerWaitsUntilTheOtherOneCanKnow) {
  auto got = broker.introduce(end(1, 10ms), end(2, 110ms), now);
  EXPECT_EQ(got->one, 50ms);
  EXPECT_EQ(got->other, 0ms);
  auto far = broker.introduce(end(1, 1h), end(3, 0ms), now);
  EXPECT_EQ(far->one, 0ms);
  EXPECT_EQ(far->other, 1s) << "what a peer claims does not make another wait for long";
}

TEST_F(Punching, APairIsBroughtTogetherOnceInTenMinutesWhoeverAsks) {
  EXPECT_EQ(refusal(end(1), end(2)), ec::none);
  EXPECT_EQ(refusal(end(2), end(1)), ec::rate_limited);
  EXPECT_EQ(refusal(end(1), end(3)), ec::none);
  now += 10min - 1ms;
  EXPECT_EQ(refusal(end(1), end(2)), ec::rate_limited);
  now += 1ms;
  EXPECT_EQ(refusal(end(1), end(2)), ec::none);
}

TEST_F(Punching, OnlyPeersThatHaveDialledUsAreBroughtTogether) {
  EXPECT_EQ(refusal(end(1), std::nullopt), ec::not_found);
  EXPECT_EQ(refusal(end(1), end(1)), ec::protocol_violation);
  auto dialled = end(2);
  dialled.dialled_us = false;
  EXPECT_EQ(refusal(end(1), dialled), ec::unreachable);
  EXPECT_EQ(refusal(dialled, end(1)), ec::unreachable);
  const punch_end simulated{peer(2), true, {}, 10ms};
  EXPECT_EQ(refusal(end(1), simulated), ec::unreachable);
  auto v6 = end(2);
  v6.seen_at->host = "2001:db8::2";
  EXPECT_EQ(refusal(end(1), v6), ec::unreachable);
  EXPECT_EQ(refusal(end(1), end(2)), ec::none) << "a refusal does not count";
}

TEST_F(Punching, AnAddressInOurOwnNetworkIsOfNoUseToAPeerElsewhere) {
  for (const auto* host : {"192.168.1.5", "10.0.0.5", "172.31.0.5", "100.64.0.5"}) {
    auto neighbour = end(2);
    neighbour.seen_at->host = host;
    EXPECT_EQ(refusal(end(1), neighbour), ec::unreachable) << host;
    auto another = end(3);
    another.seen_at->host = "192.168.1.6";
    EXPECT_EQ(broker.introduce(neighbour, another, now).ok(), true) << host;
    now += 10min;
  }
  for (const auto* host : {"172.32.0.5", "192.169.1.5", "100.128.0.5", "11.0.0.5"}) {
    auto elsewhere = end(2);
    elsewhere.seen_at->host = host;
    EXPECT_EQ(refusal(end(1), elsewhere), ec::none) << host;
    now += 10min;
  }
}

TEST_F(Punching, APeerIsToldOfNoMoreThanItFollows) {
  for (unsigned char i = 2; i < 14; ++i)
    ASSERT_EQ(refusal(end(i), end(1)), ec::none) << int{i};
  EXPECT_EQ(refusal(end(14), end(1)), ec::overloaded);
  EXPECT_EQ(refusal(end(14), end(2)), ec::none);
  now += 10s;
  EXPECT_EQ(refusal(end(14), end(1)), ec::none) << "the pair did not count";
}

TEST_F(Punching, RemembersSoManyPairsAndNoMore) {
  recent_pairs pairs{1s, 2};
  EXPECT_EQ(pairs.take(peer(1), peer(2), now), ec::none);
  EXPECT_EQ(pairs.take(peer(1), peer(3), now), ec::none);
  EXPECT_EQ(pairs.take(peer(1), peer(4), now), ec::overloaded);
  EXPECT_TRUE(pairs.contains(peer(2), peer(1), now));
  EXPECT_FALSE(pairs.contains(peer(2), peer(1), now + 1s));
  EXPECT_EQ(pairs.take(peer(1), peer(4), now + 1s), ec::none);
}

} // namespace waggle::net
