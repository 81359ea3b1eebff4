#pragma once

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
  bool add(number id, const std::string& host, std::function<void()> close);
  void remove(number id);

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
  bool add(number id, const std::string& host, bool own);
  void remove(number id) { hosts_.erase(id); }

private:
  std::map<number, std::string> hosts_;
};

} // namespace waggle::net
