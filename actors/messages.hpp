#pragma once

// The messages that actors exchange, by topic; those of averaging and training are in
// averaging_messages.hpp and training_messages.hpp. All are process-local: buffers travel as shared
// pointers to immutable data. Commands are imperatives, queries start with `get_`, events are past
// participles.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <caf/actor_control_block.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/averaging/partition.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/dht/known_peers.hpp"
#include "runtime/dht/record.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

// -- peers: switchboard, peer_link, services -----------------------------------------------------

/// Query: send a request to `to` over its link, after dialling it if there is no link and its
/// record has addresses. Fails with ec::timeout, unreachable, peer_lost, or the peer's reason for
/// refusing.
struct call_peer {
  peer_record to; // only `id` is needed while a link is up
  wire::request what;
  milliseconds timeout{3'000}; // includes dialling
};
/// The peer's answer.
struct peer_answer {
  peer_id from;
  wire::response what;
  payload body; // a state chunk's bytes
};

/// Command: send an event to `to`. Not answered; dropped if there is no link and dialling fails.
struct notify_peer {
  peer_record to; // only `id` is needed while a link is up
  wire::event what;
  payload body; // a part's bytes
};

/// Query: dial an address whose owner is not known yet (bootstrap).
struct connect_address {
  endpoint where;
  milliseconds timeout{5'000};
  /// The operator gave this, and it stands for `where`. Nothing: a peer announced `where`.
  std::optional<endpoint> given{};
};
/// A link to `peer` is up. Also an event for link listeners: once per peer, not per connection, and
/// again when the peer announces another record.
struct peer_connected {
  peer_record peer;
};
/// Command to the switchboard: `now` is what this peer announces from now on; or, from one of its
/// links, what the peer at the other end does.
struct record_changed {
  peer_record now;
};
/// Event: the list of members is another one (run_members::on_change).
struct members_changed {};
/// Event for the dht_router: we have no link with this member of a round.
struct member_unlinked {
  peer_record peer;
  bool stalled = true;  // the round, because of that
  bool in_round = true; // otherwise it leads a group that we want to enter, and may be gone
};
/// The last link to a peer went down.
struct peer_disconnected {
  peer_id peer;
  failure why; // ec::peer_lost, timeout (silent), shutting_down (said goodbye), …
};
/// Query to a peer_link: send a request to the peer at the other end. Fails as call_peer does.
struct call_over_link {
  wire::request what;
  milliseconds timeout{3'000};
};
/// Command to a peer_link: send an event to the peer at the other end.
struct notify_over_link {
  wire::event what;
  payload body;
};
/// Command to a peer_link: close the link, now or (`when_idle`) after link_config::unused_for
/// without use.
struct close_link {
  failure why;
  bool when_idle = false;
};
/// Command to a peer_link: do not end because of an earlier close_link{when_idle}.
struct keep_link {};
/// Event to a link's owner: the link is down.
struct link_down {
  peer_id peer;
  std::uint64_t link = 0; // the owner's number for it
  failure why;
};

/// Which service a message of a peer is for.
enum class service_topic : std::uint8_t { dht = 0, progress, matchmaking, averaging, state };
constexpr std::size_t service_topics = 5;

/// A peer's request, sent to the service that answers it.
struct inbound_call {
  peer_record from; // authenticated by the handshake
  wire::request what;
  std::string host{};             // where it came from; empty: not known
  std::shared_ptr<void> ticket{}; // as in inbound_event
};
/// A service's answer.
struct outbound_answer {
  wire::response what;
  payload body;
};
// -- dht -----------------------------------------------------------------------------------------

/// Command: store the record at the `replicas` peers nearest to its key, and here if this peer is
/// one of them. Answered with store_report.
struct store_record {
  record entry; // signed by the caller if its kind requires it
  milliseconds timeout{10'000};
};
struct store_report {
  std::uint32_t accepted = 0; // replicas that stored it, this peer included
  std::uint32_t rejected = 0;
  std::uint32_t failed = 0; // did not answer
  ec last_rejection = ec::none;
};

/// Query: the records under (kind, name). `latest`: ask every replica and merge the answers;
/// otherwise the first answer is enough. Answered with found_records; if none are found, the list
/// is empty.
struct find_records {
  record_kind kind = record_kind::open;
  std::string name{};
  bool latest = true;
  milliseconds timeout{10'000};
};
struct found_records {
  std::vector<record> records; // newest per subkey, tombstones left out, ascending subkey
};

/// Command: join through these addresses, or through peers known from an earlier run of the
/// process, and keep trying, with back-off (runtime/dht/bootstrap). Not answered; see dht_status.
struct bootstrap_from {
  std::vector<endpoint> addresses;
  std::vector<known_peer> known{}; // newest first
};

// -- progress ------------------------------------------------------------------------------------

/// Command: publish this peer's progress. It is stored in the DHT and pushed to connected peers,
/// both rate-limited; a new epoch is always published at once.
struct report_progress {
  epoch_id epoch;
  std::uint64_t samples = 0; // accumulated toward the current epoch
  digest parameters;         // digest of the parameters this epoch began with; zero: not known
  history_claim claim;
  double samples_per_second = 0; // while computing; 0: measured from the reports
  peer_vitals vitals{};
  parameter_sketch sketch{}; // of `parameters`
  double epoch_seconds = 0;  // how long an epoch lasts; 0: not known
  /// Samples that the epoch lacks, as far as this peer knows; 0: it may end. Nothing: it does not
  /// end by them.
  std::optional<std::uint64_t> missing{};
};
/// Command: this peer leaves; publish a tombstone and stop reporting. Not answered.
struct announce_departure {};

// -- matchmaking ---------------------------------------------------------------------------------

/// Query: find a group. Answered with group_formed, or fails with the reason: ec::nobody_declared,
/// too_few, schema_mismatch, epoch_mismatch, wrong_group_key, clock_skew, unreachable, timeout,
/// cancelled; the detail describes what the search saw. One search at a time; a second one fails
/// with ec::overloaded.
struct find_group {
  epoch_id epoch{};
  codec_plan codecs{};              // the vector's length, and how it is encoded
  std::string gather{};             // sent to the whole group; at most gather_bytes_max
  milliseconds deadline{30'000};    // give up after this long
  std::uint32_t expected_peers = 0; // a leader begins with so many; 0: when full, or it expires
  /// It expires no sooner than this, whatever the configuration says.
  milliseconds gather_for{0};
  std::vector<peer_id> avoided{}; // neither admitted nor asked; ascending
  bool open_groups = false;       // the answer may be a group that peers enter between rounds
  bool one_round = false;         // see kept_group_actor
  /// Bytes per second that this peer measured; finite, positive; none: unknown. Not used if the
  /// configuration declares a bandwidth.
  std::optional<double> bandwidth{};
};
struct group_formed {
  round_plan plan; // complete and verified; this peer is one of its members
  /// The members have moved to different buckets and should not form the next group together.
  bool regrouped = false;
  partition_terms terms; // with the members' bandwidths, if this peer leads the group
  /// Peers that are not in it searched for the same group.
  bool left_out = false;
  /// The leader of an open group, to be entered instead; `plan` is empty.
  std::optional<peer_record> open_group{};
};
/// Command: stop the current search, for a group or for a place in one. It fails with
/// ec::cancelled.
struct cancel_search {};
/// Query: find a place in a group that peers enter between rounds: apply to these peers, then to
/// those that they name. The plan of the leader that admits this peer goes to whoever asks this.
/// Answered once plan_judged has taken one; fails with the reason of the last peer asked, or
/// ec::timeout at the deadline.
struct find_place {
  std::vector<peer_record> through; // in order of preference
  digest branch;                    // that the group must train
  digest schema;                    // of its vectors; zero: that of the group
  std::optional<double> bandwidth;  // of this peer; none: not known
  milliseconds deadline{30'000};
};
struct place_found {
  peer_id leader;
};
/// Query: whether this search has applied to the sender of a plan, and has not been refused.
struct is_plan_awaited {
  peer_id from;
};
/// Command: a plan that was awaited is taken, or refused: the search goes on.
struct plan_judged {
  peer_id from;
  std::size_t members = 0;
  failure refused{}; // ec::none: taken
};
/// Command: this peer is in an open group for vectors that are encoded by `codecs`. While it does
/// not search, peers that ask it for a group are referred to the leader, unless the group is full.
struct set_open_group {
  std::optional<peer_id> leader; // none: it is in no group that others may enter
  std::size_t members = 0;
  codec_plan codecs{};
};
/// Query: whether a peer searches for whom that group has no place.
struct is_place_wanted {};
/// The bits of the bucket in which the next search looks for partners.
struct group_bits {
  std::string bits;
};
/// Query for them.
struct get_group_bits {};
/// Query: search in this bucket from the next search on. Fails with ec::bad_config.
struct set_group_bits {
  std::string bits;
};

// -- lifecycle ------------------------------------------------------------------------------------

/// Command to the node: leave (checkpoint, goodbye), then end all actors. Answered when they have
/// ended.
struct shut_down {
  std::string why;
};

/// Found for the types of this namespace: no message of this program leaves its process, so CAF
/// need not be able to write one.
template <class Message>
std::true_type stays_in_process(const Message&);

} // namespace waggle

namespace caf {
template <class Message>
requires requires(const Message& x) {
  stays_in_process(x);
}
struct allowed_unsafe_message_type<Message> : std::true_type {};
} // namespace caf
