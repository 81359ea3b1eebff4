#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/time_outs.hpp"

namespace waggle {

/// From which hosts strangers are admitted to a group. An identity costs nothing, so a newcomer
/// that is silent in its first round returns under another name: its host admits no strangers for a
/// time that doubles, at most a minute, because honest peers may share it. Peers with which rounds
/// were completed do not depend on their host. Not thread-safe.
class newcomer_hosts {
public:
  /// Whether a stranger at `host` (empty: not known) may enter now.
  [[nodiscard]] bool admits(const std::string& host, steady_time now) const {
    return host.empty() || !silent_.holds(host, now);
  }
  void accepted(const peer_id& who, const std::string& host) {
    if (host.empty())
      return;
    if (hosts_.size() >= newcomers_max && !hosts_.contains(who))
      hosts_.erase(hosts_.begin());
    hosts_.insert_or_assign(who, host);
  }
  /// It contributed to its first round, or is gone: it is no newcomer any more.
  void forget(const peer_id& who) { hosts_.erase(who); }

  struct pause {
    std::string host;
    milliseconds lasts{0};
  };
  /// It was silent in its first round. Nothing: it was no newcomer, or its host is not known.
  std::optional<pause> silent(const peer_id& who, steady_time now) {
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

private:
  static constexpr std::size_t newcomers_max = 256;

  std::map<peer_id, std::string> hosts_; // of newcomers
  time_outs_of<std::string> silent_{{milliseconds{10'000}, milliseconds{60'000}, 1'024}};
};

} // namespace waggle
