#include "runtime/core/error.hpp"

#include <array>

namespace waggle {

namespace {

struct entry {
  std::string_view name;
  std::string_view sentence;
};

// Indexed by value.
constexpr std::array<entry, ec_max + 1U> table{{
  {"none", "Not an error."},
  {"timeout",
   "The named wait passed its deadline. Retry, or raise the option that the detail names."},
  {"peer_lost", "The connection to the peer is gone (closed, reset, process died)."},
  {"unreachable", "No connection could be made (refused, no route, name not found)."},
  {"shutting_down", "We are stopping."},
  {"cancelled", "The caller cancelled the request."},
  {"overloaded", "Queue, window or table is full. Retry later."},
  {"protocol_violation",
   "The peer broke the protocol: wrong message for the state, a field out of its range."},
  {"malformed", "Bytes that are not a frame, or a header that does not parse."},
  {"oversize", "A frame, field or list over its limit."},
  {"wrong_run", "The peer belongs to another run."},
  {"wrong_version", "The peer speaks another protocol version."},
  {"bad_signature", "A signature or proof of identity does not verify."},
  {"duplicate_identity", "We are talking to ourselves, or a second process uses this identity."},
  {"clock_skew", "The peer's clock is too far from ours."},
  {"schema_mismatch", "Shapes, sizes, codec or plan of the two sides differ."},
  {"epoch_mismatch", "The peer is at another epoch."},
  {"non_finite", "A value is NaN or infinite."},
  {"bad_weight", "A weight is negative, NaN or infinite."},
  {"wrong_shape", "A part, tensor or vector has the wrong length."},
  {"not_looking", "Not looking for a group now."},
  {"not_declared", "Not declared in the DHT yet."},
  {"not_a_leader", "Follows another leader; the reply names it."},
  {"bad_expiration", "The asking peer expires before us, so it should lead."},
  {"duplicate_peer", "The asking peer is a member already."},
  {"group_full", "The group has its target size."},
  {"group_disbanded", "The leader disbanded the group; the message may name another."},
  {"wrong_group_key", "The group has another key."},
  {"nobody_declared", "Nobody else declared under the group key before the deadline."},
  {"too_few", "Fewer members than min_group_size by the deadline."},
  {"unknown_round", "There is no group with this id."},
  {"lost_quorum", "The round lost the majority that may decide it."},
  {"excluded", "The other members went on without us."},
  {"stalled", "The peer sent nothing we wait for within its progress deadline."},
  {"bad_expiry", "A record is expired, or expires too late."},
  {"stale_record", "A stored record is newer."},
  {"not_owner", "The record's owner or kind does not permit it."},
  {"no_donor", "No peer offers its state."},
  {"hash_mismatch", "A hash differs from the one announced."},
  {"io_error", "Reading or writing a file failed."},
  {"bad_config", "Configuration or argument out of range."},
  {"internal", "Something that should not happen did; the detail says what."},
  {"rate_limited", "Too many connections or requests from this address."},
  {"not_found", "The named thing does not exist."},
  {"too_few_contributors", "Fewer contributors than min_contributors."},
  {"not_ready", "The service is there but not ready (still starting, out of sync)."},
  {"implausible_norm",
   "A contribution is implausibly large compared with those of the other members."},
  {"agreement_mismatch",
   "The peer was started with different values for options that must be equal in a run."},
  {"unequal_results",
   "A part of the result differs between the members that its reducer sent it to."},
  {"wrong_sum", "A reducer sent another result than the contributions to its part give."},
}};

} // namespace

std::string_view to_string(ec code) {
  auto index = static_cast<std::size_t>(code);
  return index < table.size() ? table[index].name : "unknown";
}

std::string_view explain(ec code) {
  auto index = static_cast<std::size_t>(code);
  return index < table.size() ? table[index].sentence : "This version does not know the reason.";
}

ec ec_from_wire(std::uint32_t value) {
  return value <= ec_max ? static_cast<ec>(value) : ec::internal;
}

std::string to_string(const failure& what) {
  std::string out{to_string(what.code)};
  if (!what.detail.empty())
    out.append(": ").append(what.detail);
  return out;
}

} // namespace waggle
