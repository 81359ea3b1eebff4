// Joining, returning, splits and endings: connected peers agree on one history, and soon.

#include "tests/swarm/in_step.hpp"

namespace waggle::testing {
namespace {

TEST_F(InStep, EveryNewcomerIsInStepAtOnce) {
  begin(2);
  for (std::uint64_t n = 0; n < 10; ++n) {
    add(endless(n + 10), {n % 2});
    EXPECT_LT(seconds_until_together(), 1.0);
  }
  expect_to_stay_together();
}

TEST_F(InStep, TheFirstUpdateHasAPassOfEachPeerHoweverLateTheLastOneCame) {
  auto peer = [](std::uint64_t seed) {
    auto config = endless(seed);
    config.training->training.strategy = "data-parallel";
    config.training->training.min_peers = 3;
    return config;
  };
  add(peer(1), {});
  add(peer(2), {0});
  sim.run_for(25s); // a member would be silent after 20 s, as long as a round may take
  EXPECT_EQ(status_of(0).steps, 0U);
  add(peer(3), {0});
  ASSERT_TRUE(sim.run_until([&] { return status_of(2).epoch.value() > 2; }, 10s)) << picture(sim);
  for (auto i : sim.living())
    EXPECT_EQ(sim[i].rounds.front().contributors.size(), 3U);
}

TEST_F(InStep, APeerThatDoesNotReachTheLeaderEntersOnceAnotherMemberLeads) {
  sim.network().keep_apart(0, 2);
  begin(2);
  add(endless(3), {1});
  EXPECT_LT(seconds_until_together(60s), 30.0);
  sim.run_for(10s); // in a first round that stalls the two find out that they have no link
  expect_to_stay_together();
}

TEST_F(InStep, SurvivorsContinueAtOnceAndAPeerThatReturnsIsInStepAgain) {
  begin(5);
  for (index victim : {0U, 3U, 1U}) {
    auto epoch = status_of(4).epoch;
    sim.crash(victim, false);
    auto begin = sim.seconds();
    ASSERT_TRUE(sim.run_until([&] { return status_of(4).epoch.value() > epoch.value() + 2; }, 5s))
      << picture(sim);
    EXPECT_LT(sim.seconds() - begin, 1.5) << "three epochs of a fifth of a second, and the loss";
    add(endless(victim + 1), {4});
    EXPECT_LT(seconds_until_together(), 1.0);
  }
}

TEST_F(InStep, AFrozenPeerCostsItsDetectionAndComesBackByItself) {
  begin(4);
  sim.network().partition({2}); // silent, as a frozen process is
  sim.run_for(6s);
  auto others = sim.living();
  others.erase(others.begin() + 2);
  EXPECT_TRUE(together(others)) << picture(sim);
  sim.network().heal();
  EXPECT_LT(seconds_until_together(), 5.0);
}

TEST_F(InStep, AMajorityAndAMinorityConvergeToTheMajoritysHistory) {
  begin(3);
  for (auto cut : {1s, 5s, 20s}) {
    auto before = status_of(0).past.branch;
    sim.network().partition({1});
    sim.run_for(cut);
    if (cut > 10s) {
      EXPECT_TRUE(status_of(1).provisional);
      EXPECT_GT(status_of(1).rounds_complete, 0U);
    }
    sim.network().heal();
    EXPECT_LT(seconds_until_together(), 5.0) << cut.count() << " s";
    EXPECT_EQ(status_of(1).past.branch, before);
    EXPECT_FALSE(status_of(1).provisional);
  }
  expect_to_stay_together();
}

TEST_F(InStep, TwoHalvesConvergeToOneHistory) {
  begin(4);
  for (auto cut : {5s, 20s}) {
    sim.network().partition({1, 3});
    sim.run_for(cut);
    sim.network().heal();
    EXPECT_LT(seconds_until_together(), 5.0);
  }
  expect_to_stay_together();
}

// Each side knows itself and its newcomers, and these are more than those of the other side whom it
// knows. So the members of the group from which both come decide.
TEST_F(InStep, PiecesOfAGroupThatNewcomersHaveEnteredBecomeOneAgain) {
  begin(5);
  sim.crash(4, true);
  sim.network().partition({0, 1});
  sim.run_for(8s);
  EXPECT_TRUE(status_of(0).provisional);
  EXPECT_TRUE(status_of(2).provisional);
  sim.network().partition({0, 1, 5, 6});
  for (std::uint64_t n = 0; n < 2; ++n)
    add(endless(n + 10), {n});
  for (std::uint64_t n = 0; n < 2; ++n)
    add(endless(n + 20), {2 + n});
  ASSERT_TRUE(sim.run_until(
    [&] {
      return together({0, 1, 5, 6}) && together({2, 3, 7, 8});
    },
    20s))
    << picture(sim);
  sim.run_for(3s);
  ASSERT_NE(status_of(0).past.branch, status_of(2).past.branch);
  sim.network().heal();
  EXPECT_LT(seconds_until_together(60s), 20.0);
  expect_to_stay_together();
}

TEST_F(InStep, WithoutMostOfItsGroupAPeerWaitsIfConfigured) {
  auto careful = [](std::uint64_t seed) {
    auto config = endless(seed);
    config.training->training.continue_on_split = false;
    return config;
  };
  add(careful(1), {});
  add(careful(2), {0});
  add(careful(3), {0});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s));
  sim.run_for(2s);
  sim.network().partition({2});
  sim.run_for(10s);
  auto stopped = status_of(2);
  sim.run_for(5s);
  EXPECT_EQ(status_of(2).epoch, stopped.epoch);
  EXPECT_FALSE(stopped.provisional);
  EXPECT_NE(stopped.waiting_for, "");
  sim.network().heal();
  EXPECT_LT(seconds_until_together(), 5.0);
}

TEST_F(InStep, AllKilledAndStartedAgainGoOnFromTheFurthestCheckpoint) {
  std::vector<std::shared_ptr<memory_disk>> disks;
  for (std::uint64_t i = 0; i < 3; ++i) {
    disks.push_back(std::make_shared<memory_disk>());
    join(with_checkpoints(i + 1, disks[i]));
  }
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
  epoch_id last;
  for (index i : {0U, 1U, 2U}) { // one after another, so that their checkpoints differ
    sim.run_for(2s);
    last = status_of(i).epoch;
    sim.crash(i, false);
  }
  auto first = add(with_checkpoints(1, disks[0]), {});
  add(with_checkpoints(2, disks[1]), {first});
  add(with_checkpoints(3, disks[2]), {first});
  EXPECT_LT(seconds_until_together(), 5.0);
  EXPECT_GE(status_of(first).epoch.value() + 1, last.value())
    << "the run continues from the checkpoint with the most work";
  expect_to_stay_together();
}

TEST_F(InStep, AnOldDataFolderDoesNotReplaceALiveRun) {
  sim.keep_log_lines();
  auto files = std::make_shared<memory_disk>();
  auto old = add(with_checkpoints(9, files), {});
  ASSERT_TRUE(sim.run_until([&] { return status_of(old).epoch >= epoch_id{40}; }, 200s));
  sim.shut_down(old);
  auto kept = *files->list("/data");
  std::erase_if(kept, [](const std::string& name) { return !name.starts_with("checkpoint-"); });

  auto a = add(endless(1), {});
  auto b = add(endless(2), {a});
  ASSERT_TRUE(sim.run_until([&] { return together({a, b}); }, 10s)) << picture(sim);
  sim.run_for(3s);
  auto before = status_of(a);
  ASSERT_LT(before.epoch, epoch_id{40});
  auto stale = add(with_checkpoints(9, files), {a});
  EXPECT_LT(seconds_until_together(), 2.0);
  EXPECT_EQ(status_of(stale).past.branch, before.past.branch);
  EXPECT_EQ(status_of(a).state_downloads, before.state_downloads);
  EXPECT_EQ(lines_with(stale, "is not continued"), 1U);
  EXPECT_EQ(lines_with(stale, "Its last checkpoint stays on disk: /data/" + kept.back()), 1U);
  sim.run_for(5s); // the run's checkpoints are written beside them
  auto names = *files->list("/data");
  EXPECT_NE(std::find(names.begin(), names.end(), kept.back()), names.end())
    << "its last checkpoint stays on disk";
}

TEST_F(InStep, AllEndOnTheSameBytes) {
  auto first = add(training_node(1), {});
  for (std::uint64_t i = 2; i <= 3; ++i)
    sim.start(training_node(i), {first});
  sim.run_for(4s);
  sim.network().partition({2}); // it misses the last epochs
  sim.run_for(20s);
  sim.network().heal();
  EXPECT_TRUE(sim.run_until([&] { return all_finished_equal(sim); }, 150s)) << picture(sim);
}

TEST_F(InStep, WithADeadFirstPeerNoPeerSilentlyBeginsASecondRun) {
  auto config = endless(1);
  config.training->training.may_start_alone = false;
  config.training->training.join_timeout = 2s;
  auto dead = sim.start(endless(5), {});
  sim.crash(dead, true);
  config.initial_peers.push_back(net::sim_network::address_of(dead));
  auto lone = sim.start(config, {});
  sim.run_for(20s);
  EXPECT_EQ(status_of(lone).phase, trainer_phase::joining);
  EXPECT_EQ(status_of(lone).steps, 0U);
  EXPECT_NE(status_of(lone).waiting_for, "");
}

/// Nothing but a round shows members that their leader is gone, and no round is due here.
TEST_F(InStep, AGroupWithoutRoundsWhoseLeaderDiesTakesNewcomers) {
  for (bool ended : {false, true})
    for (bool silently : {false, true}) {
      SCOPED_TRACE(std::string{ended ? "ended" : "waits for peers"} + (silently ? ", silent" : ""));
      trainers swarm{11};
      auto add = [&](const std::vector<index>& through) {
        auto config = trainers::endless(swarm.sim.size() + 1);
        config.training->training.max_epochs = ended ? 20 : 0;
        config.training->training.min_peers = ended ? 1 : 4;
        swarm.add(std::move(config), through);
      };
      auto are_three = [&] {
        return swarm.status_of(2).group_size == 3 && (!ended || swarm.all_finished());
      };
      add({});
      add({0});
      add({0});
      ASSERT_TRUE(swarm.sim.run_until(are_three, 60s)) << picture(swarm.sim);
      swarm.sim.crash(0, silently);
      swarm.sim.run_for(5s);
      add({1});
      add({2});
      EXPECT_TRUE(
        swarm.sim.run_until([&] { return ended ? swarm.all_finished() : swarm.together(); }, 60s))
        << picture(swarm.sim);
    }
}

} // namespace
} // namespace waggle::testing
