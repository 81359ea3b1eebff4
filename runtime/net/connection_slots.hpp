#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace waggle::net {

/// How many connections of one kind there may be, in all and from one host. A new connection always
/// gets a place: sockets that somebody opened and left idle must not keep others out. Not
/// thread-safe.
class connection_slots {
public:
  struct limits {
    std::size_t all = 0;
    std::size_t per_host = 0;
  };
  using number = std::uint64_t; // ascending

  explicit connection_slots(limits limits) : limits_(limits) {}

  /// Adds a connection from `host`, which `close` ends. True: another one was closed for it, the
  /// oldest of this host if it has too many, otherwise the oldest of the host that has the most.
  bool add(number id, const std::string& host, std::function<void()> close) {
    all_.emplace(id, connection{host, std::move(close)});
    auto crowded = host;
    if (++counts_[host] <= limits_.per_host) {
      if (all_.size() <= limits_.all)
        return false;
      crowded =
        std::ranges::max_element(counts_, {}, &decltype(counts_)::value_type::second)->first;
    }
    auto victim =
      std::ranges::find_if(all_, [&](const auto& each) { return each.second.host == crowded; });
    auto end = std::move(victim->second.close);
    remove(victim->first);
    end();
    return true;
  }
  void remove(number id) {
    auto found = all_.extract(id);
    if (found.empty())
      return;
    auto count = counts_.find(found.mapped().host);
    if (--count->second == 0)
      counts_.erase(count);
  }

  [[nodiscard]] std::size_t size() const { return all_.size(); }

private:
  struct connection {
    std::string host;
    std::function<void()> close;
  };

  limits limits_;
  std::map<number, connection> all_;
  std::map<std::string, std::size_t> counts_; // no entry without connections
};

/// Who has a stream of events. A new one is refused when there are enough: none is closed for it.
/// One address may be that of an office or a proxy. This machine may be the end of a tunnel, and
/// the last places are kept for it. Not thread-safe.
class stream_slots {
public:
  static constexpr std::size_t per_host_max = 16, own_max = 32, all_max = 80;

  using number = connection_slots::number;

  /// @param own whether `host` is this machine. Returns whether there is a place.
  bool add(number id, const std::string& host, bool own) {
    auto of_host = static_cast<std::size_t>(std::count_if(
      hosts_.begin(), hosts_.end(), [&](const auto& stream) { return stream.second == host; }));
    if (of_host >= (own ? own_max : per_host_max)
        || hosts_.size() >= (own ? all_max : all_max - own_max))
      return false;
    hosts_.emplace(id, host);
    return true;
  }
  void remove(number id) { hosts_.erase(id); }

private:
  std::map<number, std::string> hosts_;
};

} // namespace waggle::net
