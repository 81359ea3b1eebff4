#pragma once

// Internal to runtime/net: kernel settings of a connection to another machine.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// Distinguishes packet loss of the link from loss caused by our own sending.
///
/// A connection that fills its link builds a queue before packets are dropped, so its round-trip
/// times are above the minimum. Packets lost while there is no queue are lost by the link itself,
/// or by a queue too short to be measured. Congestion control that treats such losses as congestion
/// (cubic, reno) leaves the link idle; one that models the link instead (bbr) does not. Without
/// such losses cubic is better here: bandwidth that one connection frees is used by the next one
/// at once, while bbr has to probe for it (tests/bench/RESULTS.md).
class loss_watch {
public:
  /// The kernel's counters for a connection. Counters wrap.
  struct sample {
    std::uint32_t retransmitted = 0;
    std::uint32_t sent = 0; // packets with data
    std::chrono::microseconds rtt{};
    std::chrono::microseconds rtt_min{};
  };

  static constexpr auto pause = std::chrono::milliseconds{100}; // between two samples
  static constexpr std::uint32_t packets_min = 20;              // fewer are not significant
  static constexpr double loss_min = 0.001;
  static constexpr int findings_min = 3; // one may be chance, or a queue that has just drained

  /// True from the first sample with which the link is found to be lossy.
  bool update(const sample& now);

private:
  std::optional<sample> last_;
  int findings_ = 0;
};

/// The shortest round trip of the last minutes; zero: the kernel does not report it.
std::chrono::microseconds round_trip_of(int socket);

/// One connection's settings. Each is optional: the connection also works if the kernel lacks it.
class socket_tuning {
public:
  /// `congestion` as in tcp_transport_config.
  explicit socket_tuning(std::string congestion) : congestion_(std::move(congestion)) {}

  void begin(int socket);
  /// Call after a write. `slice_bytes`: the current size of slices.
  void follow(int socket, std::size_t slice_bytes, steady_time now);

  /// Whether data is being sent again, unanswered, in segments that a path may be too narrow for.
  [[nodiscard]] static bool stuck(int socket);
  /// For a socket that is not connected yet: sends small segments only, and asks for such.
  static void use_small_segments(int socket);

private:
  void limit_unsent(int socket, std::size_t bytes);

  std::string congestion_;
  bool watching_ = false;
  loss_watch losses_;
  steady_time looked_{};
  std::size_t unsent_max_ = 0;
};

} // namespace waggle::net
