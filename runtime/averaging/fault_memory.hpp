#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

enum class fault_kind : std::uint8_t {
  none = 0,   // says nothing about how the member will behave in the next round
  silent = 1, // it was connected and sent nothing
  wrong = 2,  // it sent what no correct member sends
  left = 3,   // it reported that it does not take part in the round of its group
  slow = 4,   // it was late again, after it had kept most rounds waiting (patience)
};
constexpr std::string_view to_string(fault_kind x) {
  constexpr std::string_view names[]{"none", "silent", "wrong", "left", "slow"};
  return names[static_cast<std::size_t>(x)];
}

/// The kind of the fault for which a round gave a member up.
///
/// A lost connection is none: a peer that was killed or moved must be able to return at once. Nor
/// is ec::bad_weight: a reducer that lies can have it found of an honest contributor, by reporting
/// another weight for it.
fault_kind kind_of(ec reason);

/// The faults of members of this peer's own rounds. A member that was silent or wrong stays out of
/// this peer's groups for a time that doubles. Each peer remembers for itself; nothing is
/// exchanged, so a false accusation reaches no peer that has not noticed anything.
///
/// **Silent.** The first silence excludes nobody: it may have been a suspended laptop. Further ones
/// exclude for 5 s, 10 s, … up to 10 min. After 10 min without one (and outside of an exclusion)
/// the next one is the first again.
///
/// **Left.** A member may leave its group at any time, and enter again. Like the first silence, the
/// first time excludes nobody; a peer that leaves again within 10 min stays out as if it had been
/// silent. Completed rounds do not shorten that: a member that leaves has to enter to leave again.
///
/// **Wrong.** Excludes at once, for 30 s, 60 s, … up to an hour. Completed rounds do not shorten
/// that, because a liar completes rounds whenever it likes. An hour without one does.
///
/// **Slow.** Excludes at once, because it takes several late rounds to be slow (patience): for 60
/// s, 120 s, … up to an hour, and is forgotten like a wrong value.
///
/// **Forgetting a silence.** A completed round takes one step of silence back, but at most one per
/// minute, never the first one, and not the exclusion that runs. So a peer that was slow for a
/// while recovers step by step. A member that is silent in every other round gains nothing: steps
/// are added faster than once a minute. One that alternates more slowly keeps its place and costs
/// one stall timeout a minute, a twelfth of the time with the default. One that waits until a
/// silence is the first again costs one in ten minutes.
///
/// **If most are excluded.** The rules of a round assume that most peers are honest. If those
/// excluded are at least as many as the members of our group, ourselves included, it is more likely
/// that we, our network or a false accusation are the cause. Every exclusion then ends 30 s after
/// the fault. This includes the case that we would be alone. Alone is better than with a silent
/// peer, because the round's result is the same and comes sooner. But a peer that has recovered is
/// worth more than being alone, and trying every 30 s costs a seventh of the time at most. Two
/// honest peers with a bad link between them therefore never lose each other for longer.
///
/// **Not covered.** A member that breaks its link before the round that noticed its silence has
/// ended, or returns under another identity: both look like honest peers.
///
/// Not thread-safe.
class fault_memory {
public:
  /// Exclusions: `first`, twice as long for each further fault, at most `longest`.
  struct duration_range {
    milliseconds first;
    milliseconds longest;
  };
  struct limits {
    duration_range silent{milliseconds{5'000}, milliseconds{600'000}};
    duration_range wrong{milliseconds{30'000}, milliseconds{3'600'000}};
    duration_range slow{milliseconds{60'000}, milliseconds{3'600'000}};
    milliseconds silence_forgotten_after{600'000};
    milliseconds step_forgotten_after{60'000};
    milliseconds longest_if_most{30'000};
    /// A link that is found dead explains a silence that began at most this long before.
    milliseconds retracted_within{10'000};
    /// Only members of our rounds are remembered, so strangers cannot fill it. Beyond this, the one
    /// whose exclusion ended the longest ago is forgotten.
    std::size_t peers_max = 1'024;
  };
  struct exclusion {
    fault_kind kind = fault_kind::none;
    milliseconds lasts{0};
  };

  explicit fault_memory(limits how) : limits_(how) {}
  fault_memory() : fault_memory(limits{}) {}

  /// A round gave `peer` up for this reason. Returns the exclusion that begins, if one does.
  std::optional<exclusion> add(const peer_id& peer, ec reason, steady_time now) {
    return add(peer, kind_of(reason), now);
  }
  std::optional<exclusion> add(const peer_id& peer, fault_kind kind, steady_time now);
  void completed_with(const peer_id& peer, steady_time now);
  /// The link to `peer` turned out to be dead: a silence just before was no fault.
  void retract_silence(const peer_id& peer, steady_time now);

  /// Why `peer` stays out; none: it does not. `group_size`: the members of our group, ourselves
  /// included.
  [[nodiscard]] fault_kind excluded_for(const peer_id& peer, std::size_t group_size,
                                        steady_time now) const;
  /// All peers that stay out, in ascending order.
  [[nodiscard]] std::vector<peer_id> excluded(std::size_t group_size, steady_time now) const;
  /// Peers that are remembered, those included that do not stay out now.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

private:
  struct record {
    std::uint32_t steps = 0; // faults that count
    steady_time last{};      // fault
    steady_time until{};     // end of the exclusion
    steady_time reduced{};   // when a step was taken back, or the last fault
  };
  struct entry {
    std::array<record, 5> faults; // by kind
    record silent_before;         // before the last silence

    [[nodiscard]] record& of(fault_kind kind) { return faults[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] steady_time until() const {
      return std::ranges::max_element(faults, {}, &record::until)->until;
    }
    [[nodiscard]] steady_time touched() const {
      return std::max(until(), std::ranges::max_element(faults, {}, &record::last)->last);
    }
  };

  entry& entry_of(const peer_id& peer);
  [[nodiscard]] bool most_excluded(std::size_t group_size, steady_time now) const;
  /// The kind of the fault for which it stays out now; none: it does not.
  [[nodiscard]] fault_kind holds(const entry& known, bool most, steady_time now) const;

  limits limits_;
  std::map<peer_id, entry> entries_; // bounded by peers_max
};

} // namespace waggle
