#pragma once

// Internal to runtime/net: work that connections of each host may cause before they have proved
// anything.

#include <cstddef>
#include <iterator>
#include <map>
#include <string>

#include "runtime/net/link_budget.hpp"

namespace waggle::net {

/// Not thread-safe.
class host_budgets {
public:
  host_budgets(work per_second, std::size_t hosts_max)
    : per_second_(per_second), hosts_max_(hosts_max) {}

  /// False: the host has used up its time, or too many hosts have begun to.
  [[nodiscard]] bool take(const std::string& host, work amount, steady_time now) {
    if (hosts_.size() >= hosts_max_)
      for (auto each = hosts_.begin(); each != hosts_.end();)
        each = each->second.is_full(now) ? hosts_.erase(each) : std::next(each);
    auto& left = hosts_.try_emplace(host, per_second_).first->second;
    return hosts_.size() <= hosts_max_ && left.take(amount, now);
  }

private:
  const work per_second_;
  const std::size_t hosts_max_;
  std::map<std::string, work_bucket> hosts_;
};

} // namespace waggle::net
