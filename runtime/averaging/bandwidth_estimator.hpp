#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "runtime/core/bytes.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// What this peer's line carries, found out from whatever it carries anyway.
///
/// Traffic comes in bursts, and in a burst there are times when the line is full and times when it
/// waits for somebody, and whole bursts in which it does nothing else. So the fastest stretch of
/// the last bursts is what the line carries: a mean would be what the others left it to do. Both
/// directions count, since parts go both ways: the slower one is what we announce.
/// What leaves is counted when the kernel takes it, so the beginning of a burst, which only fills
/// buffers, is left out.
///
/// Feed it with links to other machines only: on loopback it would measure the processor.
/// Thread-safe.
class bandwidth_estimator {
public:
  struct direction_options {
    milliseconds stretch_min; // a stretch has at least this long and so much
    std::uint64_t bytes_min;
    milliseconds skip; // at the beginning of a burst
  };
  struct options {
    // Much shorter, and a busy processor that reads late and then much at once looks like a fast
    // line.
    direction_options in{250ms, 64_KiB, 0ms};
    direction_options out{250ms, 128_KiB, 150ms};
    milliseconds pause{100};      // without traffic: the burst is over
    milliseconds burst_max{1000}; // longer ones are as good as several
    std::size_t bursts_min = 3;   // before these, chance has the word
    std::size_t bursts_kept = 24; // what a line has lost is noticed after so many
    milliseconds forget_after{600'000};
    /// What we announce moves when it is wrong by this much, which is more than measuring is.
    double change_min = 0.15;
  };

  explicit bandwidth_estimator(options opts) : options_(opts), in_(opts.in), out_(opts.out) {}
  bandwidth_estimator() : bandwidth_estimator(options{}) {}

  /// `bytes` left or came.
  void carried(bool outbound, std::uint64_t bytes, steady_time now);

  /// Bytes a second of the slower direction, steady: it changes in large steps only. Nothing while
  /// it is not known.
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
      std::uint64_t total; // bytes of the burst up to then
    };

    void end_burst(const options& all);

    direction_options options_;
    struct burst {
      steady_time end;
      double best; // bytes a second
    };

    std::deque<burst> bursts_; // the last ones that told something
    std::deque<mark> marks_;   // of the burst; at most marks_max
    steady_time began_{};
    steady_time last_{};
    std::uint64_t total_ = 0;
    bool fresh_ = true; // the burst began after a pause
    double best_ = 0;   // of the burst, bytes a second
  };

  const options options_;
  std::mutex mutex_; // guards what follows
  direction in_;
  direction out_;
  std::optional<double> announced_;
};

} // namespace waggle
