#pragma once

// Internal to runtime/net: what the kernel is told about a connection to another machine.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// Tells loss on the way from loss that our own sending causes.
///
/// A connection that fills its line makes a queue before packets are dropped: its round trips take
/// longer than they need. Packets that are lost while there is no queue are lost by the line, or by
/// a queue too short to be seen. Congestion control that takes them for congestion (cubic, reno)
/// leaves such a line idle, and one that models the line instead (bbr) does not. Without such
/// losses cubic is the better one for us: what one connection leaves the next one takes at once,
/// where bbr probes its way up (tests/bench/README.md).
class loss_watch {
public:
  /// What the kernel counts for a connection. Counters wrap.
  struct sample {
    std::uint32_t retransmitted = 0;
    std::uint32_t sent = 0; // packets with data
    std::chrono::microseconds rtt{};
    std::chrono::microseconds rtt_min{};
  };

  static constexpr auto pause = std::chrono::milliseconds{100}; // between two samples
  static constexpr std::uint32_t packets_min = 20;              // fewer tell nothing
  static constexpr double loss_min = 0.001;
  static constexpr int findings_min = 3; // one may be chance, or a queue that has just emptied

  /// True from the sample on with which the line is found to be lossy.
  bool update(const sample& now);

private:
  std::optional<sample> last_;
  int findings_ = 0;
};

/// One connection's settings. Nothing depends on the kernel having any of them.
class socket_tuning {
public:
  /// `congestion` as in tcp_transport_config.
  explicit socket_tuning(std::string congestion) : congestion_(std::move(congestion)) {}

  void begin(int socket);
  /// After a write: slices have `slice_bytes` now.
  void follow(int socket, std::size_t slice_bytes, steady_time now);

private:
  void limit_unsent(int socket, std::size_t bytes);

  std::string congestion_;
  bool watching_ = false;
  loss_watch losses_;
  steady_time looked_{};
  std::size_t unsent_max_ = 0;
};

} // namespace waggle::net
