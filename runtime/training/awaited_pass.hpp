#pragma once

#include <optional>
#include <utility>

#include "runtime/training/learner.hpp"

namespace waggle {

/// The pass that a worker waits for while the loop's thread computes it:
///
///     want ─► begin ─┬─────────────────┬─► end ─► take
///                    └─► offer_early ──┘
///
/// Not thread-safe.
class awaited_pass {
public:
  /// `when`: null, or see learner::accumulate_in_buckets. It is asked until it is due.
  void want(const learner::early_gradient* when) {
    wanted_ = true;
    when_ = when;
  }
  [[nodiscard]] bool wanted() const { return wanted_; }
  /// The loop computes it, with the module's parameters.
  void begin() { began_ = true; }
  [[nodiscard]] bool began() const { return began_; }
  /// Whether its gradient is to be offered before it is complete. True at most once.
  [[nodiscard]] bool due_early() {
    if (!began_ || when_ == nullptr || !when_->due())
      return false;
    when_ = nullptr;
    return true;
  }
  void offer_early() { early_ = true; }
  [[nodiscard]] bool early() const { return early_; }
  void end(const micro_step& step) {
    wanted_ = began_ = false;
    result_ = step;
  }
  [[nodiscard]] bool ended() const { return result_.has_value(); }
  /// Nobody waits any more. Returns what `end` got; nothing: there was no end.
  std::optional<micro_step> take() {
    wanted_ = early_ = false;
    when_ = nullptr;
    return std::exchange(result_, std::nullopt);
  }

private:
  bool wanted_ = false;
  bool began_ = false;
  bool early_ = false;
  const learner::early_gradient* when_ = nullptr;
  std::optional<micro_step> result_;
};

} // namespace waggle
