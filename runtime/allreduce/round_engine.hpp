#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/open_checks.hpp"
#include "runtime/allreduce/own_parts.hpp"
#include "runtime/allreduce/part_encoder.hpp"
#include "runtime/allreduce/part_sum.hpp"
#include "runtime/allreduce/result_assembly.hpp"
#include "runtime/allreduce/result_repair.hpp"
#include "runtime/allreduce/round_config.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/allreduce/round_watch.hpp"
#include "runtime/averaging/result_comparison.hpp"
#include "runtime/averaging/result_digest.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_pledges.hpp"
#include "runtime/averaging/round_proof.hpp"
#include "runtime/averaging/round_protocol.hpp"
#include "runtime/averaging/sum_checks.hpp"
#include "runtime/averaging/transfer_state.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// The input of a round.
struct round_request {
  round_plan plan; // validated; this peer is member `self_index`
  std::size_t self_index = 0;
  /// plan.elements values. If one is not finite, the round goes on without us.
  std::shared_ptr<const float_vector> values;
  double weight = 1;
  bool open_group = false; // plan.gathered holds the marks of group_majority.hpp
};

/// Memory for a round's result and for encoded parts. Neither is null.
struct round_memory {
  std::shared_ptr<vector_pool> vectors;
  std::shared_ptr<buffer_pool> encoded;
};

/// Interface: what a round needs from its environment. Called with the round's lock held: must not
/// block and must not call the round.
class round_port {
public:
  virtual ~round_port() = default;

  virtual void send(const peer_record& to, wire::event what, payload body) = 0;
  /// Body bytes that were written on the link to `peer` so far, of whatever kind; 0: not known.
  [[nodiscard]] virtual std::uint64_t body_bytes_written(const peer_id& peer) const {
    (void)peer;
    return 0;
  }
  /// Lets another thread reduce the part and pass the sum to round_engine::on_reduced. False: there
  /// is none; the caller reduces it.
  virtual bool reduce(const reduce_part& what) = 0;
  /// 32 bytes that nobody else can know or predict, the same for the same arguments.
  [[nodiscard]] virtual digest secret(const round_id& round, std::uint32_t view) = 0;
  /// This peer's signature.
  [[nodiscard]] virtual signature sign(std::string_view statement) = 0;
  [[nodiscard]] virtual bool verify(const peer_record& by, std::string_view statement,
                                    const signature& its) = 0;
  virtual void count_part() = 0;
  /// The sum of another member was checked.
  virtual void count_check(bool right) { (void)right; }
  virtual void count_refused(ec why) = 0;
  virtual void log(const std::string& what) = 0;
  /// The end. Called once.
  virtual void finished(round_finished how) = 0;
};

/// One round of one group: sends our contributions, reduces the parts that this member owns,
/// collects the result, follows the round protocol, and reports once.
///
/// Thread-safe. Called by the thread that receives an event, usually the I/O thread that read a
/// frame. Parts of at least round_config::offload_elements values are summed by other threads, if
/// the port has any. Nothing here blocks.
class round_engine {
public:
  using clock = std::function<steady_time()>;

  round_engine(round_request request, round_config config, const round_memory& memory,
               std::shared_ptr<round_port> port, clock now);

  /// Called once, before anything else.
  void begin();
  /// Encodes and sends our contributions. Called once, after `begin`, with no lock held: others'
  /// parts may arrive meanwhile.
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
  /// Another thread has reduced a part.
  void on_reduced(const reduced_part& sum);
  /// The last link to a member is lost, and with it the messages in transit, even if a new link
  /// follows soon. If the member participates in a later view, the leader of that view is notified.
  void on_lost(const peer_id& peer, ec reason);
  void cancel(failure why);
  /// Ends the round, unless this member has ever reported that it holds the result.
  void cancel_unless_prepared(failure why);
  /// A bug, or out of memory: ends with `why`, without notifying the others.
  void break_off(failure why);
  /// The answer to members that missed the end.
  [[nodiscard]] wire::round_promise promise() const;
  /// To be called every stall_timeout / 8 or so.
  void check();

  [[nodiscard]] const round_plan& plan() const { return request_.plan; }

private:
  using verdict = transfer_state::verdict;

  void tell(std::size_t member, wire::event what, payload body = {});
  void send_to(member_set members, const wire::event& what, const payload& body = {});
  [[nodiscard]] wire::part header(std::uint32_t index, wire::part_kind kind) const;
  [[nodiscard]] bool fits(const wire::part& head, std::size_t bytes) const;

  void handle(const inbound_event& event);
  void work();
  void ship_all();
  [[nodiscard]] std::optional<transfer_state::outgoing_part> next_outgoing();
  /// `pledged`: the part's contribution_digest, if sums are checked.
  void send_part(const transfer_state::outgoing_part& outgoing_part, std::optional<payload> bytes,
                 const digest& pledged);
  [[nodiscard]] digest digest_to_pledge(const std::optional<payload>& bytes) const;
  void suspect_cut_off();
  void refuse(std::size_t member, ec reason);
  void suspect(std::size_t member, ec reason);
  void give_up_stalled(steady_time now);
  [[nodiscard]] member_set silent_newcomers() const;
  void on_part(std::size_t from, const inbound_event& event, const wire::part& head);
  void accept(std::size_t from, const payload& body, const wire::part& head, steady_time now);
  void add(std::uint32_t index, std::size_t member, double weight, payload values);
  void reduce_if_complete(std::uint32_t index);
  void take_sum(const reduced_part& sum);
  [[nodiscard]] payload encode_sum(std::uint32_t index, const part_reducer& contributions,
                                   member_set over, const std::shared_ptr<float>& out) const;
  [[nodiscard]] bool learn_weights(std::size_t reducer, const wire::part& head);
  // -- agreeing on the result (round_engine_results.cpp)
  void collect();
  [[nodiscard]] bool weights_agree();
  void prepare();
  void hold(const digest& result);
  [[nodiscard]] bool keyed() const;
  [[nodiscard]] member_set silent() const;
  [[nodiscard]] result_terms terms() const;
  [[nodiscard]] part_values values() const;
  const std::vector<digest>& own_groups();
  void on_share(std::size_t from, const wire::round_key_share& what);
  [[nodiscard]] bool may_say(std::size_t from, std::size_t of, std::uint32_t view) const;
  [[nodiscard]] member_set clients_besides(std::size_t member) const;
  void compare();
  void on_digests(std::size_t from, const wire::round_digests& what);
  void judge();
  void ask_for_repair();
  void send_repair(std::size_t to);
  void on_repair(std::size_t from, const inbound_event& event, const wire::part& head);
  // -- checking sums (round_engine_pledges.cpp, round_engine_checks.cpp)
  [[nodiscard]] bool checked() const { return plan().reduce_by.check_share > 0; }
  [[nodiscard]] bool checks_this_view() const { return checked() && !transfers_.view().adopted; }
  void pledge_part(std::uint32_t index, const digest& contribution);
  void pledge();
  void on_pledge(std::size_t from, const inbound_event& event, const wire::round_pledge& what);
  [[nodiscard]] bool own_parts_agree();
  [[nodiscard]] bool pledges_agree();
  void send_shares();
  void compare_pledges();
  void on_pledge_digests(std::size_t from, const wire::round_pledge_digests& what);
  void judge_pledges();
  [[nodiscard]] member_set pledged_otherwise() const;
  [[nodiscard]] bool sums_are_right();
  void draw();
  void show(std::uint32_t part, std::size_t to, const part_reducer& contributions);
  void take_early_evidence();
  void on_evidence(std::size_t from, const inbound_event& event, const wire::part& head);
  void check_sum(std::uint32_t part);
  void found_wrong(std::uint32_t part, const std::string& how);
  void on_checked(std::size_t from, std::uint32_t view);
  [[nodiscard]] member_set unchecked() const;
  void challenge(std::uint32_t part);
  void on_challenge(std::size_t from, std::uint32_t part);
  void check_evidence();
  void forget_checks();
  // -- what is said about decisions (round_engine_proofs.cpp)
  void sign(const round_protocol::action& action, wire::event& message);
  [[nodiscard]] round_proof::signatures proof_of(const round_view& decided) const;
  [[nodiscard]] bool is_proven(std::size_t from, const round_view& decided,
                               const round_proof::signatures& proof);
  [[nodiscard]] bool is_heard_by_all(std::size_t member) const;
  void on_prepared(std::size_t from, const wire::round_prepared& what);
  void take_early_reports();
  void on_commit(std::size_t from, const wire::round_commit& what);
  void on_promise(std::size_t from, wire::round_promise what);
  [[nodiscard]] bool are_signed(std::size_t leader, const takeover_promises& promises);
  // -- adopted results that follow from promises (round_engine_proofs.cpp)
  [[nodiscard]] bool is_settled() const;
  void ask_holders();
  void send_repairs();
  void on_settled_digests(std::size_t from, const wire::round_digests& what);
  void on_settled_part(std::size_t from, const inbound_event& event, const wire::part& head);
  void take_repaired();
  // -- the protocol
  void on_message(std::size_t from, const wire::event& what);
  void perform(const round_protocol::actions& actions);
  void finish(round_report report);
  [[nodiscard]] wire::round_promise current_promise() const;

  void enter(const round_view& view);
  void commit(const round_view& view);
  void fail(const failure& why);

  const round_request request_;
  const round_config config_;
  const part_encoder encoder_;
  const std::shared_ptr<round_port> port_;
  const clock now_;

  mutable std::mutex mutex_; // guards everything below
  round_protocol protocol_;
  transfer_state transfers_;
  std::deque<transfer_state::outgoing_part> outgoing_;
  own_parts own_;
  result_assembly result_;
  std::map<peer_id, std::size_t> members_;
  std::map<std::size_t, ec> cut_off_; // members whose link was lost in this round, and why
  std::vector<inbound_event> parked_; // parts of a view that we have not received yet
  std::map<std::size_t, std::size_t> parked_from_; // how many, by member
  std::vector<std::optional<double>> told_;        // by member: its weight, as it told us
  std::map<std::size_t, std::vector<double>> reported_weights_; // of the contributors, by reducer
  std::optional<double> weight_sum_; // of the current contributors, once the result is complete
  part_groups groups_;
  std::vector<digest> own_groups_; // of the result that we hold; empty: not computed
  std::optional<digest> digest_;   // that we have reported for it
  result_key shares_;
  std::optional<std::uint32_t> shared_; // the view for which we have sent our share
  round_proof proof_;
  std::map<std::size_t, wire::round_prepared> early_; // the last one of each member
  member_set unproven_;  // members that said what they could not prove: checking takes long
  member_set missigned_; // members whose reports are not signed by them
  std::map<std::size_t, ec> seen_; // what we noticed ourselves, by member; the first fault of each
  member_set heard_;               // members that have begun to send a part
  member_set left_;                // of an open group: members that do not take part, they said
  result_comparison lists_;
  round_pledges pledges_;
  std::vector<digest> contributed_; // by part: what we pledge; zero: not sent yet
  std::size_t contributed_parts_ = 0;
  std::optional<std::uint32_t> pledged_; // the view for which we have sent our pledge
  std::map<std::uint32_t, std::map<std::size_t, digest>> received_; // by part of ours and member
  struct said_pledges {
    std::uint32_t view;
    digest all;
  };
  std::map<std::size_t, said_pledges> said_pledges_; // by member, with its share of the key
  result_comparison pledge_lists_;
  bool comparing_pledges_ = false; // in the current view; so is all that follows
  bool judged_pledges_ = false;
  bool asked_for_shares_ = false;
  member_set wants_shares_; // members that were sent a wrong share, and asked us for the right one
  member_set sent_shares_;
  std::optional<std::vector<sum_check>> drawn_;
  std::map<std::size_t, std::uint32_t> checked_by_; // by checker: the view whose sums are right
  open_checks checks_;
  std::vector<inbound_event> early_evidence_;       // that arrived before the key was known
  std::map<std::uint32_t, std::size_t> challenges_; // by part: its checker
  std::map<std::size_t, std::set<std::uint32_t>> early_challenges_; // by member: parts
  bool comparing_ = false; // in the current view; so are the next three
  bool judged_ = false;
  bool repairing_ = false;
  std::optional<result_repair> repair_; // of a result that follows from promises
  member_set repaired_;                 // members that we have sent what they lack
  round_watch watch_;
  round_marks marks_;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  bool reported_ = false;
};

} // namespace waggle
