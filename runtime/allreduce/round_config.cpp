#include "runtime/allreduce/round_config.hpp"

#include <string>

namespace waggle {

namespace {

// Longer than any sensible wait; sums of a few of them do not overflow a clock.
constexpr milliseconds wait_max = std::chrono::hours{24 * 365};

status check_wait(const char* name, milliseconds wait, const char* why) {
  if (wait > milliseconds{0} && wait <= wait_max)
    return done{};
  return failure{ec::bad_config,
                 std::string{name} + " must be positive and at most a year: " + why};
}

} // namespace

status check_round_config(const round_config& config) {
  if (auto valid = check_wait("stall_timeout", config.stall_timeout,
                              "a member that sends nothing is considered lost after that long");
      !valid)
    return valid;
  if (auto valid = check_wait("takeover_timeout", config.takeover_timeout,
                              "a new leader waits that long for the others");
      !valid)
    return valid;
  return check_wait("deadline", config.deadline, "the round ends by then");
}

} // namespace waggle
