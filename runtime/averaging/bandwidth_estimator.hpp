#pragma once

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
  struct direction_options {
    milliseconds stretch_min; // minimum duration and bytes of a stretch
    std::uint64_t bytes_min;
    milliseconds skip; // ignored at the beginning of a burst
  };
  struct options {
    // If shorter, a busy processor that reads late and then much at once looks like a fast link.
    direction_options in{250ms, 64_KiB, 0ms};
    direction_options out{250ms, 128_KiB, 150ms};
    milliseconds pause{100};      // a burst ends after this long without traffic
    milliseconds burst_max{1000}; // a longer burst is split
    std::size_t bursts_min = 3;   // below this many bursts the estimate is too noisy
    std::size_t bursts_kept = 24; // a drop in bandwidth is noticed after this many bursts
    milliseconds forget_after{600'000};
    /// The announced value changes only if it is off by this fraction, which exceeds the measuring
    /// noise.
    double change_min = 0.15;
  };

  explicit bandwidth_estimator(options opts) : options_(opts), in_(opts.in), out_(opts.out) {}
  bandwidth_estimator() : bandwidth_estimator(options{}) {}

  /// `bytes` were sent or received.
  void carried(bool outbound, std::uint64_t bytes, steady_time now);

  /// Bytes per second of the slower direction. Stable: it changes in large steps only. Nothing
  /// while it is not known.
  [[nodiscard]] std::optional<double> bytes_per_second(steady_time now);

private:
  class direction {
  public:
    explicit direction(direction_options opts) : options_(opts) {}

    void carried(std::uint64_t bytes, steady_time now, const options& all);
    [[nodiscard]] std::optional<double> bytes_per_second(steady_time now, const options& all);

  private:
    struct mark {
      steady_time at;
      std::uint64_t total; // bytes of the burst so far
    };

    void end_burst(const options& all);

    direction_options options_;
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

  const options options_;
  std::mutex mutex_; // guards everything below
  direction in_;
  direction out_;
  std::optional<double> announced_;
};

} // namespace waggle
