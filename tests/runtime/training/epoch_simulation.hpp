#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/training/pass_policy.hpp"

namespace waggle {

/// Peers that accumulate toward a target and end epochs together, on a virtual clock in seconds:
/// each pass is reported, reports and calls take time to arrive, a round begins with what every
/// peer has when the call reaches it, and no pass begins while the round is under way.
class epoch_simulation {
public:
  struct peer_options {
    double pass = 0.01; // seconds
    std::uint64_t micro = 8;
  };
  struct options {
    std::vector<peer_options> peers;
    std::uint64_t target = 128;
    double delay_min = 0.001;
    double delay_max = 0.010;
    double jitter = 0.2;       // of every pass: uniform in ± this share
    double round = 0.002;      // from the begin of the last member to the result
    double clock_error = 0;    // of report ages: fixed per pair, uniform in ± this
    bool always_begin = false; // the behaviour without the policy
    std::uint64_t seed = 1;
  };

  struct epoch_result {
    std::uint64_t samples = 0;
    double seconds = 0;
  };
  struct totals {
    double waiting = 0;   // peer-seconds with neither pass nor round
    double in_rounds = 0; // peer-seconds
    double all = 0;
    std::uint64_t passes = 0;
    std::uint64_t stale = 0; // passes that ran while an epoch ended
  };

  explicit epoch_simulation(options how) : how_(std::move(how)), random_(how_.seed) {
    auto n = how_.peers.size();
    for (std::size_t i = 0; i < n; ++i) {
      peer p;
      p.views.resize(n);
      for (std::size_t j = 0; j < n; ++j)
        p.clock_error.push_back(how_.clock_error * (2 * random_.unit() - 1));
      p.pass_mean = how_.peers[i].pass;
      peers_.push_back(std::move(p));
    }
    for (std::size_t i = 0; i < n; ++i)
      at(0.001 * static_cast<double>(i), [this, i] {
        report(i);
        consider(i);
      });
  }

  /// Runs until `epochs` epochs are done, or no epoch ends for `patience` seconds.
  void run(std::size_t epochs, double patience = 60) {
    while (done_.size() < epochs && now_ < last_end_ + patience)
      next_event();
  }

  void run_for(double seconds) {
    for (auto end = now_ + seconds; events_.top().when <= end;)
      next_event();
  }

  /// From now on the peer does nothing, and rounds continue without it. Its reports stay.
  void stop(std::size_t i) {
    peers_[i].alive = false;
    complete_if_all_began(peers_[i].epoch);
  }

  [[nodiscard]] const std::vector<epoch_result>& epochs() const { return done_; }
  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] std::uint64_t passes(std::size_t i) const { return peers_[i].passes; }
  [[nodiscard]] totals times() const {
    totals sum;
    for (const auto& p : peers_) {
      sum.waiting += p.waited;
      sum.in_rounds += p.in_rounds;
      sum.all += now_;
      sum.passes += p.passes;
      sum.stale += p.stale;
    }
    return sum;
  }

private:
  struct event {
    double when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const event& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  struct view {
    std::uint64_t epoch = 0;
    std::uint64_t samples = 0;
    double written = -1; // negative: nothing yet
    double rate = 0;
  };
  struct peer {
    bool alive = true;
    std::uint64_t epoch = 0;
    std::uint64_t samples = 0;
    std::uint64_t called =
      std::numeric_limits<std::uint64_t>::max(); // newest epoch whose round was called
    bool in_round = false;
    bool running = false;
    double waiting_since = -1;
    double round_since = 0;
    double epoch_since = 0;
    double pass_mean = 0;
    double epoch_mean = 0;
    double waited = 0;
    double in_rounds = 0;
    std::uint64_t passes = 0;
    std::uint64_t stale = 0;
    std::uint64_t question = 0; // generation of "ask again"
    std::vector<view> views;
    std::vector<double> clock_error;
  };
  struct round_state {
    std::uint64_t samples = 0;
    std::size_t began = 0;
  };

  void next_event() {
    auto next = events_.top();
    events_.pop();
    now_ = next.when;
    next.what();
  }

  void at(double when, std::function<void()> what) {
    events_.push({when, number_++, std::move(what)});
  }
  double delay() { return how_.delay_min + (how_.delay_max - how_.delay_min) * random_.unit(); }

  template <class Do>
  void broadcast(std::size_t from, Do what) {
    for (std::size_t to = 0; to < peers_.size(); ++to)
      if (to != from)
        at(now_ + delay(), [this, to, what] {
          if (peers_[to].alive)
            what(to);
        });
  }

  void report(std::size_t i) {
    const auto& p = peers_[i];
    view newest{p.epoch, p.samples, now_, static_cast<double>(how_.peers[i].micro) / p.pass_mean};
    broadcast(i, [this, i, newest](std::size_t to) {
      auto& known = peers_[to].views[i];
      if (newest.written > known.written)
        known = newest;
      consider(to);
    });
  }

  bool target_reached(const peer& p) const {
    auto sum = p.samples;
    for (const auto& v : p.views)
      if (v.written >= 0 && v.epoch == p.epoch)
        sum += v.samples;
    return sum >= how_.target;
  }

  void consider(std::size_t i) {
    auto& p = peers_[i];
    if (!p.alive || p.in_round)
      return;
    if (p.called == p.epoch || target_reached(p))
      return begin_round(i);
    if (p.running)
      return;
    auto decision = how_.always_begin ? pass_decision{} : decide_pass(situation_of(i));
    if (decision.begin)
      return begin_pass(i);
    if (p.waiting_since < 0)
      p.waiting_since = now_;
    auto question = ++p.question;
    at(now_ + decision.wait, [this, i, question] {
      if (peers_[i].question == question)
        consider(i);
    });
  }

  pass_situation situation_of(std::size_t i) const {
    const auto& p = peers_[i];
    pass_situation now{.target = how_.target,
                       .own_samples = p.samples,
                       .own_pass = p.pass_mean,
                       .epoch = p.epoch_mean};
    auto typical_delay = (how_.delay_min + how_.delay_max) / 2;
    for (std::size_t j = 0; j < peers_.size(); ++j) {
      const auto& v = p.views[j];
      if (v.written >= 0 && v.epoch == p.epoch)
        now.others.push_back({v.samples, std::max(0.0, now_ - v.written + p.clock_error[j]),
                              typical_delay, v.rate, how_.peers[j].micro});
    }
    return now;
  }

  void stop_waiting(peer& p) {
    ++p.question;
    if (p.waiting_since >= 0)
      p.waited += now_ - p.waiting_since;
    p.waiting_since = -1;
  }

  void begin_pass(std::size_t i) {
    auto& p = peers_[i];
    stop_waiting(p);
    p.running = true;
    auto seconds = how_.peers[i].pass * (1 + how_.jitter * (2 * random_.unit() - 1));
    at(now_ + seconds, [this, i, seconds, epoch = p.epoch] {
      auto& p = peers_[i];
      if (!p.alive)
        return;
      ++p.passes;
      p.stale += p.in_round || p.epoch != epoch ? 1 : 0;
      p.running = false;
      p.samples += how_.peers[i].micro;
      p.pass_mean = 0.9 * p.pass_mean + 0.1 * seconds;
      if (!p.in_round) // otherwise they count toward the next epoch and are reported with it
        report(i);
      consider(i);
    });
  }

  void begin_round(std::size_t i) {
    auto& p = peers_[i];
    stop_waiting(p);
    auto epoch = p.epoch;
    auto& round = rounds_[epoch];
    if (round.began == 0)
      broadcast(i, [this, epoch](std::size_t to) {
        peers_[to].called = epoch;
        consider(to);
      });
    ++round.began;
    round.samples += std::exchange(p.samples, 0);
    p.in_round = true;
    p.round_since = now_;
    complete_if_all_began(epoch);
  }

  void complete_if_all_began(std::uint64_t epoch) {
    auto round = rounds_.find(epoch);
    if (round == rounds_.end())
      return; // no peer has begun, or the round is complete
    for (const auto& p : peers_)
      if (p.alive && !(p.epoch == epoch && p.in_round))
        return;
    done_.push_back({round->second.samples, now_ - last_end_});
    last_end_ = now_;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      at(now_ + how_.round + delay(), [this, i] { end_epoch(i); });
    rounds_.erase(round);
  }

  void end_epoch(std::size_t i) {
    auto& p = peers_[i];
    if (!p.alive)
      return;
    ++p.epoch;
    p.in_round = false;
    p.in_rounds += now_ - p.round_since;
    auto seconds = now_ - p.epoch_since;
    p.epoch_since = now_;
    p.epoch_mean = p.epoch_mean > 0 ? 0.9 * p.epoch_mean + 0.1 * seconds : seconds;
    report(i);
    consider(i);
  }

  options how_;
  random_source random_;
  std::vector<peer> peers_;
  std::priority_queue<event> events_;
  std::uint64_t number_ = 0;
  double now_ = 0;
  std::map<std::uint64_t, round_state> rounds_;
  std::vector<epoch_result> done_;
  double last_end_ = 0;
};

} // namespace waggle
