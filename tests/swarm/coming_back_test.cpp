// Complete peers that lose each other, or come back after all of them went down: which peers find
// each other, and how soon. Times are virtual.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/simulation.hpp"

namespace waggle::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using index = simulation::index;

const std::filesystem::path address_file{"data/known_peers"};

node_config plain_node() {
  node_config config{.run_id = "sim"};
  config.addresses.file = address_file;
  return config;
}

bool connected(simulation& sim, index a, index b) {
  return sim[a].node.ctx.links->find(sim[b].self->id()) != nullptr;
}

/// Whether all of `who` are connected with each other within `limit`.
bool meet(simulation& sim, const std::vector<index>& who, std::chrono::nanoseconds limit) {
  auto until = sim.network().now() + limit;
  auto all = [&] {
    for (auto a : who)
      for (auto b : who)
        if (a != b && !connected(sim, a, b))
          return false;
    return true;
  };
  while (!all()) {
    if (sim.network().now() >= until)
      return false;
    sim.run_for(50ms);
  }
  return true;
}

std::optional<dht_status> joining(simulation& sim, index who) {
  return sim.first_event<dht_status, subscribe_dht_status>(sim[who].node.parts.dht);
}

/// Three peers that met through the first; all die silently.
struct ComingBack : ::testing::Test {
  void live_and_die() {
    simulation sim{7};
    sim.start(plain_node(), {});
    sim.start(plain_node(), {0}, second);
    sim.start(plain_node(), {0}, third);
    ASSERT_TRUE(meet(sim, {0, 1, 2}, 5s));
    sim.run_for(10s); // known peers are written periodically
    for (index who : {0U, 1U, 2U})
      sim.crash(who, true);
  }
  /// Starts the second and the third at their old addresses, with the first, which is gone
  /// permanently, as initial peer.
  void come_back(simulation& sim) {
    sim.start(plain_node(), {});
    sim.crash(0, false);
    sim.start(plain_node(), {0}, second);
    sim.start(plain_node(), {0}, third);
  }

  std::shared_ptr<memory_disk> second = std::make_shared<memory_disk>();
  std::shared_ptr<memory_disk> third = std::make_shared<memory_disk>();
};

TEST_F(ComingBack, APeerThatForgotAllOthersKeepsTryingAndReportsIt) {
  simulation sim{7};
  come_back(sim);
  sim.run_for(60s);
  for (index who : {1U, 2U}) {
    auto status = joining(sim, who);
    ASSERT_TRUE(status);
    EXPECT_FALSE(status->bootstrapped);
    auto ready = sim[who].node.board->answer({"GET", "/readyz"});
    EXPECT_EQ(ready.status, 503U);
    EXPECT_THAT(ready.body,
                HasSubstr("none of the initial peers answers: sim-0:7700: connection refused"));
  }
}

TEST_F(ComingBack, OneOfThemIsEnoughToRemember) {
  live_and_die();
  second = std::make_shared<memory_disk>();
  simulation sim{7};
  come_back(sim);
  EXPECT_TRUE(meet(sim, {1, 2}, 1s));
}

TEST(LostLinks, ALinkThatBreaksIsMadeAgainWithinASecond) {
  simulation sim{3};
  sim.start(plain_node(), {});
  sim.start(plain_node(), {0});
  sim.start(plain_node(), {1});
  ASSERT_TRUE(meet(sim, {0, 1, 2}, 5s));
  sim.run_for(20s);
  sim.network().reset_links(1, 2); // neither is an initial peer of the first
  sim.network().reset_links(0, 2);
  EXPECT_TRUE(meet(sim, {0, 1, 2}, 1s));
}

/// After a cut of any length all peers are connected again within five seconds.
class Cuts : public ::testing::TestWithParam<int> {};

TEST_P(Cuts, HealWithinFiveSeconds) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    simulation sim{seed};
    auto config = plain_node();
    // TCP would repeat the packet that opens a connection; the simulated network waits for the
    // timeout.
    config.dht.joining.dial_timeout = 2s;
    sim.start(config, {});
    for (index who : {1U, 2U, 3U})
      sim.start(config, {who - 1});
    ASSERT_TRUE(meet(sim, {0, 1, 2, 3}, 5s));
    sim.run_for(20s);
    sim.network().partition(seed % 2 == 0 ? std::set<net::sim_network::node_index>{2}
                                          : std::set<net::sim_network::node_index>{1, 3});
    sim.run_for(std::chrono::seconds{GetParam()});
    sim.network().heal();
    EXPECT_TRUE(meet(sim, {0, 1, 2, 3}, 5s));
  }
}

INSTANTIATE_TEST_SUITE_P(Seconds, Cuts, ::testing::Values(1, 5, 20, 60));

} // namespace
} // namespace waggle::testing
