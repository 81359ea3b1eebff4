#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// The machine's clock, as it was when the first peer was met: if it is set later, or the machine
/// sleeps, the time that peers read from each other goes on. Otherwise all reports would be expired
/// here, or ours at the others, although nothing has happened to any peer. Once a peer's clock
/// agrees with the machine's rather than with the time that was kept, the machine's counts: it was
/// set right, or has slept. So a liar can only have this peer choose between the two. Thread-safe.
class kept_clock final : public wall_clock {
public:
  /// @param steady thread-safe.
  kept_clock(std::shared_ptr<const wall_clock> machine, std::function<steady_time()> steady)
    : machine_(std::move(machine)), steady_(std::move(steady)) {}

  [[nodiscard]] swarm_time now() const override {
    std::lock_guard guard{mutex_};
    return kept_ ? time() : machine_->now();
  }
  /// The clock of a peer is that far ahead of this one. Returns how far this one has moved.
  swarm_clock::duration compared(swarm_clock::duration offset) {
    std::lock_guard guard{mutex_};
    swarm_clock::duration gap{0};
    if (kept_) {
      gap = difference(machine_->now(), time());
      auto from_machine = difference(swarm_time{offset}, swarm_time{gap});
      if (from_machine >= std::chrono::abs(gap) / 2 || from_machine <= -std::chrono::abs(gap) / 2)
        return swarm_clock::duration{0};
    }
    kept_ = difference(machine_->now(), swarm_time{}) - steady_().time_since_epoch();
    return gap;
  }
  /// How far the machine's clock is ahead of this one.
  [[nodiscard]] swarm_clock::duration machine_ahead() const {
    std::lock_guard guard{mutex_};
    return kept_ ? difference(machine_->now(), time()) : swarm_clock::duration{0};
  }

private:
  [[nodiscard]] swarm_time time() const {
    return swarm_time{*kept_ + steady_().time_since_epoch()};
  }

  const std::shared_ptr<const wall_clock> machine_;
  const std::function<steady_time()> steady_;
  mutable std::mutex mutex_;
  std::optional<swarm_clock::duration> kept_; // this clock, less the steady one
};

} // namespace waggle::net
