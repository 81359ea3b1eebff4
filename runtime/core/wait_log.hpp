#pragma once

#include <optional>
#include <string>

#include "runtime/core/time.hpp"

namespace waggle {

/// Decides when to log what a peer waits for: at once, and then every ten seconds, however often
/// the reason changes meanwhile. These later lines are warnings: a log of warnings only must not be
/// silent while a peer does nothing.
class wait_log {
public:
  struct line {
    bool late = false; // a warning
    std::string text;
  };
  static constexpr auto interval = std::chrono::seconds{10};
  /// A wait that ends for less than this goes on: the peer has tried something that failed.
  static constexpr auto pause_max = std::chrono::seconds{5};

  /// `what`: what is waited for; empty: nothing is. Returns what to log now.
  std::optional<line> look(const std::string& what, steady_time now) {
    bool changed = what != what_;
    what_ = what;
    if (what.empty()) {
      ended_ = ended_.value_or(now);
      return std::nullopt;
    }
    if (changed)
      since_ = now;
    if (ended_ && (*ended_ == steady_time::min() || now - *ended_ >= pause_max))
      began_ = told_ = now;
    ended_.reset();
    if (now - told_ >= interval) {
      told_ = now;
      auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - began_).count();
      return line{true, "for " + std::to_string(seconds) + " s now waiting"
                          + (since_ == began_ ? " for " : ", at present for ") + what};
    }
    return changed ? std::optional{line{false, "waiting for " + what}} : std::nullopt;
  }
  /// Since when it has been the same.
  [[nodiscard]] steady_time since() const { return since_; }

private:
  std::string what_;
  steady_time began_; // of the whole wait
  steady_time since_; // of this reason
  steady_time told_;  // the last late line, or the first one
  std::optional<steady_time> ended_ = steady_time::min();
};

} // namespace waggle
