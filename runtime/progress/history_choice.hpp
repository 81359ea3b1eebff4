#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/progress/progress_ledger.hpp"

namespace waggle {

/// The position of a peer when it compares the histories that others claim.
struct history_view {
  peer_id self;
  history past;
  bool in_group = false;
  bool may_lead = true; // false: a client, through which only an auxiliary could enter
  bool alone = false;   // our group has no other member
};

enum class course : std::uint8_t {
  stay,  // stay in our group
  enter, // enter the group of `through`
  found, // begin a group of our own: the run continues from our state
  wait,  // wait until `awaited` founds a group
};

struct history_choice {
  course what = course::stay;
  digest branch;                    // of the group to enter
  std::uint64_t work = 0;           // claimed by its members
  std::size_t supporters = 0;       // the number of its supporters
  std::vector<peer_record> through; // its members; those that hold its state come first
  peer_id awaited;
};

/// Decides which of the claimed histories is the run's. The same inputs give the same answer on
/// every peer, so connected peers converge to one history. In this order:
///
/// 1. the history that more live peers train together, counting each peer once. One peer alone,
///    whatever it claims, never outweighs two; an old data folder does not replace a live run;
///    whatever it claims, never outweighs two; an old data folder does not replace a live run;
/// 2. then the history with more work (samples times contributors since the run's start), i.e. with
///    more work since the two histories forked. Differences below about 3 % do not count: reports
///    are older than what a peer knows of itself;
///    one that more was done for since the two parted. Differences below some 3 % do not count:
///    reports are older than what a peer knows of itself;
/// 3. then the history with the smaller name.
///
/// A client without other members does not count as a supporter if an auxiliary trains with others:
/// only an auxiliary could join it.
///
/// A peer that is in no group does not count as a supporter. If no peer is in a group, the peer
/// with the most work, then the smallest id, founds one, because its state is worth most.
history_choice choose_history(const history_view& own,
                              const std::vector<swarm_progress::peer>& others);

} // namespace waggle
