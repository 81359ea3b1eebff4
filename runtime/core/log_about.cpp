#include "runtime/core/log_about.hpp"

namespace waggle {

thread_local log_about::fields log_about::now_;

log_about::log_about(const fields& known) : outer_(now_) {
  if (known.epoch)
    now_.epoch = known.epoch;
  if (!known.round.is_zero())
    now_.round = known.round;
  if (!known.remote.is_zero())
    now_.remote = known.remote;
  if (known.reason != ec::none)
    now_.reason = known.reason;
  for (auto number : {&fields::loss, &fields::samples_per_second, &fields::seconds})
    if (known.*number)
      now_.*number = known.*number;
}

} // namespace waggle
