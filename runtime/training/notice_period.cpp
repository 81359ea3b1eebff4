#include "runtime/training/notice_period.hpp"

#include <algorithm>

namespace waggle {

status leave_notice::check(milliseconds within) {
  if (within >= within_min && within <= within_max)
    return done{};
  return failure{
    ec::bad_config,
    "the notice is of " + std::to_string(within.count())
      + " ms, and must be from 1 s, which a goodbye takes, to 3600 s, in which the peer "
        "computes nothing: pass the time until the machine is taken away"};
}

status leave_notice::give(milliseconds within) {
  if (auto fits = check(within); !fits)
    return fits;
  auto before = within_.load();
  while ((before == 0 || within.count() < before)
         && !within_.compare_exchange_weak(before, within.count())) {
  }
  return done{};
}

std::optional<milliseconds> leave_notice::within() const {
  auto is = within_.load();
  return is > 0 ? std::optional{milliseconds{is}} : std::nullopt;
}

bool notice_period::begin(milliseconds within, steady_time now) {
  auto ends = now + within - std::min(within / 5, goodbye_max);
  bool first = !ends_;
  if (first)
    began_ = now;
  ends_ = std::min(ends_.value_or(ends), ends);
  return first;
}

bool notice_period::ends(const unfinished_work& left, steady_time now) {
  bool busy = left.pass_runs || left.round_runs || left.only_donor || left.hands_over;
  bool nothing_to_wait_for = left.samples == 0 || (left.alone && now - began_ >= alone_max);
  ended_ = ended_ || now >= *ends_ || (!busy && nothing_to_wait_for);
  return ended_;
}

bool notice_period::hurries(std::optional<double> next_round, steady_time now) const {
  auto half = began_ + (*ends_ - began_) / 2;
  return !next_round || seconds_of(half - now) < std::max(*next_round, 0.0);
}

} // namespace waggle
