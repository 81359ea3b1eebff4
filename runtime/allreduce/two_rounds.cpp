#include "runtime/allreduce/two_rounds.hpp"

namespace waggle {

round_report report_of_two(const round_report& first, round_report second) {
  second.group_size = first.group_size;
  second.allreduce_seconds += first.allreduce_seconds;
  if (first.outcome == round_outcome::shrunk && second.outcome == round_outcome::complete) {
    second.outcome = first.outcome;
    second.why = first.why;
  }
  if (first.weight_sum <= 0)
    second.weight_sum = 0;
  return second;
}

} // namespace waggle
