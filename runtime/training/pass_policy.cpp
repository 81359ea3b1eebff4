#include "runtime/training/pass_policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace waggle {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// When a member is expected to finish its next passes.
struct forecast {
  double next = never; // seconds from now; negative: done, and the report is in flight
  double pass = never; // seconds
  double samples = 0;  // of one pass

  [[nodiscard]] double samples_until(double t) const {
    return t < next ? 0 : (1 + std::floor((t - next) / pass)) * samples;
  }
};

forecast expect(const member_progress& member, double own_pass) {
  forecast f;
  if (!(member.samples_per_second > 0))
    return f;
  f.samples = member.micro_batch > 0 ? static_cast<double>(member.micro_batch)
                                     : member.samples_per_second * own_pass;
  auto pass = f.samples / member.samples_per_second;
  auto longest_way = 2 * member.delay;
  if (!(pass > 0) || member.age - longest_way > late_after * pass)
    return f;
  f.pass = pass;
  f.next = std::max(pass - member.age, -longest_way);
  return f;
}

} // namespace

pass_decision decide_pass(const pass_situation& now) {
  bool fits = now.epoch <= 0 || now.own_pass <= longest_pass * now.epoch;
  if (!(now.own_pass > 0) || !fits)
    return {true, 0};
  auto horizon = now.own_pass / 2;
  auto missing = static_cast<double>(now.target) - static_cast<double>(now.own_samples);
  double expected = 0;
  double longest_delay = 0;
  for (const auto& member : now.others) {
    missing -= static_cast<double>(member.samples);
    expected += expect(member, now.own_pass).samples_until(horizon);
    longest_delay = std::max(longest_delay, member.delay);
  }
  if (expected < missing)
    return {true, 0};
  return {false, horizon + longest_delay};
}

} // namespace waggle
