#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// How large parts are, in values.
struct part_size {
  std::uint32_t largest = 1U << 17U; // 512 KiB as float32
  /// Smaller where a slow line gains by it; else always `largest`.
  bool chosen = true;

  friend bool operator==(const part_size&, const part_size&) = default;
};

/// How the members of a round divide its work: who reduces how many values, in parts of which size.
struct vector_partition {
  std::vector<std::uint64_t> shares;
  std::uint32_t part_elements = 0;

  friend bool operator==(const vector_partition&, const vector_partition&) = default;
};

/// What the line of a member carries.
struct member_bandwidth {
  std::optional<double> bytes_per_second; // none: not known, 0: never reduce
  /// By the operator, so taken as it is. What a peer measures of itself is noisy.
  bool declared = false;

  member_bandwidth() = default;
  member_bandwidth(double measured) : bytes_per_second(measured) {}
  member_bandwidth(std::optional<double> value, bool is_declared = false)
    : bytes_per_second(value), declared(is_declared) {}

  friend bool operator==(const member_bandwidth&, const member_bandwidth&) = default;
};
/// In the order of a plan's members.
using member_bandwidths = std::vector<member_bandwidth>;

/// What a group's members agreed on about dividing their rounds.
struct partition_terms {
  part_size parts;
  std::uint64_t min_vector_size = 0;
  bool reduces = true;     // we do; else a partition with a share for us is none
  member_bandwidths lines; // as the group's leader knows them; empty: we do not lead

  friend bool operator==(const partition_terms&, const partition_terms&) = default;
};

/// Divides the vector of `plan`: shares by bandwidth (`balanced_shares`; measured lines within a
/// tenth are equal, declared ones are what they are), and the largest parts that cost nothing to
/// speak of.
///
/// Whoever reduces little has sent its vector when its last contributions are under way to each
/// reducer, but results of these come back only afterwards: a part of every reducer's over its line
/// while that has nothing else to do. So parts are halved until nobody's line needs a sixteenth (or
/// 2 ms, below which a part's own cost is more) longer than the slowest needs anyway. Among equal
/// lines, and where none is known, that is never: there is always a result of one's own to send.
/// For equal inputs the same everywhere. Parts are not made smaller than `smallest_part`, and not
/// at all for aggregators that compare whole parts.
///
/// Reads from `plan`: members, elements, codecs, reduce_by. Fails like balanced_shares.
/// REQUIRES: as many bandwidths as members.
result<vector_partition> make_partition(const round_plan& plan, const member_bandwidths& bandwidths,
                                        const part_size& parts, std::uint64_t min_vector_size);

/// How the rounds after that of `plan` are to be divided, if that is worth saying: they take by
/// `terms.lines` a twentieth less than divided as in `plan`.
/// REQUIRES: `terms.lines` has as many as there are members.
std::optional<vector_partition> better_partition(const round_plan& plan,
                                                 const partition_terms& terms);

/// What member `self` checks before it takes another partition of `plan` from its leader. Fails
/// with ec::protocol_violation and the reason.
status check_partition(const round_plan& plan, const vector_partition& how,
                       const partition_terms& terms, std::size_t self);

/// What a partition of `plan` would take by the lines that are known, in seconds without delays; 0
/// if none is.
double transfer_seconds(const round_plan& plan, const member_bandwidths& bandwidths,
                        const vector_partition& how);

/// The least that a part may have under these codecs: 32 KiB on the wire, of which headers and
/// codebooks are a few hundredths. A multiple of every codec's block. At most `parts.largest`.
std::uint32_t smallest_part(const codec_plan& codecs, const part_size& parts);

/// Whether a leader may choose parts of `elements` for a round with these codecs.
bool may_be_part(std::uint32_t elements, const codec_plan& codecs, const part_size& parts);

} // namespace waggle
