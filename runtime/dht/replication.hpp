#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// Stores one record on the peers nearest to its key, including this one if it is among them. A
/// peer that does not answer is replaced by the next nearest. A peer that refuses is not replaced,
/// because the others would also refuse. A state machine without network; not thread-safe.
class replication {
public:
  struct tally {
    std::uint32_t accepted = 0; // replicas that stored it, ourselves included
    std::uint32_t rejected = 0;
    std::uint32_t failed = 0; // did not answer
    ec last_rejection = ec::none;
  };

  /// `candidates`: peers that answered a lookup of `key`, nearest first, without ourselves.
  replication(const dht_id& key, const peer_record& self, std::vector<peer_record> candidates,
              std::size_t replicas);

  /// True if we are a replica (a client never is). Then report the outcome of our own store with
  /// the first call of `answered`.
  [[nodiscard]] bool stored_here() const { return stored_here_; }
  /// Peers to write to now. Report each outcome with `answered` or `failed`.
  [[nodiscard]] std::vector<peer_record> next();

  /// A replica stored it (ec::none), or refused it for this reason.
  void answered(ec outcome);
  void failed();
  /// Stops waiting: pending answers count as failed.
  void give_up();

  /// True once no answer is pending and there is no further peer to write to, or none is needed.
  [[nodiscard]] bool finished() const { return pending_ == 0 && (wanted_ == 0 || left_.empty()); }
  [[nodiscard]] const tally& result() const { return result_; }

private:
  bool stored_here_;
  std::deque<peer_record> left_; // still to try, nearest first
  std::size_t wanted_;           // replicas still to assign to a peer
  std::size_t pending_ = 0;      // pending answers
  tally result_;
};

} // namespace waggle
