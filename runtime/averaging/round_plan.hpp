#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/averaging/aggregation.hpp"
#include "runtime/codec/codec_plan.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What a member does in a round. The values are sent to peers: append only.
enum class member_mode : std::uint8_t {
  node = 0,      // contributes and reduces
  client = 1,    // contributes only; accepts no connections
  auxiliary = 2, // reduces only
};

struct round_member {
  peer_record peer;
  member_mode mode = member_mode::node;

  friend bool operator==(const round_member&, const round_member&) = default;
};

/// Everything that the members of a round must agree on before any data is sent. The leader makes
/// the plan and sends all of it; every member verifies it (`validate_plan`) instead of deriving its
/// own.
struct round_plan {
  round_id
    id; // if an open group's leader sends the plan: a hash of all that follows (id_of_change)
  std::string prefix;                // name of the averager: "<run id>_grad", …
  epoch_id epoch;                    // the members' common epoch; 0 where there is none
  std::vector<round_member> members; // canonical order: summation, member index; [0] leads
  std::uint64_t elements = 0;        // float32 values in the vector
  std::uint32_t part_elements = 0;   // values per part; the last of a share may be short
  codec_plan codecs;                 // encoding of the parts; covers `elements`
  aggregation reduce_by;
  std::vector<std::uint64_t> shares; // elements reduced by each member; sums to `elements`
  /// The round fails with fewer. Open groups may have fewer members: see fewest_contributors.
  std::uint32_t min_contributors = 1;
  /// The leader shares memory with all others, which are processes of its user that it can see.
  /// Each of them could read the keys of the others, so nothing is checked (why_unchecked). Or the
  /// run has --trust-members true.
  bool one_host = false;
  /// Opaque data that each member published in matchmaking for the others, in the order of
  /// `members`. At most gather_bytes_max each.
  std::vector<std::string> gathered;

  friend bool operator==(const round_plan&, const round_plan&) = default;
};

/// More members than this are refused: the round's bitmaps are 64 bits wide.
constexpr std::size_t round_members_max = 64;
constexpr std::uint64_t plan_elements_max = std::uint64_t{1} << 33U;
/// A part's bytes must fit into one frame's body (wire::body_bytes_max).
constexpr std::uint32_t part_elements_max = 1U << 22U;
constexpr std::size_t gather_bytes_max = 1024;
/// Bounds the transfer state that every member keeps.
constexpr std::uint64_t parts_max = 1U << 20U;

/// More are refused where members pledge: every member keeps a digest of each part of each
/// member.
constexpr std::uint64_t checked_parts_max = 1U << 16U;

/// What a member checks before it accepts a plan: limits, distinct members, shares that cover the
/// vector, a reachable leader. Fails with ec::protocol_violation and the reason.
status validate_plan(const round_plan& plan);

/// Why the members of a round believe each other: they exchange no digest, key, signature, pledge
/// or check, and agree on the contributors alone. Empty if they do check each other.
std::string_view why_unchecked(const round_plan& plan);
inline bool is_checked(const round_plan& plan) {
  return why_unchecked(plan).empty();
}

/// Whether members pledge what they contribute (round_pledges.hpp): drawn sums are summed again, or
/// everybody sums what its codec sends back, and compares it with what was pledged.
bool has_pledges(const round_plan& plan);

/// The index of `peer` among the members; their number if it is not one of them.
std::size_t position_of(const peer_id& peer, const round_plan& plan);
inline bool is_member(const peer_id& peer, const round_plan& plan) {
  return position_of(peer, plan) < plan.members.size();
}

} // namespace waggle
