#pragma once

// Every message struct that actors exchange, by topic. All are process-local: buffers travel as
// shared pointers to immutable data. Commands are imperatives, queries start with `get_`, events
// are past participles.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/actor_control_block.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/part_sum.hpp"
#include "runtime/allreduce/round_report.hpp"
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

class two_round_coding; // runtime/codec/two_round_coding.hpp

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
  bool configured = false; // by the operator; otherwise its peer announced it
};
/// A link to `peer` is up. Also an event for link listeners: once per peer, not per connection.
struct peer_connected {
  peer_record peer;
};
/// The last link to a peer went down.
struct peer_disconnected {
  peer_id peer;
  failure why; // ec::peer_lost, timeout (silent), shutting_down (said goodbye), …
};
/// Query: which peers are connected? Answered with connected_peers.
struct get_connected_peers {};
struct connected_peers {
  std::vector<peer_record> peers; // ascending id
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
  std::string name;
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
/// Query: the record, with addresses, of this peer id. Answered with found_peer. Fails with
/// ec::not_found.
struct find_peer {
  peer_id peer;
  milliseconds timeout{5'000};
};
struct found_peer {
  peer_record peer;
};
/// Query: answered with dht_status. Listeners also receive dht_status when its fields about joining
/// change.
struct get_dht_status {};

// -- progress ------------------------------------------------------------------------------------

/// Command: publish this peer's progress. It is stored in the DHT and pushed to connected peers,
/// both rate-limited; a new epoch is always published at once.
struct report_progress {
  epoch_id epoch;
  std::uint64_t samples = 0; // accumulated toward the current epoch
  digest parameters;         // digest of the parameters this epoch began with; zero: not known
  history_claim claim;
  double samples_per_second = 0; // while computing; 0: measured from the reports
};
/// Query: the current view of the run. Answered with swarm_progress (runtime/progress), which is
/// also sent to subscribers when it changed.
struct get_swarm_progress {};
/// Command: this peer leaves; publish a tombstone and stop reporting. Not answered.
struct announce_departure {};

// -- matchmaking ---------------------------------------------------------------------------------

/// Query: find a group. Answered with group_formed, or fails with the reason: ec::nobody_declared,
/// too_few, schema_mismatch, epoch_mismatch, wrong_group_key, clock_skew, unreachable, timeout,
/// cancelled; the detail describes what the search saw. One search at a time; a second one fails
/// with ec::overloaded.
struct find_group {
  epoch_id epoch;
  codec_plan codecs;                // the vector's length, and how it is encoded
  std::string gather;               // sent to the whole group; at most gather_bytes_max
  milliseconds scheduled_in{0};     // the round is declared to begin no earlier than this
  milliseconds deadline{30'000};    // give up after this long
  std::uint32_t expected_peers = 0; // a leader begins with so many; 0: when full, or it expires
  std::vector<peer_id> avoided{};   // neither admitted nor asked; ascending
};
struct group_formed {
  round_plan plan; // complete and verified; this peer is one of its members
  /// The members have moved to different buckets and should not form the next group together.
  bool regrouped = false;
  partition_terms terms; // with the members' bandwidths, if this peer leads the group
};
/// Command: stop the current search. It fails with ec::cancelled.
struct cancel_search {};
/// Query: the peers that a persistent group would leave out: those whose requests this peer refused
/// lately, and those that were searching when its group formed. Answered with seekers.
struct get_seekers {
  codec_plan codecs;
};
struct seekers {
  std::vector<peer_id> peers; // ascending
};
/// Query: the bucket in which the next search looks for partners. It changes when a group forms,
/// before find_group is answered. Answered with group_bits.
struct get_group_bits {};
struct group_bits {
  std::string bits; // a string of 0 and 1, without the prefix; empty: one bucket for all
};
/// Query: look for partners in this bucket from the next search on. A running search keeps its own
/// bucket, and the group that it finds does not change these bits. Answered with group_bits.
struct set_group_bits {
  std::string bits;
};
/// Command: this peer's measured bandwidth. Used from the next search on, unless the configuration
/// declares a bandwidth.
struct set_bandwidth {
  std::optional<double> bytes_per_second; // finite, positive; none: unknown
};

// -- averaging -----------------------------------------------------------------------------------

/// Query: find a group (or keep the last one) and average once. Answered with round_report, also
/// when the round failed. A caller error (bad weight, contradicting times, values that are not
/// finite) fails with its code and starts nothing; values that are not finite may also be found in
/// the round of a persistent group.
struct average_vector {
  /// Immutable from now on. Null if they come with the trigger, and for an auxiliary.
  std::shared_ptr<const float_vector> values;
  double weight = 1; // ≥ 0, finite
  epoch_id epoch;
  milliseconds deadline{60'000};    // matchmaking, retries and all-reduce together
  std::uint32_t expected_peers = 0; // see find_group
  /// Start at once with the members of the last complete round, if all agree.
  bool reuse_group = false;

  std::uint64_t elements = 0; // the vector's length, if `values` is null
  /// The vector's tensors, in order, for codecs that differ by tensor. Null: one tensor.
  std::shared_ptr<const std::vector<tensor_info>> tensors;
  std::string gather; // sent to the whole group; at most gather_bytes_max
  /// The result is values + alpha (mean - values). Local: it may differ between peers.
  double alpha = 1;
  /// The result is values + alpha (mean - values as the codec encodes them), so that this peer's
  /// own rounding error is kept. Peers then differ by these errors; if all vectors are equal,
  /// nothing changes, whatever the codec. For parameters, which are averaged repeatedly.
  bool deltas = false;
  /// The group is to begin no earlier than this; matchmaking takes at least its own minimum time.
  milliseconds scheduled_in{0};
  bool allow_retries = true;
  /// Once a group is found, wait for trigger_step before the all-reduce begins.
  bool require_trigger = false;
  std::uint64_t step = 0; // the caller's number for this step, used in the commands below
};
/// Command: the step may begin its all-reduce, with these values and this weight, if given. Ignored
/// once the all-reduce has begun.
struct trigger_step {
  std::uint64_t step = 0;
  std::shared_ptr<const float_vector> values;
  std::optional<double> weight;
};
/// Command: give up the step, in any stage. It reports failed with ec::cancelled, and the group is
/// notified at once.
struct cancel_step {
  std::uint64_t step = 0;
};
/// Query: the stage of the step. Answered with step_stage; `finished` also for unknown steps.
struct get_step_stage {
  std::uint64_t step = 0;
};
/// Query: how the step's search ends. Answered with step_stage once it is over: `awaiting_trigger`
/// or `running_allreduce` if a group was found, `finished` if the step has ended, or is unknown.
struct await_group {
  std::uint64_t step = 0;
};
/// The stages of a step, in order; see averager.hpp.
enum class step_stage : std::uint8_t {
  looking_for_group = 0,
  awaiting_trigger,
  running_allreduce,
  finished
};

/// Command to a round, from its listener: look for members that stall, and at the clock. One clock
/// for all rounds of an averager is cheaper than one each: waking the timer thread costs more than
/// a small round.
struct check_round {};
/// Command to a round: end now; it reports failed with `why`.
struct cancel_round {
  failure why{ec::cancelled, {}};
  bool unless_prepared = false; // go on if this member has announced that it holds the result
};
/// Event to the actor that started a round: a message about the group from a present or past member
/// (round_registry::group_listener).
struct group_message {
  peer_record who;
  wire::event what;
};

/// Command to a part_worker: reduce the part, and send the sum to `round` if that still exists. The
/// handle is weak: a round must not end on the thread that sends this, with its engine locked.
struct reduce_for_round {
  reduce_part what;
  caf::weak_actor_ptr round; // a sum_listener_actor
};

// -- the open group (runtime/averaging/open_group.hpp) --------------------------------------------

/// Command: describes the vector that will be averaged. Sent once, before anything else.
struct describe_vector {
  std::uint64_t elements = 0;
  std::shared_ptr<const std::vector<tensor_info>> tensors; // null: one tensor
  /// Not null: each vector is averaged in two rounds of this coding. Used by the receiver alone.
  std::shared_ptr<two_round_coding> coding = nullptr;
};
/// Query: found a group of one at this epoch of this branch, which others may enter. Answered with
/// group_view.
struct found_group {
  epoch_id epoch;
  digest branch;
};
/// Query: enter the group of one of these peers. Answered with group_view once its leader has
/// admitted this peer. Fails with the reason of the last peer asked, ec::cancelled after
/// quit_group, ec::timeout at the deadline.
struct enter_group {
  std::vector<peer_record> through; // in order of preference
  digest branch;                    // that the group must train
  milliseconds deadline{30'000};
};
/// Command: leave the group, or stop entering one. The other members are notified.
struct quit_group {};
/// The state of our group: an answer, and an event to the group's listener when it changed between
/// rounds.
struct group_view {
  bool member = false;
  epoch_id epoch;               // of the next round
  digest branch;                // of the history that it trains
  std::vector<peer_id> members; // of the next round, this peer included; the first one leads
};
/// Query, before average_in_group where the members of each round have to be found first
/// (moshpit_averager): find them. Answered with members_found once they wait for this peer's
/// values, which therefore have to follow at once, or if there are none. Fails as average_in_group
/// does.
struct find_members {
  epoch_id epoch;
  bool call = false;             // tell the other peers of the group that the round is due
  milliseconds deadline{60'000}; // of search and round together
  bool deltas = false;           // see average_vector
};
/// Query: take part in the group's next round with this vector. Answered with group_round, also
/// when the round failed; this peer is then no longer in a group. Fails with ec::not_ready if it is
/// in no group, epoch_mismatch if the group is at another epoch, overloaded if a round is running,
/// or with the error in the values.
struct average_in_group {
  std::shared_ptr<const float_vector> values; // immutable from now on
  double weight = 0;                          // ≥ 0, finite
  epoch_id epoch;
  bool call = false; // tell the other members that the round begins
  milliseconds deadline{60'000};
  bool deltas = false; // see average_vector
};
struct group_round {
  round_report report;
  /// False: most of the peers that decided the previous epoch had no part in this round. They may
  /// have continued separately.
  bool keeps_majority = true;
  digest branch;    // of the epoch that begins: a new branch if the majority was not kept
  group_view group; // after the round
};
struct members_found {
  std::optional<group_round> ended; // the round is over already: nobody was found
};
/// Query to the coding_worker: compute a vector. Answered with coded_vector.
struct code_vector {
  std::function<std::shared_ptr<const float_vector>()> compute;
};
struct coded_vector {
  std::shared_ptr<const float_vector> values;
};
/// Event to the group's listener: a member has begun the round of this epoch, and waits for this
/// peer.
struct round_called {
  epoch_id epoch;
};

// -- lifecycle ------------------------------------------------------------------------------------

/// Command to the node: leave (checkpoint, goodbye), then end all actors. Answered when they have
/// ended.
struct shut_down {
  std::string why;
};

} // namespace waggle

#define WAGGLE_LOCAL(type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::type)
WAGGLE_LOCAL(call_peer)
WAGGLE_LOCAL(peer_answer)
WAGGLE_LOCAL(notify_peer)
WAGGLE_LOCAL(connect_address)
WAGGLE_LOCAL(peer_connected)
WAGGLE_LOCAL(peer_disconnected)
WAGGLE_LOCAL(get_connected_peers)
WAGGLE_LOCAL(connected_peers)
WAGGLE_LOCAL(call_over_link)
WAGGLE_LOCAL(notify_over_link)
WAGGLE_LOCAL(close_link)
WAGGLE_LOCAL(keep_link)
WAGGLE_LOCAL(link_down)
WAGGLE_LOCAL(inbound_call)
WAGGLE_LOCAL(outbound_answer)
WAGGLE_LOCAL(inbound_event)
WAGGLE_LOCAL(store_record)
WAGGLE_LOCAL(store_report)
WAGGLE_LOCAL(find_records)
WAGGLE_LOCAL(found_records)
WAGGLE_LOCAL(bootstrap_from)
WAGGLE_LOCAL(find_peer)
WAGGLE_LOCAL(found_peer)
WAGGLE_LOCAL(get_dht_status)
WAGGLE_LOCAL(dht_status)
WAGGLE_LOCAL(report_progress)
WAGGLE_LOCAL(swarm_progress)
WAGGLE_LOCAL(get_swarm_progress)
WAGGLE_LOCAL(announce_departure)
WAGGLE_LOCAL(find_group)
WAGGLE_LOCAL(group_formed)
WAGGLE_LOCAL(cancel_search)
WAGGLE_LOCAL(get_seekers)
WAGGLE_LOCAL(seekers)
WAGGLE_LOCAL(get_group_bits)
WAGGLE_LOCAL(group_bits)
WAGGLE_LOCAL(set_group_bits)
WAGGLE_LOCAL(set_bandwidth)
WAGGLE_LOCAL(average_vector)
WAGGLE_LOCAL(trigger_step)
WAGGLE_LOCAL(cancel_step)
WAGGLE_LOCAL(get_step_stage)
WAGGLE_LOCAL(await_group)
WAGGLE_LOCAL(step_stage)
WAGGLE_LOCAL(round_report)
WAGGLE_LOCAL(check_round)
WAGGLE_LOCAL(cancel_round)
WAGGLE_LOCAL(round_finished)
WAGGLE_LOCAL(group_message)
WAGGLE_LOCAL(reduce_for_round)
WAGGLE_LOCAL(reduced_part)
WAGGLE_LOCAL(describe_vector)
WAGGLE_LOCAL(found_group)
WAGGLE_LOCAL(enter_group)
WAGGLE_LOCAL(quit_group)
WAGGLE_LOCAL(group_view)
WAGGLE_LOCAL(find_members)
WAGGLE_LOCAL(average_in_group)
WAGGLE_LOCAL(group_round)
WAGGLE_LOCAL(members_found)
WAGGLE_LOCAL(code_vector)
WAGGLE_LOCAL(coded_vector)
WAGGLE_LOCAL(round_called)
WAGGLE_LOCAL(shut_down)
