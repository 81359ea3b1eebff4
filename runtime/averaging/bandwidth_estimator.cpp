#include "runtime/averaging/bandwidth_estimator.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

namespace {

constexpr auto mark_every = 10ms;
constexpr std::size_t marks_max = 256;
// If shorter, a busy processor that reads late and then much at once looks like a fast link.
constexpr auto stretch_min = 250ms;
constexpr auto pause_min = 100ms;       // a burst ends after this long without traffic
constexpr auto burst_max = 1'000ms;     // a longer burst is split
constexpr std::size_t bursts_min = 3;   // below this many bursts the estimate is too noisy
constexpr std::size_t bursts_kept = 24; // a drop in bandwidth is noticed after this many bursts
constexpr auto forget_after = 10min;
// The announced value changes only if it is off by this fraction, which exceeds the measuring
// noise.
constexpr double change_min = 0.15;

} // namespace

void bandwidth_estimator::carried(bool outbound, std::uint64_t bytes, steady_time now) {
  std::lock_guard guard{mutex_};
  (outbound ? out_ : in_).carried(bytes, now);
}

std::optional<double> bandwidth_estimator::bytes_per_second(steady_time now) {
  std::lock_guard guard{mutex_};
  auto in = in_.bytes_per_second(now);
  auto out = out_.bytes_per_second(now);
  auto slower = in && out ? std::min(in, out) : (in ? in : out);
  bool moved = slower.has_value() != announced_.has_value();
  if (slower && announced_)
    moved = *slower > *announced_ * (1 + change_min) || *slower * (1 + change_min) < *announced_;
  if (moved)
    announced_ = slower;
  return announced_;
}

void bandwidth_estimator::direction::carried(std::uint64_t bytes, steady_time now) {
  bool paused = now - last_ >= pause_min;
  if (paused || now - began_ >= burst_max) {
    end_burst();
    fresh_ = paused;
    began_ = now;
    total_ = 0;
    marks_.clear();
  }
  last_ = now;
  // The bytes arrived before `now`, so those of a burst's first event belong to the time before it.
  if (!marks_.empty() || now != began_)
    total_ += bytes;
  if (!marks_.empty() && now - marks_.back().at < mark_every)
    return;
  if (fresh_ && now - began_ < skip_)
    return;
  marks_.push_back({now, total_});
  if (marks_.size() > marks_max)
    marks_.pop_front();
  // The shortest stretch up to now that is long enough: marks ascend in time and in bytes.
  auto enough = [&](const mark& from) {
    return now - from.at >= stretch_min && total_ - from.total >= bytes_min_;
  };
  auto after = std::partition_point(marks_.begin(), marks_.end(), enough);
  if (after == marks_.begin())
    return;
  const auto& from = *std::prev(after);
  best_ = std::max(best_, static_cast<double>(total_ - from.total)
                            / std::chrono::duration<double>(now - from.at).count());
}

void bandwidth_estimator::direction::end_burst() {
  auto best = std::exchange(best_, 0);
  if (best <= 0)
    return;
  bursts_.push_back({last_, best});
  if (bursts_.size() > bursts_kept)
    bursts_.pop_front();
}

std::optional<double> bandwidth_estimator::direction::bytes_per_second(steady_time now) {
  if (now - last_ >= pause_min) {
    end_burst();
    fresh_ = true;
  }
  while (!bursts_.empty() && now - bursts_.front().end > forget_after)
    bursts_.pop_front();
  if (bursts_.size() < bursts_min)
    return std::nullopt;
  return std::ranges::max_element(bursts_, {}, [](const auto& each) { return each.best; })->best;
}

} // namespace waggle
