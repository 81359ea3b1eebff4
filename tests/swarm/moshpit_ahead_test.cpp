// Groups that are found before their rounds begin: how long peers whose rounds block stand still,
// and what happens if members die, freeze or are cut off while they wait, or are much slower than
// others.

#include <array>
#include <cstdlib>
#include <iostream>

#include "runtime/averaging/fault_memory.hpp"
#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

/// Peers whose rounds block, with epochs of about three seconds and a matchmaking time of one.
struct blocking_swarm : moshpit_swarm {
  blocking_swarm(std::uint64_t seed, std::size_t peers, std::size_t target,
                 std::optional<milliseconds> search_ahead, milliseconds matchmaking = 1s)
    : moshpit_swarm(seed, target, 0ms) {
    step_interval = 20ms;
    auto batch = 4 * 50 * 3 * peers;
    adjust = [batch, search_ahead, matchmaking](node_config& config) {
      config.averaging->matchmaking.min_matchmaking_time = matchmaking;
      auto& training = config.training->training;
      training.strategy = "local-updates";
      training.how = {};
      training.how.delay_state = false;
      training.target_batch_size = batch;
      training.search_ahead = search_ahead;
      config.progress.ledger.target_batch_size = batch;
    };
    for (std::size_t i = 0; i < peers; ++i)
      join();
  }
  struct measured {
    double stall = 0;      // seconds of an epoch, on average, in which a peer makes no pass
    double all_reduce = 0; // seconds of a round, on average
    double epochs = 0;     // of a peer
    double averaged = 0;   // share of its epochs that ended with a mean
  };
  measured measure(std::chrono::seconds time) {
    std::map<index, training_status> before;
    std::map<index, std::size_t> rounds;
    for (auto i : sim.living()) {
      before[i] = status_of(i);
      rounds[i] = sim[i].rounds.size();
    }
    sim.run_for(time);
    measured out;
    double n = static_cast<double>(before.size());
    double reduced = 0;
    for (const auto& [i, then] : before) {
      auto now = status_of(i);
      auto epochs = static_cast<double>(now.epoch.value() - then.epoch.value());
      auto trained = static_cast<double>(now.steps - then.steps) * seconds_of(step_interval);
      out.epochs += epochs / n;
      out.stall += (seconds_of(time) - trained) / epochs / n;
      out.averaged += static_cast<double>(now.rounds_complete - then.rounds_complete) / epochs / n;
      for (auto r = rounds[i]; r < sim[i].rounds.size(); ++r) {
        out.all_reduce += sim[i].rounds[r].allreduce_seconds;
        ++reduced;
      }
    }
    out.all_reduce /= reduced;
    return out;
  }
};

/// WAGGLE_TEST_SEEDS: more than in the usual run of the tests.
std::uint64_t seeds(std::uint64_t usual) {
  const char* chosen = std::getenv("WAGGLE_TEST_SEEDS");
  return chosen != nullptr ? std::max<std::uint64_t>(std::strtoull(chosen, nullptr, 10), 1) : usual;
}

/// No member of any round was taken for one that has stalled or lied.
void expect_nobody_was_blamed(simulation& sim) {
  for (index i = 0; i < sim.size(); ++i)
    for (const auto& report : sim[i].rounds)
      for (const auto& fault : report.faults)
        EXPECT_EQ(kind_of(fault.reason), fault_kind::none)
          << "peer " << i << " blames " << short_name(fault.peer) << ": " << to_string(fault.reason)
          << " after " << sim.seconds() << " s";
}

TEST(MoshpitAhead, APeerWhoseRoundsBlockStandsStillForLittleMoreThanTheAllReduce) {
  // Two full groups of eight peers; and groups of which one is not full, and begins when its
  // leader's search expires.
  for (std::size_t target : {4, 3}) {
    SCOPED_TRACE("groups of " + std::to_string(target));
    auto run = [target](std::optional<milliseconds> search_ahead) {
      blocking_swarm swarm{1, 8, target, search_ahead};
      EXPECT_TRUE(swarm.begin(8s)) << picture(swarm.sim);
      swarm.sim.run_for(10s);
      auto seen = swarm.measure(30s);
      expect_rounds_kept_the_contract(swarm.sim);
      expect_nobody_was_blamed(swarm.sim);
      return seen;
    };
    auto before = run(0ms);
    auto after = run(std::nullopt);
    std::cout << "groups of " << target << ": stall " << before.stall << " s -> " << after.stall
              << " s, all-reduce " << before.all_reduce << " s -> " << after.all_reduce
              << " s, epochs " << before.epochs << " -> " << after.epochs << ", averaged "
              << before.averaged << " -> " << after.averaged << "\n";
    // The time until the next step counts, too, and so do calls and results on their way.
    EXPECT_LT(after.stall, after.all_reduce + 0.05);
    EXPECT_LT(after.stall, before.stall);
    if (target == 3) {
      EXPECT_LT(after.stall, before.stall / 4);
    }
    EXPECT_GE(after.averaged, 0.95 * before.averaged);
    EXPECT_GE(after.epochs, before.epochs);
    EXPECT_LE(after.epochs, 30 / 3.0 * 1.05 + 1);
  }
}

// A peer that finds no place in a group searches on for a while. It must not complete the next
// group of others, whose round would begin before it is due, and so on: epochs would be cut short.
TEST(MoshpitAhead, APeerThatIsLeftOverShortensNobodysEpoch) {
  constexpr std::size_t peers = 7; // in groups of three
  for (double epoch : {0.8, 1.5, 2.0, 2.5, 4.0}) {
    SCOPED_TRACE(std::to_string(epoch) + " s an epoch");
    blocking_swarm swarm{2, 0, 3, std::nullopt};
    auto common = swarm.adjust;
    auto batch = static_cast<std::uint64_t>(4 * 50 * epoch * peers);
    swarm.adjust = [&](node_config& config) {
      common(config);
      config.training->training.target_batch_size = batch;
      config.progress.ledger.target_batch_size = batch;
    };
    for (std::size_t i = 0; i < peers; ++i)
      swarm.join();
    ASSERT_TRUE(swarm.begin(10s)) << picture(swarm.sim);
    swarm.sim.run_for(10s);
    auto seen = swarm.measure(40s);
    EXPECT_LE(seen.epochs, 40 / epoch * 1.05 + 1);
    expect_nobody_was_blamed(swarm.sim);
  }
}

TEST(MoshpitAhead, PeersMixAsTheyDoInGroupsFoundAtTheBoundary) {
  auto left_after = [](std::uint64_t seed, std::optional<milliseconds> search_ahead) {
    blocking_swarm swarm{seed, 8, 4, search_ahead};
    swarm.freeze(true);
    EXPECT_TRUE(swarm.begin(8s)) << picture(swarm.sim);
    random_source random{seed};
    swarm.scatter(random);
    auto begin = swarm.spread();
    auto epoch = swarm.status_of(0).epoch.value();
    EXPECT_TRUE(
      swarm.sim.run_until([&] { return swarm.status_of(0).epoch.value() >= epoch + 6; }, 60s));
    return swarm.spread() / begin;
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_LT(left_after(seed, std::nullopt), std::max(left_after(seed, 0ms), 1e-3));
  }
}

/// A peer of a swarm with very different speeds.
struct speed {
  milliseconds step;
  member_mode kind = member_mode::node;
};

/// Nobody is blamed, and all average, the slow ones in the middle of a step.
void train_at(const std::vector<speed>& speeds, bool blocks, bool by_steps) {
  SCOPED_TRACE(std::string{blocks ? "blocking" : "delayed"}
               + (by_steps ? ", by steps" : ", by samples"));
  blocking_swarm swarm{3, 0, 3, std::nullopt};
  auto common = swarm.adjust;
  swarm.adjust = [&](node_config& config) {
    common(config);
    auto& training = config.training->training;
    training.how.delay_state = !blocks;
    training.target_batch_size = 300;
    config.progress.ledger.target_batch_size = 300;
    if (by_steps) {
      training.strategy = "decentralized-sgd";
      training.how.steps_period = 40;
    }
  };
  for (const auto& [step, kind] : speeds) {
    swarm.step_interval = step;
    swarm.join("", kind);
  }
  ASSERT_TRUE(swarm.begin(10s)) << picture(swarm.sim);
  swarm.sim.run_for(60s);
  expect_nobody_was_blamed(swarm.sim);
  expect_rounds_kept_the_contract(swarm.sim);
  for (auto i : swarm.sim.living()) {
    auto s = swarm.status_of(i);
    EXPECT_GT(s.rounds_complete, 15U) << picture(swarm.sim);
    EXPECT_LE(s.rounds_failed, 3U) << picture(swarm.sim);
  }
}

TEST(MoshpitAhead, NobodyIsTakenForStalledBecauseItIsSlow) {
  std::vector<speed> speeds{{50ms}, {50ms}, {100ms}, {300ms}, {1'000ms}, {3'000ms}};
  for (bool blocks : {true, false})
    for (bool by_steps : {false, true})
      train_at(speeds, blocks, by_steps);
}

// A client hears nothing of another client's boundary. It is called by a member of its group.
TEST(MoshpitAhead, ASlowClientIsCalledByItsGroup) {
  auto client = member_mode::client;
  std::vector<speed> speeds{{1'000ms}, {50ms, client}, {3'000ms, client}};
  for (bool blocks : {true, false})
    train_at(speeds, blocks, true);
}

/// Three peers in one group. One is lost while all wait for the boundary; the others average with
/// each other, and stand still for no timeout.
void lose_one_while_all_wait(std::uint64_t seed, const std::function<void(simulation&)>& lose) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  blocking_swarm swarm{seed, 0, 3, std::nullopt};
  auto common = swarm.adjust;
  swarm.adjust = [&](node_config& config) {
    common(config);
    constexpr std::uint64_t batch = 4 * 50 * 4 * 2; // four seconds
    config.training->training.target_batch_size = batch;
    config.progress.ledger.target_batch_size = batch;
  };
  swarm.join();
  swarm.join();
  swarm.step_interval = 500ms; // of the one that is lost: without its samples, the boundary is near
  swarm.join();
  auto& sim = swarm.sim;
  ASSERT_TRUE(swarm.begin(8s)) << picture(sim);
  sim.run_for(20s);
  auto waits = [&](index i) {
    for (std::uint64_t step = 1; step < 20; ++step)
      if (sim.ask<step_stage>(sim[i].node.parts.averager, get_step_stage{step})
          == step_stage::awaiting_trigger)
        return true;
    return false;
  };
  auto all_wait = [&] { return waits(0) && waits(1) && waits(2); };
  for (int waited = 0; waited < 160 && !all_wait(); ++waited)
    sim.run_for(50ms);
  ASSERT_TRUE(all_wait());
  std::array<std::size_t, 2> rounds{sim[0].rounds.size(), sim[1].rounds.size()};
  lose(sim);
  auto both_averaged = [&] {
    return sim[0].rounds.size() > rounds[0] && sim[1].rounds.size() > rounds[1];
  };
  ASSERT_TRUE(sim.run_until(both_averaged, 6s)) << picture(sim);
  for (index i = 0; i < 2; ++i) {
    const auto& report = sim[i].rounds[rounds[i]];
    EXPECT_NE(report.outcome, round_outcome::failed) << to_string(report.why);
    EXPECT_EQ(report.group_size, 3U) << "the group was found before";
    EXPECT_EQ(report.contributors.size(), 2U);
    EXPECT_LT(report.allreduce_seconds, 0.5) << "no timeout";
  }
  expect_rounds_kept_the_contract(sim);
}

TEST(MoshpitAhead, AMemberThatDiesOrStopsWhileTheGroupWaitsIsNotWaitedFor) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    lose_one_while_all_wait(seed, [](simulation& sim) { sim.crash(2, false); });
    lose_one_while_all_wait(seed, [](simulation& sim) { sim.shut_down(2); });
  }
}

/// Peers die, with and without a word, and are cut off for a while, at moments at which they mostly
/// wait. Whoever is left goes on.
TEST(MoshpitAhead, SwarmsSurviveFaultsWhileTheyWait) {
  for (std::uint64_t seed = 1; seed <= seeds(4); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random{seed};
    blocking_swarm swarm{seed, 8, seed % 2 == 0 ? 4U : 3U, std::nullopt};
    auto& sim = swarm.sim;
    ASSERT_TRUE(swarm.begin(10s)) << picture(sim);
    for (int fault = 0; fault < 5; ++fault) {
      sim.run_for(milliseconds{random.below(4'000)});
      auto living = sim.living();
      random.shuffle(living);
      switch (random.below(3)) {
        case 0:
          sim.crash(living.back() == swarm.first_living() ? living.front() : living.back(),
                    random.below(2) == 0);
          swarm.join();
          break;
        case 1:
          sim.network().partition({living.begin(), living.begin() + 2});
          sim.run_for(milliseconds{500 + random.below(3'000)});
          sim.network().heal();
          break;
        case 2:
          sim.shut_down(living.back() == swarm.first_living() ? living.front() : living.back());
          swarm.join();
          break;
      }
    }
    ASSERT_TRUE(swarm.begin(30s)) << picture(sim);
    sim.run_for(5s);
    auto later = swarm.measure(20s);
    EXPECT_GT(later.averaged, 0.9) << picture(sim);
    EXPECT_LT(later.stall, 0.3) << picture(sim);
    expect_rounds_kept_the_contract(sim);
    for (auto i : sim.living())
      expect_samples_accounted(swarm.status_of(i));
    if (::testing::Test::HasFailure())
      return;
  }
}

} // namespace
} // namespace waggle::testing
