#pragma once

#include <atomic>
#include <memory>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// The machine's clock, corrected by what clock_watch says. Thread-safe.
class corrected_clock final : public wall_clock {
public:
  explicit corrected_clock(std::shared_ptr<const wall_clock> machine)
    : machine_(std::move(machine)) {}

  [[nodiscard]] swarm_time now() const override {
    return machine_->now() + swarm_clock::duration{correction_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] swarm_time machine() const { return machine_->now(); }
  void correct(swarm_clock::duration by) {
    correction_.store(by.count(), std::memory_order_relaxed);
  }

private:
  std::shared_ptr<const wall_clock> machine_;
  std::atomic<swarm_clock::rep> correction_{0};
};

} // namespace waggle::net
