#include "runtime/training/flight_ledger.hpp"

#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

flight_ledger::flight_ledger(const strategy& strategy)
  : takes_samples_(strategy.averages.what != lane_content::parameters) {}

std::uint64_t flight_ledger::use_accumulated() {
  used_ += toward_boundary_;
  return std::exchange(toward_boundary_, 0);
}

std::uint64_t flight_ledger::drop_accumulated() {
  dropped_ += toward_boundary_;
  return std::exchange(toward_boundary_, 0);
}

std::uint64_t flight_ledger::begin(std::uint64_t own_step, std::uint64_t epoch) {
  WAGGLE_CHECK(!round_, "one flight at a time");
  round_ = flying_round{own_step, std::nullopt};
  last_epoch_ = epoch;
  if (takes_samples_)
    in_flight_ = std::exchange(toward_boundary_, 0);
  return in_flight_;
}

void flight_ledger::end(verdict outcome) {
  WAGGLE_CHECK(round_ && !round_->outcome, "no round under way");
  WAGGLE_CHECK(outcome != verdict::retry, "a round that is tried again is not over");
  round_->outcome = outcome;
}

void flight_ledger::reopen() {
  WAGGLE_CHECK(round_ && round_->outcome, "no round is over");
  round_->outcome.reset();
}

flight_ledger::settlement flight_ledger::settle(bool contributed) {
  WAGGLE_CHECK(round_ && round_->outcome, "no round to settle");
  auto outcome = *std::exchange(round_, std::nullopt)->outcome;
  auto samples = std::exchange(in_flight_, 0);
  settlement result;
  switch (outcome) {
    case verdict::merge:
      (contributed ? result.used : result.dropped) = samples;
      break;
    case verdict::own_gradient:
      result.used = samples;
      break;
    case verdict::left_out:
      result.dropped = samples;
      break;
    case verdict::skip:
    case verdict::retry: // refused by end()
      toward_boundary_ += samples;
      break;
  }
  used_ += result.used;
  dropped_ += result.dropped;
  return result;
}

void flight_ledger::recall() {
  round_.reset();
  in_flight_ = 0;
}

} // namespace waggle
