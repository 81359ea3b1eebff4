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
    std::function<doubles(std::size_t peer, const doubles& theta)> gradient;
  };

  lock_step(strategy table, std::size_t peers, options how)
    : table_(std::move(table)), how_(std::move(how)) {
    for (std::size_t i = 0; i < peers; ++i)
      peers_.push_back(peer{flight_ledger{table_},
                            how_.start,
                            how_.start,
                            doubles(how_.start.size()),
                            {},
                            std::vector<round>(table_.lanes.size())});
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
    doubles snapshot; // of the lane's content
    doubles sent;
    doubles mean;
  };
  struct peer {
    flight_ledger ledger;
    doubles theta;
    doubles anchor;
    doubles accumulated; // gradients, summed
    doubles offered;     // the gradient of this micro-step
    std::vector<round> rounds;
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
      now.lanes = p.ledger.lanes();
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
        begin(p, next.lane);
        break;
      case action::kind::merge:
        merge(p, next.lane);
        p.ledger.settle(next.lane);
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

  /// The elements of a lane's fragment: [first, last).
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(const lane& lane) const {
    auto size = how_.start.size();
    return {size * lane.part.index / lane.part.count,
            size * (lane.part.index + 1) / lane.part.count};
  }

  void begin(peer& p, std::size_t index) {
    const auto& lane = table_.lanes[index];
    auto& flies = p.rounds[index];
    auto samples = p.ledger.begin(index, steps_, p.epochs);
    auto [first, last] = range(lane);
    flies.snapshot.assign(p.theta.begin() + first, p.theta.begin() + last);
    flies.sent = flies.snapshot;
    for (auto k = first; k < last; ++k)
      switch (lane.what) {
        case lane_content::gradient:
          flies.sent[k - first] = samples ? p.accumulated[k] / static_cast<double>(samples) : 0;
          p.accumulated[k] = 0;
          break;
        case lane_content::parameters:
          break;
        case lane_content::progress:
          flies.sent[k - first] = p.anchor[k] - p.theta[k];
          break;
      }
  }

  void merge(peer& p, std::size_t index) {
    const auto& lane = table_.lanes[index];
    const auto& flies = p.rounds[index];
    auto [first, last] = range(lane);
    for (auto k = first; k < last; ++k) {
      auto mean = flies.mean[k - first];
      auto& x = p.theta[k];
      switch (lane.merge.how) {
        case lane_merge::rule::optimizer_step:
          x -= how_.rate * mean;
          break;
        case lane_merge::rule::add_change:
          x += mean - flies.snapshot[k - first];
          break;
        case lane_merge::rule::blend:
          p.anchor[k] -= mean;
          x += lane.merge.blend_share(peers_.size()) * (p.anchor[k] - x);
          break;
        case lane_merge::rule::outer_step:
          p.anchor[k] -= lane.merge.rate * mean;
          x = lane.merge.keep_local * x + (1 - lane.merge.keep_local) * p.anchor[k];
          break;
      }
    }
  }

  /// Ends the rounds that are due. Returns whether there were any.
  bool deliver() {
    bool ended = false;
    for (std::size_t i = 0; i < table_.lanes.size(); ++i) {
      const auto& first = peers_.front().ledger.lanes()[i].under_way;
      if (!first || first->outcome || steps_ < first->begun + how_.latency)
        continue;
      auto n = static_cast<double>(peers_.size());
      doubles mean(peers_.front().rounds[i].sent.size());
      for (const auto& p : peers_)
        for (std::size_t k = 0; k < mean.size(); ++k)
          mean[k] += p.rounds[i].sent[k] / n;
      for (auto& p : peers_) {
        p.rounds[i].mean = mean;
        round_facts facts;
        facts.contributors = static_cast<std::uint32_t>(peers_.size());
        facts.own_samples = p.ledger.in_flight(i);
        p.ledger.end(i, on_round(table_.lanes[i], facts));
      }
      ended = true;
    }
    return ended;
  }

  strategy table_;
  options how_;
  std::vector<peer> peers_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
