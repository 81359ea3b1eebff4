#include "runtime/training/flight_ledger.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

flight_ledger::flight_ledger(const strategy& strategy)
  : lanes_(strategy.lanes.size()), in_flight_(strategy.lanes.size()) {
  for (const auto& lane : strategy.lanes)
    takes_samples_.push_back(lane.what != lane_content::parameters);
}

std::uint64_t flight_ledger::use_accumulated() {
  used_ += toward_boundary_;
  return std::exchange(toward_boundary_, 0);
}

std::uint64_t flight_ledger::drop_accumulated() {
  dropped_ += toward_boundary_;
  return std::exchange(toward_boundary_, 0);
}

std::uint64_t flight_ledger::begin(std::size_t lane, std::uint64_t own_step, std::uint64_t epoch) {
  auto& state = lanes_.at(lane);
  WAGGLE_CHECK(!state.under_way, "one flight per lane: " + std::to_string(lane));
  state = {lane_round{own_step, std::nullopt}, own_step, epoch};
  if (takes_samples_[lane])
    in_flight_[lane] = std::exchange(toward_boundary_, 0);
  return in_flight_[lane];
}

void flight_ledger::end(std::size_t lane, verdict outcome) {
  auto& round = lanes_.at(lane).under_way;
  WAGGLE_CHECK(round && !round->outcome, "no round under way: " + std::to_string(lane));
  WAGGLE_CHECK(outcome != verdict::retry, "a round that is tried again is not over");
  round->outcome = outcome;
}

void flight_ledger::reopen(std::size_t lane) {
  auto& round = lanes_.at(lane).under_way;
  WAGGLE_CHECK(round && round->outcome, "no round is over: " + std::to_string(lane));
  round->outcome.reset();
}

flight_ledger::settlement flight_ledger::settle(std::size_t lane, bool contributed) {
  auto& round = lanes_.at(lane).under_way;
  WAGGLE_CHECK(round && round->outcome, "no round to settle: " + std::to_string(lane));
  auto outcome = *std::exchange(round, std::nullopt)->outcome;
  auto samples = std::exchange(in_flight_[lane], 0);
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

void flight_ledger::recall(std::size_t lane) {
  lanes_.at(lane).under_way.reset();
  in_flight_[lane] = 0;
}

std::uint64_t flight_ledger::in_flight() const {
  return std::accumulate(in_flight_.begin(), in_flight_.end(), std::uint64_t{0});
}

} // namespace waggle
