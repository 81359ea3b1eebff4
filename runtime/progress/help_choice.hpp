#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runtime/progress/history_choice.hpp"
#include "runtime/progress/sample_claims.hpp"

namespace waggle {

/// The inputs of an auxiliary without a model when it checks whether clients need it.
struct helper_state {
  peer_id self;
  history past;              // of its group
  epoch_id epoch;            // of its group's next round
  std::set<peer_id> members; // of its group, including itself; empty: it is in no group
  std::set<peer_id> links;   // the peers that it is connected to
  /// The peers with which it completed rounds; null: none. What these claim is believed.
  const evidence* known = nullptr;
};

/// What an auxiliary without a model should do.
enum class help : std::uint8_t {
  none,  // it is not needed: it is in no group, or its group has no client any more
  enter, // enter the group of `through`, from whatever group it is in
  stay,  // stay in its group
};

struct help_choice {
  help what = help::none;
  history past; // of the group to enter: branch and work
  /// Its members; those with which we completed rounds come first, then those that hold its state.
  std::vector<peer_record> through;
  std::optional<history_choice::doubt> doubted; // see history_choice
};

/// Clients accept no connections and never reduce: in a group of clients only, no member can lead,
/// and no peer can join through one. An auxiliary enters such a group, even that of a single
/// client, of the history that choose_history prefers; it does not enter groups with a member that
/// others can reach. Once in, it stays while the group has a client and its history is preferred,
/// even if reachable trainers join, so that nothing changes when they leave.
///
/// Anybody can claim to be a reachable member of that group. Where we know peers of it, such a
/// claim counts if we know its peer, too, or if more than half of those that we know report a group
/// that is larger than the number of its clients.
///
/// `connected`: the peers that report to the auxiliary over a link of their own.
help_choice choose_help(const helper_state& own,
                        const std::vector<swarm_progress::peer>& connected);

/// The number of clients among the members of its group. A member that is connected and has not
/// reported anything yet counts as a client.
std::uint32_t clients_among(const helper_state& own,
                            const std::vector<swarm_progress::peer>& connected);

/// The samples that count toward the epoch of the auxiliary's group, and the target that most of
/// its members report, or most of those that we know if there are any; target 0: no member reported
/// one. Clients receive nothing from each other, so the auxiliary has to detect when the epoch is
/// full.
struct group_samples {
  std::uint64_t samples = 0;
  std::uint64_t target = 0;

  [[nodiscard]] bool full() const { return target > 0 && samples >= target; }
};
group_samples samples_toward(const helper_state& own,
                             const std::vector<swarm_progress::peer>& connected,
                             const sample_claims& claims, steady_time now);

/// Larger than the target of any run; the sum over 64 members does not overflow.
constexpr std::uint64_t helper_target_max = std::uint64_t{1} << 56U;

/// Passes what the members of the auxiliary's group claim toward its epoch on to `claims`.
void observe_samples(const helper_state& own, const std::vector<swarm_progress::peer>& connected,
                     sample_claims& claims);

/// Whether the weight of a complete round shows that its weights are samples. An auxiliary is not
/// informed of what its group averages. Where that is parameters, each contributor that trains has
/// weight 1, and the claimed samples cannot be compared with the weight.
bool weighs_samples(double weight_sum, std::size_t contributors);

/// The peers that can send the state of the auxiliary's group: the members with which it completed
/// rounds; if none of these has it, the other members; if no member has it, others that train the
/// history and with which it completed rounds. Nobody else: anybody can claim to hold a state.
std::vector<peer_record> holders_of(const helper_state& own,
                                    const std::vector<swarm_progress::peer>& connected);

} // namespace waggle
