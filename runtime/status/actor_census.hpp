#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace waggle {

struct actor_count {
  std::uint64_t running = 0;
  std::uint64_t started = 0; // since the peer's start
};

/// The actors of a peer, by name. Thread-safe.
class actor_census {
public:
  void started(const std::string& name) {
    std::lock_guard guard{mutex_};
    auto& kind = kinds_[name];
    ++kind.running;
    ++kind.started;
  }
  void ended(const std::string& name) {
    std::lock_guard guard{mutex_};
    --kinds_[name].running;
  }
  [[nodiscard]] std::map<std::string, actor_count> kinds() const {
    std::lock_guard guard{mutex_};
    return kinds_;
  }

private:
  mutable std::mutex mutex_;
  std::map<std::string, actor_count> kinds_;
};

} // namespace waggle
