// Trainers that accept no connections, and the node that reduces for them.

#include <gmock/gmock.h>

#include "runtime/core/random.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/swarm/clients_swarm.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Clients, TrainTogetherThroughANode) {
  begin_with_two();
  expect_to_stay({a, b}, 3);
  EXPECT_TRUE(equal_parameters({a, b})) << picture(sim);
  EXPECT_EQ(status_of(a).rounds_failed + status_of(b).rounds_failed, 0U);
  expect_batches_near_the_target({a, b});
  EXPECT_THAT(page(node, "/readyz"), HasSubstr("ready: reduces for 2 clients"));
  EXPECT_THAT(page(node, "/api/v1/status"), HasSubstr("\"reduces_for_clients\":2"));
  EXPECT_THAT(page(a, "/api/v1/peers"), HasSubstr("\"role\":\"node\""));
}

// The node knows nothing of the two vectors of an epoch but what the group's plan says.
TEST_F(Clients, ANodeReducesBothRoundsOfLowRank) {
  auto low = [](std::uint64_t seed) {
    auto config = client(seed);
    config.training->training.how.coding = {2, 0.4};
    config.training->make_learner =
      toys({.parameters = 64, .micro_batch = 4, .data_seed = seed, .rows = 8});
    return config;
  };
  node = sim.start(helping_node(), {});
  a = sim.start(low(1), {node});
  b = sim.start(low(2), {node});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b}, 3); }, 5s)) << picture(sim);
  sim.run_for(3s);
  expect_to_stay({a, b}, 3);
  EXPECT_TRUE(equal_parameters({a, b})) << picture(sim);
  EXPECT_EQ(status_of(a).rounds_failed + status_of(b).rounds_failed, 0U);
  ASSERT_FALSE(sim[a].rounds.empty());
  EXPECT_EQ(sim[a].rounds.back().values->size(), 2U * 8);
}

/// What trainer and helper report reaches the exporter that lives now.
TEST_F(Clients, AreShownAgainAfterTheExportersHaveDied) {
  begin_with_two();
  for (auto who : {node, a})
    caf::anon_send_exit(caf::actor_cast<caf::actor>(sim[who].node.parts.exporter),
                        caf::exit_reason::kill);
  sim.run_for(1s); // they are started again
  auto next = sim[a].rounds.size();
  sim.run_for(2s);
  ASSERT_GT(sim[a].rounds.size(), next + 1) << picture(sim);
  EXPECT_THAT(page(node, "/api/v1/status"), HasSubstr("\"reduces_for_clients\":2"));
  EXPECT_EQ(sim[a].node.board->answer({"GET", "/readyz"}).status, 200U);
  for (auto who : {node, a})
    EXPECT_THAT(page(who, "/api/v1/rounds"), HasSubstr(to_string(sim[a].rounds[next].round)));
  for (auto who : {a, b, node}) // the simulation does not know the new exporters
    sim.shut_down(who);
}

TEST_F(Clients, AreAsFastAsTwoThatReachEachOther) {
  begin_with_two();
  auto clients = epochs_a_second(a);
  for (auto i : {a, b, node})
    sim.shut_down(i);
  a = add(endless(1), {});
  b = add(endless(2), {a});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b}); }, 5s));
  EXPECT_GT(clients, 0.9 * epochs_a_second(a));
}

TEST_F(Clients, ManyTrainTogether) {
  begin_with_two();
  std::vector<index> all{a, b};
  for (std::uint64_t n = 0; n < 6; ++n) {
    all.push_back(sim.start(client(10 + n), {node}));
    EXPECT_TRUE(sim.run_until([&] { return together(all, all.size() + 1); }, 5s)) << picture(sim);
  }
  EXPECT_TRUE(equal_parameters(all));
  expect_batches_near_the_target(all);
}

TEST_F(Clients, ATrainerThatCanBeReachedComesIntoTheirHistory) {
  begin_with_two();
  auto before = status_of(a);
  auto open = sim.start(endless(3), {node});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b, open}, 4); }, 5s)) << picture(sim);
  expect_to_stay({a, b, open}, 4);
  EXPECT_EQ(status_of(open).past.branch, before.past.branch);
  EXPECT_TRUE(equal_parameters({a, b, open}));
  sim.crash(open, false);
  ASSERT_TRUE(sim.run_until([&] { return together({a, b}, 3); }, 5s)) << picture(sim);
  expect_to_stay({a, b}, 3);
  EXPECT_EQ(status_of(a).past.branch, before.past.branch);
}

TEST_F(Clients, TheNodeStaysOutWhereATrainerCanBeReached) {
  node = sim.start(helping_node(), {});
  auto open = sim.start(endless(3), {node});
  a = sim.start(client(1), {node});
  b = sim.start(client(2), {node});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b, open}, 3); }, 10s)) << picture(sim);
  expect_to_stay({a, b, open}, 3);
  sim.crash(open, true);
  ASSERT_TRUE(sim.run_until([&] { return together({a, b}, 3); }, 15s)) << picture(sim);
  EXPECT_TRUE(equal_parameters({a, b}));
}

TEST_F(Clients, OneThatDiesIsDropped) {
  begin_with_two();
  sim.crash(b, false);
  EXPECT_TRUE(sim.run_until([&] { return together({a}, 2); }, 5s)) << picture(sim);
  auto c = sim.start(client(5), {node});
  EXPECT_TRUE(sim.run_until([&] { return together({a, c}, 3); }, 5s)) << picture(sim);
  sim.crash(a, true); // silently
  EXPECT_TRUE(sim.run_until([&] { return together({c}, 2); }, 10s)) << picture(sim);
  sim.crash(c, false);
  sim.run_for(3s);
  EXPECT_THAT(page(node, "/api/v1/status"), HasSubstr("\"reduces_for_clients\":0"));
}

TEST_F(Clients, GoOnAloneWithoutTheNode) {
  for (bool silently : {false, true}) {
    begin_with_two();
    sim.crash(node, silently);
    auto lost = sim.seconds();
    ASSERT_TRUE(sim.run_until(
      [&] { return status_of(a).group_size == 1 && status_of(b).group_size == 1; }, 20s))
      << picture(sim);
    EXPECT_LT(sim.seconds() - lost, 8.0);
    auto epoch = status_of(a).epoch;
    sim.run_for(3s);
    EXPECT_GT(status_of(a).epoch.value(), epoch.value() + 1);
    EXPECT_TRUE(status_of(a).provisional);
    sim.shut_down(a);
    sim.shut_down(b);
  }
}

TEST_F(Clients, TwoThatTrainAloneComeTogetherWhenTheNodeIsReachedAgain) {
  begin_with_two();
  sim.network().partition({node});
  sim.run_for(10s);
  EXPECT_TRUE(status_of(a).provisional) << picture(sim);
  EXPECT_TRUE(status_of(b).provisional) << picture(sim);
  EXPECT_GT(epochs_a_second(a), 0.5);
  sim.network().heal();
  EXPECT_TRUE(sim.run_until([&] { return together({a, b}, 3); }, 5s)) << picture(sim);
  expect_to_stay({a, b}, 3);
  EXPECT_TRUE(equal_parameters({a, b}));
  expect_batches_near_the_target({a, b});
}

TEST_F(Clients, WithoutAReducerAClientReportsItAndFinallyTrainsAlone) {
  node = sim.start(plain_node(), {});
  a = sim.start(client(1), {node});
  sim.run_for(5s);
  EXPECT_EQ(status_of(a).phase, trainer_phase::joining);
  EXPECT_THAT(status_of(a).waiting_for, HasSubstr("a waggle node that reduces"));
  EXPECT_THAT(page(a, "/readyz"), HasSubstr("a waggle node that reduces"));
  sim.run_for(15s);
  EXPECT_EQ(status_of(a).group_size, 1U);
  auto epoch = status_of(a).epoch;
  auto branch = status_of(a).past.branch;
  sim.run_for(5s);
  EXPECT_GT(status_of(a).epoch.value(), epoch.value() + 2);
  EXPECT_EQ(status_of(a).past.branch, branch);
}

TEST_F(Clients, VectorsLongerThanTheNodeAcceptsAreNotAveraged) {
  auto small = helping_node();
  small.helping->averaging.averaging.elements_max = 63;
  node = sim.start(small, {});
  a = sim.start(client(1), {node});
  sim.run_for(5s);
  EXPECT_EQ(status_of(a).group_size, 1U);
  EXPECT_GT(status_of(a).epoch.value(), 2U) << "it continues alone";
  EXPECT_THAT(page(node, "/api/v1/status"), HasSubstr("\"reduces_for_clients\":0"));
}

TEST_F(Clients, TwoNodesThatReduceAreNoObstacle) {
  node = sim.start(helping_node(), {});
  auto second = sim.start(helping_node(), {node});
  a = sim.start(client(1), {node});
  b = sim.start(client(2), {second});
  EXPECT_TRUE(sim.run_until(
    [&] {
      return together({a, b}, 3) || together({a, b}, 4);
    },
    10s))
    << picture(sim);
  sim.run_for(3s);
  EXPECT_TRUE(together({a, b}, 3) || together({a, b}, 4)) << picture(sim);
  EXPECT_TRUE(equal_parameters({a, b}));
}

// Each client founds a history before it hears of the others, and nodes help different ones.
TEST_F(Clients, ThatBeginAtOnceWithNodesComeToOneHistory) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    random_source random{seed};
    trainers swarm{seed};
    auto& begun = swarm.sim;
    std::vector<index> nodes;
    std::vector<index> clients;
    auto pause = [&] { begun.run_for(milliseconds{random.below(seed % 2 == 0 ? 1 : 50)}); };
    for (auto count = 2 + random.below(2); nodes.size() < count; pause())
      nodes.push_back(begun.start(helping_node(), nodes));
    for (auto count = 2 + random.below(3); clients.size() < count; pause()) {
      random.shuffle(nodes);
      clients.push_back(begun.start(client(seed + clients.size()), nodes));
    }
    auto with_nodes = [&] {
      for (auto members = clients.size() + 1; members <= begun.size(); ++members)
        if (swarm.together(clients, members))
          return true;
      return false;
    };
    begun.run_for(4s);
    ASSERT_TRUE(begun.run_until(with_nodes, 1s)) << "seed " << seed << picture(begun);
  }
}

} // namespace
} // namespace waggle::testing
