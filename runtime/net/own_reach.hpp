#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"

namespace waggle::net {

/// What has changed, since this peer started, in how others reach it. Thread-safe.
class own_reach {
public:
  /// It listens, but acts as a client, because others do not reach it.
  [[nodiscard]] bool as_client() const { return as_client_; }
  void set_as_client(bool on) { as_client_ = on; }

  /// The addresses at which it listens now; nothing: those of its start.
  [[nodiscard]] std::optional<std::vector<endpoint>> addresses() const {
    std::lock_guard guard{mutex_};
    return addresses_;
  }
  void set_addresses(std::vector<endpoint> now) {
    std::lock_guard guard{mutex_};
    addresses_ = std::move(now);
  }

private:
  std::atomic<bool> as_client_ = false;
  mutable std::mutex mutex_;
  std::optional<std::vector<endpoint>> addresses_;
};

} // namespace waggle::net
