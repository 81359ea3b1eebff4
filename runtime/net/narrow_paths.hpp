#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "runtime/core/time.hpp"

namespace waggle::net {

/// Guesses which hosts lie behind a path that drops large packets without a word (a path MTU below
/// that of both ends, and no ICMP). A handshake passes there, and everything stops at the first
/// large message. So a host is taken for one of these if twice within a minute a link with it was
/// open, and ended while the kernel sent the same data again and again, and one was opened in
/// between: with a machine that is gone, or cut off, none is, and all links end. Not thread-safe.
class narrow_paths {
public:
  /// Segments of this size pass every path of IPv6 (1280 bytes with headers), and nearly all of
  /// IPv4.
  static constexpr int segment_bytes = 1'200;
  static constexpr std::size_t hosts_max = 256;
  static constexpr milliseconds together{60'000};
  static constexpr steady_time::duration remembered = 1h;

  void opened(const std::string& host) {
    if (auto found = stuck_.find(host); found != stuck_.end())
      found->second.opened_since = true;
  }
  /// An open link with this host has ended in this way. True if the host is found to be one now.
  bool ended_stuck(const std::string& host, steady_time now) {
    if (contains(host, now))
      return false;
    if (stuck_.size() >= hosts_max)
      std::erase_if(stuck_, [now](const auto& each) { return now - each.second.when > together; });
    if (narrow_.size() >= hosts_max)
      std::erase_if(narrow_, [now](const auto& each) { return now - each.second > remembered; });
    if (stuck_.size() >= hosts_max || narrow_.size() >= hosts_max)
      return false;
    auto before = std::exchange(stuck_[host], end{now});
    if (!before.opened_since || now - before.when > together)
      return false;
    stuck_.erase(host);
    narrow_[host] = now;
    return true;
  }

  /// For an hour: the path may have been mended, or the guess was wrong.
  [[nodiscard]] bool contains(const std::string& host, steady_time now) const {
    auto found = narrow_.find(host);
    return found != narrow_.end() && now - found->second < remembered;
  }

private:
  struct end {
    steady_time when; // the last one
    bool opened_since = false;
  };
  std::map<std::string, end> stuck_;
  std::map<std::string, steady_time> narrow_; // since when
};

} // namespace waggle::net
