#include "runtime/averaging/bandwidth_estimator.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

namespace {

constexpr auto mark_every = 10ms;
constexpr std::size_t marks_max = 256;

} // namespace

void bandwidth_estimator::carried(bool outbound, std::uint64_t bytes, steady_time now) {
  std::lock_guard guard{mutex_};
  (outbound ? out_ : in_).carried(bytes, now, options_);
}

std::optional<double> bandwidth_estimator::bytes_per_second(steady_time now) {
  std::lock_guard guard{mutex_};
  auto in = in_.bytes_per_second(now, options_);
  auto out = out_.bytes_per_second(now, options_);
  auto slower = in && out ? std::min(in, out) : (in ? in : out);
  bool moved = slower.has_value() != announced_.has_value();
  if (slower && announced_)
    moved = *slower > *announced_ * (1 + options_.change_min)
            || *slower * (1 + options_.change_min) < *announced_;
  if (moved)
    announced_ = slower;
  return announced_;
}

void bandwidth_estimator::direction::carried(std::uint64_t bytes, steady_time now,
                                             const options& all) {
  bool paused = now - last_ >= all.pause;
  if (paused || now - began_ >= all.burst_max) {
    end_burst(all);
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
  if (fresh_ && now - began_ < options_.skip)
    return;
  marks_.push_back({now, total_});
  if (marks_.size() > marks_max)
    marks_.pop_front();
  // The shortest stretch up to now that is long enough: marks ascend in time and in bytes.
  auto enough = [&](const mark& from) {
    return now - from.at >= options_.stretch_min && total_ - from.total >= options_.bytes_min;
  };
  auto after = std::partition_point(marks_.begin(), marks_.end(), enough);
  if (after == marks_.begin())
    return;
  const auto& from = *std::prev(after);
  best_ = std::max(best_, static_cast<double>(total_ - from.total)
                            / std::chrono::duration<double>(now - from.at).count());
}

void bandwidth_estimator::direction::end_burst(const options& all) {
  auto best = std::exchange(best_, 0);
  if (best <= 0)
    return;
  bursts_.push_back({last_, best});
  if (bursts_.size() > all.bursts_kept)
    bursts_.pop_front();
}

std::optional<double> bandwidth_estimator::direction::bytes_per_second(steady_time now,
                                                                       const options& all) {
  if (now - last_ >= all.pause) {
    end_burst(all);
    fresh_ = true;
  }
  while (!bursts_.empty() && now - bursts_.front().end > all.forget_after)
    bursts_.pop_front();
  if (bursts_.size() < all.bursts_min)
    return std::nullopt;
  return std::ranges::max_element(bursts_, {}, [](const auto& each) { return each.best; })->best;
}

} // namespace waggle
