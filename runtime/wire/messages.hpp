#pragma once

// All messages between peers, as plain structs. `convert.hpp` converts them to protobuf and back,
// and validates: a struct returned by `decode` respects every limit stated here.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/averaging/round_decision.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/frame_limits.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/dht/record.hpp"

namespace waggle::wire {

// -- limits ------------------------------------------------------------------------------------

constexpr std::size_t header_bytes_max = frame_header_bytes_max; // of the protobuf header
constexpr std::size_t body_bytes_max = frame_body_bytes_max;
constexpr std::size_t keys_per_find_max = 64;
constexpr std::size_t records_per_message_max = 256;
constexpr std::size_t nearest_per_key_max = 20;
constexpr std::uint32_t punch_wait_ms_max = 1'000;
constexpr std::size_t detail_bytes_max = 512; // a refusal's text
constexpr std::size_t prefix_bytes_max = 128;
constexpr std::size_t group_key_bytes_max = 256;
constexpr std::size_t result_groups_max = 4096;

// -- dht: answered by the dht_router ------------------------------------------------------------

/// Asks whether the peer is alive, and for its clock.
struct dht_ping {};
struct dht_pong {
  swarm_time now{};
};

/// Asks the peer to dial us back, at the host from which it sees us: do others reach the ports that
/// we announce?
struct dial_back {
  std::vector<std::uint16_t> ports; // 1 to addresses_max, not 0
};
struct dialled_back {
  ec outcome = ec::none; // none: it reached us; overloaded: it has not tried; else why it did not
};

/// Asks the peer to have another one and us dial each other at the same moment, through our routers
/// (punching): both have dialled it, and do not reach each other.
struct introduce {
  peer_id peer;
};
struct introduced {
  ec outcome = ec::none; // none: both are told; else why not (net::punch_broker)
};
/// The receiver is to dial that peer, whom the sender sees there, after that time: at the same
/// moment the peer dials the receiver.
struct punch_note {
  peer_id peer;
  endpoint where;
  std::uint32_t wait_ms = 0; // to punch_wait_ms_max
};

/// How a peer is reached now. The sender: in place of what it announced before. Another peer: the
/// sender has just reached it there, and the receiver, which others may not reach, can dial it.
struct reach_note {
  peer_record peer;
};

/// The newest list of members that the sender has.
struct members_note {
  std::string list; // member_list::bytes
};

/// Asks for the records stored under these keys, and for the peers known nearest to them.
struct dht_find {
  std::vector<dht_id> keys;
  bool nodes_only = false; // without records
  /// Records that the asker has (record_tag), which the answer leaves out.
  std::vector<std::uint64_t> known{};
};
struct dht_found {
  struct answer {
    std::vector<record> records;
    std::vector<peer_record> nearest; // ascending distance to the key
  };
  std::vector<answer> answers; // one per requested key, in order
};

/// Asks the peer to store these records. The answer has one outcome per record.
struct dht_store {
  std::vector<record> records;
};
struct dht_stored {
  std::vector<ec> outcomes; // ec::none: stored
};

// -- matchmaking: answered by the matchmaker -----------------------------------------------------

/// Asks to join the receiver's group.
struct join_group {
  std::string prefix;
  std::string group_key;
  digest schema; // hash over everything that must be equal on both sides
  epoch_id epoch;
  swarm_time expiration{}; // the sender's declared expiration
  member_mode mode = member_mode::node;
  /// Bytes per second; none: not known. 0: the sender never reduces.
  std::optional<double> bandwidth;
  peer_record self;
  std::string gather;              // sent to the whole group; at most gather_bytes_max
  bool bandwidth_declared = false; // true: set by the operator; false: measured
};
struct join_reply {
  ec code = ec::none;                 // ec::none: accepted
  std::vector<peer_record> suggested; // at most one: the leader to ask instead
};

/// Leader to its followers: the group is complete; this is the plan of the round.
struct begin_group {
  round_plan plan;
};
/// Leader to its followers: look for another group; `suggested` holds at most one leader.
struct disband_group {
  std::string prefix;
  std::vector<peer_record> suggested;
};
/// Follower to its leader: the sender leaves the group.
struct leave_group {
  std::string prefix;
};

// -- open groups: received by the averager (runtime/averaging/open_group.hpp) ---------------------

/// Asks to enter the receiver's group. Answered with join_reply. If it is accepted, the leader's
/// next_plan follows; else the reply has the reason, and for ec::not_a_leader the leader.
struct enter_group {
  std::string prefix;
  digest schema; // hash over everything that must be equal on both sides
  member_mode mode = member_mode::node;
  std::optional<double> bandwidth; // bytes per second; none: not known, 0: never reduces
  bool bandwidth_declared = false; // true: set by the operator; false: measured
  digest branch;                   // the history whose group the sender wants to enter
  peer_id unreached{}; // the leader that the receiver named; zero: the sender reaches it
};
struct vector_codecs {
  codec_plan codecs;
};
/// Leader to all members, old and new: the plan of the next round.
struct next_plan {
  round_id replaces; // the plan that would have been next
  round_plan plan;
  digest branch; // the history that the round belongs to
  /// What an auxiliary without prior knowledge of the vector needs to lead this group.
  digest schema;                        // zero: not given
  std::uint32_t members_max = 0;        // 0: not given
  std::vector<vector_codecs> vectors{}; // open_group::terms; none: that of the plan alone
  bool all_each_epoch = false;
};
/// Member to the others: the round of this plan has begun; contribute what is accumulated so far.
struct call_round {
  round_id upcoming;
};

// -- progress: received by the progress_tracker --------------------------------------------------

/// A progress record, pushed to connected peers in addition to storing it in the DHT.
struct progress_push {
  record entry;
};
/// The sender's progress between two records. Sent only over its own link, so it needs no
/// signature.
struct progress_note {
  epoch_id epoch{};
  digest branch{};
  std::uint64_t samples = 0;     // accumulated toward `epoch`
  double samples_per_second = 0; // finite, not negative
};

// -- averaging: received by the averager (runtime/averaging/round_protocol.hpp) -------------------

enum class part_kind : std::uint8_t {
  contribution = 0, // sender to the part's owner
  result = 1,       // owner to every member
  repair = 2,       // to a member that holds other bytes than the adopted result, or not all
  evidence = 3,     // owner to a member that checks the sum: what `member` contributed
};

/// One part of the vector; the values are the frame's body, encoded as the plan requires.
struct part {
  round_id round{};
  std::uint32_t view = 0;
  part_kind kind = part_kind::contribution;
  std::uint32_t index = 0;        // part number
  std::uint64_t offset = 0;       // elements; must equal the plan's
  std::uint32_t count = 0;        // elements; must equal the plan's
  double weight = 0;              // contribution: the sender's; result: the sum over contributors
  std::uint64_t contributors = 0; // result: bitmap over member indices; contribution: 0
  std::vector<double> weights{};  // result: those of the contributors, ascending; else empty
  std::uint32_t member = 0;       // evidence: the contributor; else 0
};

using round_view = waggle::round_view;
/// Leader to the members: the current view.
struct round_propose {
  round_id round;
  round_view view;
  /// If members may lie: the promises from which the view follows (next_view). At most one of each
  /// member.
  takeover_promises promises{};
};
/// Member to the other participants: the sender holds every part of view `view`.
struct round_prepared {
  round_id round;
  std::uint32_t view = 0;
  digest result; // of all parts, see result_digest
  signature by;  // of prepared_statement
};
/// Member to the other participants, before it prepares a large result: it holds every part of view
/// `view`; the key of the fingerprints is made of all members' shares (result_digest).
struct round_key_share {
  round_id round;
  std::uint32_t view = 0;
  std::uint32_t member = 0; // whose share it is: the sender's, or one that the leader passes on
  digest share;
  digest pledges{}; // round_pledges::of, where sums are checked; else zero
};
/// Member to the other participants, where sums are checked: what it fixes before it is known which
/// sums these are (round_pledges). The body has a digest of each part of what it contributes.
struct round_pledge {
  round_id round;
  std::uint32_t view = 0;
  std::uint32_t member = 0; // whose pledge it is: the sender's, or one that the leader passes on
  digest commitment;        // share_commitment
  bool contributes = false; // the frame has a body
};
/// Member to the other participants, after their pledges differed: what each pledged to it.
struct round_pledge_digests {
  round_id round;
  std::uint32_t view = 0;
  std::vector<digest> pledges; // of each participant of the view, ascending
};
/// A checker to the other participants: all sums that it was drawn for are right. They prepare once
/// all checkers have reported that.
struct round_checked {
  round_id round;
  std::uint32_t view = 0;
};
/// A part's checker to the other participants: it could not confirm the sum. The owner shows the
/// contributions to all.
struct round_challenge {
  round_id round;
  std::uint32_t view = 0;
  std::uint32_t part = 0;
};
/// Member to the other participants, after the digests in view `view` differed: what it holds.
struct round_digests {
  round_id round;
  std::uint32_t view = 0;
  std::vector<digest> groups; // at most result_groups_max
};
/// Member to the leader: the sender cannot continue with this member.
struct round_suspect {
  round_id round;
  std::uint32_t view = 0;
  std::uint32_t member = 0;
  ec reason = ec::none;
};
/// Leader to the members: the result of `view` is final; apply it.
struct round_commit {
  round_id round;
  round_view view;
  std::vector<signature> proof; // see round_proof
};
/// Leader to the members: the round is aborted without a result.
struct round_abort {
  round_id round;
  ec reason = ec::none;
};
/// From a candidate after the leader was lost: asks for a promise not to prepare views below
/// `number`.
struct round_takeover {
  round_id round;
  std::uint32_t number = 0;
};
/// Answer to a takeover.
struct round_promise : takeover_promise {
  round_id round;
  std::vector<signature> proof{}; // that its view is committed, see round_proof
};

/// Member of `round` to the first member of its plan: the sender's current bandwidth, in bytes per
/// second; none: no longer known.
struct bandwidth_report {
  round_id round;
  std::optional<double> bandwidth; // finite and positive
  bool wants_lead = false; // and says nothing else: a peer reaches the sender and not the leader
};

// -- state: answered by the state_donor -----------------------------------------------------------

/// Asks for the state of this branch, at this epoch or later. Answered with state_header.
struct open_state {
  digest branch; // zero: any
  epoch_id epoch_min;
  /// Not zero: instead, for what this peer has left with the receiver (left_progress).
  peer_id owner{};
  /// The sender has that for the receiver to fetch. As its owner, the sender leaves: the answer
  /// comes once the receiver has it. If the receiver is the owner, the answer only says no.
  bool leaves = false;
};
struct state_header {
  epoch_id epoch;
  digest content;    // SHA-256 over all bytes
  digest parameters; // see progress_report::parameters
  std::uint64_t bytes = 0;
  std::uint32_t chunk_bytes = 0;
};
/// Asks for chunk `index` of the state whose hash is `content`; zero: for the curves of the run
/// (run_curves::image). Answered with state_chunk and a body.
struct get_state_chunk {
  digest content;
  std::uint32_t index = 0;
};
struct state_chunk {
  std::uint32_t index = 0;
};

// -- the envelope --------------------------------------------------------------------------------

/// The sender is leaving; do not wait for it.
struct goodbye {};

using request = std::variant<dht_ping, dht_find, dht_store, join_group, open_state, get_state_chunk,
                             enter_group, dial_back, introduce>;
using response = std::variant<dht_pong, dht_found, dht_stored, join_reply, state_header,
                              state_chunk, dialled_back, introduced>;
using event =
  std::variant<goodbye, begin_group, disband_group, leave_group, progress_push, part, round_propose,
               round_prepared, round_suspect, round_commit, round_abort, round_takeover,
               round_promise, bandwidth_report, next_plan, call_round, progress_note,
               round_key_share, round_digests, round_pledge, round_pledge_digests, round_checked,
               round_challenge, reach_note, members_note, punch_note>;

/// A request; its sender chooses `id`, unique among its open calls on this link.
struct call {
  std::uint64_t id = 0;
  std::uint32_t deadline_ms = 0; // the receiver may give up after this time
  request what;
};
struct answer {
  std::uint64_t id = 0;
  response what;
};
/// Sent instead of an answer.
struct refusal {
  std::uint64_t id = 0;
  failure why;
};
/// The caller no longer waits for the answer.
struct cancel {
  std::uint64_t id = 0;
};
struct ping {
  std::uint64_t nonce = 0;
};
struct pong {
  std::uint64_t nonce = 0;
};

/// One frame's header. Only a `part` event, a `round_pledge` of a contributor and a `state_chunk`
/// answer have a body.
using message = std::variant<call, answer, refusal, cancel, ping, pong, event>;

} // namespace waggle::wire
