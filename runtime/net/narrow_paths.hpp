#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

/// Which hosts lie behind a path that drops large packets without a word (a path MTU below that of
/// both ends, and no ICMP). A handshake passes there, and everything stops at the first large
/// message. A host is suspected if twice within a minute a link with it was open, and ended while
/// the kernel sent the same data again and again, and one was opened in between: with a machine
/// that is gone, or cut off, none is, and all links end. Two short cuts look the same, so it is
/// probed (path_probe): only if small messages pass and large ones do not, people are told, and
/// until large ones pass. Not thread-safe.
///
///     two stuck links ─► suspected ─► found narrow
///                            │ wide, or a minute without an answer  │ wide
///                            └────────────► forgotten ◄─────────────┘
class narrow_paths {
public:
  /// Segments of this size pass every path of IPv6 (1280 bytes with headers), and nearly all of
  /// IPv4.
  static constexpr int segment_bytes = 1'200;
  static constexpr std::size_t hosts_max = 256;
  static constexpr milliseconds together{60'000};
  static constexpr milliseconds undecided_max{60'000};
  static constexpr milliseconds probe_soon{5'000}; // while suspected, and then
  static constexpr milliseconds probe_later{20'000};
  static constexpr steady_time::duration remembered = 1h;

  enum class width : std::uint8_t { unknown, narrow, wide };

  /// @param where the peer there listens, as far as it is known: others are not probed.
  void opened(const std::string& host, const std::optional<endpoint>& where) {
    if (auto found = stuck_.find(host); found != stuck_.end()) {
      found->second.opened_since = true;
      if (where)
        found->second.where = where;
    }
  }
  /// An open link with this host has ended in this way. True if the host is suspected now.
  bool ended_stuck(const std::string& host, steady_time now) {
    if (contains(host, now))
      return false;
    if (stuck_.size() >= hosts_max)
      std::erase_if(stuck_, [now](const auto& each) { return now - each.second.when > together; });
    if (stuck_.size() >= hosts_max || narrow_.size() >= hosts_max)
      return false;
    auto before = std::exchange(stuck_[host], end{now, false, {}});
    if (!before.opened_since || !before.where || now - before.when > together)
      return false;
    stuck_.erase(host);
    narrow_[host] = {now, now, *before.where, false};
    return true;
  }

  /// Whether a link that is dialled there uses small segments.
  [[nodiscard]] bool contains(const std::string& host, steady_time now) const {
    auto found = narrow_.find(host);
    return found != narrow_.end() && now - found->second.since < remembered;
  }
  /// The hosts to probe now, and where; each once. Report each outcome with `probed`.
  std::vector<std::pair<std::string, endpoint>> due(steady_time now) {
    std::erase_if(narrow_, [now](const auto& each) {
      const auto& [since, next, where, found] = each.second;
      return now - since >= (found ? remembered : steady_time::duration{undecided_max});
    });
    std::vector<std::pair<std::string, endpoint>> out;
    for (auto& [host, its] : narrow_)
      if (now >= its.probe_at) {
        its.probe_at = now + (its.found ? probe_later : probe_soon);
        out.emplace_back(host, its.where);
      }
    return out;
  }
  void probed(const std::string& host, width what) {
    auto its = narrow_.find(host);
    if (its == narrow_.end())
      return;
    if (what == width::wide)
      narrow_.erase(its);
    else if (what == width::narrow)
      its->second.found = true;
  }
  [[nodiscard]] bool any() const { return !narrow_.empty(); }
  /// A host that people are told of.
  [[nodiscard]] std::optional<std::string> found() const {
    for (const auto& [host, its] : narrow_)
      if (its.found)
        return host;
    return std::nullopt;
  }

private:
  struct end {
    steady_time when; // the last one
    bool opened_since = false;
    std::optional<endpoint> where{};
  };
  struct path {
    steady_time since;
    steady_time probe_at;
    endpoint where;
    bool found = false; // narrow
  };
  std::map<std::string, end> stuck_;
  std::map<std::string, path> narrow_;
};

} // namespace waggle::net
