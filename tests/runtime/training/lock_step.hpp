#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/training/flight_ledger.hpp"
#include "runtime/training/plan.hpp"

namespace waggle {

using doubles = std::vector<double>;

/// Peers that train in lock step, in memory. Carries out the decisions of `on_offer` and
/// `on_round`; makes none itself.
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
      peers_.push_back(
        peer{flight_ledger{table_}, how_.start, how_.start, doubles(how_.start.size()), {}, {}});
  }

  /// One micro-step of every peer, and everything that follows from it.
  void step() {
    ++steps_;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      offer(i);
    deliver();
    // All peers decide on their present state, as they would if they acted at the same time.
    plan_all(true);
    while (deliver())
      plan_all(false);
  }

  [[nodiscard]] const doubles& theta(std::size_t peer) const { return peers_[peer].theta; }
  [[nodiscard]] std::uint64_t epochs() const { return peers_.front().epochs; }
  [[nodiscard]] const flight_ledger& samples(std::size_t peer) const { return peers_[peer].ledger; }

private:
  struct round {
    doubles snapshot;
    doubles sent;
    doubles mean;
  };
  struct peer {
    flight_ledger ledger;
    doubles theta;
    doubles anchor;
    doubles accumulated; // gradients, summed
    doubles offered;     // the gradient of this micro-step
    round flies;
    std::uint64_t epochs = 0;
    std::uint64_t boundary = 0; // own steps at the end of the last epoch
  };

  void offer(std::size_t i) {
    auto& p = peers_[i];
    p.offered = how_.gradient(i, p.theta);
    if (table_.inner == inner_rule::hold)
      for (std::size_t k = 0; k < p.accumulated.size(); ++k)
        p.accumulated[k] += p.offered[k];
    p.ledger.add(1);
  }

  void plan_all(bool offered) {
    std::uint64_t swarm = 0;
    for (const auto& p : peers_)
      swarm += p.ledger.toward_boundary();
    for (auto& p : peers_) {
      situation now;
      now.offered = offered;
      now.own_steps = steps_;
      now.own_samples = p.ledger.toward_boundary();
      now.swarm_samples = swarm;
      now.boundary_steps = steps_ - p.boundary;
      now.in_group = true;
      now.members = static_cast<std::uint32_t>(peers_.size());
      now.epochs_done = p.epochs;
      // Just before a point of any grid when the run begins.
      now.boundary_time = table_.averages.due.grid + p.boundary - 1;
      now.time = table_.averages.due.grid + steps_ - 1;
      now.round = p.ledger.round();
      now.last_epoch = p.ledger.last_epoch();
      for (const auto& next : on_offer(table_, now))
        carry_out(p, next);
    }
  }

  void carry_out(peer& p, const action& next) {
    switch (next.what) {
      case action::kind::inner_step:
        descend(p, p.offered);
        p.ledger.use_accumulated();
        break;
      case action::kind::begin:
        begin(p);
        break;
      case action::kind::merge:
        merge(p);
        p.ledger.settle();
        break;
      case action::kind::end_epoch:
        ++p.epochs;
        p.boundary = steps_;
        break;
      case action::kind::give_up:
      case action::kind::finish:
        FAIL() << "no round fails and there is no last epoch";
        break;
      case action::kind::await:
      case action::kind::hold:
        break;
    }
  }

  void descend(peer& p, const doubles& gradient) const {
    for (std::size_t k = 0; k < p.theta.size(); ++k)
      p.theta[k] -= how_.rate * gradient[k];
  }

  void begin(peer& p) {
    auto samples = p.ledger.begin(steps_, p.epochs);
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
    const auto& first = peers_.front().ledger.round();
    if (!first || first->outcome || steps_ < first->begun + how_.latency)
      return false;
    auto n = static_cast<double>(peers_.size());
    doubles mean(how_.start.size());
    for (const auto& p : peers_)
      for (std::size_t k = 0; k < mean.size(); ++k)
        mean[k] += p.flies.sent[k] / n;
    for (auto& p : peers_) {
      p.flies.mean = mean;
      round_facts facts;
      facts.contributors = static_cast<std::uint32_t>(peers_.size());
      facts.own_samples = p.ledger.in_flight();
      p.ledger.end(on_round(table_.averages.what, facts));
    }
    return true;
  }

  strategy table_;
  options how_;
  std::vector<peer> peers_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
