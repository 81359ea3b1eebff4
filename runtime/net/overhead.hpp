#pragma once

#include <cstddef>
#include <functional>

namespace waggle::net {

/// A link that also reads frames that are not messages: window updates, pieces of bodies, returned
/// memory. They take the I/O thread's time, and `link_events` does not show them.
class overhead_source {
public:
  /// `header_bytes`: of all these frames together.
  using report = std::function<void(std::size_t frames, std::size_t header_bytes)>;

  virtual ~overhead_source() = default;

  /// `report` is called on the I/O thread, once for all such frames of a read. It may hold the
  /// link. REQUIRES: called before link::start.
  virtual void on_overhead(report report) = 0;
};

} // namespace waggle::net
