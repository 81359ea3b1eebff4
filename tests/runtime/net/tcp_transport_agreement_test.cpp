// What two peers compare when they connect: options, clocks, claims. Real sockets on loopback.

#include <gtest/gtest.h>

#include "runtime/net/handshake.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

std::function<void(tcp_transport_config&)> with_rate(const std::string& lr) {
  run_agreement agreement;
  EXPECT_TRUE(agreement.add({"lr", lr, lr}));
  return [shared = std::make_shared<const run_agreement>(agreement)](tcp_transport_config& c) {
    c.agreement = shared;
  };
}

TEST(TcpTransportAgreement, PeersWithOtherOptionsAreRefusedAndBothOperatorsReadBothValues) {
  std::vector<std::string> at_ann;
  std::vector<std::string> at_bob;
  journal told;
  auto telling = [&](const std::string& lr, std::vector<std::string>& to) {
    return [&, lr](tcp_transport_config& c) {
      with_rate(lr)(c);
      c.events.disagreed = [&](const endpoint& where, bool outbound, const failure& why) {
        told.note(
          [&] { to.push_back((outbound ? "to " : "from ") + where.host + ": " + why.detail); });
      };
    };
  };
  peer ann{1, "demo", telling("0.01", at_ann)};
  peer bob{2, "demo", telling("0.003", at_bob)};
  EXPECT_EQ(ann.dial(bob.listen()).error().code, ec::agreement_mismatch);
  ASSERT_TRUE(told.wait([&] { return at_ann.size() == 1 && at_bob.size() == 1; }));
  EXPECT_TRUE(at_ann[0].starts_with("to 127.0.0.1: lr is 0.01 here and 0.003 there")) << at_ann[0];
  EXPECT_TRUE(at_bob[0].starts_with("from 127.0.0.1: lr is 0.003 here and 0.01 there"))
    << at_bob[0];
  EXPECT_TRUE(bob.waits_for_refusal(ec::agreement_mismatch));
}

/// A clock that is off from the machine's.
class shifted_clock final : public wall_clock {
public:
  explicit shifted_clock(swarm_clock::duration by) : by_(by) {}
  [[nodiscard]] swarm_time now() const override { return system_wall_clock{}.now() + by_; }

private:
  swarm_clock::duration by_;
};

TEST(TcpTransportAgreement, ClocksAreComparedOnConnecting) {
  using offsets = std::vector<std::pair<peer_id, swarm_clock::duration>>;
  journal told;
  auto with_clock = [&](swarm_clock::duration by, offsets& to) {
    return [&, by](tcp_transport_config& c) {
      c.clock = std::make_shared<shifted_clock>(by);
      c.events.clock_compared = [&](const peer_id& who, swarm_clock::duration offset) {
        told.note([&] { to.emplace_back(who, offset); });
      };
    };
  };
  offsets at_ann;
  offsets at_bob;
  offsets at_late;
  peer bob{2, "demo", with_clock(0s, at_bob)};
  auto where = bob.listen();
  peer late{3, "demo", with_clock(-60s, at_late)};
  auto refused = late.dial(where);
  EXPECT_EQ(refused.error().code, ec::clock_skew);
  EXPECT_NE(refused.error().detail.find("ahead of the clock here"), std::string::npos)
    << refused.error().detail;
  EXPECT_TRUE(bob.waits_for_refusal(ec::clock_skew));
  peer ann{1, "demo", with_clock(5s, at_ann)};
  ASSERT_TRUE(ann.dial(where).ok());
  ASSERT_TRUE(told.wait([&] { return at_bob.size() == 2 && at_late.size() == 1; }));
  ASSERT_TRUE(told.wait([&] { return at_ann.size() == 1; }));
  EXPECT_EQ(at_bob[0].first, late.id);
  EXPECT_EQ(at_late[0].first, bob.id);
  EXPECT_EQ(at_bob[1].first, ann.id);
  // At most what the clocks differ by, because a slow machine widens the interval.
  EXPECT_LE(at_bob[0].second, -15s);
  EXPECT_GE(at_bob[0].second, -60s - 1s);
  EXPECT_GE(at_late[0].second, 15s);
  EXPECT_LE(at_bob[1].second, 5s);
  EXPECT_GE(at_ann[0].second, -5s);
}

TEST(TcpTransportAgreement, LinksReportThePeersClaims) {
  peer ann{1, "demo", with_rate("0.01")};
  peer bob{2, "demo"};
  auto link = ann.dial(bob.listen());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  EXPECT_EQ((*link)->claims().agreement, nullptr);
  ASSERT_NE(bob.links[0]->claims().agreement, nullptr);
  EXPECT_EQ(bob.links[0]->claims().agreement->find("lr")->value, "0.01");
  EXPECT_NE((*link)->claims().instance, 0U);
  EXPECT_NE((*link)->claims().instance, bob.links[0]->claims().instance);
}

TEST(TcpTransportAgreement, APeerThatIsClosedForItsIdentityGetsTheReason) {
  peer ann{1};
  peer bob{2};
  ASSERT_TRUE(ann.dial(bob.listen()).ok());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  bob.links[0]->close({ec::duplicate_identity, "give each its own"});
  ASSERT_TRUE(ann.seen.wait([&] { return !ann.closed.empty(); }));
  EXPECT_EQ(ann.closed[0].code, ec::duplicate_identity);
  EXPECT_NE(ann.closed[0].detail.find("give each its own"), std::string::npos);
}

} // namespace
} // namespace waggle::net
