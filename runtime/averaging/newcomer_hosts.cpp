#include "runtime/averaging/newcomer_hosts.hpp"

namespace waggle {

void newcomer_hosts::accepted(const peer_id& who, const std::string& host) {
  if (host.empty())
    return;
  if (hosts_.size() >= newcomers_max && !hosts_.contains(who))
    hosts_.erase(hosts_.begin());
  hosts_.insert_or_assign(who, host);
}

std::optional<newcomer_hosts::pause> newcomer_hosts::silent(const peer_id& who, steady_time now) {
  auto found = hosts_.find(who);
  if (found == hosts_.end())
    return std::nullopt;
  auto host = std::move(found->second);
  hosts_.erase(found);
  if (silent_.holds(host, now)) // several that were admitted together
    return std::nullopt;
  auto lasts = silent_.add(host, now);
  return pause{std::move(host), lasts};
}

} // namespace waggle
