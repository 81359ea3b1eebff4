#pragma once

// A peer on this machine: its network, disk, memory, log and clock, for the program and for
// services.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "actors/node/node.hpp"
#include "actors/service/environment.hpp"
#include "runtime/net/tcp_transport.hpp"

namespace waggle {

/// An actor system for one peer. It sleeps when idle; CAF's default wakes up 500 times a second.
struct own_system_config : caf::actor_system_config {
  own_system_config();
};

/// Passes lines of `level` (debug, info, warn, error) and above to `to`. Null if `to` is empty.
std::shared_ptr<spdlog::logger> logger_to(std::function<void(log_level, std::string_view)> to,
                                          const std::string& level);

/// The memory of a peer's vectors: `arena`, or huge pages of this process if it is null.
std::shared_ptr<std::pmr::memory_resource>
vector_memory(const std::shared_ptr<net::shared_arena>& arena);

/// What a peer depends on. `folder`: for copies of states and known peers; empty: it stores
/// nothing. `tcp`: how it is connected, besides what node_config says. `watch` adds to what the
/// transport's events do; empty: nothing.
node_dependencies machine_dependencies(const environment& around,
                                       std::shared_ptr<const identity> self,
                                       std::shared_ptr<spdlog::logger> log, std::string run_id,
                                       const std::filesystem::path& folder,
                                       net::tcp_transport_config tcp,
                                       std::function<void(net::net_events&)> watch = {});

} // namespace waggle
