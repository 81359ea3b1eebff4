#pragma once

// Every message struct that actors exchange, by topic. All are process-local: buffers travel as
// shared pointers to what nobody changes any more. Commands are imperatives, queries start with
// `get_`, events are past participles.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/allowed_unsafe_message_type.hpp>

#include "runtime/allreduce/inbound_event.hpp"
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
#include "runtime/wire/messages.hpp"

namespace waggle {

// -- peers: switchboard, peer_link, services -----------------------------------------------------

/// Query: ask `to` over its link, dialling it first if its record has addresses. Fails with
/// ec::timeout, unreachable, peer_lost, or the reason the peer refused with.
struct call_peer {
  peer_record to; // only `id` is needed while a link is up
  wire::request what;
  milliseconds timeout{3'000}; // covers dialling, too
};
/// What the peer answered.
struct peer_answer {
  peer_id from;
  wire::response what;
  payload body; // a state chunk's bytes
};

/// Command: tell `to`. Not answered; dropped if there is no link and none can be dialled.
struct tell_peer {
  peer_record to; // only `id` is needed while a link is up
  wire::event what;
  payload body; // a part's bytes
};

/// Query: dial an address whose owner we do not know yet (bootstrap).
struct connect_address {
  endpoint where;
  milliseconds timeout{5'000};
};
/// A link to `peer` is up; also an event for link listeners (once per peer, not per socket).
struct peer_connected {
  peer_record peer;
};
/// The last link to a peer went down.
struct peer_disconnected {
  peer_id peer;
  failure why; // ec::peer_lost, timeout (silent), shutting_down (said goodbye), …
};
/// Query: who is connected now? Answered with connected_peers.
struct get_connected_peers {};
struct connected_peers {
  std::vector<peer_record> peers; // ascending id
};

/// Query to a peer_link: ask the peer at the other end. Fails as call_peer does.
struct call_over_link {
  wire::request what;
  milliseconds timeout{3'000};
};
/// Command to a peer_link: tell the peer at the other end.
struct tell_over_link {
  wire::event what;
  payload body;
};
/// Command to a peer_link: close it, now, or (`when_idle`) once nobody has used it for a while.
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

/// A peer's request, for the service that answers it.
struct inbound_call {
  peer_record from; // proved by the handshake
  wire::request what;
};
/// A service's answer.
struct outbound_answer {
  wire::response what;
  payload body;
};
// -- dht -----------------------------------------------------------------------------------------

/// Command: store under the record's key at its `replicas` nearest peers and here if we are one of
/// them. Answered with store_report.
struct store_record {
  record entry; // signed by the caller where its kind wants that
  milliseconds timeout{10'000};
};
struct store_report {
  std::uint32_t accepted = 0; // replicas that stored it, ourselves included
  std::uint32_t rejected = 0;
  std::uint32_t failed = 0; // did not answer
  ec last_rejection = ec::none;
};

/// Query: the records under (kind, name). `latest`: ask every replica and merge, else the first
/// answer will do. Answered with found_records; none found is an empty list, not an error.
struct find_records {
  record_kind kind = record_kind::open;
  std::string name;
  bool latest = true;
  milliseconds timeout{10'000};
};
struct found_records {
  std::vector<record> records; // newest per subkey, tombstones left out, ascending subkey
};

/// Command: join through these addresses, or through peers known from earlier, and keep trying,
/// with back-off (runtime/dht/bootstrap). Not answered; see dht_status.
struct bootstrap_from {
  std::vector<endpoint> addresses;
  std::vector<known_peer> known{}; // newest first
};
/// Query: where does this peer id live? Fails with ec::not_found.
struct find_peer {
  peer_id peer;
  milliseconds timeout{5'000};
};
struct found_peer {
  peer_record peer;
};
/// Query: answered with dht_status. Listeners hear it, too, whenever what it says about joining
/// changes.
struct get_dht_status {};
/// Whoever has addresses_known and is not bootstrapped does not know whether the run exists: it
/// must not begin one of its own without saying so.
struct dht_status {
  std::uint32_t routing_entries = 0;
  std::uint32_t records = 0;
  std::uint64_t record_bytes = 0;
  /// Another peer of the run answered, or there is nobody to ask. Stays true.
  bool bootstrapped = false;
  /// There was an address besides our own to join at: an initial one, or of a peer known from
  /// earlier.
  bool addresses_known = false;
  std::uint32_t initial_peers = 0;             // addresses that the operator gave, without our own
  std::vector<std::string> bootstrap_failures; // "host:port: reason" of those that failed last time
};

// -- progress (spec/optimizer.md §2) -------------------------------------------------------------

/// Command: this is how far we are. Stores it in the DHT and pushes it to connected peers (both
/// rate-limited, but a new epoch always goes out at once).
struct report_progress {
  epoch_id epoch;
  std::uint64_t samples = 0; // accumulated toward the current epoch
  digest parameters;         // digest of the parameters this epoch began with; zero: not known
  history_claim claim;
  double samples_per_second = 0; // while we compute; 0: to be measured by the reports
};
/// Query: what do we know of the run? Answered with swarm_progress (runtime/progress), which is
/// also the event to subscribers whenever it changed.
struct get_swarm_progress {};
/// Command: we are leaving: publish a tombstone and stop reporting. Fire and forget.
struct say_goodbye {};

// -- matchmaking (spec/averaging.md §3) ----------------------------------------------------------

/// Query: find a group. Answered with group_formed, or fails with the reason: ec::nobody_declared,
/// too_few, schema_mismatch, epoch_mismatch, wrong_group_key, clock_skew, unreachable, timeout,
/// cancelled; the detail says what was seen. One search at a time; a second one fails with
/// ec::overloaded.
struct find_group {
  epoch_id epoch;
  codec_plan codecs;                // of the vector: its length, and how it travels
  std::string gather;               // for the whole group to read; at most gather_bytes_max
  milliseconds scheduled_in{0};     // not declared to begin any earlier
  milliseconds deadline{30'000};    // give up after this long
  std::uint32_t expected_peers = 0; // with ourselves; a leader closes its group when this many are
                                    // in it. 0: only target_group_size or the expiration close it
};
struct group_formed {
  round_plan plan; // complete and verified; we are one of its members
  /// The members have gone on to different buckets: they are not to meet again at once.
  bool regrouped = false;
  partition_terms terms; // with the members' bandwidths, if we lead the group
};
/// Command: stop the current search. It fails with ec::cancelled.
struct cancel_search {};
/// Query: who would be left out of a group that goes on among itself? Who asked us in vain lately,
/// and who looked when our group formed. Answered with seekers.
struct get_seekers {
  codec_plan codecs;
};
struct seekers {
  std::vector<peer_id> peers; // ascending
};
/// Query: in which bucket will the next search look for partners (spec/averaging.md §2)? Changes
/// when a group forms, before find_group is answered. Answered with group_bits.
struct get_group_bits {};
struct group_bits {
  std::string bits; // a row of 0 and 1, without the prefix; empty: one bucket for all
};
/// Query: look for partners in this bucket from the next search on; a search that is going on keeps
/// its own, and the group that it finds does not change these bits. Answered with group_bits.
struct set_group_bits {
  std::string bits;
};
/// Command: what this peer measured of itself. Counts from the next search on, unless the
/// configuration declares a bandwidth.
struct set_bandwidth {
  std::optional<double> bytes_per_second; // finite, positive; none: not known (any more)
};

// -- averaging -----------------------------------------------------------------------------------

/// Query: one round: find a group (or keep the last one) and average. Answered with
/// round_report, also when the round failed; a caller error (bad weight, contradicting times,
/// values that are not finite, unless a persistent group finds out) fails with its code and starts
/// nothing.
struct average_vector {
  /// Must not change any more. Null if they come with the trigger, and for an auxiliary.
  std::shared_ptr<const float_vector> values;
  double weight = 1; // ≥ 0, finite
  epoch_id epoch;
  milliseconds deadline{60'000};    // matchmaking, retries and all-reduce together
  std::uint32_t expected_peers = 0; // see find_group
  bool reuse_group =
    false; // start at once with the members of the last complete round, if all agree

  std::uint64_t elements = 0; // of `values`, where they are null
  /// What the vector is made of, in order, for codecs that go by tensor. Null: one tensor.
  std::shared_ptr<const std::vector<tensor_info>> tensors;
  std::string gather; // for the whole group to read; at most gather_bytes_max
  /// How far to go towards the mean: values + alpha (mean - values). Local: peers may differ.
  double alpha = 1;
  /// Go from the own vector by alpha (mean - what the codec made of the own vector), so that the
  /// own rounding error is kept. Peers end as far apart as these errors; where all are equal
  /// nothing changes, whatever the codec. For parameters, which are averaged again and again.
  bool deltas = false;
  /// The group is not meant to begin before; matchmaking takes at least its own time.
  milliseconds scheduled_in{0};
  bool allow_retries = true;
  /// With a group found, wait for trigger_step before the all-reduce begins.
  bool require_trigger = false;
  std::uint64_t step = 0; // the caller's name for this step in the commands below
};
/// Command: the step may begin its all-reduce; with these values and this weight, if given. What
/// comes after the all-reduce began changes nothing.
struct trigger_step {
  std::uint64_t step = 0;
  std::shared_ptr<const float_vector> values;
  std::optional<double> weight;
};
/// Command: give the step up, in whatever stage it is. It reports failed with ec::cancelled, and
/// the group hears of it at once.
struct cancel_step {
  std::uint64_t step = 0;
};
/// Query: how far is the step? Answered with step_stage; `finished` also for steps never heard of.
struct get_step_stage {
  std::uint64_t step = 0;
};
/// spec/averaging.md §1.4.
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
  bool unless_prepared = false; // go on if others may count on our having the result
};
/// Event to whoever started a round: what one of its members, present or past, says about the
/// group (round_registry::group_listener).
struct group_message {
  peer_record who;
  wire::event what;
};
/// Command to a part: do this sum, or whatever else takes long, on the part's thread.
struct reduce_part {
  std::function<void()> work;
};

// -- a group that stays together (runtime/averaging/open_group.hpp) -------------------------------

/// Command: this is what will be averaged. Sent once, before anything else.
struct describe_vector {
  std::uint64_t elements = 0;
  std::shared_ptr<const std::vector<tensor_info>> tensors; // null: one tensor
};
/// Query: begin a group of one at this epoch of this branch, which others may enter. Answered with
/// group_view.
struct found_group {
  epoch_id epoch;
  digest branch;
};
/// Query: enter the group of one of these peers. Answered with group_view once its leader has let
/// us in. Fails with the reason of the last peer asked, ec::cancelled after quit_group, ec::timeout
/// at the deadline.
struct enter_group {
  std::vector<peer_record> through; // in order of preference
  digest branch;                    // that the group must train
  milliseconds deadline{30'000};
};
/// Command: leave the group, or stop entering one; the other members are told.
struct quit_group {};
/// What is known of our group: an answer, and an event to the group's listener when it changed
/// between rounds.
struct group_view {
  bool member = false;
  epoch_id epoch;               // of the next round
  digest branch;                // of the history that it belongs to
  std::vector<peer_id> members; // of the next round, ourselves included; the first one leads
};
/// Query: the group's next round, with this vector. Answered with group_round, also when the round
/// failed: then we are in no group any more. Fails with ec::epoch_mismatch or not_ready if we are
/// in no group at this epoch, overloaded if a round runs, or with what is wrong with the values.
struct average_in_group {
  std::shared_ptr<const float_vector> values; // must not change any more
  double weight = 0;                          // ≥ 0, finite
  epoch_id epoch;
  bool call = false; // tell the other members that the round begins
  milliseconds deadline{60'000};
};
struct group_round {
  round_report report;
  /// False: most of those who decided the epoch before had no part in this one. They may have gone
  /// on, too.
  bool keeps_majority = true;
  digest branch;    // of the epoch that begins: another one without the majority
  group_view group; // after the round
};
/// Event to the group's listener: a member has begun the round of this epoch. We are waited for.
struct round_called {
  epoch_id epoch;
};

// -- life ----------------------------------------------------------------------------------------

/// Command to the node: leave (goodbye, checkpoint), then end everything. Answered when all is
/// down.
struct shut_down {
  std::string why;
};

} // namespace waggle

#define WAGGLE_LOCAL(type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::type)
WAGGLE_LOCAL(call_peer)
WAGGLE_LOCAL(peer_answer)
WAGGLE_LOCAL(tell_peer)
WAGGLE_LOCAL(connect_address)
WAGGLE_LOCAL(peer_connected)
WAGGLE_LOCAL(peer_disconnected)
WAGGLE_LOCAL(get_connected_peers)
WAGGLE_LOCAL(connected_peers)
WAGGLE_LOCAL(call_over_link)
WAGGLE_LOCAL(tell_over_link)
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
WAGGLE_LOCAL(say_goodbye)
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
WAGGLE_LOCAL(step_stage)
WAGGLE_LOCAL(round_report)
WAGGLE_LOCAL(check_round)
WAGGLE_LOCAL(cancel_round)
WAGGLE_LOCAL(round_finished)
WAGGLE_LOCAL(group_message)
WAGGLE_LOCAL(reduce_part)
WAGGLE_LOCAL(describe_vector)
WAGGLE_LOCAL(found_group)
WAGGLE_LOCAL(enter_group)
WAGGLE_LOCAL(quit_group)
WAGGLE_LOCAL(group_view)
WAGGLE_LOCAL(average_in_group)
WAGGLE_LOCAL(group_round)
WAGGLE_LOCAL(round_called)
WAGGLE_LOCAL(shut_down)
