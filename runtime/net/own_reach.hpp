#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"

namespace waggle::net {

/// What has changed, since this peer started, in how others reach it and it reaches others.
/// Thread-safe.
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

  /// A host to which large packets are lost; nothing: none.
  [[nodiscard]] std::optional<std::string> narrow_path() const {
    std::lock_guard guard{mutex_};
    return narrow_path_;
  }
  void set_narrow_path(std::optional<std::string> host) {
    std::lock_guard guard{mutex_};
    narrow_path_ = std::move(host);
  }

private:
  std::atomic<bool> as_client_ = false;
  mutable std::mutex mutex_;
  std::optional<std::vector<endpoint>> addresses_;
  std::optional<std::string> narrow_path_;
};

} // namespace waggle::net
