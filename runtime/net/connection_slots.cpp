#include "runtime/net/connection_slots.hpp"

#include <algorithm>

namespace waggle::net {

bool connection_slots::add(number id, const std::string& host, std::function<void()> close) {
  all_.emplace(id, connection{host, std::move(close)});
  auto crowded = host;
  if (++counts_[host] <= limits_.per_host) {
    if (all_.size() <= limits_.all)
      return false;
    crowded = std::ranges::max_element(counts_, {}, &decltype(counts_)::value_type::second)->first;
  }
  auto victim =
    std::ranges::find_if(all_, [&](const auto& each) { return each.second.host == crowded; });
  auto end = std::move(victim->second.close);
  remove(victim->first);
  end();
  return true;
}

void connection_slots::remove(number id) {
  auto found = all_.extract(id);
  if (found.empty())
    return;
  auto count = counts_.find(found.mapped().host);
  if (--count->second == 0)
    counts_.erase(count);
}

bool stream_slots::add(number id, const std::string& host, bool own) {
  auto of_host = static_cast<std::size_t>(std::count_if(
    hosts_.begin(), hosts_.end(), [&](const auto& stream) { return stream.second == host; }));
  if (of_host >= (own ? own_max : per_host_max)
      || hosts_.size() >= (own ? all_max : all_max - own_max))
    return false;
  hosts_.emplace(id, host);
  return true;
}

} // namespace waggle::net
