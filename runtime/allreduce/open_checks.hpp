#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/part_table.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// The sums that a member checks in one view (sum_checks.hpp): those that it was drawn for, and
/// those that another member challenged. Keeps the contributions to a part until all are here.
///
/// Not thread-safe.
class open_checks {
public:
  /// @param parts must outlive this.
  open_checks(const part_table& parts, aggregation reduce_by)
    : parts_(parts), reduce_by_(reduce_by) {}

  /// The sum of `part` is to be checked; its `owner` shows the contributions. A check that is open
  /// stays as it is, except that it is `challenged` from now on.
  void open(std::uint32_t part, std::size_t owner, bool challenged, steady_time now) {
    const auto& cut = parts_[part];
    auto [at, added] = open_.try_emplace(
      part, check{{cut.codec, cut.count, reduce_by_}, owner, challenged, now, now});
    if (!added && challenged && !std::exchange(at->second.challenged, true))
      at->second.since = at->second.asked = now;
  }
  [[nodiscard]] bool is_open(std::uint32_t part) const { return open_.contains(part); }
  [[nodiscard]] bool is_challenged(std::uint32_t part) const {
    auto known = open_.find(part);
    return known != open_.end() && known->second.challenged;
  }
  /// A member reports that it holds the right sum. REQUIRES: is_open(part).
  void vouch(std::uint32_t part) { open_.at(part).vouched = true; }
  [[nodiscard]] bool is_vouched(std::uint32_t part) const {
    auto known = open_.find(part);
    return known != open_.end() && known->second.vouched;
  }
  [[nodiscard]] bool empty() const { return open_.empty(); }

  /// As part_reducer::add. REQUIRES: is_open(part).
  status add(std::uint32_t part, std::size_t member, double weight, payload values,
             steady_time now) {
    auto& check = open_.at(part);
    auto added = check.evidence.add(member, weight, std::move(values));
    if (added)
      check.since = now;
    if (added && !check.challenged)
      shown_.insert_or_assign(check.owner, now);
    return added;
  }
  /// The contributions that are here. REQUIRES: is_open(part).
  [[nodiscard]] const part_reducer& evidence(std::uint32_t part) const {
    WAGGLE_CHECK(is_open(part), std::to_string(part));
    return open_.at(part).evidence;
  }
  /// What was shown is wrong: it is awaited again. REQUIRES: is_open(part).
  void start_over(std::uint32_t part, steady_time now) {
    const auto& cut = parts_[part];
    auto& check = open_.at(part);
    check.evidence = {cut.codec, cut.count, reduce_by_};
    check.since = now;
  }
  void close(std::uint32_t part) { open_.erase(part); }
  void clear() { open_.clear(); }

  struct overdue_check {
    std::uint32_t part;
    std::size_t owner;
    bool challenged;
  };
  /// Checks whose owner has shown nothing for `stall_timeout`, of this or another part; challenged
  /// ones of which it has shown nothing for twice as long; and those of which something is missing
  /// after `limit`, however it shows them. The time begins anew for each.
  [[nodiscard]] std::vector<overdue_check> overdue(steady_time now, milliseconds stall_timeout,
                                                   steady_time::duration limit) {
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

private:
  struct check {
    part_reducer evidence;
    std::size_t owner;
    bool challenged;
    steady_time since; // the last progress
    steady_time asked; // opened, or challenged
    bool vouched = false;
  };

  const part_table& parts_;
  const aggregation reduce_by_;
  std::map<std::uint32_t, check> open_;      // by part
  std::map<std::size_t, steady_time> shown_; // by owner: when it last showed something unasked
};

} // namespace waggle
