#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include <caf/fwd.hpp>

#include "runtime/core/time.hpp"

namespace prometheus {
class Registry;
} // namespace prometheus

namespace waggle {

enum class log_level : std::uint8_t { debug = 0, info, warn, error };

/// What a peer shares with the process that it is a part of. Any number of peers, also of several
/// runs, may share one of each. What is not given, the peer makes for itself.
struct environment {
  /// Runs the peer's actors, at least one thread. Must outlive the peer. Null: one with two
  /// threads.
  caf::actor_system* system = nullptr;
  /// Takes the peer's series, which have the labels `run` (a tag, not the name) and `peer`, until
  /// it leaves. Each peer shows all of it at `/metrics`, also what is the service's own.
  std::shared_ptr<prometheus::Registry> registry{};
  /// Takes the lines of the log, without control characters. Called on the threads of the peers, by
  /// several at once, until the actor system has ended; must neither throw nor wait for a peer.
  /// Empty: standard error.
  std::function<void(log_level, std::string_view)> log{};
  /// The time that peers compare. Null: the machine's.
  std::shared_ptr<const wall_clock> clock{};
};

} // namespace waggle
