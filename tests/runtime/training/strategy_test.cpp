#include "runtime/training/strategy.hpp"

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/runtime/training/lock_step.hpp"
#include "tests/support/strategies.hpp"

namespace waggle {
namespace {

using ::testing::AllOf, testing::collaborative, testing::delayed_gradients, ::testing::HasSubstr,
  testing::local_updates;

/// The run that a recorded trajectory belongs to.
struct recorded {
  strategy table;
  std::size_t peers = 1;
  lock_step::options how;
  std::size_t watched = 0; // the peer whose parameters were recorded
};

recorded gradients(strategy table) {
  auto itself = [](std::size_t, const doubles& theta) { return theta; };
  return {std::move(table), 1, {{1}, 0.1, 0, 1, itself}};
}

recorded add_change(std::uint64_t latency, doubles gradients = {1, 1}, std::size_t watched = 0) {
  auto own = [gradients](std::size_t i, const doubles& theta) {
    return doubles(theta.size(), gradients[i]);
  };
  // A single round, after the first step.
  return {local_updates({lane_clock::unit::first_peer, 1, 100}),
          gradients.size(),
          {{0}, 1.0, latency, 1, own},
          watched};
}

std::map<std::string, recorded> rows() {
  std::map<std::string, recorded> found;
  found["delayed_gradients sgd(0.1) gradient=theta"] = gradients(delayed_gradients(1));
  found["synchronous sgd(0.1) gradient=theta"] = gradients(collaborative(1));
  for (std::uint64_t latency : {1, 2, 5}) {
    auto name = "add_change latency=" + std::to_string(latency) + " sgd(1.0)";
    found[name + " gradient=1"] = add_change(latency);
    for (std::size_t peer : {0, 1})
      found[name + " gradients=1,3 peer=" + std::to_string(peer)] =
        add_change(latency, {1, 3}, peer);
  }
  return found;
}

TEST(Strategies, FollowTheRecordedTrajectories) {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/training/strategy_vectors.json"};
  auto vectors = nlohmann::json::parse(file);
  auto known = rows();
  ASSERT_EQ(vectors.size(), known.size());
  for (const auto& vector : vectors) {
    auto name = vector.at("name").get<std::string>();
    SCOPED_TRACE(name);
    ASSERT_TRUE(known.contains(name));
    const auto& row = known.at(name);
    lock_step run{row.table, row.peers, row.how};
    auto expected = vector.at("theta").get<std::vector<doubles>>();
    ASSERT_EQ(run.theta(row.watched), expected.front());
    for (std::size_t t = 1; t < expected.size(); ++t) {
      run.step();
      for (std::size_t k = 0; k < expected[t].size(); ++k)
        ASSERT_NEAR(run.theta(row.watched)[k], expected[t][k], 1e-12)
          << "step " << t << ", element " << k;
    }
    EXPECT_EQ(run.samples(row.watched), expected.size() - 1); // INV-2
  }
}

TEST(Strategies, FourCollaboratingPeersAreOneProcess) {
  auto target = [](std::size_t i) { return 0.25 * static_cast<double>(i) - 1; };
  auto toward = [&](std::size_t i, const doubles& theta) { return doubles{theta[0] - target(i)}; };
  lock_step run{collaborative(8), 4, {{0}, 0.1, 0, 1, toward}};
  double alone = 0;
  for (int epoch = 0; epoch < 10; ++epoch) {
    double mean = 0;
    for (std::size_t i = 0; i < 4; ++i)
      mean += (alone - target(i)) / 4;
    alone -= 0.1 * mean;
    run.step();
    run.step();
  }
  EXPECT_EQ(run.epochs(), 10U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(run.theta(i)[0], alone, 1e-12);
    EXPECT_EQ(run.theta(i), run.theta(0)); // bitwise
  }
}

/// Each peer with another loss, whose gradient is not linear.
doubles toward_own_minimum(std::size_t i, const doubles& theta) {
  auto steepness = static_cast<double>(1 + 2 * i);
  return {steepness * theta[0] - 1, theta[1] * theta[1] - steepness};
}
const lock_step::options unequal_peers{{0.5, -0.25}, 0.1, 0, 1, toward_own_minimum};

// The mean of stepped parameters is a step with the mean gradient.
TEST(Strategies, LocalUpdatesThatAreAveragedAfterEachStepAreSynchronous) {
  const auto& how = unequal_peers;
  for (auto due : {lane_clock{lane_clock::unit::swarm_samples, 2},
                   lane_clock{lane_clock::unit::first_peer, 1}}) {
    lock_step local{local_updates(due, {}, false), 2, how};
    lock_step together{collaborative(2), 2, how};
    ASSERT_NE(how.gradient(0, how.start), how.gradient(1, how.start));
    for (int step = 1; step <= 20; ++step) {
      local.step();
      together.step();
      ASSERT_EQ(together.epochs(), step);
      for (std::size_t i : {0, 1})
        for (std::size_t k : {0, 1})
          ASSERT_NEAR(local.theta(i)[k], together.theta(i)[k], 1e-12)
            << "peer " << i << ", step " << step << ", element " << k;
    }
  }
}

// -- DiLoCo --------------------------------------------------------------------------------------

strategy diloco(std::uint64_t every) {
  return find_strategy("diloco")->make({.numbers = {static_cast<double>(every)}});
}
lock_step::options unequal_peers_with(double outer_rate) {
  auto how = unequal_peers;
  how.outer_rate = outer_rate;
  return how;
}

void descend(doubles& theta, const doubles& gradient, double rate) {
  for (std::size_t k = 0; k < theta.size(); ++k)
    theta[k] -= rate * gradient[k];
}

TEST(Diloco, OfOneWorkerWithOuterRateOneIsTheInnerOptimizer) {
  for (std::uint64_t every : {1, 3}) {
    lock_step run{diloco(every), 1, unequal_peers};
    auto plain = unequal_peers.start;
    for (int step = 1; step <= 12; ++step) {
      run.step();
      descend(plain, toward_own_minimum(0, plain), unequal_peers.rate);
      for (std::size_t k : {0, 1})
        ASSERT_NEAR(run.theta(0)[k], plain[k], 1e-12) << "step " << step << " of " << every;
    }
  }
}

// Every H steps the outer optimizer takes a step with the mean of what the workers have moved, and
// all workers go on from its result.
TEST(Diloco, WithoutOverlapIsAsPublished) {
  constexpr std::uint64_t every = 3;
  constexpr std::size_t workers = 2;
  for (double outer_rate : {0.7, 1.0}) {
    lock_step run{diloco(every), workers, unequal_peers_with(outer_rate)};
    auto outer = unequal_peers.start;
    std::vector<doubles> local(workers, outer);
    for (std::uint64_t step = 1; step <= 4 * every; ++step) {
      run.step();
      for (std::size_t i = 0; i < workers; ++i)
        descend(local[i], toward_own_minimum(i, local[i]), unequal_peers.rate);
      if (step % every == 0) {
        doubles moved(outer.size());
        for (const auto& theta : local)
          for (std::size_t k = 0; k < outer.size(); ++k)
            moved[k] += (outer[k] - theta[k]) / workers;
        descend(outer, moved, outer_rate);
        local.assign(workers, outer);
      }
      for (std::size_t i = 0; i < workers; ++i)
        for (std::size_t k = 0; k < outer.size(); ++k)
          ASSERT_NEAR(run.theta(i)[k], local[i][k], 1e-12)
            << "worker " << i << ", step " << step << ", outer rate " << outer_rate;
    }
  }
}

TEST(Diloco, WithOuterRateOneTakesTheMeanOfTheWorkers) {
  constexpr std::uint64_t every = 3;
  lock_step run{diloco(every), 2, unequal_peers};
  std::vector<doubles> local(2, unequal_peers.start);
  for (std::uint64_t step = 1; step <= 4 * every; ++step) {
    run.step();
    for (std::size_t i : {0, 1})
      descend(local[i], toward_own_minimum(i, local[i]), unequal_peers.rate);
    for (std::size_t k : {0, 1}) {
      if (step % every == 0)
        local[0][k] = local[1][k] = (local[0][k] + local[1][k]) / 2;
      for (std::size_t i : {0, 1})
        ASSERT_NEAR(run.theta(i)[k], local[i][k], 1e-12) << "worker " << i << ", step " << step;
    }
  }
}

TEST(Strategies, DefineWhatAllPeersOfAnEpochShare) {
  EXPECT_TRUE(collaborative(64).peers_share_state());
  EXPECT_TRUE(delayed_gradients(64).peers_share_state());
  EXPECT_FALSE(local_updates({}).peers_share_state());
  EXPECT_TRUE(find_strategy("diloco")->make({}).peers_share_state());
}

TEST(Strategies, SayInTheirRowsWhatTheyDo) {
  for (const auto& row : strategy_table()) {
    auto table = row.make({});
    EXPECT_TRUE(row.help.ends_with(".")) << row.name;
    bool parameters = table.averages.what == lane_content::parameters;
    EXPECT_EQ(parameters, row.averages_parameters()) << row.name;
    EXPECT_EQ(row.steps_each_pass(), table.steps_locally()) << row.name;
  }
}

TEST(Strategies, FollowTheirSettings) {
  const auto& made = [](const char* name, const strategy_settings& s) {
    return find_strategy(name)->make(s);
  };
  EXPECT_EQ(made("collaborative", {.target_batch = 64}), collaborative(64));
  EXPECT_EQ(made("collaborative", {.target_batch = 64, .delay_gradients = true}),
            delayed_gradients(64));
  EXPECT_TRUE(made("local-updates", {.delay_state = false}).averages.overlap.blocks());
  auto timed = made("decentralized-adam",
                    {.steps_period = 5, .time_period = 700ms, .statistics = {"exp_avg_sq"}});
  EXPECT_EQ(timed.averages.due.every, 5U);
  EXPECT_EQ(timed.averages.due.grid, 700U);
  EXPECT_EQ(timed.averages.statistics, std::vector<std::string>{"exp_avg_sq"});
  for (const auto& row : strategy_table())
    if (row.averages_parameters()) {
      EXPECT_TRUE(row.make({.average_gradients = true}).averages.gradients) << row.name;
      EXPECT_FALSE(row.make({}).averages.gradients) << row.name;
    }
}

TEST(Strategies, StandWithTheirNumbers) {
  auto text = [](std::string_view written) {
    auto choice = strategy_choice::parse(written);
    return choice ? choice->text() : choice.error().detail;
  };
  EXPECT_EQ(text("diloco"), "diloco");
  EXPECT_EQ(text("diloco:steps=100"), "diloco") << "the default";
  EXPECT_EQ(text("diloco: outer-rate=1 ,steps=25"), "diloco:steps=25,outer-rate=1");
  EXPECT_THAT(text("diloco:steps=0"),
              AllOf(HasSubstr("between 1 and"), HasSubstr("the default is 100")));
  EXPECT_THAT(text("diloco:outer-momentum=1"), HasSubstr("between 0 and 0.9999"));
  EXPECT_THAT(text("diloco:alpha=1.5"), HasSubstr("between 0 and 0.9999"));
  EXPECT_THAT(text("diloco:outer-rate=nan"), HasSubstr("no finite number"));
  EXPECT_THAT(text("diloco:step=5"), HasSubstr("the nearest is steps"));
  EXPECT_THAT(text("collaborative:steps=5"), HasSubstr("it takes none"));
  EXPECT_THAT(text("dilco"), HasSubstr("the nearest is diloco"));
  EXPECT_THAT(strategy_help(), HasSubstr("diloco:steps=100,outer-rate=0.7"));
}

} // namespace
} // namespace waggle
