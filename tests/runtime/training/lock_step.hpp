#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/training/flight.hpp"

namespace waggle {

using doubles = std::vector<double>;

/// Peers that train in lock step, in memory. Carries out the decisions of `plan_next`; makes none
/// itself.
class lock_step {
public:
  struct options {
    doubles start;
    double rate = 0.1;         // of the inner optimizer, plain SGD
    std::uint64_t latency = 0; // own steps from the start of a round to its end
    double outer_rate = 1;
    std::function<doubles(std::size_t peer, const doubles& theta)> gradient;
  };

  lock_step(strategy table, std::size_t peers, options how)
    : table_(std::move(table)), how_(std::move(how)) {
    for (std::size_t i = 0; i < peers; ++i)
      peers_.push_back(peer{{}, how_.start, how_.start, doubles(how_.start.size()), {}, {}});
  }

  /// One micro-step of every peer, and everything that follows from it.
  void step() {
    ++steps_;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      offer(i);
    deliver();
    // All peers decide on their present state, as they would if they acted at the same time.
    plan_all();
    while (deliver())
      plan_all();
  }

  [[nodiscard]] const doubles& theta(std::size_t peer) const { return peers_[peer].theta; }
  [[nodiscard]] std::uint64_t epochs() const { return peers_.front().epochs; }
  /// Samples in updates, and in the round that runs.
  [[nodiscard]] std::uint64_t samples(std::size_t peer) const {
    return peers_[peer].used + peers_[peer].it.in_flight();
  }

private:
  struct round {
    doubles snapshot;
    doubles sent;
    doubles mean;
  };
  struct peer {
    flight it;
    doubles theta;
    doubles anchor;
    doubles accumulated; // gradients, summed
    round flies;
    std::uint64_t toward_boundary = 0; // samples
    std::uint64_t used = 0;
    std::uint64_t epochs = 0;
    std::uint64_t boundary = 0; // own steps at the end of the last epoch
  };

  void offer(std::size_t i) {
    auto& p = peers_[i];
    auto gradient = how_.gradient(i, p.theta);
    ++p.toward_boundary;
    if (table_.steps_locally())
      descend(p, gradient);
    else
      for (std::size_t k = 0; k < p.accumulated.size(); ++k)
        p.accumulated[k] += gradient[k];
    if (table_.averages.what == lane_content::parameters)
      ++p.used;
  }

  void plan_all() {
    std::uint64_t swarm = 0;
    for (const auto& p : peers_)
      swarm += p.toward_boundary;
    for (auto& p : peers_) {
      situation now{.own_steps = steps_,
                    .own_samples = p.toward_boundary,
                    .swarm_samples = swarm,
                    .boundary_steps = steps_ - p.boundary,
                    .in_group = true,
                    .members = static_cast<std::uint32_t>(peers_.size()),
                    .epochs_done = p.epochs};
      // Just before a point of any grid when the run begins.
      now.boundary_time = table_.averages.due.grid + p.boundary - 1;
      now.time = table_.averages.due.grid + steps_ - 1;
      now.round = p.it.round();
      now.last_epoch = p.it.last_epoch();
      auto next = plan_next(table_.averages, now);
      if (next.merge)
        merge(p);
      if (next.begin)
        begin(p);
    }
  }

  void end_epoch(peer& p) const {
    ++p.epochs;
    p.boundary = steps_;
  }

  void descend(peer& p, const doubles& gradient) const {
    for (std::size_t k = 0; k < p.theta.size(); ++k)
      p.theta[k] -= how_.rate * gradient[k];
  }

  void begin(peer& p) {
    auto samples = std::exchange(p.toward_boundary, 0);
    contribution given{.epoch = epoch_id{p.epochs},
                       .own = std::make_shared<float_vector>(), // the values are in `flies`
                       .samples = table_.averages.what == lane_content::parameters ? 0 : samples};
    p.it.hold(std::move(given), steps_);
    (void)p.it.send();
    if (!table_.averages.overlap.blocks())
      end_epoch(p);
    p.flies.snapshot = p.flies.sent = p.theta;
    for (std::size_t k = 0; k < p.theta.size(); ++k)
      switch (table_.averages.what) {
        case lane_content::gradient:
          p.flies.sent[k] = samples ? p.accumulated[k] / static_cast<double>(samples) : 0;
          p.accumulated[k] = 0;
          break;
        case lane_content::parameters:
          break;
        case lane_content::progress:
          p.flies.sent[k] = p.anchor[k] - p.theta[k];
          break;
      }
  }

  void merge(peer& p) {
    p.used += p.it.settle();
    if (table_.averages.overlap.blocks())
      end_epoch(p);
    const auto& how = table_.averages.merge;
    for (std::size_t k = 0; k < p.theta.size(); ++k) {
      auto mean = p.flies.mean[k];
      auto& x = p.theta[k];
      switch (how.how) {
        case lane_merge::rule::optimizer_step:
          x -= how_.rate * mean;
          break;
        case lane_merge::rule::add_change:
          x += mean - p.flies.snapshot[k];
          break;
        case lane_merge::rule::blend:
          p.anchor[k] -= mean;
          x += how.blend_share(peers_.size()) * (p.anchor[k] - x);
          break;
        case lane_merge::rule::outer_step:
          p.anchor[k] -= how_.outer_rate * mean;
          x += p.anchor[k] - p.flies.snapshot[k];
          break;
      }
    }
  }

  /// Ends the round that is due. Returns whether there was one.
  bool deliver() {
    const auto& first = peers_.front().it.round();
    if (!first || first->over || steps_ < first->begun + how_.latency)
      return false;
    auto n = static_cast<double>(peers_.size());
    doubles mean(how_.start.size());
    for (const auto& p : peers_)
      for (std::size_t k = 0; k < mean.size(); ++k)
        mean[k] += p.flies.sent[k] / n;
    for (auto& p : peers_) {
      p.flies.mean = mean;
      p.it.end({}, false);
      if (table_.averages.overlap.blocks())
        merge(p);
    }
    return true;
  }

  strategy table_;
  options how_;
  std::vector<peer> peers_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
