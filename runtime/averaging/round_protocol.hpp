#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/averaging/round_decision.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Far above what any correct round reaches. Larger numbers are refused so that numbers cannot wrap
/// around.
constexpr std::uint32_t view_number_max = 1U << 24U;

// A view of the same term has fewer participants than the one before.
static_assert(views_per_term >= round_members_max);

/// How the members of one round agree on the contributors: a state machine without data, clock or
/// network. It decides *which* vectors are summed; `transfer_state` keeps track of the sums.
///
/// README.md beside this file says what the members agree on, what views, terms and quorums are,
/// when a view is prepared, committed or adopted, who leads, why no two members commit different
/// sets, and what changes if members may lie (`round_rules::faulty`).
///
/// A member may fail at any time (deadline, excluded, no quorum); that is always safe.
///
/// | state    | how a member leaves it                                                           |
/// |----------|----------------------------------------------------------------------------------|
/// | running  | prepares (own data complete); loses the leader; receives a view, commit or abort |
/// |          | all participants have prepared → ended, committed                                |
/// | takeover | all promises in or timed out → running in a view of its own, or ended            |
/// |          | a higher promise → running, or ended if that view excludes this member           |
/// | ended    | never: committed or failed, once                                                 |
///
/// Not thread-safe. Every input returns the actions to perform, in order.
class round_protocol {
public:
  struct options {
    std::uint32_t min_contributors = 1;
    /// How long to wait for promises of members that are not known lost.
    milliseconds takeover_timeout{2'000};
    /// How many members must accuse another one before it is left out without an observation of our
    /// own: one more than may lie.
    std::size_t accusers = 1;
    /// The digest without a key of the result that we hold; null: digests have no key.
    std::function<digest()> plain{};
    /// Whether all promises are signed by those that gave them; null: they are. Checking takes
    /// long: called only if the view follows from the promises.
    std::function<bool(std::size_t leader, const takeover_promises&)> are_signed{};
  };

  // -- outputs ------------------------------------------------------------------------------------

  struct send_propose {
    member_set to;
    round_view view;
    takeover_promises promises{}; // from which the view follows; none if nobody is assumed to lie
  };
  struct send_prepared {
    member_set to;   // may be empty: the digest is signed and kept
    round_view view; // with the digest of the result
  };
  struct send_suspect {
    std::size_t to;
    std::uint32_t view;
    std::size_t member;
    ec reason;
  };
  struct send_commit {
    member_set to;
    round_view view;
  };
  struct send_abort {
    member_set to;
    ec reason;
  };
  struct send_takeover {
    member_set to;
    std::uint32_t number;
  };
  struct send_promise {
    std::size_t to;
    takeover_promise promise;
  };
  /// The current view changed: reduce, send and collect for it.
  struct enter_view {
    round_view view;
  };
  /// All participants hold a result over the current view's contributors, but not the same: find
  /// out whose fault it is. At most once per view.
  struct compare_results {};
  /// The current view's result was adopted, and this member holds other bytes, or not all: it is
  /// sent the right ones.
  struct await_repair {};
  struct commit {
    round_view view;
  };
  /// The end: the round has no effect on this member.
  struct fail {
    failure why;
  };
  using action =
    std::variant<send_propose, send_prepared, send_suspect, send_commit, send_abort, send_takeover,
                 send_promise, enter_view, compare_results, await_repair, commit, fail>;
  using actions = std::vector<action>;

  round_protocol(const round_plan& plan, std::size_t self, options opts);

  // -- inputs -------------------------------------------------------------------------------------

  /// We hold the whole result of view `number`, with this digest.
  [[nodiscard]] actions on_result_complete(std::uint32_t number, const digest& result);
  /// After await_repair: what we hold is the adopted result, whose digest is of another kind.
  [[nodiscard]] actions on_same_result(std::uint32_t number, const digest& result);
  /// After compare_results: no reducer is at fault, and most participants hold what we hold. If we
  /// lead, the others adopt it; they are asked for promises first if members may lie.
  /// @param result the digest under which they adopt it.
  [[nodiscard]] actions on_most_agree(const digest& result, steady_time now);
  /// `member` is unusable: its link was lost, it stalled, or it sent invalid data.
  [[nodiscard]] actions on_suspicion(std::size_t member, ec reason, steady_time now);
  /// This member must end (deadline, cancelled, cannot lead): notifies the others.
  [[nodiscard]] actions give_up(failure why);

  [[nodiscard]] actions on_propose(std::size_t from, const round_view& view,
                                   const takeover_promises& promises = {});
  [[nodiscard]] actions on_prepared(std::size_t from, std::uint32_t number, const digest& result);
  [[nodiscard]] actions on_suspect(std::size_t from, std::uint32_t view, std::size_t member,
                                   ec reason, steady_time now);
  /// The caller has checked that all participants of the view have prepared it (`proves`).
  [[nodiscard]] actions on_commit(std::size_t from, const round_view& view);
  [[nodiscard]] actions on_abort(std::size_t from, ec reason);
  [[nodiscard]] actions on_takeover(std::size_t from, std::uint32_t number);
  /// The caller has checked `promise.committed` (`proves`), and otherwise the signature if
  /// `awaits_promise`.
  [[nodiscard]] actions on_promise(std::size_t from, const takeover_promise& promise);
  /// To be called again and again: takeovers and suspicions have timeouts.
  [[nodiscard]] actions on_time(steady_time now);

  // -- current state ------------------------------------------------------------------------------

  [[nodiscard]] const round_view& view() const { return view_; }
  [[nodiscard]] std::size_t leader() const { return leader_of(view_.number, members_); }
  /// The member that must act next: the leader, or the candidate leader that we gave our promise
  /// to.
  [[nodiscard]] std::size_t coordinator() const { return leader_of(promised_, members_); }
  /// The members whose messages this member needs before it can end. The leader waits for
  /// participants to report that they hold the result; the others wait for the leader. Empty during
  /// a takeover, ours or another's: those have timeouts of their own (`on_time`).
  [[nodiscard]] member_set awaited() const {
    if (takeover_ || ended_ || promised_ != view_.number)
      return {};
    if (lead())
      return view_.participant_set() - reported_members();
    return member_set::only(leader());
  }
  [[nodiscard]] const round_rules& rules() const { return rules_; }
  /// Whether the answer of `member` to our takeover `number` is missing, and must be signed.
  [[nodiscard]] bool awaits_promise(std::size_t member, std::uint32_t number) const {
    return rules_.faulty > 0 && takeover_ && takeover_->number == number
           && takeover_->waiting.contains(member);
  }
  /// The members that reported, in the promises from which the current view follows, that they hold
  /// the result that it adopts. Empty if the view follows from none.
  [[nodiscard]] member_set holders() const { return holders_; }
  /// The digest that a member reported for the current view; null: none.
  [[nodiscard]] const digest* reported(std::size_t member) const {
    return reports_.find(member, view_.number);
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool committed() const { return committed_; }
  /// Whether we have ever reported that we hold the result of a view.
  [[nodiscard]] bool was_prepared() const { return was_prepared_; }
  /// Members that we consider lost, and why: for the report.
  [[nodiscard]] const std::map<std::size_t, ec>& lost() const { return lost_; }
  [[nodiscard]] takeover_promise promise() const;

private:
  struct takeover {
    std::uint32_t number = 0;
    member_set waiting;
    takeover_promises promises;
    steady_time until{};
  };

  struct successor {
    std::size_t member;
    steady_time until;
  };

  /// Too few accuse this member, and we have not noticed anything.
  struct doubt {
    member_set accusers;
    ec reason = ec::none; // the first one given
    steady_time until{};  // then those that accuse it have to go, because they cannot go on with it
  };

  struct foreign_takeover {
    std::uint32_t number;
    steady_time until;
  };

  [[nodiscard]] bool lead() const { return leader() == self_ && promised_ == view_.number; }
  [[nodiscard]] member_set others(member_set of) const;
  /// The first number of our next term above `floor`.
  [[nodiscard]] std::uint32_t term_above(std::uint32_t floor) const;
  /// Handles the loss of a member: proposes a view without it, starts a takeover, or waits for
  /// another's.
  void recover(actions& out, steady_time now);
  void start_takeover(actions& out, steady_time now);
  void finish_takeover(actions& out);
  /// The same if members may lie.
  void propose_what_follows(actions& out, takeover_promises promises);
  [[nodiscard]] bool counts_though_lost(ec reason) const;
  /// Whether the proposal of `next` shows promises from which it follows.
  [[nodiscard]] bool is_justified(std::size_t from, const round_view& next,
                                  const takeover_promises& promises) const;
  /// The members that have prepared the current view, as far as we know.
  [[nodiscard]] member_set reported_members() const;
  /// Those of them that hold the same result as we do. REQUIRES: prepared_.
  [[nodiscard]] member_set prepared_members() const;
  /// The view as others need to know it: with the digest that we have prepared.
  [[nodiscard]] round_view stated_view() const;
  [[nodiscard]] bool holds(const round_view& decided) const;
  void complete(actions& out);
  void prepare(actions& out);
  void enter(const round_view& next, const takeover_promises& promises = {});
  /// Works on the view that was just entered, and proposed if we lead.
  void begin_view(actions& out);
  void propose(actions& out, const round_view& view, member_set audience);
  void commit_if_all_prepared(actions& out);
  void apply(actions& out, const round_view& decided);
  /// A member that still works on a round that is committed here has missed a message: send the
  /// commit.
  void pass_on_decision(actions& out, std::size_t to) const;
  void end_with(actions& out, failure why);
  /// Another member's promise is to a number above ours.
  void fall_behind(actions& out, const takeover_promise& promise);
  void end_doubts(actions& out, steady_time now);
  void abort_all(actions& out, ec reason);

  round_rules rules_;
  std::size_t members_;
  std::size_t self_;
  member_set senders_; // all but auxiliaries
  member_set leaders_; // all but clients
  options options_;

  round_view view_;
  std::uint32_t promised_ = 0;   // invariant: ≥ view_.number
  bool prepared_ = false;        // for view_, and while promised_ was view_.number
  bool was_prepared_ = false;    // for any view
  bool result_complete_ = false; // we hold the result over view_.contributors
  digest result_;                // its digest
  digest replaced_; // under which others may have committed it before we had them adopt `result_`
  bool compared_ = false;   // the members compare their results of this view
  member_set holders_;      // see holders()
  by_view<digest> reports_; // results that members hold. A report may arrive before the view does.
  std::map<std::size_t, ec> lost_;
  std::map<std::size_t, doubt> doubts_; // by accused member; of the current view
  std::optional<takeover> takeover_;
  std::optional<successor> successor_; // the member that we expect to take over
  member_set passed_over_; // members that did not take over in this view: they may see no reason to
  std::optional<foreign_takeover> foreign_; // the takeover that we gave our promise to
  /// A takeover with a number above ours. Its leader may be reachable for others even if we cannot
  /// reach it, so it gets the time that it needs. Otherwise two members that lost each other could
  /// preempt each other forever.
  std::optional<std::uint32_t> yields_to_;
  bool ended_ = false;
  bool committed_ = false;
};

} // namespace waggle
