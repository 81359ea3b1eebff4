#pragma once

// A state of a service's own, which its peers give to each other. Link waggle::actors.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "waggle/node.hpp"

namespace waggle {

struct fetched_version {
  std::uint64_t version = 0;
  std::vector<std::byte> bytes;
  peer_id donor; // the one that sent the last of them
};

/// Versions of one state by name, e.g. the weights of a model that a service loads:
///
///     auto weights = waggle::shared_state::of(node, "weights");
///     weights->donate(7, bytes);                // this peer gives version 7 to those that ask
///     auto newest = weights->fetch(7, 5min);    // on another peer: version 7 or a later one
///
/// For peers of waggle::node: those that train share the state of their run. Thread-safe. Keeps the
/// peer's threads alive, but not the peer.
class shared_state {
public:
  /// Fails with ec::bad_config if the name does not have 1 to 200 bytes.
  static result<shared_state> of(const node& peer, std::string name);

  /// Copies the bytes, and gives them to other peers until the peer leaves or donates another
  /// version. Every donor of a version donates the same bytes. Fails with ec::wrong_shape if there
  /// are none, or with ec::bad_config if the version is more than 2^48.
  status donate(std::uint64_t version, std::span<const std::byte> bytes);
  /// Downloads a version not below `version_min`, and waits for `timeout` until another peer has
  /// one. Of donors that offer different bytes, those of more than half count; the download goes on
  /// with another donor if one is lost. All bytes have the hash that was offered. Whoever can join
  /// the run can donate: where strangers can, compare the bytes with a hash or signature of your
  /// own. Fails with ec::no_donor if no other peer has such a version by then, ec::oversize if it
  /// has more than `bytes_max` bytes, ec::timeout, …
  [[nodiscard]] result<fetched_version> fetch(std::uint64_t version_min,
                                              std::chrono::milliseconds timeout,
                                              std::uint64_t bytes_max = 1ULL << 30U) const;

private:
  shared_state(std::shared_ptr<running_node> peer, std::string name)
    : peer_(std::move(peer)), name_(std::move(name)) {}

  std::shared_ptr<running_node> peer_;
  std::string name_;
};

} // namespace waggle
