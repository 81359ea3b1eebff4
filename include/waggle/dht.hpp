#pragma once

// The distributed hash table of a run, for small values of a service. Link waggle::actors.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "waggle/node.hpp"

namespace waggle {

/// The part of the DHT that is open to applications, seen from one peer. Any peer of the run can
/// read and replace what is stored here. Peers of `waggle train` and waggle::loop in the run refuse
/// to store it for others. Thread-safe. Keeps the peer's threads alive, but not the peer.
class dht {
public:
  explicit dht(const node& peer) : peer_(peer.running()) {}

  /// Stores `value` under (key, subkey) at the peers nearest to the key, for `lifetime`, at most a
  /// day. The value that expires last replaces others. Fails with ec::oversize and the bound,
  /// ec::timeout, or the reason why no peer stored it.
  [[nodiscard]] status put(const std::string& key, const std::string& subkey,
                           const std::string& value, std::chrono::milliseconds lifetime,
                           std::chrono::milliseconds timeout = std::chrono::seconds{10});
  /// All values under the key, by subkey; empty if there are none.
  [[nodiscard]] result<std::map<std::string, std::string>>
  get(const std::string& key, std::chrono::milliseconds timeout = std::chrono::seconds{10});

private:
  std::shared_ptr<running_node> peer_;
};

} // namespace waggle
