#pragma once

// Shared by the tests of swarms that average in many small groups.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

/// Peers that train with decentralized-adam, on a grid of the swarm's time.
struct moshpit_swarm : trainers {
  static constexpr std::uint64_t tolerance = 1;

  moshpit_swarm(std::uint64_t seed, std::size_t target, milliseconds grid)
    : trainers(seed, {.delay_max = 5ms}), target_(target), grid_(grid) {}

  index join(const std::string& bits = "", member_mode kind = member_mode::node) {
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
    config.client_mode = kind == member_mode::client;
    auto& groups = config.averaging->matchmaking;
    groups.mode = kind;
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
    if (adjust)
      adjust(config);
    return add(std::move(config), n == 0 ? std::vector<index>{} : std::vector{first_living()});
  }
  milliseconds step_interval = 2s;
  std::function<void(node_config&)> adjust; // of the peers that join from now on; empty: none
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

} // namespace waggle::testing
