#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"

namespace waggle {

/// A peer that we were connected with, and its addresses.
struct known_peer {
  peer_id id;
  std::vector<endpoint> addresses; // at most addresses_max

  friend bool operator==(const known_peer&, const known_peer&) = default;
};

/// The peers that this one was connected with most recently. After a restart a peer finds the run
/// with them, even if its initial peers are gone. Not thread-safe.
///
/// Stored as a text file:
///   waggle known peers 1
///   run <SHA-256 of the run id>
///   <peer id> <host:port> <host:port>…      (newest first)
class known_peers {
public:
  static constexpr std::size_t peers_max = 64;
  static constexpr std::size_t text_bytes_max = 128 * 1024;

  /// Reads what `text` writes. The result is empty if the file belongs to another run. A damaged
  /// file fails with ec::malformed and the line number.
  static result<known_peers> parse(std::string_view text, std::string_view run_id);
  [[nodiscard]] std::string text(std::string_view run_id) const;

  /// A link with `peer` was opened or has just ended: it becomes the newest entry. A peer without
  /// addresses is not kept. False: nothing changed.
  bool linked(const peer_record& peer);

  [[nodiscard]] const std::vector<known_peer>& newest_first() const { return peers_; }

private:
  std::vector<known_peer> peers_; // at most peers_max
};

} // namespace waggle
