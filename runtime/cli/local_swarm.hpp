#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cli/child_process.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// A `waggle train` that runs in a process of its own.
struct local_peer : child_process {
  endpoint where;
  /// The command by which others join: "waggle train …".
  std::string join_line;
};

/// Peers of one run that this process has started on this machine. Not thread-safe. Told to end
/// (told_to_end), what waits here fails with ec::cancelled.
class local_swarm {
public:
  /// Starts `arguments` and waits, for at most a minute, until the peer has logged where it
  /// listens and how to join it. Its log stands beside its data folder. Also a peer whose start
  /// failed is one of `peers`, until they are stopped.
  status start(const std::vector<std::string>& arguments, const std::filesystem::path& log);

  /// References stay valid.
  [[nodiscard]] std::deque<local_peer>& peers() { return peers_; }

  /// Sends SIGTERM to all and waits until they have ended. Those that have not after `patience`, or
  /// `hurried` after this process is told to end, are killed: ec::timeout or ec::cancelled.
  status stop(milliseconds patience, milliseconds hurried);

private:
  static status await_start(local_peer& peer);

  std::deque<local_peer> peers_;
};

} // namespace waggle
