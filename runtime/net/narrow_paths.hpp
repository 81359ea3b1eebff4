#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// Guesses which hosts lie behind a path that drops large packets without a word (a path MTU below
/// that of both ends, and no ICMP). A handshake passes there, and everything stops at the first
/// large message. So a host is taken for one of these if twice within a minute a link with it was
/// open, and ended while the kernel sent the same data again and again: a machine that is gone
/// makes no second link. Not thread-safe.
class narrow_paths {
public:
  /// Segments of this size pass every path of IPv6 (1280 bytes with headers), and nearly all of
  /// IPv4.
  static constexpr int segment_bytes = 1'200;
  static constexpr std::size_t hosts_max = 256;
  static constexpr milliseconds together{60'000};

  /// An open link with this host has ended in this way. True if the host is found to be one now.
  bool ended_stuck(const std::string& host, steady_time now) {
    if (narrow_.contains(host))
      return false;
    if (stuck_.size() >= hosts_max)
      std::erase_if(stuck_, [now](const auto& each) { return now - each.second > together; });
    if (stuck_.size() >= hosts_max || narrow_.size() >= hosts_max)
      return false;
    auto [known, first] = stuck_.try_emplace(host, now);
    if (first || now - std::exchange(known->second, now) > together)
      return false;
    stuck_.erase(known);
    return narrow_.insert(host).second;
  }

  [[nodiscard]] bool contains(const std::string& host) const { return narrow_.contains(host); }

private:
  std::map<std::string, steady_time> stuck_; // when, the last time
  std::set<std::string> narrow_;
};

} // namespace waggle::net
