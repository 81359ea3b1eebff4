#include "tests/support/sim_network.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/identity.hpp"
#include "tests/support/link_events.hpp"

namespace waggle::net {
namespace {

const steady_time t0{};

struct sim_swarm {
  explicit sim_swarm(sim_network::options options, std::size_t n = 3) : net(options, t0), seen(n) {
    for (std::size_t i = 0; i < n; ++i) {
      auto self = identity::from_seed(i + 1);
      net.add_node("demo", {self->id(), self->key(), {}, false});
      (void)net.transport_of(i)->listen(
        {}, [this, i](std::shared_ptr<link> l) { adopt(i, std::move(l)); });
    }
  }
  struct view {
    std::vector<std::shared_ptr<link>> links;
    std::vector<std::string> frames;
    std::size_t body_bytes = 0;
    std::vector<ec> closed;
  };
  void adopt(std::size_t at, std::shared_ptr<link> l) {
    auto events = std::make_shared<link_events>();
    events->frame_arrived = [this, at](frame f) {
      seen[at].frames.push_back(f.header);
      seen[at].body_bytes += f.body.size;
    };
    events->closed = [this, at](failure why) { seen[at].closed.push_back(why.code); };
    l->start(std::move(events));
    seen[at].links.push_back(std::move(l));
  }
  ec dial(std::size_t from, std::size_t to, const peer_id& expected = {}) {
    ec out = ec::internal;
    net.transport_of(from)->dial({sim_network::address_of(to), {}, expected}, 1s,
                                 [&](result<std::shared_ptr<link>> got) {
                                   out = got.ok() ? ec::none : got.error().code;
                                   if (got.ok())
                                     adopt(from, *got);
                                 });
    net.run_until(net.now() + 5s);
    return out;
  }
  void pass(std::chrono::nanoseconds d) { net.run_until(net.now() + d); }

  sim_network net;
  std::vector<view> seen;
};

std::uint64_t play(std::uint64_t seed) {
  sim_network::options options{.seed = seed, .loss = 0.2};
  sim_swarm s{options};
  EXPECT_EQ(s.dial(0, 1), ec::none);
  EXPECT_EQ(s.dial(2, 1), ec::none);
  for (int i = 0; i < 50; ++i) {
    s.seen[0].links[0]->send({"a" + std::to_string(i), {}});
    s.seen[2].links[0]->send({"c" + std::to_string(i), copy_to_payload(as_byte_span("body"))});
    s.pass(3ms);
  }
  s.pass(10s);
  EXPECT_EQ(s.seen[1].frames.size(), 100u) << "lost frames are sent again";
  return s.net.trace_hash();
}

TEST(SimNetwork, TheSameSeedGivesTheSameTrace) {
  EXPECT_EQ(play(1), play(1));
  EXPECT_NE(play(1), play(2));
}

TEST(SimNetwork, FramesOfALaneKeepTheirOrder) {
  sim_network::options options{.loss = 0.3};
  sim_swarm s{options};
  ASSERT_EQ(s.dial(0, 1), ec::none);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(s.seen[0].links[0]->send({std::to_string(i), {}}));
  s.pass(60s);
  ASSERT_EQ(s.seen[1].frames.size(), 100u);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(s.seen[1].frames[static_cast<std::size_t>(i)], std::to_string(i));
}

TEST(SimNetwork, RefusesTheSamePeersAsTheRealTransport) {
  sim_swarm s{{}};
  auto other = identity::from_seed(77);
  auto stranger = s.net.add_node("other", {other->id(), other->key(), {}, false});
  s.seen.resize(4);
  EXPECT_EQ(s.dial(stranger, 0), ec::wrong_run);
  EXPECT_EQ(s.dial(0, 0), ec::duplicate_identity);
  EXPECT_EQ(s.dial(0, 1, other->id()), ec::bad_signature);
  EXPECT_EQ(s.dial(0, 9), ec::unreachable);
}

TEST(SimNetwork, RefusesPeersWithOtherOptions) {
  sim_swarm s{{}, 1};
  auto add = [&](std::uint64_t seed, const std::string& lr) {
    auto agreement = std::make_shared<run_agreement>();
    EXPECT_TRUE(agreement->add({"lr", lr, ""}));
    auto self = identity::from_seed(seed);
    auto node = s.net.add_node("demo", {self->id(), self->key(), {}, false}, agreement);
    (void)s.net.transport_of(node)->listen(
      {}, [&s, node](std::shared_ptr<link> l) { s.adopt(node, std::move(l)); });
    s.seen.resize(node + 1);
    return node;
  };
  auto ann = add(11, "0.1");
  auto bob = add(12, "0.1");
  auto eve = add(13, "0.2");
  EXPECT_EQ(s.dial(ann, bob), ec::none);
  EXPECT_EQ(s.dial(ann, eve), ec::agreement_mismatch);
  EXPECT_EQ(s.dial(eve, 0), ec::none) << "without an agreement any peer is accepted";
  EXPECT_EQ(s.seen[ann].links[0]->claims().instance, bob + 1);
  EXPECT_NE(s.seen[ann].links[0]->claims().agreement, nullptr);
}

TEST(SimNetwork, APartitionHoldsEverythingUntilItHeals) {
  sim_swarm s{{}};
  ASSERT_EQ(s.dial(0, 1), ec::none);
  s.net.partition({0});
  s.seen[0].links[0]->send({"held", {}});
  EXPECT_EQ(s.dial(0, 2), ec::timeout);
  EXPECT_EQ(s.dial(1, 2), ec::none);
  EXPECT_TRUE(s.seen[1].frames.empty());
  s.net.heal();
  s.pass(1s);
  EXPECT_EQ(s.seen[1].frames, (std::vector<std::string>{"held"}));
}

TEST(SimNetwork, ACrashResetsLinksUnlessItIsSilent) {
  for (bool silent : {false, true}) {
    sim_swarm s{{}};
    ASSERT_EQ(s.dial(0, 1), ec::none);
    s.net.crash(1, silent);
    s.pass(10s);
    EXPECT_EQ(s.seen[0].closed.size(), silent ? 0u : 1u);
    s.seen[0].links[0]->send({"into the void", {}});
    s.pass(10s);
    EXPECT_TRUE(s.seen[1].frames.empty());
    EXPECT_TRUE(s.seen[1].closed.empty()) << "a crashed peer gets no events";
    EXPECT_EQ(s.dial(0, 1), ec::unreachable);
  }
}

TEST(SimNetwork, AResetEndsBothEndsOnce) {
  sim_swarm s{{}};
  ASSERT_EQ(s.dial(0, 1), ec::none);
  s.net.reset_links(0, 1);
  s.pass(1s);
  EXPECT_EQ(s.seen[0].closed, (std::vector<ec>{ec::peer_lost}));
  EXPECT_EQ(s.seen[1].closed, (std::vector<ec>{ec::peer_lost}));
  EXPECT_FALSE(s.seen[0].links[0]->send({"x", {}}));
  EXPECT_EQ(s.dial(0, 1), ec::none);
}

TEST(SimNetwork, AClosedLinkTellsItsOwnReasonHereAndALossThere) {
  sim_swarm s{{}};
  ASSERT_EQ(s.dial(0, 1), ec::none);
  s.seen[0].links[0]->close({ec::cancelled, {}});
  s.pass(1s);
  EXPECT_EQ(s.seen[0].closed, (std::vector<ec>{ec::cancelled}));
  EXPECT_EQ(s.seen[1].closed, (std::vector<ec>{ec::peer_lost}));
}

TEST(SimNetwork, AFrameSentJustBeforeTheCloseArrives) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    sim_network::options options{.seed = seed};
    sim_swarm s{options};
    ASSERT_EQ(s.dial(0, 1), ec::none);
    s.seen[0].links[0]->send({"goodbye", {}});
    s.seen[0].links[0]->close({ec::shutting_down, {}});
    s.pass(1s);
    ASSERT_EQ(s.seen[1].frames.size(), 1u) << "seed " << seed << ": TCP keeps the order";
  }
}

TEST(SimNetwork, WindowsStopBulkUntilItIsDealtWith) {
  sim_swarm s{{}};
  ASSERT_EQ(s.dial(0, 1), ec::none);
  auto body = copy_to_payload(std::vector<std::byte>(8_MiB));
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(s.seen[0].links[0]->send({"bulk", body}));
  s.pass(1s);
  EXPECT_EQ(s.seen[1].body_bytes, 32_MiB);
  s.seen[1].links[0]->grant(32_MiB);
  s.pass(1s);
  EXPECT_EQ(s.seen[1].body_bytes, 48_MiB);
}

} // namespace
} // namespace waggle::net
