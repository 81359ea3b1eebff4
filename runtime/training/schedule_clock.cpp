#include "runtime/training/schedule_clock.hpp"

#include <algorithm>

namespace waggle {

epoch_id schedule_epoch(const schedule_clock& clock, const schedule_position& at) {
  if (clock.steps_in_epoch > 0)
    return epoch_id{at.steps / clock.steps_in_epoch};
  auto count = std::max<std::uint64_t>(clock.epochs_per_round, 1);
  auto samples = std::max<std::uint64_t>(at.per_round / count, 1); // of one epoch
  // The samples beyond the last epoch belong to a round that has not begun yet.
  auto within = std::min(at.samples / samples, count - 1);
  return epoch_id{at.epoch.value() * count + within};
}

epoch_id without_going_back(const schedule_clock& clock, epoch_id last, epoch_id found) {
  if (found >= last)
    return found;
  if (clock.steps_in_epoch > 0)
    return found.next() == last ? last : found;
  auto count = std::max<std::uint64_t>(clock.epochs_per_round, 1);
  bool same_round = found.value() / count == last.value() / count;
  return same_round ? last : found;
}

} // namespace waggle
