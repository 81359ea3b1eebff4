#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "runtime/core/time.hpp"

namespace waggle {

/// What a trainer does at a moment. Exactly one at a time: what its model's thread does, if it does
/// anything, else what it waits for.
enum class activity : std::uint8_t {
  pass,     // the model's thread computes a pass, or the user's own loop does
  update,   // it applies an update
  round,    // waits for a round
  search,   // waits for a group, or for the members of a round
  download, // waits for a state, or loads one
  idle,     // waits for the next pass to be due, for samples of others, or has finished
};
constexpr std::array<std::string_view, 6> activities{"pass",   "update",   "round",
                                                     "search", "download", "idle"};
constexpr std::string_view to_string(activity what) {
  return activities[static_cast<std::size_t>(what)];
}

/// The time of each activity, counted while it lasts: a peer that is stuck shows it. What is
/// counted sums to the time that has passed, at most `late` behind. Not thread-safe.
class time_account {
public:
  static constexpr steady_time::duration late = 100ms;

  struct span {
    activity what = activity::idle;
    double seconds = 0;
  };

  /// The activity from now on. Returns what to count: the time since the last span, if another
  /// activity begins or that time is long. The time before the first call is not counted.
  std::optional<span> look(activity present, steady_time now) {
    if (since_ && present == what_ && now - *since_ < late)
      return std::nullopt;
    auto out = look_now(now);
    since_ = now;
    what_ = present;
    return out;
  }

  /// The same, however short it is.
  std::optional<span> look_now(steady_time now) {
    if (!since_)
      return std::nullopt;
    span out{what_, seconds_of(now - *since_)};
    since_ = now;
    return out;
  }

private:
  activity what_ = activity::idle;
  std::optional<steady_time> since_;
};

/// Where the time of the last minute went, for pages, and the course of the last epoch. Not
/// thread-safe.
class recent_time {
public:
  static constexpr std::size_t agreement = activities.size(); // in `shares`; a part of the rounds
  static constexpr std::size_t spans_max = 48;

  void add(const time_account::span& each, steady_time now) {
    present(now)[static_cast<std::size_t>(each.what)] += each.seconds;
    ended_ = now;
    if (!spans_.empty() && spans_.back().what == each.what)
      spans_.back().seconds += each.seconds;
    else
      spans_.push_back(each);
    if (spans_.size() > spans_max)
      spans_.pop_front();
  }
  /// At the end of a round.
  void add_agreement(double seconds, steady_time now) { present(now)[agreement] += seconds; }
  /// Of the time that was counted. Empty: none was.
  [[nodiscard]] std::optional<std::array<double, activities.size() + 1>> shares() const {
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
  /// The activities since the last call, at most the last `spans_max`, as "-312.4p280.1r12.3": that
  /// many milliseconds before `origin` a pass began, which took 280.1 ms, then a wait for a round.
  /// Each letter is the first one of an activity.
  std::string take_spans(steady_time origin) {
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

private:
  using sums = std::array<double, activities.size() + 1>;
  sums& present(steady_time now) {
    auto number = now.time_since_epoch() / bucket;
    for (auto passed = std::clamp<std::int64_t>(number - last_, 0, sums_.size()); passed > 0;
         --passed)
      sums_[static_cast<std::size_t>((number - passed + 1) % std::ssize(sums_))] = {};
    last_ = std::max(last_, number);
    return sums_[static_cast<std::size_t>(last_ % std::ssize(sums_))];
  }

  static constexpr steady_time::duration bucket = 5s;
  std::array<sums, 12> sums_{}; // of the last minute, by turns
  std::int64_t last_ = 0;       // the number of the present bucket
  std::deque<time_account::span> spans_;
  steady_time ended_{}; // the last of them
};

} // namespace waggle
