#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// One record on its way to the peers that keep it (spec/dht.md §2.7): the nearest to its key, this
/// one included if it is among them. A peer that does not answer is replaced by the next nearest;
/// one that refuses is not, for the others would refuse, too. A state machine without network; not
/// thread-safe.
class replication {
public:
  struct tally {
    std::uint32_t accepted = 0; // replicas that stored it, ourselves included
    std::uint32_t rejected = 0;
    std::uint32_t failed = 0; // did not answer
    ec last_rejection = ec::none;
  };

  /// `candidates`: who answered a lookup of `key`, nearest first; without ourselves.
  replication(const dht_id& key, const peer_record& self, std::vector<peer_record> candidates,
              std::size_t replicas);

  /// We are a replica ourselves (a client never is): how our own store takes it is the first
  /// answer.
  [[nodiscard]] bool stored_here() const { return stored_here_; }
  /// Peers to write to now; each owes an `answered` or a `failed`.
  [[nodiscard]] std::vector<peer_record> next();

  /// A replica stored it (ec::none), or refused it for this reason.
  void answered(ec outcome);
  void failed();
  /// Nobody waits for what is still owed: it counts as failed.
  void give_up();

  /// True once no answer is owed and nobody is left to ask for one.
  [[nodiscard]] bool finished() const { return owed_ == 0 && (wanted_ == 0 || left_.empty()); }
  [[nodiscard]] const tally& result() const { return result_; }

private:
  bool stored_here_;
  std::deque<peer_record> left_; // still to try, nearest first
  std::size_t wanted_;           // replicas that nobody was asked for, or whose peer failed
  std::size_t owed_ = 0;
  tally result_;
};

} // namespace waggle
