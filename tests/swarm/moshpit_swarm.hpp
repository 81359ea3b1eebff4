#pragma once

// Shared by the tests of swarms that average in many small groups.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

/// Peers that train with decentralized-adam, on a grid of the swarm's time.
struct moshpit_swarm : trainers {
  /// The tensors of a learner.
  static constexpr std::size_t parameters = 0;
  static constexpr std::size_t squares = 2; // exp_avg_sq

  moshpit_swarm(std::uint64_t seed, std::size_t target, milliseconds grid)
    : trainers(seed, {.delay_max = 5ms}), target_(target), grid_(grid) {}

  index join(const std::string& bits = "", member_mode kind = member_mode::node) {
    auto n = sim.size();
    auto config = endless(n + 1);
    auto& training = config.training->training;
    training.strategy = "decentralized-adam";
    training.how.statistics = {"exp_avg_sq"};
    training.how.steps_period = 1;
    training.how.time_period = grid_;
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
    learners_.push_back(std::make_shared<learner*>(nullptr));
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
  std::uint64_t tolerance = 1;              // of the peers that join from now on
  std::function<void(node_config&)> adjust; // of the peers that join from now on; empty: none
  index first_living() { return sim.living().front(); }

  /// While a test changes parameters itself.
  void freeze(bool on) { *frozen_ = on; }
  std::vector<float> values_of(index i, std::size_t tensor) {
    std::vector<float> values(64);
    (*learners_[i])->read_tensor(tensor, values);
    return values;
  }
  std::vector<float> parameters_of(index i) { return values_of(i, parameters); }
  /// Parameters that differ from peer to peer, drawn from one distribution.
  void scatter(random_source& random) {
    for (auto i : sim.living()) {
      std::vector<float> values(64);
      for (auto& v : values)
        v = static_cast<float>(2 * random.unit() - 1);
      (*learners_[i])->write_tensor(parameters, values);
    }
  }
  /// The same for the means of squares, which are not negative.
  void scatter_squares(random_source& random) {
    for (auto i : sim.living()) {
      std::vector<float> values(64);
      for (auto& v : values)
        v = static_cast<float>(random.unit());
      (*learners_[i])->write_tensor(squares, values);
    }
  }
  std::vector<double> mean(std::size_t tensor = parameters) {
    std::vector<double> out(64);
    auto living = sim.living();
    for (auto i : living) {
      auto values = values_of(i, tensor);
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] += values[d] / static_cast<double>(living.size());
    }
    return out;
  }
  /// The mean squared distance of a peer's tensor from the mean of all.
  double spread(std::size_t tensor = parameters) {
    auto middle = mean(tensor);
    double sum = 0;
    auto living = sim.living();
    for (auto i : living) {
      auto values = values_of(i, tensor);
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
  /// The time `after` the next point of the grid.
  [[nodiscard]] steady_time next_point(milliseconds after) {
    return sim.network().now() + until_grid() + after;
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
  /// The sizes of the groups whose rounds ended since the last call. `shrunk`: also of those that
  /// lost members, without these.
  std::multiset<std::size_t> groups(bool shrunk = false) {
    std::map<round_id, std::size_t> sizes;
    for (index i = 0; i < sim.size(); ++i) {
      auto& rounds = sim[i].rounds;
      for (; seen_[i] < rounds.size(); ++seen_[i]) {
        const auto& round = rounds[seen_[i]];
        if (round.outcome == round_outcome::complete
            || (shrunk && round.outcome == round_outcome::shrunk))
          sizes[round.round] = round.contributors.size();
      }
    }
    std::multiset<std::size_t> out;
    for (const auto& [id, size] : sizes)
      out.insert(size);
    return out;
  }

  /// What the peers that train do in some time: means over these peers, and over their rounds.
  struct measured {
    double epochs = 0;
    double averaged = 0;   // share of the epochs that ended with a mean
    double stall = 0;      // seconds of an epoch in which a peer makes no pass
    double all_reduce = 0; // seconds of a round
    double helped = 0;     // share of the complete rounds in which an auxiliary took part
  };
  measured measure(std::chrono::seconds time) {
    std::map<index, std::pair<training_status, std::size_t>> before;
    for (auto i : sim.living())
      before[i] = {status_of(i), sim[i].rounds.size()};
    sim.run_for(time);
    measured out;
    double peers = 0;
    double rounds = 0;
    double complete = 0;
    for (const auto& [i, begin] : before) {
      const auto& [then, first] = begin;
      auto now = status_of(i);
      if (now.steps == then.steps)
        continue; // an auxiliary
      ++peers;
      auto epochs = static_cast<double>(now.epoch.value() - then.epoch.value());
      auto trained = static_cast<double>(now.steps - then.steps) * seconds_of(step_interval);
      out.epochs += epochs;
      out.stall += (seconds_of(time) - trained) / epochs;
      out.averaged += static_cast<double>(now.rounds_complete - then.rounds_complete) / epochs;
      for (auto r = first; r < sim[i].rounds.size(); ++r) {
        const auto& report = sim[i].rounds[r];
        ++rounds;
        out.all_reduce += report.allreduce_seconds;
        if (report.outcome != round_outcome::complete)
          continue;
        ++complete;
        out.helped += report.group_size > report.contributors.size() ? 1 : 0;
      }
    }
    return {out.epochs / peers, out.averaged / peers, out.stall / peers, out.all_reduce / rounds,
            out.helped / complete};
  }

private:
  [[nodiscard]] milliseconds until_grid() const {
    return grid_ - milliseconds{static_cast<std::int64_t>(1000 * sim.seconds())} % grid_;
  }

  std::size_t target_;
  milliseconds grid_;
  std::shared_ptr<bool> frozen_ = std::make_shared<bool>(false);
  std::vector<std::shared_ptr<learner*>> learners_;
  std::map<index, std::size_t> seen_;
};

/// Looks for peers that train on states which are too old.
class age_watch {
public:
  explicit age_watch(moshpit_swarm& swarm) : swarm_(swarm) {}

  /// A peer makes no step with a state that is further behind the run than the tolerance once it
  /// knows of that, and it knows by the next look. So what counts are steps since the last look
  /// with a state that was too old then already. The run's epoch is the one that two others have
  /// reached with which the peer has averaged (see run_group), on its side of a split.
  /// @return the peers that made such steps.
  std::vector<index> look(const std::set<index>& cut_off = {}) {
    std::map<index, training_status> now;
    std::map<digest, std::size_t> histories;
    for (auto i : swarm_.sim.living()) {
      now[i] = swarm_.status_of(i);
      ++histories[now[i].past.branch];
    }
    // A newcomer that was cut off from the beginning trains another history until it reaches the
    // run.
    auto run =
      std::max_element(histories.begin(), histories.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
    std::vector<index> too_old;
    for (const auto& [i, s] : now) {
      auto& before = seen_[i];
      note_merges(i, s, before);
      bool trained = std::exchange(before.steps, s.steps) < s.steps;
      bool in_run = s.past.branch == run;
      if (trained && in_run && s.epoch.value() < before.required)
        too_old.push_back(i);
      std::vector<std::uint64_t> all;
      std::vector<std::uint64_t> known;
      for (const auto& [k, other] : now) {
        bool works =
          other.phase == trainer_phase::training || other.phase == trainer_phase::averaging;
        if (k == i || !works || other.past.branch != run
            || cut_off.contains(k) != cut_off.contains(i))
          continue;
        all.push_back(other.epoch.value());
        if (before.known.contains(swarm_.sim[k].self->id()))
          known.push_back(other.epoch.value());
      }
      auto& reached = known.size() > 1 ? known : all;
      std::sort(reached.rbegin(), reached.rend());
      auto newest = reached.size() > 1 ? reached[1] : 0;
      before.required = newest - std::min(newest, swarm_.tolerance);
      if (trained && in_run)
        longest_alone = std::max(longest_alone, s.epoch.value() - before.merged);
    }
    return too_old;
  }
  std::uint64_t longest_alone = 0; // epochs that a peer trained without a mean or a download

private:
  struct seen {
    std::uint64_t steps = 0;
    std::uint64_t required = 0; // the lowest epoch that is within the tolerance
    std::uint64_t merged = 0;   // the epoch of the last mean with others, or downloaded state
    std::uint64_t downloads = 0;
    std::size_t rounds = 0;
    std::set<peer_id> known;
  };

  void note_merges(index i, const training_status& s, seen& before) {
    bool merged = before.steps == 0 || s.state_downloads != before.downloads;
    before.downloads = s.state_downloads;
    for (const auto& rounds = swarm_.sim[i].rounds; before.rounds < rounds.size();
         ++before.rounds) {
      const auto& round = rounds[before.rounds];
      if (round.outcome == round_outcome::failed || round.contributors.size() < 2)
        continue;
      merged = true;
      before.known.insert(round.contributors.begin(), round.contributors.end());
    }
    if (merged)
      before.merged = s.epoch.value();
  }

  moshpit_swarm& swarm_;
  std::map<index, seen> seen_;
};

} // namespace waggle::testing
