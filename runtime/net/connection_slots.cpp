#include "runtime/net/connection_slots.hpp"

#include <algorithm>

namespace waggle::net {

std::optional<connection_slots::number> connection_slots::add(number id, const std::string& host) {
  hosts_.emplace(id, host);
  auto own = ++counts_[host];
  std::optional<number> victim;
  if (own > limits_.per_host) {
    victim = oldest_of(host);
  } else if (hosts_.size() > limits_.all) {
    auto most = std::max_element(counts_.begin(), counts_.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; });
    victim = oldest_of(most->first);
  }
  if (victim)
    remove(*victim);
  return victim;
}

void connection_slots::remove(number id) {
  auto found = hosts_.find(id);
  if (found == hosts_.end())
    return;
  auto count = counts_.find(found->second);
  if (--count->second == 0)
    counts_.erase(count);
  hosts_.erase(found);
}

connection_slots::number connection_slots::oldest_of(const std::string& host) const {
  return std::find_if(hosts_.begin(), hosts_.end(),
                      [&](const auto& item) { return item.second == host; })
    ->first;
}

bool stream_slots::add(number id, const std::string& host, bool own) {
  auto of_host = static_cast<std::size_t>(std::count_if(
    hosts_.begin(), hosts_.end(), [&](const auto& stream) { return stream.second == host; }));
  if (of_host >= per_host_max || hosts_.size() >= (own ? all_max : all_max - per_host_max))
    return false;
  hosts_.emplace(id, host);
  return true;
}

} // namespace waggle::net
