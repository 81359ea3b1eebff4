#pragma once

// Messages of training: states, the trainer, the model_worker, and the actors that watch them. All
// other messages are in messages.hpp.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/core/byte_store.hpp"
#include "runtime/core/history.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/training/evaluation.hpp"
#include "runtime/training/micro_step.hpp"
#include "runtime/training/missed_updates.hpp"
#include "runtime/training/plateau.hpp"

namespace waggle {

class averaged_tensors; // runtime/training/averaged_tensors.hpp
class learner;          // runtime/training/learner.hpp
struct model_copy;      // runtime/training/trained_model.hpp
struct own_progress;    // runtime/training/own_progress.hpp

// -- state ---------------------------------------------------------------------------------------

/// Query to the trainer: a snapshot of the state at the current epoch. Fails with ec::not_ready if
/// there is no state yet, wrong_run if it belongs to another history, epoch_mismatch if it is older
/// than `epoch_min`.
struct get_state_snapshot {
  digest branch; // zero: any
  epoch_id epoch_min;
  peer_id owner{}; // not zero: instead, what this peer has left with the receiver (left_progress)
  peer_record from{};  // who asks
  bool leaves = false; // as in wire::open_state
};
struct state_snapshot {
  epoch_id epoch;
  digest parameters;
  std::shared_ptr<const byte_source> state; // epoch and learner state, see runtime/training
  history past;
  digest content;    // SHA-256 over `state`; zero: not computed (a checkpoint)
  bool kept = false; // it is on disk, as a checkpoint
};

/// The progress of a download, for the actor that waits for it. Thread-safe.
struct download_meter {
  std::atomic<std::uint64_t> received{0}; // bytes
  std::atomic<std::uint64_t> total{0};    // 0: not known yet
};
/// Query to a state_fetcher: download a state at `epoch_min` or later from the first of `donors`
/// that has one, resuming at the next donor if that one fails. Answered with fetched_state only
/// when every byte was received and the hash is correct. Fails with ec::no_donor if `donors` is
/// empty, ec::timeout at the deadline, otherwise with the reason of the last donor
/// (ec::hash_mismatch, oversize, overloaded, …).
struct fetch_state {
  std::vector<peer_record> donors; // in order of preference
  digest branch;                   // of the history that it must belong to; zero: any
  epoch_id epoch_min;
  milliseconds deadline{600'000};
  std::shared_ptr<download_meter> meter;             // may be null
  peer_id owner{};                                   // as in get_state_snapshot
  std::function<status(const byte_source&)> check{}; // not null: after it fails, the next donor's
};
struct fetched_state {
  epoch_id epoch;
  digest parameters;
  std::shared_ptr<const byte_source> state;
  peer_id donor;
  digest content;       // SHA-256 over `state`
  bool resumed = false; // parts of it came from an earlier donor
};

// -- training ------------------------------------------------------------------------------------

/// Command: begin or continue training.
struct start_training {};
/// Commands: leave the group after the running round, and begin no passes until `resume_training`,
/// which looks for the run again. What the unfinished epoch has accumulated is kept while its state
/// is the run's.
struct pause_training {};
struct resume_training {};
/// Command: finish the current micro-step, write a checkpoint, stop. Answered when done.
struct stop_training {};

/// Command from the trainer to the model_worker: make the model, and resume from the newest
/// checkpoint. Answered with model_ready (actors.hpp).
struct make_model {};
/// Commands to the model_worker, executed in the order in which they arrive. Passes may run in an
/// actor beside it: see model_ready.
struct run_pass {
  std::optional<double> rate; // the optimizer steps at once with this learning rate; none: it holds
  bool in_buckets = false;    // see gradient_offered
};
struct apply_update {
  missed_update what;
  history after; // the history once it is applied
  /// Not null: adds the difference of the mean and the snapshot to these tensors. Null: the mean is
  /// of gradients and buffers.
  std::shared_ptr<const averaged_tensors> averaged;
};
struct load_image {
  std::shared_ptr<const byte_source> image;
  digest branch;      // that the state must belong to
  epoch_id epoch_max; // the highest epoch that the state may have
};
struct rename_history {
  history past;
  epoch_id epoch;
};
struct resume_at {
  std::string position; // of the next pass (learner::load_position)
};
struct save_checkpoint {
  /// Null: the peer goes on. Otherwise what it did not finish, to which the learner's part is
  /// added.
  std::shared_ptr<const own_progress> unfinished{};
};
/// Events of the model_worker.
/// In the middle of a pass: its samples count, and its gradient may be taken
/// (learner::accumulate_in_buckets). pass_done follows.
struct gradient_offered {};
struct pass_done {
  micro_step step;
  double seconds = 0;
};
struct update_applied {
  epoch_id epoch;                        // that begins
  digest parameters;                     // zero: too many to hash each epoch
  std::optional<plateau_report> plateau; // learner::plateau_state
  parameter_sketch sketch{};             // of `parameters`
};
struct image_loaded {
  failure why; // ec::none: it was loaded
  epoch_id epoch;
  history past;
  digest parameters;
  std::optional<plateau_report> plateau;
  parameter_sketch sketch{}; // of `parameters`
};
/// Command to the evaluation_worker: measure these weights (weights_of). Answered with
/// model_evaluated, also to the trainer.
struct evaluate_weights {
  epoch_id epoch;
  std::shared_ptr<const float_vector> weights;
};
struct model_evaluated {
  epoch_id epoch;
  evaluation found;
};
/// Command to the state_keeper: complete this copy, and with `keep` write it as a checkpoint.
/// Answered with state_snapshot.
struct seal_copy {
  std::shared_ptr<model_copy> copied;
  std::shared_ptr<learner> model;
  bool keep = false;
};
struct get_training_status {};

// -- monitoring ----------------------------------------------------------------------------------

/// Event to the metrics exporter: a round ended.
struct round_ended {
  round_report report; // without values
  std::string spans{}; // training_report::end_round
};
/// Event to the metrics exporter.
struct state_download_ended {
  bool ok = false;
  failure why;
  std::uint64_t bytes = 0;
  double seconds = 0;
  peer_id donor{}; // zero: not known
  epoch_id epoch{};
};

} // namespace waggle
