#include "runtime/training/time_account.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace waggle {

recent_time::sums& recent_time::present(steady_time now) {
  auto number = now.time_since_epoch() / bucket;
  for (auto passed = std::clamp<std::int64_t>(number - last_, 0, sums_.size()); passed > 0;
       --passed)
    sums_[static_cast<std::size_t>((number - passed + 1) % std::ssize(sums_))] = {};
  last_ = std::max(last_, number);
  return sums_[static_cast<std::size_t>(last_ % std::ssize(sums_))];
}

void recent_time::add(const time_account::span& each, steady_time now) {
  present(now)[static_cast<std::size_t>(each.what)] += each.seconds;
  ended_ = now;
  if (!spans_.empty() && spans_.back().what == each.what)
    spans_.back().seconds += each.seconds;
  else
    spans_.push_back(each);
  if (spans_.size() > spans_max)
    spans_.pop_front();
}

void recent_time::add_agreement(double seconds, steady_time now) {
  present(now)[agreement] += seconds;
}

std::optional<recent_time::sums> recent_time::shares() const {
  sums all{};
  double total = 0;
  for (const auto& each : sums_)
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += each[i];
      total += i == agreement ? 0 : each[i];
    }
  if (!(total > 0))
    return std::nullopt;
  for (auto& each : all)
    each /= total;
  all[agreement] = std::min(all[agreement], all[static_cast<std::size_t>(activity::round)]);
  return all;
}

std::string recent_time::take_spans(steady_time origin) {
  auto ms = [](double seconds) { return fmt::format("{:.1f}", 1000 * seconds); };
  double whole = 0;
  for (const auto& each : spans_)
    whole += each.seconds;
  auto text = ms(seconds_of(ended_ - origin) - whole);
  for (const auto& each : spans_)
    text += to_string(each.what).front() + ms(each.seconds);
  bool none = spans_.empty();
  spans_.clear();
  return none ? std::string{} : text;
}

} // namespace waggle
