#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/progress/history_choice.hpp"

namespace waggle {

/// The inputs of an auxiliary without a model when it checks whether clients need it.
struct helper_state {
  peer_id self;
  history past;              // of its group
  epoch_id epoch;            // of its group's next round
  std::set<peer_id> members; // of its group, including itself; empty: it is in no group
  std::set<peer_id> links;   // the peers that it is connected to
};

/// What an auxiliary without a model should do.
enum class help : std::uint8_t {
  none,  // it is not needed: it is in no group, or its group has no client any more
  enter, // enter the group of `through`, from whatever group it is in
  stay,  // stay in its group
};

struct help_choice {
  help what = help::none;
  history past;                     // of the group to enter: branch and work
  std::vector<peer_record> through; // its members; those that hold its state come first
};

/// Clients accept no connections and never reduce: in a group of clients only, no member can lead,
/// and no peer can join through one. An auxiliary enters such a group, even that of a single
/// client, of the history that choose_history prefers; it does not enter groups with a member that
/// others can reach. Once in, it stays while the group has a client and its history is preferred,
/// even if reachable trainers join, so that nothing changes when they leave.
///
/// `connected`: the peers that report to the auxiliary over a link of their own.
help_choice choose_help(const helper_state& own,
                        const std::vector<swarm_progress::peer>& connected);

/// The number of clients among the members of its group. A member that is connected and has not
/// reported anything yet counts as a client.
std::uint32_t clients_among(const helper_state& own,
                            const std::vector<swarm_progress::peer>& connected);

/// The samples that the members of the auxiliary's group have reported toward its epoch, and the
/// target that all of them reach; target 0: no member reported one. Clients receive nothing from
/// each other, so the auxiliary has to detect when the epoch is full.
struct group_samples {
  std::uint64_t samples = 0;
  std::uint64_t target = 0;

  [[nodiscard]] bool full() const { return target > 0 && samples >= target; }
};
group_samples samples_toward(const helper_state& own,
                             const std::vector<swarm_progress::peer>& connected);

/// The peers of the auxiliary's history that can send the history's state.
std::vector<peer_record> holders_of(const helper_state& own,
                                    const std::vector<swarm_progress::peer>& connected);

} // namespace waggle
