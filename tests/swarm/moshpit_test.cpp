// Parameters that are averaged in many small groups: how fast the peers of a large swarm approach
// each other, and that no peer trains on a state that is too old, whoever joins or dies.

#include <numeric>

#include "runtime/matchmaking/group_key.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t tolerance = 1;

/// Peers that train with decentralized-adam, on a grid of the swarm's time.
struct moshpit_swarm : trainers {
  moshpit_swarm(std::uint64_t seed, std::size_t target, milliseconds grid)
    : trainers(seed, {.delay_max = 5ms}), target_(target), grid_(grid) {}

  index join(const std::string& bits = "") {
    auto n = sim.size();
    auto config = endless(n + 1);
    auto& training = config.training->training;
    training.strategy = "decentralized-adam";
    training.how.statistics = {"exp_avg_sq"};
    training.how.steps_period = 1;
    training.how.time_period = static_cast<std::uint64_t>(grid_.count());
    training.schedule.peak = 0.01;
    training.step_interval = step_interval;
    training.many_groups = true;
    training.epoch_difference_max = tolerance;
    auto& groups = config.averaging->matchmaking;
    groups.target_group_size = target_;
    groups.initial_group_bits = bits;
    groups.elastic_bits = bits.empty();
    groups.min_matchmaking_time = 1s;
    groups.request_timeout = 500ms;
    learners_.push_back(std::make_shared<local_learner*>(nullptr));
    config.training->make_learner = [slot = learners_.back(), frozen = frozen_,
                                     n]() -> result<std::unique_ptr<learner>> {
      auto made = make_toy_learner(
        {.parameters = 64, .micro_batch = 4, .data_seed = n + 1, .adam = true, .frozen = frozen});
      *slot = made.get();
      return std::unique_ptr<learner>{std::move(made)};
    };
    return add(std::move(config), n == 0 ? std::vector<index>{} : std::vector{first_living()});
  }
  milliseconds step_interval = 2s;
  index first_living() { return sim.living().front(); }

  /// While a test changes parameters itself.
  void freeze(bool on) { *frozen_ = on; }
  std::vector<float> parameters_of(index i) {
    std::vector<float> values(64);
    (*learners_[i])->read_tensor(0, values);
    return values;
  }
  /// Parameters that differ from peer to peer, drawn from one distribution.
  void scatter(random_source& random) {
    for (auto i : sim.living()) {
      std::vector<float> values(64);
      for (auto& v : values)
        v = static_cast<float>(2 * random.unit() - 1);
      (*learners_[i])->write_tensor(0, values);
    }
  }
  std::vector<double> mean() {
    std::vector<double> out(64);
    auto living = sim.living();
    for (auto i : living) {
      auto values = parameters_of(i);
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] += values[d] / static_cast<double>(living.size());
    }
    return out;
  }
  /// The mean squared distance of a peer's parameters from their mean.
  double spread() {
    auto middle = mean();
    double sum = 0;
    auto living = sim.living();
    for (auto i : living) {
      auto values = parameters_of(i);
      for (std::size_t d = 0; d < values.size(); ++d)
        sum += (values[d] - middle[d]) * (values[d] - middle[d]);
    }
    return sum / static_cast<double>(living.size());
  }

  bool all_train() {
    for (auto i : sim.living()) {
      auto s = status_of(i);
      bool works = s.phase == trainer_phase::training || s.phase == trainer_phase::averaging;
      // In a large swarm not all peers are connected with all others, and others count only then.
      if (!works || s.group_size < 2 || s.group_size > sim.living().size())
        return false;
    }
    return true;
  }
  /// Whether all train within this time. Asking them is expensive, so they are not asked after
  /// every event.
  bool begin(milliseconds limit) {
    for (auto waited = 0ms; waited < limit && !all_train(); waited += 250ms)
      sim.run_for(250ms);
    return all_train();
  }
  /// From just before the next round to `after` it.
  void run_to_grid(milliseconds after) { sim.run_for(until_grid() + after); }
  /// The same, with a look at the epochs four times a second: no peer may train on a state that is
  /// older than the tolerance allows, also while rounds run.
  void watch_to_grid(milliseconds after) {
    auto until = sim.network().now() + until_grid() + after;
    while (sim.network().now() < until) {
      sim.run_for(std::min<std::chrono::nanoseconds>(250ms, until - sim.network().now()));
      EXPECT_EQ(too_old(), 0U) << "after " << sim.seconds() << " s" << picture(sim);
    }
  }
  /// How many of the living peers train more epochs behind the second-newest one than the tolerance
  /// allows.
  std::size_t too_old() {
    std::vector<std::uint64_t> reached;
    std::vector<std::uint64_t> training;
    for (auto i : sim.living()) {
      auto s = status_of(i);
      reached.push_back(s.epoch.value());
      if (s.phase == trainer_phase::training || s.phase == trainer_phase::averaging)
        training.push_back(s.epoch.value());
    }
    std::nth_element(reached.begin(), reached.begin() + 1, reached.end(), std::greater<>{});
    return static_cast<std::size_t>(
      std::count_if(training.begin(), training.end(),
                    [&](std::uint64_t epoch) { return epoch + tolerance < reached[1]; }));
  }
  /// The sizes of the groups whose rounds ended since the last call.
  std::multiset<std::size_t> groups() {
    std::map<round_id, std::size_t> sizes;
    for (index i = 0; i < sim.size(); ++i) {
      auto& rounds = sim[i].rounds;
      for (; seen_[i] < rounds.size(); ++seen_[i])
        if (rounds[seen_[i]].outcome == round_outcome::complete)
          sizes[rounds[seen_[i]].round] = rounds[seen_[i]].group_size;
    }
    std::multiset<std::size_t> out;
    for (const auto& [id, size] : sizes)
      out.insert(size);
    return out;
  }

private:
  [[nodiscard]] milliseconds until_grid() const {
    return grid_ - milliseconds{static_cast<std::int64_t>(1000 * sim.seconds())} % grid_;
  }

  std::size_t target_;
  milliseconds grid_;
  std::shared_ptr<bool> frozen_ = std::make_shared<bool>(false);
  std::vector<std::shared_ptr<local_learner*>> learners_;
  std::map<index, std::size_t> seen_;
};

// Moshpit SGD (arXiv:2103.03239): a full grid of side M and dimension d holds the exact mean after
// d rounds, and k equal groups of N peers leave (k - 1)/(N - 1) of the squared distance.
TEST(MoshpitTraining, SixtyFourPeersInGroupsOfEightHoldOneMeanAfterTwoRounds) {
  moshpit_swarm swarm{1, 8, 3s};
  swarm.step_interval = 3s;
  swarm.freeze(true);
  for (std::size_t i = 0; i < 64; ++i)
    swarm.join(bucket_digits(static_cast<std::uint32_t>(i % 8), 8));
  ASSERT_TRUE(swarm.begin(2500ms)) << picture(swarm.sim);
  random_source random{5};
  swarm.scatter(random);
  auto mean = swarm.mean();
  auto begin = swarm.spread();
  EXPECT_GT(begin, 1.0);
  auto began_at = swarm.status_of(0).epoch.value();
  swarm.watch_to_grid(1s);
  EXPECT_EQ(swarm.groups().count(8), 8U);
  EXPECT_NEAR(swarm.spread() / begin / (7.0 / 63), 1.0, 0.15);
  swarm.watch_to_grid(1s);
  EXPECT_EQ(swarm.groups().count(8), 8U);
  EXPECT_LT(swarm.spread() / begin, 1e-12) << "of float32 values";
  auto after = swarm.mean();
  for (std::size_t d = 0; d < mean.size(); ++d)
    EXPECT_NEAR(after[d], mean[d], 1e-6);

  // With training, and with peers that die and join before a round: no worse than groups drawn at
  // random.
  swarm.scatter(random);
  swarm.freeze(false);
  for (int dead = 0; dead < 5; ++dead) {
    auto living = swarm.sim.living();
    swarm.sim.crash(living[1 + random.below(living.size() - 1)], random.below(2) == 0);
  }
  swarm.join(bucket_digits(static_cast<std::uint32_t>(random.below(8)), 8));
  auto before = swarm.spread();
  swarm.watch_to_grid(2s);
  auto sizes = swarm.groups();
  auto peers = static_cast<double>(swarm.sim.living().size());
  auto grouped = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  EXPECT_GT(grouped, 0.7 * peers) << "the others missed those that died without a word";
  auto alone = peers - grouped; // each a group of one
  auto formula = (static_cast<double>(sizes.size()) + alone - 1) / (peers - 1);
  EXPECT_LT(swarm.spread() / before, 1.25 * formula);
  for (int further = 0; further < 2; ++further)
    swarm.watch_to_grid(2s);
  EXPECT_GE(swarm.status_of(0).epoch.value(), began_at + 5) << "each grid point ends an epoch";
  expect_rounds_kept_the_contract(swarm.sim);
}

// If every peer draws a new bucket in every round: (r - 1)/N + r/N² for N peers in r groups.
TEST(MoshpitTraining, RandomGroupsApproachEachOtherAtTheRateOfTheFormula) {
  constexpr std::size_t peers = 32;
  constexpr std::size_t groups = 4;
  moshpit_swarm swarm{2, 32, 6s};
  swarm.step_interval = 3s;
  swarm.freeze(true);
  for (std::size_t i = 0; i < peers; ++i)
    swarm.join("00");
  ASSERT_TRUE(swarm.begin(5s)) << picture(swarm.sim);
  random_source random{6};
  double sum = 0;
  constexpr int rounds = 4;
  for (int round = 0; round < rounds; ++round) {
    swarm.scatter(random);
    for (auto i : swarm.sim.living()) {
      auto bits = bucket_digits(static_cast<std::uint32_t>(random.below(groups)), groups);
      ASSERT_TRUE(
        swarm.sim.ask<group_bits>(swarm.sim[i].node.parts.matchmaker, set_group_bits{bits}));
    }
    auto before = swarm.spread();
    swarm.run_to_grid(2s);
    EXPECT_LE(swarm.groups().size(), groups);
    sum += swarm.spread() / before;
  }
  double n = peers;
  double r = groups;
  EXPECT_NEAR(sum / rounds / ((r - 1) / n + r / (n * n)), 1.0, 0.2);
}

// Two groups, and one bucket: which peers meet depends on who is found first.
TEST(MoshpitTraining, APairOfGroupsMixesToo) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit_swarm swarm{seed, 3, 4s};
    swarm.freeze(true);
    for (int i = 0; i < 6; ++i)
      swarm.join();
    ASSERT_TRUE(swarm.begin(8s)) << picture(swarm.sim);
    random_source random{seed};
    swarm.scatter(random);
    auto begin = swarm.spread();
    for (int round = 0; round < 12; ++round)
      swarm.run_to_grid(2s);
    EXPECT_LT(swarm.spread() / begin, 1e-3);
  }
}

// Peers join, are killed and cut off while they train. At every moment, each peer that trains is
// within the tolerance of the run, except while the news of an epoch is on its way.
/// Returns how often a peer was seen behind the run.
int run_with_churn(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int news = 3; // ticks: a report, and a pass that is under way
  random_source random{seed};
  moshpit_swarm swarm{seed, 3, 1500ms};
  swarm.step_interval = 100ms;
  auto& sim = swarm.sim;
  for (int i = 0; i < 10; ++i)
    swarm.join();
  std::map<index, std::uint64_t> steps;
  std::map<index, int> behind; // for so many ticks
  int seen_behind = 0;
  for (int tick = 0; tick < 200; ++tick) {
    if (tick % 60 == 30)
      sim.crash(sim.living()[1 + random.below(sim.living().size() - 1)], random.below(2) == 0);
    if (tick % 60 == 40)
      swarm.join();
    if (tick == 70) {
      auto living = sim.living();
      random.shuffle(living);
      sim.network().partition({living.begin(), living.begin() + 3});
    }
    if (tick == 120)
      sim.network().heal();
    sim.run_for(200ms);
    std::map<index, training_status> now;
    std::map<digest, std::vector<std::uint64_t>> histories;
    for (auto i : sim.living()) {
      now[i] = swarm.status_of(i);
      histories[now[i].past.branch].push_back(now[i].epoch.value());
    }
    // A newcomer that was cut off from the beginning trains another history until it reaches the
    // run.
    auto run =
      std::max_element(histories.begin(), histories.end(), [](const auto& a, const auto& b) {
        return a.second.size() < b.second.size();
      });
    auto& reached = run->second;
    std::sort(reached.rbegin(), reached.rend());
    bool split = tick >= 70 && tick < 135; // until the links are back
    for (const auto& [i, s] : now) {
      bool trained = s.steps > steps[i];
      steps[i] = s.steps;
      bool is_behind = s.past.branch == run->first && s.epoch.value() + tolerance < reached[1];
      behind[i] = is_behind && !split ? behind[i] + 1 : 0;
      seen_behind += behind[i] > 0 ? 1 : 0;
      EXPECT_FALSE(trained && behind[i] > news)
        << "peer " << i << " at epoch " << s.epoch.value() << " of " << reached[1] << " after "
        << sim.seconds() << " s" << picture(sim);
    }
    if (::testing::Test::HasFailure())
      return seen_behind;
  }
  EXPECT_TRUE(swarm.begin(20s)) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (auto i : sim.living()) {
    auto s = swarm.status_of(i);
    expect_samples_accounted(s);
    EXPECT_GT(s.rounds_complete + s.rounds_shrunk, 1U) << "peer " << i << picture(sim);
  }
  return seen_behind;
}

TEST(MoshpitTraining, NoPeerTrainsOnAStateThatIsTooOld) {
  int seen_behind = 0;
  for (std::uint64_t seed = 1; seed <= 2 && !HasFailure(); ++seed)
    seen_behind += run_with_churn(seed);
  EXPECT_GT(seen_behind, 0) << "the newcomers, at least";
}

} // namespace
} // namespace waggle::testing
