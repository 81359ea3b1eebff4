#include "runtime/allreduce/round_config.hpp"

#include <string>

namespace waggle {

// Longer than any sensible wait; sums of a few of them do not overflow a clock.
constexpr milliseconds wait_max = std::chrono::hours{24 * 365};

status check_round_config(const round_config& config) {
  struct wait {
    const char* name;
    milliseconds lasts;
    const char* why;
  };
  for (const auto& [name, lasts, why] :
       {wait{"stall_timeout", config.stall_timeout,
             "a member that sends nothing is considered lost after that long"},
        wait{"result_timeout", config.result_timeout + milliseconds{config.result_timeout == 0ms},
             "a reducer that sends nothing is considered lost after that long"},
        wait{"takeover_timeout", config.takeover_timeout,
             "a new leader waits that long for the others"},
        wait{"deadline", config.deadline, "the round ends by then"}})
    if (lasts <= milliseconds{0} || lasts > wait_max)
      return failure{ec::bad_config,
                     std::string{name} + " must be positive and at most a year: " + why};
  return done{};
}

} // namespace waggle
