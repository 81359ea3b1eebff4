#pragma once

// Messages of averaging: the averager's steps and rounds, and the group whose peers average round
// after round. All other messages are in messages.hpp and training_messages.hpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/part_sum.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/allreduce/step_stage.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/core/filling.hpp"

namespace waggle {

class two_round_coding; // runtime/codec/two_round_coding.hpp

// -- averaging -----------------------------------------------------------------------------------

/// Query: find a group (or keep the last one) and average once. Answered with round_report, also
/// when the round failed. A caller error (bad weight, values that are not finite) fails with its
/// code and starts nothing; values that are not finite may also be found in the round of a group
/// that was kept.
struct average_vector {
  /// Immutable from now on. Null for an auxiliary.
  std::shared_ptr<const float_vector> values{};
  double weight = 1;                // ≥ 0, finite
  milliseconds deadline{60'000};    // matchmaking, retries and all-reduce together
  std::uint32_t expected_peers = 0; // see find_group
  /// Start at once with the members of the last round that are left, and those that have entered
  /// since. Not with `gather`, because matchmaking exchanges the texts.
  bool reuse_group = false;

  std::uint64_t elements = 0; // the vector's length, if `values` is null
  std::string gather{};       // sent to the whole group; at most gather_bytes_max
  /// The result is values + alpha (mean - values). Local: it may differ between peers.
  double alpha = 1;
  /// The result is values + alpha (mean - values as the codec encodes them), so that this peer's
  /// own rounding error is kept. Peers then differ by these errors; if all vectors are equal,
  /// nothing changes, whatever the codec. For parameters, which are averaged repeatedly.
  bool deltas = false;
  codec_plan codecs{};                    // how the vector travels; empty: as configured
  std::optional<std::uint32_t> retries{}; // none: averaging_config::retries_max
  /// The round begins at this time of the leader's clock: of the others none begins before it calls
  /// them, unless it is a second late. Peers look for a group until then.
  std::optional<swarm_time> begin{};
  /// The round waits for trigger_step. Needs `elements` and `progress`.
  bool triggered = false;
  std::shared_ptr<step_progress> progress{}; // null: nobody looks, or ends it early
};

/// Command: the round of this step may begin, with these values (null for an auxiliary).
struct trigger_step {
  std::shared_ptr<step_progress> step;
  std::shared_ptr<const float_vector> values;
};
/// Command: end this step. It fails with ec::cancelled, unless its round is over; its group goes on
/// without this peer.
struct cancel_step {
  std::shared_ptr<step_progress> step;
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

// -- the open group (runtime/averaging/open_group.hpp) --------------------------------------------

/// Command: describes the vectors that will be averaged. Sent before anything else, and again,
/// outside of a group, only before found_group or enter_group.
struct describe_vector {
  std::uint64_t elements = 0; // of all vectors together; of one that is coded, before it is
  /// The tensors of each vector; an epoch averages one of them, in turn. None: one vector of one
  /// tensor.
  std::vector<std::shared_ptr<const std::vector<tensor_info>>> tensors{};
  /// Not null: each vector is averaged in two rounds of this coding. Used by the receiver alone.
  std::shared_ptr<two_round_coding> coding = nullptr;
  /// What codecs have taken from this peer's vectors (get_residual); null: nothing.
  std::shared_ptr<const float_vector> residual = nullptr;
  digest history{}; // to which it belongs
};
/// Query: found a group of one at this epoch of this branch, which others may enter. Answered with
/// group_view.
struct found_group {
  epoch_id epoch;
  digest branch;
  digest parent{}; // see enter_group
};
/// Query: what error feedback has kept of the codecs' errors, for a restart. Answered with
/// group_residual.
struct get_residual {};
struct group_residual {
  std::shared_ptr<const float_vector> values; // null: nothing
  digest history;                             // to which it belongs
};
/// Query: enter the group of one of these peers. Answered with group_view once its leader has
/// admitted this peer. Fails with the reason of the last peer asked, ec::cancelled after
/// quit_group, ec::timeout at the deadline.
struct enter_group {
  std::vector<peer_record> through; // in order of preference
  digest branch;                    // that the group must train
  milliseconds deadline{30'000};
  /// The history from which `branch` was forked; zero: not known. What codecs have lost of our
  /// vectors is kept if they were of one of the two.
  digest parent{};
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
  /// The values of its members' vectors together; 0: not known, as where they are coded for two
  /// rounds.
  std::uint64_t elements = 0;
  std::size_t clients = 0; // of the members; those that others reach by now may enter again
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
  std::shared_ptr<const float_vector> values{}; // immutable from now on, but for `fills`
  double weight = 0;                            // ≥ 0, finite
  epoch_id epoch{};
  bool call = false; // tell the other members that the round begins
  milliseconds deadline{60'000};
  bool deltas = false; // see average_vector
  /// Which of the values are there already; null: all. A group of one answers without waiting for
  /// the others. Not with a coding, nor with error feedback, which need the whole vector.
  std::shared_ptr<filling> fills{};
  /// What error feedback kept of an earlier process, elsewhere; finite; null: nothing. It counts
  /// from this round on, unless this fails with an error.
  std::shared_ptr<const float_vector> residual{};
};
struct group_round {
  round_report report;
  /// False: most of the peers that decided the previous epoch had no part in this round. They may
  /// have continued separately.
  bool keeps_majority = true;
  digest branch;    // of the epoch that begins: a new branch if the majority was not kept
  group_view group; // after the round
  /// Silent or wrong in our rounds: no group admits them now. Ascending.
  std::vector<peer_id> avoided{};
};
struct members_found {
  std::optional<group_round> ended; // the round is over: nobody was found, or see moshpit_averager
};
/// Query to a compute_worker or a model_worker. Answered with what the job returns.
struct run_job {
  std::function<std::shared_ptr<const float_vector>()> job;
};
struct job_done {
  std::shared_ptr<const float_vector> values;
};
/// Event to the group's listener: a member has begun the round of this epoch, and waits for this
/// peer.
struct round_called {
  epoch_id epoch;
};

} // namespace waggle
