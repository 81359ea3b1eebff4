#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/allreduce/decision_proofs.hpp"
#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/result_settlement.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/allreduce/round_state.hpp"

namespace waggle {

/// One round of one group: sends our contributions, reduces the parts that this member owns,
/// collects the result, follows the round protocol, and reports once.
///
///   begin ─► our contributions ──► owners of the parts (ourselves included)
///     peers' contributions ─► part_reducer ─ all here? ─► sum ── result ──► all participants
///     peers' results ─► result vector ─ complete? ─► result_settlement ─► round_protocol
///     lost links, stalls, invalid data ─► round_protocol ─► a new view ─► ship, reduce, collect
///     round_protocol ─► prepared … commit ─► report
///
/// Thread-safe. Called by the thread that receives an event, usually the I/O thread that read a
/// frame. Parts of at least round_config::offload_elements values are summed by other threads, if
/// the port has any. Nothing here blocks.
class round_engine {
public:
  using clock = round_state::clock;

  round_engine(round_request request, round_config config, const round_memory& memory,
               std::shared_ptr<round_port> port, clock now);

  void begin();
  /// Encodes and sends those of our contributions that are there. Called after `begin`, and again
  /// whenever more are there (round_request::fills), by one thread at a time, with no lock held:
  /// others' parts may arrive meanwhile.
  void ship();
  /// A member's part, or its message about the round. Releases the event.
  void on_event(const inbound_event& event);
  /// Where the values of the part announced by `head` may be written; null if there is no
  /// designated place. The caller writes only there, and only until it passes the part to on_event
  /// or its link ends.
  std::shared_ptr<std::byte> destination(const peer_id& from, const wire::part& head,
                                         std::size_t bytes);
  /// True if the part's body may lie in memory that its sender can still write to
  /// (`sender_can_write`).
  [[nodiscard]] bool zero_copy_ok(const wire::part& head) const;
  void on_reduced(const reduced_part& sum);
  /// The last link to a member is lost, and with it the messages in transit, even if a new link
  /// follows soon. If the member participates in a later view, the leader of that view is notified.
  void on_lost(const peer_id& peer, ec reason);
  /// A message of this round for `peer` was dropped: none of its addresses answers. It lacks the
  /// message, even if it dials us soon, so the round goes on without it at once. The coordinator,
  /// and those that hold the state (give_up_stalled), get the time of one that stalls.
  void on_unreached(const peer_id& peer);
  void cancel(failure why);
  /// Ends the round, unless this member has ever reported that it holds the result.
  void cancel_unless_prepared(failure why);
  /// A bug, or out of memory: ends with `why`, without notifying the others.
  void break_off(failure why);
  /// The answer to members that missed the end.
  [[nodiscard]] wire::round_promise promise() const;
  [[nodiscard]] bool was_prepared() const;
  /// To be called every stall_timeout / 8 or so.
  void check();

  [[nodiscard]] const round_plan& plan() const { return round_.plan(); }

private:
  // -- messages
  void handle(const inbound_event& event);
  void on_message(std::size_t from, const wire::event& what);
  void on_departure(std::size_t from);
  // -- parts (round_engine_parts.cpp)
  void work();
  void ship_all();
  [[nodiscard]] std::optional<transfer_state::outgoing_part> next_outgoing();
  void withdraw_if_failed();
  [[nodiscard]] digest digest_to_pledge(const std::optional<payload>& bytes) const;
  /// `pledged`: the part's contribution_digest, if sums are checked.
  void send_part(const transfer_state::outgoing_part& outgoing_part, std::optional<payload> bytes,
                 const digest& pledged);
  void on_part(std::size_t from, const inbound_event& event, const wire::part& head);
  void accept(std::size_t from, const payload& body, const wire::part& head, steady_time now);
  void add(std::uint32_t index, std::size_t member, double weight, payload values);
  void reduce_if_complete(std::uint32_t index);
  void take_sum(const reduced_part& sum);
  // -- the protocol
  void perform(const round_protocol::actions& actions);
  void enter(const round_view& view);
  void suspect_cut_off();
  void give_up_stalled(steady_time now);
  [[nodiscard]] member_set not_lost() const;
  [[nodiscard]] member_set holders() const;
  [[nodiscard]] member_set silent_newcomers() const;
  void commit(const round_view& view);
  void fail(failure why);
  void finish(round_report report);
  [[nodiscard]] wire::round_promise current_promise() const;

  mutable std::mutex mutex_; // guards all that is not const
  round_state round_;
  decision_proofs proofs_;
  result_settlement settlement_;
  std::map<peer_id, std::size_t> members_;
  std::deque<transfer_state::outgoing_part> outgoing_;
  std::map<std::size_t, ec> cut_off_; // members whose link was lost in this round, and why
  member_set heard_;                  // members that have begun to send a part
  member_set left_; // of an open group: members that do not take part, as reported
};

} // namespace waggle
