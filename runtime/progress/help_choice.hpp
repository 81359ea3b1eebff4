#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/progress/history_choice.hpp"

namespace waggle {

/// Where an auxiliary without a model stands when it looks whether clients need it.
struct helper_state {
  peer_id self;
  history line;              // of its group
  epoch_id epoch;            // of its group's next round
  std::set<peer_id> members; // of its group, itself included; empty: it is in none
  std::set<peer_id> links;   // whom it is connected with
};

/// What an auxiliary without a model is to do.
enum class help : std::uint8_t {
  none,  // nobody needs it: outside, or in its group, which has no client any more
  enter, // the group of `through`, whatever group it is in
  stay,  // in its group
};

struct help_choice {
  help what = help::none;
  history line;                     // of the group to enter: branch and work
  std::vector<peer_record> through; // its members, those who hold its state first
};

/// Clients accept no connections and never reduce: a group all of whose members are clients has
/// nobody who could lead it, or let others in. An auxiliary enters such a group, be it a single
/// client, of the history that choose_history prefers; into groups with a member that others can
/// reach it does not push itself. Once in, it stays while the group has a client and its history is
/// preferred, also if trainers that can be reached come, so that nothing changes when they go.
///
/// `connected`: those of whom the auxiliary hears by a link of its own.
help_choice choose_help(const helper_state& own,
                        const std::vector<swarm_progress::peer>& connected);

/// How many members of its group are clients. A member that is connected and has said nothing of
/// itself yet is taken for one.
std::uint32_t clients_among(const helper_state& own,
                            const std::vector<swarm_progress::peer>& connected);

/// The samples that the members of the auxiliary's group have toward its epoch, as they said, and
/// the target that all of them reach; target 0: nobody said it. Clients hear nothing of each other,
/// so it falls to the auxiliary to see when the epoch is full.
struct group_samples {
  std::uint64_t samples = 0;
  std::uint64_t target = 0;

  [[nodiscard]] bool full() const { return target > 0 && samples >= target; }
};
group_samples samples_toward(const helper_state& own,
                             const std::vector<swarm_progress::peer>& connected);

/// Those of the auxiliary's history who can give it the history's state.
std::vector<peer_record> holders_of(const helper_state& own,
                                    const std::vector<swarm_progress::peer>& connected);

} // namespace waggle
