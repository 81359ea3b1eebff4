#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

/// A router that passes connections on to a port of this machine if it is asked to. Both functions
/// block, for seconds.
class port_router {
public:
  virtual ~port_router() = default;

  /// Connections to the result come to `port` for so long. The same again renews that. Fails with
  /// ec::unreachable and a sentence.
  virtual result<endpoint> map(std::uint16_t port, std::chrono::seconds lease) = 0;
  /// No longer. Does nothing if the port is not mapped.
  virtual void unmap(std::uint16_t port) = 0;
};

/// The one before this machine, asked by NAT-PMP and by UPnP; null: this build cannot ask.
std::shared_ptr<port_router> make_port_router();

/// Keeps a port mapped from when it is wanted until the end of this object, on a thread of its own.
/// If this process is killed the mapping ends with its lease.
class port_mapping {
public:
  struct options {
    std::chrono::seconds lease{120};
    milliseconds renewed_every{60'000};
    milliseconds tried_every{300'000}; // after it has failed
    milliseconds patience{2'000};      // at the end
  };
  using on_mapped = std::function<void(const result<endpoint>&)>;

  explicit port_mapping(std::shared_ptr<port_router> router)
    : port_mapping(std::move(router), options{}) {}
  port_mapping(std::shared_ptr<port_router> router, options opts);
  /// Takes the mapping back, unless the router needs more than `patience` for what it was asked
  /// last: then the lease ends it.
  ~port_mapping();
  port_mapping(const port_mapping&) = delete;
  port_mapping& operator=(const port_mapping&) = delete;

  /// From now on; the first call counts. Any thread. `told`: where the port is mapped, or why it is
  /// not, whenever that changes; on the thread of this object.
  void want(std::uint16_t port, on_mapped told);

private:
  struct shared; // with the thread, which a router may keep for longer than we wait

  const std::shared_ptr<shared> shared_;
  std::thread thread_;
};

} // namespace waggle::net
