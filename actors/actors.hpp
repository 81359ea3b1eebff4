#pragma once

// Every actor's typed interface, and what the receiver guarantees. Messages that an actor sends
// only to itself are declared beside the actor (`extend`). Every request has a deadline; a refusal
// is an error with one of our codes (caf_error.hpp).

#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include "actors/averaging_messages.hpp"
#include "actors/messages.hpp"
#include "actors/training_messages.hpp"

namespace waggle {

// One handler per line.
// clang-format off

/// Is notified when peers connect and disconnect.
using link_listener_actor = caf::typed_actor<
  // A peer is reachable now. Sent once per peer, whatever the number of its connections, and again
  // when the peer announces other addresses.
  caf::reacts_to<peer_connected>,
  // A peer's last link is down, with the reason.
  caf::reacts_to<peer_disconnected>>;

/// Answers the requests of remote peers and receives their events.
using service_actor = caf::typed_actor<
  // Answers a peer's request, or refuses it with a code that travels back.
  caf::replies_to<inbound_call>::with<outbound_answer>,
  // Receives a peer's event. Never answers, and never fails because of what a peer sent.
  caf::reacts_to<inbound_event>>;

// -- wiring: what the node sends once, while it connects actors with each other -------------------
// A `wired_…` interface accepts these messages besides the actor's own. Actors that only use the
// actor hold the handle without them.

/// Command: messages of peers about `topic` go to `service` from now on. Null: to none.
struct serve {
  service_topic topic = service_topic::dht;
  service_actor service;
  /// Not empty: only messages about a group that name this prefix.
  std::string prefix{};
};
/// Command: notify `listener` when peers connect and disconnect; of those already connected at
/// once.
struct listen_links {
  link_listener_actor listener;
};
/// Event: a peer connected to us. Sent by the transport's accept callback.
struct link_arrived {
  std::shared_ptr<net::link> link;
};
/// Command: send goodbye to all peers and close all links.
struct hang_up {};

/// One connection with one peer: call ids, deadlines, liveness. Closes itself when the peer is silent,
/// and notifies the switchboard.
using peer_link_actor = caf::typed_actor<
  caf::replies_to<call_over_link>::with<peer_answer>,
  caf::reacts_to<notify_over_link>,
  caf::reacts_to<close_link>>;

using wired_peer_link_actor = peer_link_actor::extend<
  caf::reacts_to<serve>,
  caf::reacts_to<keep_link>>;

/// Is notified when a link ends, and when the peer at its other end announces another record.
using link_owner_actor = caf::typed_actor<
  caf::reacts_to<link_down>,
  caf::reacts_to<record_changed>>;

/// Holds the links to all peers, and dials a peer that is to be reached and is not connected. The
/// peer_links that it spawns pass inbound calls and events to the services (service_table). Rounds
/// and progress reports use existing links directly (link_table).
using switchboard_actor = caf::typed_actor<
  caf::replies_to<call_peer>::with<peer_answer>,
  caf::reacts_to<notify_peer>,
  // Fails with the reason of the dial.
  caf::replies_to<connect_address>::with<peer_connected>>;

/// Is notified when another list says who belongs to the run.
using members_listener_actor = caf::typed_actor<caf::reacts_to<members_changed>>;

using wired_switchboard_actor = switchboard_actor::extend_with<members_listener_actor>::extend<
  caf::reacts_to<serve>,
  caf::reacts_to<listen_links>,
  caf::reacts_to<link_arrived>,
  // Answered when all links have ended.
  caf::replies_to<hang_up>::with<caf::unit_t>>;

/// Is notified whether this peer has joined the run.
using dht_listener_actor = caf::typed_actor<
  // What the status reports about joining has changed. The current status is sent first.
  caf::reacts_to<dht_status>>;

/// This peer's part of the distributed hash table: routing table, record store, lookups.
using dht_router_actor = service_actor::extend<
  caf::replies_to<store_record>::with<store_report>,
  caf::replies_to<find_records>::with<found_records>,
  caf::reacts_to<bootstrap_from>>::extend_with<link_listener_actor>;

/// Command: send `listener` the dht_status now and whenever its fields about joining change.
struct subscribe_dht_status {
  dht_listener_actor listener;
};
using wired_dht_router_actor = dht_router_actor::extend<
  caf::reacts_to<subscribe_dht_status>,
  caf::reacts_to<member_unlinked>>;

/// Is notified when the view of the run changes.
using progress_listener_actor = caf::typed_actor<caf::reacts_to<swarm_progress>>;

/// Tracks the progress of every peer, and so of the swarm.
using progress_tracker_actor = service_actor::extend<
  caf::reacts_to<report_progress>,
  caf::reacts_to<announce_departure>>::extend_with<link_listener_actor>;

/// Command: send `listener` the view of the run now and whenever it changes.
struct subscribe_progress {
  progress_listener_actor listener;
};
using wired_progress_tracker_actor = progress_tracker_actor::extend<caf::reacts_to<subscribe_progress>>;

/// Finds this peer's group: leads or joins one for a round, or finds who admits this peer to one that
/// peers enter between rounds.
using matchmaker_actor = service_actor::extend<
  caf::replies_to<find_group>::with<group_formed>,
  caf::replies_to<find_place>::with<place_found>,
  caf::replies_to<is_plan_awaited>::with<bool>,
  caf::reacts_to<plan_judged>,
  caf::reacts_to<set_open_group>,
  caf::replies_to<is_place_wanted>::with<bool>,
  caf::reacts_to<cancel_search>>::extend_with<link_listener_actor>;
using wired_matchmaker_actor = matchmaker_actor::extend<
  caf::replies_to<get_group_bits>::with<group_bits>,
  caf::replies_to<set_group_bits>::with<group_bits>>;

/// Computes what would hold up the thread that asks: sums of parts that are too large for the thread
/// that reads them from the network, vectors of a two_round_coding.
using compute_worker_actor = caf::typed_actor<caf::replies_to<run_job>::with<job_done>>;

/// Receives what compute_workers have reduced.
using sum_listener_actor = caf::typed_actor<caf::reacts_to<reduced_part>>;

/// Is notified how a round ended, and of its group's messages between rounds.
using round_listener_actor = caf::typed_actor<
  caf::reacts_to<round_finished>,
  caf::reacts_to<group_message>>;

/// One round of one group, as long as it lasts: its timeouts, its cancellation, the sums of its
/// compute_workers, its one report. Parts do not pass through it: see round_engine.
using allreduce_round_actor = caf::typed_actor<
  caf::reacts_to<check_round>,
  caf::reacts_to<cancel_round>,
  // A member's last link is down: the messages under way on it are lost.
  caf::reacts_to<peer_disconnected>>;

/// Averages a vector with the peers that it finds, in the groups of a group_averager.
using averager_actor = caf::typed_actor<
  caf::replies_to<average_vector>::with<round_report>,
  caf::reacts_to<trigger_step>,
  caf::reacts_to<cancel_step>>;

/// Is notified of changes to our group between rounds.
using group_listener_actor = caf::typed_actor<
  caf::reacts_to<group_view>,
  // Another member has begun the round of our group's next epoch.
  caf::reacts_to<round_called>>;

/// Averages round after round, without matchmaking, in one group that peers enter and leave between
/// rounds. The members of its next round are known: find_members is answered at once.
using group_averager_actor = service_actor::extend<
  caf::reacts_to<describe_vector>,
  caf::replies_to<found_group>::with<group_view>,
  caf::replies_to<enter_group>::with<group_view>,
  caf::reacts_to<quit_group>,
  caf::replies_to<get_residual>::with<group_residual>,
  caf::replies_to<find_members>::with<members_found>,
  caf::replies_to<average_in_group>::with<group_round>>::extend_with<link_listener_actor>;

/// A group_averager that finds groups, too.
using kept_group_actor = group_averager_actor::extend<
  // Leaves its group and finds another one, which begins at once as an open group; if peers enter
  // the one that was found (group_formed::open_group), enter_group has to follow. With `one_round`
  // it is left after its round, and it says itself whom to avoid. Values are checked before.
  // Fails as the matchmaker does; quit_group and cancel_search end the search.
  caf::replies_to<find_group>::with<group_formed>,
  caf::reacts_to<cancel_search>>;

/// Command: notify `listener` of changes to the group between rounds.
struct listen_group {
  group_listener_actor listener;
};
using wired_group_averager_actor = group_averager_actor::extend<caf::reacts_to<listen_group>>;

/// Holds the state that this peer can give to others.
using snapshot_source_actor = caf::typed_actor<
  // Fails with ec::not_ready, wrong_run or epoch_mismatch.
  caf::replies_to<get_state_snapshot>::with<state_snapshot>>;

/// Reduces for clients, which cannot reach each other, and passes their state on to newcomers. It
/// has no model itself.
using group_helper_actor = snapshot_source_actor::extend_with<progress_listener_actor>::
  extend_with<group_listener_actor>::extend_with<link_listener_actor>;

/// Serves a state to newcomers.
using state_donor_actor = service_actor;

/// Downloads a state; one per download.
using state_fetcher_actor = caf::typed_actor<caf::replies_to<fetch_state>::with<fetched_state>>;

/// Runs passes, on a thread of its own, and reports the results to the trainer.
using pass_worker_actor = caf::typed_actor<caf::reacts_to<run_pass>>;

/// The answer to make_model.
struct model_ready {
  std::shared_ptr<learner> model; // its thread-safe half
  epoch_id epoch;
  history past;
  digest parameters; // zero: too many to hash each epoch
  /// Runs the passes: the model_worker, in turn with the updates, or an actor beside it.
  pass_worker_actor passes;
  /// What the process before had begun. The accumulated gradient is in the model. Pending samples
  /// without a contribution do not fit this model.
  std::shared_ptr<const own_progress> kept;
  parameter_sketch sketch{}; // of `parameters`
};

/// Owns model, optimizer and device, runs passes and optimizer steps on a thread of its own, and
/// reports the results to the trainer.
using model_worker_actor = pass_worker_actor::extend<
  caf::replies_to<make_model>::with<model_ready>,
  caf::reacts_to<apply_update>,
  caf::reacts_to<load_image>,
  caf::reacts_to<rename_history>,
  caf::reacts_to<resume_at>,
  // What takes long, between two passes.
  caf::replies_to<run_job>::with<job_done>,
  // Answered once it is on disk; fails with ec::not_ready if no checkpoints are kept.
  caf::replies_to<save_checkpoint>::with<state_snapshot>,
  // A copy, made between two passes and completed by the state_keeper. All requests of one epoch
  // share it.
  caf::replies_to<get_state_snapshot>::with<state_snapshot>>;

/// Hashes states and writes checkpoints, on a thread of its own.
using state_keeper_actor = caf::typed_actor<
  caf::replies_to<seal_copy>::with<state_snapshot>>;

/// Measures weights on other data than that of training, on a thread of its own.
using evaluation_worker_actor = caf::typed_actor<
  // Fails with ec::shutting_down if this peer stops, ec::io_error if the data cannot be read.
  caf::replies_to<evaluate_weights>::with<model_evaluated>>;

/// Is notified of what the model_worker has done.
using model_listener_actor = caf::typed_actor<
  caf::reacts_to<gradient_offered>,
  caf::reacts_to<pass_done>,
  caf::reacts_to<update_applied>,
  caf::reacts_to<image_loaded>,
  caf::reacts_to<model_evaluated>>;

/// Takes one peer through the epochs of the run: in a group or outside, in step or catching up.
/// Never blocks; the model_worker computes.
using trainer_actor = caf::typed_actor<
  caf::reacts_to<start_training>,
  // Answered at once: a pass and a round that run end first.
  caf::replies_to<pause_training>::with<training_status>,
  caf::replies_to<resume_training>::with<training_status>,
  // Answered when the last micro-step and the checkpoint are done.
  caf::replies_to<stop_training>::with<training_status>,
  caf::replies_to<get_training_status>::with<training_status>,
  // Delegated to the model_worker, if this peer holds a state that may be given to others.
  caf::replies_to<get_state_snapshot>::with<state_snapshot>>::
    extend_with<progress_listener_actor>::extend_with<group_listener_actor>::
    extend_with<link_listener_actor>::extend_with<dht_listener_actor>;

/// Turns events into metrics, and keeps the documents up to date that HTTP serves.
using metrics_exporter_actor = caf::typed_actor<
  caf::reacts_to<training_status>,
  caf::reacts_to<helper_status>,
  caf::reacts_to<round_ended>,
  caf::reacts_to<state_download_ended>>::extend_with<progress_listener_actor>::
    extend_with<link_listener_actor>;
using wired_metrics_exporter_actor = metrics_exporter_actor::extend_with<dht_listener_actor>;

/// Supervises all other actors: restarts, order of shutdown, the reason of the end.
using node_actor = caf::typed_actor<
  // Answered when all actors have ended.
  caf::replies_to<shut_down>::with<training_status>>;

// clang-format on

} // namespace waggle
