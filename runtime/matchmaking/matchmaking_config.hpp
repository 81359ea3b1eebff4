#pragma once

#include <optional>
#include <string>

#include "runtime/averaging/partition.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/version.hpp"

namespace waggle {

/// The fields that all members of a group must agree on are hashed into the schema that a leader
/// checks, see `group_schema`.
struct matchmaking_config {
  /// Names the vector that is averaged; peers with different prefixes never form a group. Must not
  /// contain ".".
  std::string prefix = "vector";
  /// The bucket to begin in, a string of 0 and 1; empty: one bucket for all. With b bits and full
  /// groups of M (a power of two), M·2^b peers hold the mean of all after b / log2 M + 1 rounds.
  std::string initial_group_bits{};
  /// Adapts the number of bits to the swarm: buckets with more than twice the target size are
  /// split, those with half of it or less are merged. Peers announce the sizes of their buckets in
  /// the DHT, and each search reads them first. Should be equal on all peers of a run.
  bool elastic_bits = false;
  /// How long a peer's announced bucket size is valid; should be longer than the time between two
  /// rounds.
  milliseconds load_memory{540'000};
  /// Digest of everything else that members must share (shapes, optimizer).
  digest schema{};
  member_mode mode = member_mode::node;
  /// For an auxiliary: join groups beside their members (see group_search), in whatever bucket.
  bool extra = false;
  /// Bytes per second that this peer can send and receive. None: as measured; 0: never reduce.
  std::optional<double> bandwidth{};
  aggregation reduce_by{};
  part_size parts{};
  std::uint32_t min_contributors = 1;
  std::uint64_t min_vector_size = 0; // elements; smaller shares are assigned to other members

  std::size_t min_group_size = 2;
  std::size_t target_group_size = round_members_max;
  /// A group below its target size begins this long after its leader began to search. Raise it if
  /// peers arrive late and groups are small.
  milliseconds min_matchmaking_time{3'000};
  milliseconds request_timeout{2'000};
  /// A search that has seen no peer for this long gives up before its deadline; 0: never.
  milliseconds alone_after{0};
};

/// Fails with ec::bad_config if the configuration cannot be used; the sentence names the field. To
/// be called once all defaults are resolved. `client`: the peer accepts no connections, whatever
/// the configuration says.
status check_matchmaking_config(const matchmaking_config& config, bool client);

/// A warning for the operator about a configuration that can be used; nothing if there is none.
std::optional<std::string> matchmaking_warning(const matchmaking_config& config);

/// Hash over everything that must be equal on all members of a group: protocol version, prefix,
/// codecs, aggregation, part size, minimum of contributors, target size (the next bucket depends on
/// it), smallest share, and `config.schema`.
digest group_schema(const matchmaking_config& config, const codec_plan& codecs,
                    std::uint32_t version = protocol_version);

} // namespace waggle
