// What liars say does not mislead a node that reduces for clients, nor the clients through it.

#include <gmock/gmock.h>

#include "tests/support/liar.hpp"
#include "tests/swarm/clients_swarm.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

class ClientsAndLiars : public Clients {
protected:
  /// So many made-up identities, connected with the node; also with the clients if they can be
  /// reached.
  void invent(std::size_t count, bool can_be_reached) {
    auto config = plain_node();
    config.client_mode = !can_be_reached;
    for (std::size_t i = 0; i < count; ++i)
      liars.emplace_back(sim, sim.start(config, {node}));
    sim.run_for(1s);
  }
  std::uint64_t epochs_in(std::chrono::nanoseconds time) {
    auto before = status_of(a).epoch.value();
    sim.run_for(time);
    return status_of(a).epoch.value() - before;
  }
  /// Runs until `joined` trains in a group of `members`. False: it does not, or held the liars'
  /// model meanwhile.
  bool joins_unharmed(index joined, std::size_t members) {
    bool poisoned = false;
    bool in = sim.run_until(
      [&] {
        poisoned = poisoned || status_of(joined).parameters == poisoned_parameters();
        return together({a, b, joined}, members);
      },
      10s);
    return in && !poisoned;
  }

  std::vector<liar> liars;
};

TEST_F(ClientsAndLiars, AMadeUpIdentityGivesNoStateToANewClient) {
  begin_with_two();
  auto branch = status_of(a).past.branch;
  invent(5, true);
  for (std::uint64_t n = 0; n < 3; ++n) {
    auto epoch = epoch_id{status_of(a).epoch.value() + 1};
    for (auto& l : liars) {
      l.give(epoch, poisoned_image({branch, {}, {}, 1'000}, epoch));
      if (n == 0)
        l.keep_claiming({.branch = branch, .epoch = epoch, .group_size = 4});
    }
    sim.run_for(200ms);
    auto joined = sim.start(client(20 + n), {node});
    EXPECT_TRUE(joins_unharmed(joined, 4 + n)) << picture(sim);
  }
  for (const auto& l : liars)
    EXPECT_EQ(l.opened(), 0U) << "it is no member";
}

// One of the three has lost its model, and gives another one as the run's.
TEST_F(ClientsAndLiars, ANewClientGetsTheStateThatMostClientsHold) {
  begin_with_two();
  std::vector<index> three{a, b, sim.start(client(3), {node})};
  ASSERT_TRUE(sim.run_until([&] { return together(three, 4); }, 5s)) << picture(sim);
  sim.run_for(2s);
  // The node asks in the order of their ids.
  std::sort(three.begin(), three.end(),
            [&](index x, index y) { return sim[x].self->id() < sim[y].self->id(); });
  a = three[1];
  b = three[2];
  liars.emplace_back(sim, three[0]);
  auto epoch = epoch_id{status_of(a).epoch.value() + 3}; // until it is asked
  liars[0].give(epoch, poisoned_image({status_of(a).past.branch, {}, {}, 1'000}, epoch));
  auto joined = sim.start(client(20), {node});
  EXPECT_TRUE(joins_unharmed(joined, 5)) << picture(sim);
  EXPECT_GE(liars[0].opened(), 1U) << "it is asked like the others";
}

TEST_F(ClientsAndLiars, MadeUpIdentitiesDoNotTakeTheNodeAway) {
  begin_with_two();
  auto branch = status_of(a).past.branch;
  auto quiet = epochs_in(4s);
  invent(4, false);
  for (auto& l : liars)
    l.keep_claiming({.branch = sha256("made up"), .epoch = epoch_id{1'000}, .group_size = 4});
  EXPECT_GE(epochs_in(4s) + 2, quiet);
  expect_to_stay({a, b}, 3);
  EXPECT_EQ(status_of(a).past.branch, branch);
  EXPECT_THAT(page(node, "/api/v1/status"), HasSubstr("\"reduces_for_clients\":2"));
}

// A member claims a million samples in each epoch, and contributes few.
TEST_F(ClientsAndLiars, ClaimedSamplesDoNotEndEpochsEarly) {
  begin_with_two();
  auto quiet = epochs_in(10s);
  auto idle = client(9);
  idle.training->training.step_interval = 5s;
  auto member = sim.start(idle, {node});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b, member}, 4); }, 10s)) << picture(sim);
  liars.emplace_back(sim, member);
  liars[0].claim_samples(1'000'000, 1e9);
  sim.run_for(10s); // each false claim costs the liar twice the time of the last one
  EXPECT_LE(epochs_in(10s), quiet + quiet / 4);
  EXPECT_GE(status_of(a).effective_batch, 24U);
}

// Their states are only approximately equal: the node does not insist on a majority.
TEST_F(ClientsAndLiars, NewClientsOfLocalUpdatesGetAState) {
  auto local = [](std::uint64_t seed) {
    auto config = client(seed);
    config.training->training.strategy = "local-updates";
    config.training->training.schedule.peak = 0.005;
    return config;
  };
  node = sim.start(helping_node(), {});
  std::vector<index> all{sim.start(local(1), {node})};
  for (std::uint64_t n = 2; n < 7; ++n) {
    all.push_back(sim.start(local(n), {node}));
    ASSERT_TRUE(sim.run_until([&] { return together(all, all.size() + 1); }, 20s)) << picture(sim);
    sim.run_for(2s);
  }
}

} // namespace
} // namespace waggle::testing
