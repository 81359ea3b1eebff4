#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/progress/progress_ledger.hpp"

namespace waggle {

/// Where a peer stands when it looks at what others claim.
struct history_view {
  peer_id self;
  history line;
  bool in_group = false;
  bool may_lead = true; // false: a client, whom only an auxiliary could enter through
  bool alone = false;   // nobody else is in our group
};

enum class course : std::uint8_t {
  stay,  // in our group
  enter, // the group of `through`
  found, // a group of our own: ours is the state to go on from
  wait,  // for `awaited` to found one
};

struct history_choice {
  course what = course::stay;
  digest branch;                    // of the group to enter
  std::uint64_t work = 0;           // that its members claim
  std::size_t supporters = 0;       // how many they are
  std::vector<peer_record> through; // its members, those who hold its state first
  peer_id awaited;
};

/// Which of the histories that are claimed is the run's. The same question gets the same answer
/// everywhere, so peers that are connected come to hold one history:
///
/// 1. the one that more live peers train together, counting each peer once. One peer alone, with
///    whatever it claims, never outweighs two; an old data folder does not replace a live run;
/// 2. then the one with more work (samples times contributors since the run's start), which is the
///    one that more was done for since the two parted. Differences below some 3 % do not count:
///    reports are older than what a peer knows of itself;
/// 3. then the one with the smaller name.
///
/// A client with nobody beside it counts for none where an auxiliary trains with others: nobody but
/// an auxiliary could come to it.
///
/// A peer that is in no group counts for none. If nobody is in one, the peer with the most work,
/// then the smallest id, founds it: it holds the state that is worth most.
history_choice choose_history(const history_view& own,
                              const std::vector<swarm_progress::peer>& others);

} // namespace waggle
