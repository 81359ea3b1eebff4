#pragma once

#include <optional>
#include <string>

#include "runtime/averaging/partition.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/handshake.hpp"

namespace waggle {

/// What the members of a group have to agree on is hashed into the schema that a leader checks, see
/// `group_schema`.
struct matchmaking_config {
  /// Names what is averaged; groups of different prefixes never mix. Without ".".
  std::string prefix = "vector";
  /// The bucket to begin in, a row of 0 and 1; empty: one bucket for all. With b bits and groups of
  /// M (a power of two) that are all full, M·2^b peers hold the mean of all after b / log2 M + 1
  /// rounds (spec/averaging.md §2.4).
  std::string initial_group_bits;
  /// As many bits as the swarm needs: buckets with more than twice the target size are split, those
  /// with half of it or less are merged. What peers saw of their buckets goes through the DHT;
  /// each search looks there first. All peers of a run should have this alike.
  bool elastic_bits = false;
  /// How long what one peer saw counts at most; best longer than from one round to the next.
  milliseconds load_memory{540'000};
  /// Over whatever else both sides must share (shapes, optimizer).
  digest schema;
  member_mode mode = member_mode::node;
  /// Bytes per second that this peer can send and receive; none: as measured, 0: never reduce.
  std::optional<double> bandwidth;
  aggregation reduce_by;
  part_size parts;
  std::uint32_t min_contributors = 1;
  std::uint64_t min_vector_size = 0; // elements; smaller shares are given to others

  std::size_t min_group_size = 2;
  std::size_t target_group_size = round_members_max;
  /// A group below its target size begins this long after its leader began to search. Raise it if
  /// peers come late and groups are small.
  milliseconds min_matchmaking_time{5'000};
  milliseconds request_timeout{2'000};
  /// A search that has seen nobody at all for this long gives up before its deadline; 0: never.
  milliseconds alone_after{0};
};

/// Everything that makes a configuration unusable, with the field's name in the sentence: ec::
/// bad_config. `client`: the peer accepts no connections, whatever the configuration says
/// (spec/averaging.md §1.2: to be checked once all defaults are resolved).
status check_matchmaking_config(const matchmaking_config& config, bool client);

/// What an operator should know about a configuration that can be used.
std::optional<std::string> matchmaking_warning(const matchmaking_config& config);

/// The mode that two switches ask for. Fails with ec::bad_config for both at once.
result<member_mode> mode_of(bool client, bool auxiliary);

/// Hash over everything that a group's members must have alike (spec/averaging.md §3.1): protocol
/// version, prefix, codecs, aggregation, part size, minimum of contributors, target size (the next
/// bucket depends on it), smallest share, and `config.schema`.
digest group_schema(const matchmaking_config& config, const codec_plan& codecs,
                    std::uint32_t version = net::protocol_version);

} // namespace waggle
