// The course of a run, as its peers keep it: from the first epoch on, whoever joins or restarts.

#include <nlohmann/json.hpp>

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct Curves : ::testing::Test {
  nlohmann::json of(index who) {
    auto answer = swarm.sim[who].node.board->answer({"GET", "/api/v1/curves"});
    return nlohmann::json::parse(answer.body);
  }
  std::uint64_t first(index who) { return of(who)["epoch"].at(0).get<std::uint64_t>(); }
  std::uint64_t last(index who) { return of(who)["epoch"].back().get<std::uint64_t>(); }
  void train_to(index who, std::uint64_t epoch) {
    EXPECT_TRUE(
      swarm.sim.run_until([&] { return !of(who)["epoch"].empty() && last(who) >= epoch; }, 120s));
  }

  trainers swarm{5};
  std::shared_ptr<memory_disk> files = std::make_shared<memory_disk>();
};

TEST_F(Curves, AJoinerShowsTheRunFromItsFirstEpochOn) {
  auto a = swarm.add(trainers::endless(1), {});
  auto b = swarm.add(trainers::endless(2), {a});
  train_to(a, 30);
  auto c = swarm.add(trainers::endless(3), {a});
  train_to(c, 40);
  EXPECT_EQ(first(c), 0U) << of(c).dump();
  auto theirs = of(a);
  auto ours = of(c);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(ours["epoch"][i], theirs["epoch"][i]);
    EXPECT_TRUE(ours["loss"][i].is_number()) << i;
  }
  EXPECT_LE(first(b), 1U) << "it was in the group before it could ask";
}

TEST_F(Curves, ARestartedPeerHasThemFromItsCheckpoint) {
  auto a = swarm.add(trainers::with_checkpoints(1, files), {});
  train_to(a, 30);
  swarm.sim.shut_down(a); // writes a checkpoint
  auto again = swarm.add(trainers::with_checkpoints(1, files), {});
  train_to(again, 35);
  EXPECT_EQ(first(again), 0U) << of(again).dump();
}

} // namespace
} // namespace waggle::testing
