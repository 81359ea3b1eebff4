#include "runtime/allreduce/averaging_config.hpp"

namespace waggle {

status check_averaging_config(const averaging_config& config) {
  if (config.auxiliary && config.error_feedback > 0)
    return failure{ec::bad_config, "error_feedback: an auxiliary sends nothing of its own"};
  return check_round_config(config.round);
}

} // namespace waggle
