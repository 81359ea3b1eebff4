#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/time.hpp"
#include "runtime/progress/evidence.hpp"
#include "runtime/progress/progress_ledger.hpp"

namespace waggle {

/// Whom a peer goes by where a group fell apart: the members of that group that had completed a
/// round of it; for a peer that entered one of its pieces since, the members of the piece at that
/// time.
struct former_group {
  digest branch;                // that the group trained
  epoch_id epoch;               // whose round it did not end together
  std::vector<peer_id> members; // the one that led comes first

  /// Evidence of so long ago says nothing about what the pieces have become.
  static constexpr milliseconds lasts{600'000};
};

/// The position of a peer when it compares the histories that others claim.
struct history_view {
  peer_id self;
  history past;
  bool in_group = false;
  bool may_lead = true; // false: a client, through which only an auxiliary could enter
  bool alone = false;   // our group has no other member
  /// Our history was begun without most of the group that it comes from.
  bool provisional = false;
  const evidence* known = nullptr;      // null: we have completed no rounds
  const former_group* former = nullptr; // null: ours has not fallen apart of late
};

enum class course : std::uint8_t {
  stay,  // stay in our group
  enter, // enter the group of `through`
  found, // begin a group of our own: the run continues from our state
  wait,  // wait until `awaited` founds a group
};

struct history_choice {
  course what = course::stay;
  digest branch;              // of the group to enter
  std::uint64_t work = 0;     // claimed by its members
  std::size_t supporters = 0; // the number of its supporters
  /// Its members; those with which we completed rounds come first, then those that hold its state.
  std::vector<peer_record> through;
  peer_id awaited;
  /// Most of its supporters claim that it was begun without most of its group.
  bool provisional = false;
  digest parent;      // that it was forked from, as most of them claim
  epoch_id forked_at; // likewise
  /// No peer that is in a group is known to us: we have nothing to go by but what others claim.
  bool without_evidence = false;
  std::size_t histories = 0; // that anybody claims to train, ours included

  /// A history that more peers claim, but fewer of those with which we completed rounds, ourselves
  /// included. It is not believed.
  struct doubt {
    digest branch;
    std::size_t supporters = 0;
    std::size_t known = 0; // of them
    peer_id first;         // the smallest id among its unknown supporters
  };
  std::optional<doubt> doubted;
};

/// Decides which of the claimed histories is the run's. In this order:
///
/// 1. the history that more of the live peers train together with which we completed rounds, and we
///    ourselves, counting each peer once. If none of them is in a group (we are new, or all whom we
///    knew are gone), this step is left out;
/// 2. then the one that more live peers train together. One peer alone, whatever it claims, never
///    outweighs two; an old data folder does not replace a live run;
/// 3. then the one with more work (samples times contributors since the run's start), i.e. with
///    more work since the two histories forked. Differences below about 3 % do not count: reports
///    are older than what a peer knows of itself;
/// 4. then the one with the smaller name.
///
/// A provisional history gives way to the one that it was forked from, if two peers train that one
/// and we know one of them: otherwise two sides of a split, each joined by newcomers that the other
/// does not know, would both keep their own.
///
/// Where a group fell apart into provisional histories, each side has completed rounds with its own
/// newcomers only. The members of that group decide (`former_group`): of such histories, the one
/// goes on that most of them train, if we have completed rounds with one of its peers. Of equally
/// many, those with the first member of that group decide.
///
/// The same inputs give the same answer on every peer, so connected peers that know each other
/// converge to one history. Two groups that never met do not: see "What liars can and cannot do" in
/// runtime/progress/README.md.
///
/// A client without other members does not count as a supporter if an auxiliary trains with others:
/// only an auxiliary could join it.
///
/// A peer that is in no group does not count as a supporter. If no peer is in a group, the peer
/// with the most work, then the smallest id, founds one, because its state is worth most.
history_choice choose_history(const history_view& own,
                              const std::vector<swarm_progress::peer>& others);

} // namespace waggle
