#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace waggle {

/// Everything that can go wrong without being a bug. The names are the `reason` label of metrics,
/// the `reason` field of logs and JSON. The values are sent to peers: append, never renumber.
enum class ec : std::uint8_t {
  /// Not an error.
  none = 0,
  /// The named wait passed its deadline. Retry, or raise the option that the detail names.
  timeout = 1,
  /// The connection to the peer is gone (closed, reset, process died).
  peer_lost = 2,
  /// No connection could be made (refused, no route, name not found).
  unreachable = 3,
  /// We are stopping.
  shutting_down = 4,
  /// The caller cancelled the request.
  cancelled = 5,
  /// Queue, window or table is full. Retry later.
  overloaded = 6,
  /// The peer broke the protocol: wrong message for the state, a field out of its range.
  protocol_violation = 7,
  /// Bytes that are not a frame, or a header that does not parse.
  malformed = 8,
  /// A frame, field or list over its limit.
  oversize = 9,
  /// The peer belongs to another run.
  wrong_run = 10,
  /// The peer speaks another protocol version.
  wrong_version = 11,
  /// A signature or proof of identity does not verify.
  bad_signature = 12,
  /// We are talking to ourselves, or a second process uses this identity.
  duplicate_identity = 13,
  /// The peer's clock is too far from ours.
  clock_skew = 14,
  /// Shapes, sizes, codec or plan of the two sides differ.
  schema_mismatch = 15,
  /// The peer is at another epoch.
  epoch_mismatch = 16,
  /// A value is NaN or infinite.
  non_finite = 17,
  /// A weight is negative, NaN or infinite.
  bad_weight = 18,
  /// A part, tensor or vector has the wrong length.
  wrong_shape = 19,
  /// Not looking for a group now.
  not_looking = 20,
  /// Not declared in the DHT yet.
  not_declared = 21,
  /// Follows another leader; the reply names it.
  not_a_leader = 22,
  /// The asking peer expires before us, so it should lead.
  bad_expiration = 23,
  /// The asking peer is a member already.
  duplicate_peer = 24,
  /// The group has its target size.
  group_full = 25,
  /// The leader disbanded the group; the message may name another.
  group_disbanded = 26,
  /// The group has another key.
  wrong_group_key = 27,
  /// Nobody else declared under the group key before the deadline.
  nobody_declared = 28,
  /// Fewer members than min_group_size by the deadline.
  too_few = 29,
  /// There is no group with this id.
  unknown_round = 30,
  /// The round lost the majority that may decide it.
  lost_quorum = 31,
  /// The other members went on without us.
  excluded = 32,
  /// The peer sent nothing we wait for within its progress deadline.
  stalled = 33,
  /// A record is expired, or expires too late.
  bad_expiry = 34,
  /// A stored record is newer.
  stale_record = 35,
  /// The record's owner or kind does not permit it.
  not_owner = 36,
  /// No peer offers its state.
  no_donor = 37,
  /// A hash differs from the one announced.
  hash_mismatch = 38,
  /// Reading or writing a file failed.
  io_error = 39,
  /// Configuration or argument out of range.
  bad_config = 40,
  /// Something that should not happen did; the detail says what.
  internal = 41,
  /// Too many connections or requests from this address.
  rate_limited = 42,
  /// The named thing does not exist.
  not_found = 43,
  /// Fewer contributors than min_contributors.
  too_few_contributors = 44,
  /// The service is there but not ready (still starting, out of sync).
  not_ready = 45,
  /// A contribution is implausibly large compared with those of the other members.
  implausible_norm = 46,
  /// The peer was started with different values for options that must be equal in a run.
  agreement_mismatch = 47,
  /// A part of the result differs between the members that its reducer sent it to.
  unequal_results = 48,
  /// A reducer sent another result than the contributions to its part give.
  wrong_sum = 49,
  /// The peer is not on the run's list of members, or its time on it is over.
  not_a_member = 50,
};

constexpr std::uint8_t ec_max = 50;

/// The stable name, as in metrics: "peer_lost". "unknown" for a code of a newer version.
std::string_view to_string(ec code);

/// From a byte of the wire; codes of a newer version become `ec::internal`.
ec ec_from_wire(std::uint32_t value);

/// A code and the details for a person (which peer, which limit, which file).
struct failure {
  ec code = ec::none;
  std::string detail;

  friend bool operator==(const failure&, const failure&) = default;
};

/// "peer_lost: connection to 1a2b3c4d reset".
std::string to_string(const failure& what);

/// Throws what can be caught as `const failure&` and as `const std::exception&`.
[[noreturn]] void throw_failure(const failure& why);

} // namespace waggle
