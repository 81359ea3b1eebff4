#pragma once

#include <vector>

#include "runtime/averaging/partition.hpp"
#include "runtime/matchmaking/group_search.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"

namespace waggle {

/// What a peer searches a group for.
struct group_purpose {
  epoch_id epoch;
  codec_plan codecs;
  std::string gather;              // data of this peer for all members
  std::optional<double> bandwidth; // that this peer announces; 0: it never reduces
};

/// What the members of a group agree on about partitioning their rounds; without bandwidths.
partition_terms terms_of(const matchmaking_config& config, std::optional<double> own_bandwidth);

struct formed_group {
  round_plan plan;
  partition_terms terms;
};

/// The plan of the group that `self` leads, and its terms with the bandwidths of all members. Fails
/// if no member may reduce, or if the plan would not be valid.
result<formed_group> make_group_plan(const matchmaking_config& config, const group_purpose& purpose,
                                     const peer_record& self,
                                     const std::vector<group_search::seeker>& followers,
                                     const round_id& id);

/// The place of member `i` among those that take buckets: contributors first, then auxiliaries,
/// each in the order of the plan. At least the target size: an extra auxiliary, which takes none.
std::size_t bucket_place(std::size_t i, const round_plan& plan);

/// The checks of `self` before it accepts the plan of the leader `from`. Fails with
/// ec::protocol_violation, schema_mismatch or epoch_mismatch, and the reason.
status check_group_plan(const matchmaking_config& config, const group_purpose& purpose,
                        const peer_id& self, const peer_id& from, const round_plan& plan);

} // namespace waggle
