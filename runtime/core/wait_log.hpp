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
  std::optional<line> look(const std::string& what, steady_time now);
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
