#include "runtime/net/failure_detector.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace waggle::net {

namespace {

constexpr std::size_t window = 32; // intervals that are remembered
/// Of the standard deviation, in `expected`. A quiet, healthy link has almost none, and a short
/// delay would get it closed.
constexpr double deviation_min = 0.3;

/// −log10 of the probability that a normal variable lies at least so many deviations above its
/// mean.
double surprise(double deviations) {
  return -std::log10(0.5 * std::erfc(deviations / std::numbers::sqrt2));
}

/// The inverse. `surprise` is increasing; 12 deviations are a surprise of 33.
double deviations_of(double surprised) {
  double low = 0;
  double high = 12;
  for (int i = 0; i < 50; ++i) {
    auto middle = (low + high) / 2;
    (surprise(middle) < surprised ? low : high) = middle;
  }
  return high;
}

} // namespace

status check_failure_detector(const failure_detector_options& options) {
  auto bad = [](std::string what) { return failure{ec::bad_config, std::move(what)}; };
  if (options.expected <= milliseconds{0})
    return bad("the ping interval must be positive");
  if (options.silence_max <= options.expected)
    return bad("the silence timeout must be longer than the ping interval ("
               + std::to_string(options.expected.count()) + " ms): give it several");
  if (!(options.threshold >= 1 && options.threshold <= 30))
    return bad("the failure detector's threshold must be within 1 and 30");
  return done{};
}

failure_detector::failure_detector(failure_detector_options options, steady_time now)
  : options_(options), deviations_(deviations_of(options.threshold)),
    last_(now), intervals_{seconds_of(options.expected)} {}

void failure_detector::received(steady_time when) {
  if (when <= last_)
    return;
  // A short interval says nothing of how long a living peer is silent.
  if (when - last_ >= options_.expected / 2)
    intervals_.push_back(seconds_of(when - last_));
  if (intervals_.size() > window)
    intervals_.pop_front();
  last_ = when;
}

void failure_detector::slept(steady_time::duration how_long) {
  last_ += how_long;
}

double failure_detector::mean() const {
  auto seen = std::accumulate(intervals_.begin(), intervals_.end(), 0.0)
              / static_cast<double>(intervals_.size());
  return std::max(seen, seconds_of(options_.expected));
}

double failure_detector::deviation() const {
  auto middle = mean();
  double squares = 0;
  for (auto interval : intervals_)
    squares += (interval - middle) * (interval - middle);
  return std::max(std::sqrt(squares / static_cast<double>(intervals_.size())),
                  deviation_min * seconds_of(options_.expected));
}

steady_time failure_detector::suspect_at() const {
  // Whole milliseconds, so that the result does not depend on the last bit of a logarithm.
  auto patience = milliseconds{std::llround(1e3 * (mean() + deviations_ * deviation()))};
  return last_ + std::min(patience, options_.silence_max);
}

} // namespace waggle::net
