#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

struct part_size {
  std::uint32_t largest = 1U << 17U; // 512 KiB as float32
  /// If true, parts are smaller where a slow link gains by it; else always `largest`.
  bool chosen = true;

  friend bool operator==(const part_size&, const part_size&) = default;
};

/// How the members of a round partition its work: how many values each reduces, in parts of which
/// size.
struct vector_partition {
  std::vector<std::uint64_t> shares;
  std::uint32_t part_elements = 0;

  friend bool operator==(const vector_partition&, const vector_partition&) = default;
};

struct member_bandwidth {
  std::optional<double> bytes_per_second; // none: not known, 0: never reduce
  /// Set by the operator, so used as it is. A value that a peer measured itself is noisy.
  bool declared = false;

  member_bandwidth() = default;
  member_bandwidth(double measured) : bytes_per_second(measured) {}
  member_bandwidth(std::optional<double> value, bool is_declared = false)
    : bytes_per_second(value), declared(is_declared) {}

  friend bool operator==(const member_bandwidth&, const member_bandwidth&) = default;
};
/// In the order of a plan's members.
using member_bandwidths = std::vector<member_bandwidth>;

/// What a group's members agreed on about partitioning their rounds.
struct partition_terms {
  part_size parts;
  std::uint64_t min_vector_size = 0;
  bool reduces = true; // we may reduce; if false, a partition with a share for us is refused
  member_bandwidths bandwidths; // bandwidths known to the group's leader; empty: we do not lead

  friend bool operator==(const partition_terms&, const partition_terms&) = default;
};

/// Partitions the vector of `plan`: shares by bandwidth (`balanced_shares`; measured bandwidths
/// within a tenth count as equal, declared ones are used as they are), and the largest parts that
/// cost no noticeable time.
///
/// A member that reduces little has sent its vector when its last contributions are on their way to
/// the reducers, but their results come back only afterwards: one part of every reducer over its
/// link, which is otherwise idle. So parts are halved until no member's link needs more than a
/// sixteenth (or 2 ms, below which the overhead of a part dominates) longer than the slowest needs
/// anyway. With equal bandwidths, or unknown ones, parts are never halved: each member always has a
/// result of its own to send. For equal inputs the result is the same on every machine. Parts are
/// not made smaller than `smallest_part`, and not at all for aggregators that compare whole parts.
///
/// Reads from `plan`: members, elements, codecs, reduce_by. Fails like balanced_shares.
/// REQUIRES: as many bandwidths as members.
result<vector_partition> make_partition(const round_plan& plan, const member_bandwidths& bandwidths,
                                        const part_size& parts, std::uint64_t min_vector_size);

/// The partition for the rounds after that of `plan`, if it is worth announcing: by
/// `terms.bandwidths` they take a twentieth less time than with the partition of `plan`. REQUIRES:
/// `terms.bandwidths` has as many entries as there are members.
std::optional<vector_partition> better_partition(const round_plan& plan,
                                                 const partition_terms& terms);

/// The time that a partition of `plan` would take with the known bandwidths, in seconds without
/// delays; 0 if no bandwidth is known.
double transfer_seconds(const round_plan& plan, const member_bandwidths& bandwidths,
                        const vector_partition& how);

/// The smallest size of a part under these codecs: 32 KiB on the wire, of which headers and
/// codebooks are a few hundredths. A multiple of every codec's block. At most `parts.largest`.
std::uint32_t smallest_part(const codec_plan& codecs, const part_size& parts);

/// Whether a leader may choose parts of `elements` values for a round with these codecs.
bool may_be_part(std::uint32_t elements, const codec_plan& codecs, const part_size& parts);

} // namespace waggle
