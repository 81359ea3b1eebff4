#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "runtime/core/bytes.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Estimates the bandwidth of this peer's link from the traffic that it carries anyway.
///
/// Traffic comes in bursts. Within a burst the link is sometimes saturated and sometimes idle
/// because a sender waits, and some bursts never saturate it. So the estimate is the fastest
/// stretch of the last bursts; a mean would measure the demand instead of the capacity. Both
/// directions count, since parts are sent and received: the slower one is announced. Outgoing bytes
/// are counted when the kernel accepts them, so the beginning of a burst, which only fills buffers,
/// is left out.
///
/// Feed it with links to other machines only: on loopback it would measure the processor.
/// Thread-safe.
class bandwidth_estimator {
public:
  void carried(bool outbound, std::uint64_t bytes, steady_time now);

  /// Bytes per second of the slower direction. Stable: it changes in large steps only. Nothing
  /// while it is not known.
  [[nodiscard]] std::optional<double> bytes_per_second(steady_time now);

  /// This peer leaves soon, so that it leads and reduces no more where others can.
  void withdraw() { withdrawn_ = true; }
  [[nodiscard]] bool is_withdrawn() const { return withdrawn_; }

private:
  class direction {
  public:
    direction(std::uint64_t bytes_min, milliseconds skip) : bytes_min_(bytes_min), skip_(skip) {}

    void carried(std::uint64_t bytes, steady_time now);
    [[nodiscard]] std::optional<double> bytes_per_second(steady_time now);

  private:
    struct mark {
      steady_time at;
      std::uint64_t total; // bytes of the burst so far
    };

    void end_burst();

    const std::uint64_t bytes_min_; // of a stretch
    const milliseconds skip_;       // ignored at the beginning of a burst
    struct burst {
      steady_time end;
      double best; // bytes per second
    };

    std::deque<burst> bursts_; // the last ones with an estimate
    std::deque<mark> marks_;   // of the current burst; at most marks_max
    steady_time began_{};
    steady_time last_{};
    std::uint64_t total_ = 0;
    bool fresh_ = true; // the burst began after a pause
    double best_ = 0;   // of the current burst, bytes per second
  };

  std::atomic<bool> withdrawn_{false};
  std::mutex mutex_; // guards everything below
  direction in_{64_KiB, milliseconds{0}};
  direction out_{128_KiB, milliseconds{150}};
  std::optional<double> announced_;
};

} // namespace waggle
