#include "runtime/allreduce/open_checks.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

void open_checks::open(std::uint32_t part, std::size_t owner, bool challenged, steady_time now) {
  const auto& cut = parts_[part];
  auto [at, added] =
    open_.try_emplace(part, check{{cut.codec, cut.count, reduce_by_}, owner, challenged, now, now});
  if (!added && challenged && !std::exchange(at->second.challenged, true))
    at->second.since = at->second.asked = now;
}

bool open_checks::is_challenged(std::uint32_t part) const {
  auto known = open_.find(part);
  return known != open_.end() && known->second.challenged;
}

bool open_checks::is_vouched(std::uint32_t part) const {
  auto known = open_.find(part);
  return known != open_.end() && known->second.vouched;
}

status open_checks::add(std::uint32_t part, std::size_t member, double weight, payload values,
                        steady_time now) {
  auto& check = open_.at(part);
  auto added = check.evidence.add(member, weight, std::move(values));
  if (added)
    check.since = now;
  if (added && !check.challenged)
    shown_.insert_or_assign(check.owner, now);
  return added;
}

const part_reducer& open_checks::evidence(std::uint32_t part) const {
  WAGGLE_CHECK(is_open(part), std::to_string(part));
  return open_.at(part).evidence;
}

void open_checks::start_over(std::uint32_t part, steady_time now) {
  const auto& cut = parts_[part];
  auto& check = open_.at(part);
  check.evidence = {cut.codec, cut.count, reduce_by_};
  check.since = now;
}

std::vector<open_checks::overdue_check>
open_checks::overdue(steady_time now, milliseconds stall_timeout, steady_time::duration limit) {
  std::vector<overdue_check> out;
  for (auto& [part, check] : open_) {
    auto since = check.since;
    if (auto shown = shown_.find(check.owner); shown != shown_.end() && !check.challenged)
      since = std::max(since, shown->second);
    bool silent = now - since >= (check.challenged ? 2 * stall_timeout : stall_timeout);
    if (!silent && now - check.asked < limit)
      continue;
    check.since = check.asked = now;
    out.push_back({part, check.owner, check.challenged});
  }
  return out;
}

} // namespace waggle
