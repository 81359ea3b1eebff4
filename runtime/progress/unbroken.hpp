#pragma once

#include <chrono>
#include <optional>

#include "runtime/core/time.hpp"

namespace waggle {

/// For how long something has held without a break. Not thread-safe.
class unbroken {
public:
  /// @param holds whether it does now. Returns whether it has for `least`, which may be years.
  [[nodiscard]] bool lasts(bool holds, steady_time now, milliseconds least) {
    if (!holds)
      since_.reset();
    else if (!since_)
      since_ = now;
    return since_ && std::chrono::duration<double>{now - *since_} >= least;
  }

private:
  std::optional<steady_time> since_;
};

} // namespace waggle
