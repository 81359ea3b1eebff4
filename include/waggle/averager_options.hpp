#pragma once

// What is averaged, and how, of an averager (waggle/averager.hpp). Link waggle::actors.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/codec/tensor_state.hpp"

namespace waggle {

/// What the peers of a run average (waggle/averager.hpp). These are equal on all peers: name,
/// target_group_size, codec, part_size_bytes, min_vector_size.
struct averager_options {
  /// Peers average tensors of the same name. Not empty, without ".".
  std::string name;
  std::size_t target_group_size = 64; // peers that average together; 2 to 64
  std::size_t min_group_size = 2;     // a smaller group does not begin
  /// A group that is not full begins so long after its first member began to look for it.
  std::chrono::milliseconds matchmaking_time{1'000};
  /// A peer that is asked for a group answers within this time; 0: half the time above, at most 2
  /// s.
  std::chrono::milliseconds request_timeout{0};
  /// The bucket in which to begin, as digits 0 and 1; empty: one for all; "auto": as many digits as
  /// the number of peers needs.
  std::string group_bits{};
  std::chrono::milliseconds allreduce_timeout{60'000}; // of a round
  /// A member that sends nothing for so long is given up; 0: 5 s for its values, and for the sums
  /// that it owes twice the time for values.
  std::chrono::milliseconds sender_timeout{0};
  std::chrono::milliseconds reducer_timeout{0};
  /// How far the tensors move towards the mean: 1 goes all the way, 0 stays.
  double alpha = 1;
  std::size_t part_size_bytes = 0; // before the codec, 4 KiB to 16 MiB; 0: chosen
  std::string codec = "none";      // as --codec of `waggle train`
  /// Bytes per second that this peer can send and receive; none: measured; 0: reduces nothing.
  std::optional<double> bandwidth{};
  std::uint64_t min_vector_size = 0; // who would reduce fewer values reduces none
  /// Reduces for others: has no values of its own, and does not change.
  bool auxiliary = false;
  std::uint32_t retries = 3; // after a round that failed, within the timeout

  /// Whether other peers may load this one's state (averager::load_state_from_peers). A thread of
  /// the peer then reads the tensors at any time: hold averager::lock while you write them.
  bool allow_state_sharing = false;
  double state_sharing_priority = 0; // others load from the peer with the highest one
  /// How often the DHT is told; others find this peer after its end for 2.5 times as long. 5 s to
  /// an hour.
  std::chrono::milliseconds declare_state_period{30'000};
  /// What is given. Empty: the tensors. Called on a thread of the peer; if it throws, that peer
  /// loads from another one. Its tensors are copied before it is called again.
  std::function<averager_state()> get_current_state{};
};

} // namespace waggle
