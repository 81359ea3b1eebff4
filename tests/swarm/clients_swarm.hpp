#pragma once

// Swarms of trainers that accept no connections, and the node that reduces for them.

#include "tests/swarm/in_step.hpp"

namespace waggle::testing {

class Clients : public InStep {
protected:
  static node_config plain_node() { return {.run_id = "sim"}; }
  static node_config helping_node() {
    auto config = plain_node();
    auto& parts = config.helping.emplace();
    parts.averaging = *training_node(0).averaging;
    parts.averaging.matchmaking.mode = member_mode::auxiliary;
    parts.averaging.averaging.auxiliary = true;
    return config;
  }
  static node_config client(std::uint64_t data_seed) {
    auto config = endless(data_seed);
    config.client_mode = true;
    config.averaging->matchmaking.mode = member_mode::client;
    config.training->training.join_timeout = 15s; // as in the program
    return config;
  }

  /// A node, and two clients that have trained together for a while.
  void begin_with_two() {
    node = sim.start(helping_node(), {});
    a = sim.start(client(1), {node});
    b = sim.start(client(2), {node});
    ASSERT_TRUE(sim.run_until([&] { return together({a, b}, 3); }, 5s)) << picture(sim);
    sim.run_for(3s);
    ASSERT_TRUE(together({a, b}, 3)) << picture(sim);
  }
  std::string page(index who, const std::string& target) {
    return sim[who].node.board->answer({"GET", target}).body;
  }
  /// Whether `peers` have equal parameters at an epoch that all of them are at.
  bool equal_parameters(const std::vector<index>& peers) {
    std::set<digest> seen;
    auto same_epoch = [&] {
      seen.clear();
      std::set<std::uint64_t> epochs;
      for (auto i : peers) {
        auto s = status_of(i);
        epochs.insert(s.epoch.value());
        seen.insert(s.parameters);
      }
      return epochs.size() == 1 && !seen.contains(digest{});
    };
    return sim.run_until(same_epoch, 5s) && seen.size() == 1;
  }
  void expect_to_stay(const std::vector<index>& peers, std::size_t members) {
    for (int i = 0; i < 8; ++i) {
      sim.run_for(500ms);
      EXPECT_TRUE(together(peers, members)) << picture(sim);
    }
  }
  /// Epochs end when all peers together have reached the target, although the clients do not
  /// receive each other's reports.
  void expect_batches_near_the_target(const std::vector<index>& peers) {
    for (int i = 0; i < 5; ++i) {
      sim.run_for(300ms);
      EXPECT_LE(status_of(peers.front()).effective_batch, 32U + 4 * peers.size()) << picture(sim);
    }
  }
  double epochs_a_second(index who) {
    auto before = status_of(who).epoch.value();
    sim.run_for(5s);
    return static_cast<double>(status_of(who).epoch.value() - before) / 5;
  }

  index node = 0;
  index a = 0;
  index b = 0;
};

} // namespace waggle::testing
