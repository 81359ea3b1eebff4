#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// True if `participants` may decide a round of `members` members: more than half, or exactly half
/// with member 0 among them. Any two such sets have a member in common.
bool is_quorum(member_set participants, std::size_t members);

/// No honest round gets near; a number above it would only serve to make numbers wrap around.
constexpr std::uint32_t view_number_max = 1U << 24U;

// A view of the same term has fewer participants than the one before.
static_assert(views_per_term >= round_members_max);

/// What a member tells a would-be leader, see `round_protocol::on_takeover`.
struct takeover_promise {
  std::uint32_t promised = 0;
  bool knows_view = false; // false: this member does not know the round (any more)
  round_view view;
  bool prepared = false;
  bool committed = false;
};

/// How the members of one round agree on the contributors: a state machine without data, clock or
/// network. It decides *which* vectors are summed; `transfer_state` keeps track of the sums.
///
/// The result of a round is a function of its set of contributors alone (part_reducer), so it is
/// enough to agree on that set. It is decided like a value in Paxos whose acceptors are the
/// members:
///
/// - A *view* is a numbered attempt: contributors, participants, and a leader: whoever owns
///   the term that the number is in. View 0 is implied by the plan.
/// - A member *prepares* a view once it holds the result over its contributors, and tells all
///   participants. It never prepares a view below the highest number it promised.
/// - A view is *committed* when all of its participants have prepared it, and they are a quorum.
///   Whoever has heard that from each of them applies the result; the leader also tells the others,
///   some of which may have missed a word.
/// - When a participant is lost before that, the leader proposes the next view of its term without
///   it. If everybody else has prepared already, somebody may have committed: the contributors are
///   *adopted*, and the new view is prepared at once. If not, but the leader itself has, somebody
///   may have committed, too: the leader asks first, as a new leader does.
/// - When the leader is lost, the lowest member that is not lost takes over: it asks for promises
///   under a term of its own. If the highest view that anybody knows may have been committed (all
///   its participants that answer have prepared it), its contributors are adopted, else it is free
///   to choose. Adopted contributors stay, whatever happens later.
///
/// Why no two members commit different sets: see actors/README.md, "The averaging round".
/// A member may fail at any time (deadline, excluded, no quorum); that is always safe.
///
/// | state    | who may leave it, and how |
/// |----------|------------------------------------------------------------------------------------|
/// | running  | prepares (own data complete); loses the leader; is told a view, commit or abort |
/// |          | all participants have prepared → ended, committed |
/// | takeover | all promises in or timed out → running in a view of its own, or ended |
/// |          | a higher promise → running, or ended: that view goes on without us |
/// | ended    | nobody: committed or failed, once |
///
/// Not thread-safe. Every input returns what to do, in order.
class round_protocol {
public:
  struct options {
    std::uint32_t min_contributors = 1;
    milliseconds takeover_timeout{2'000}; // for the promises of members that are not known lost
  };

  // -- outputs ------------------------------------------------------------------------------------

  struct send_propose {
    member_set to;
    round_view view;
  };
  struct send_prepared {
    member_set to;
    std::uint32_t view;
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
  /// The end: the result of `view` is final.
  struct commit {
    round_view view;
  };
  /// The end: nothing happened here.
  struct fail {
    failure why;
  };
  using action = std::variant<send_propose, send_prepared, send_suspect, send_commit, send_abort,
                              send_takeover, send_promise, enter_view, commit, fail>;
  using actions = std::vector<action>;

  round_protocol(const round_plan& plan, std::size_t self, options opts);

  // -- inputs -------------------------------------------------------------------------------------

  /// We hold the whole result of view `number`.
  [[nodiscard]] actions on_result_complete(std::uint32_t number);
  /// We cannot go on with `member`: link lost, stalled, or it sent nonsense.
  [[nodiscard]] actions on_suspicion(std::size_t member, ec reason, steady_time now);
  /// We ourselves must end (deadline, cancelled, nothing to lead to): tells the others.
  [[nodiscard]] actions give_up(failure why);

  [[nodiscard]] actions on_propose(std::size_t from, const round_view& view);
  [[nodiscard]] actions on_prepared(std::size_t from, std::uint32_t number);
  [[nodiscard]] actions on_suspect(std::size_t from, std::uint32_t view, std::size_t member,
                                   ec reason, steady_time now);
  [[nodiscard]] actions on_commit(std::size_t from, const round_view& view);
  [[nodiscard]] actions on_abort(std::size_t from, ec reason);
  [[nodiscard]] actions on_takeover(std::size_t from, std::uint32_t number);
  [[nodiscard]] actions on_promise(std::size_t from, const takeover_promise& promise);
  /// To be called at `wake_at()` or later.
  [[nodiscard]] actions on_time(steady_time now);

  // -- what is so now ----------------------------------------------------------------------------

  [[nodiscard]] const round_view& view() const { return view_; }
  [[nodiscard]] std::size_t leader() const { return leader_of(view_.number, members_); }
  /// Who owes us the next word: the leader, or the would-be leader that we gave our promise to.
  [[nodiscard]] std::size_t coordinator() const { return leader_of(promised_, members_); }
  /// Who has to say something before this member can end. The leader hears from participants that
  /// they hold the result; everybody else waits for the leader. Nobody during a takeover, ours or
  /// another's: those have timeouts of their own (`on_time`).
  [[nodiscard]] member_set awaited() const {
    if (takeover_ || ended_ || promised_ != view_.number)
      return {};
    if (lead())
      return view_.participant_set() - prepared_members();
    member_set only_leader;
    only_leader.insert(leader());
    return only_leader;
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool committed() const { return committed_; }
  /// Whether we have ever said that we hold the result of a view.
  [[nodiscard]] bool was_prepared() const { return was_prepared_; }
  [[nodiscard]] std::optional<steady_time> wake_at() const;
  /// Members we have given up, and why: for the report.
  [[nodiscard]] const std::map<std::size_t, ec>& lost() const { return lost_; }
  /// What to answer to takeovers, also after the end.
  [[nodiscard]] takeover_promise promise() const;

private:
  struct takeover {
    std::uint32_t number = 0;
    member_set waiting;
    std::map<std::size_t, takeover_promise> promises;
    steady_time until{};
  };

  struct successor {
    std::size_t member;
    steady_time until;
  };

  struct foreign_takeover {
    std::uint32_t number;
    steady_time until;
  };

  [[nodiscard]] bool lead() const { return leader() == self_ && promised_ == view_.number; }
  [[nodiscard]] member_set others(member_set of) const;
  /// The first number of our next term above `floor`.
  [[nodiscard]] std::uint32_t term_above(std::uint32_t floor) const;
  /// Reacts to the loss of somebody: a view without it, a takeover, or waiting for another's.
  void recover(actions& out, steady_time now);
  void start_takeover(actions& out, steady_time now);
  void finish_takeover(actions& out);
  /// Who has prepared the current view, as far as we know.
  [[nodiscard]] member_set prepared_members() const;
  void prepare(actions& out);
  void enter(const round_view& next);
  void propose(actions& out, const round_view& view, member_set audience);
  void commit_if_all_prepared(actions& out);
  /// Whoever still works at a round that is committed here has missed a word.
  void pass_on_decision(actions& out, std::size_t to) const;
  void end_with(actions& out, failure why);
  /// Somebody's promise is to a number above ours.
  void fall_behind(actions& out, const takeover_promise& promise);
  void abort_all(actions& out, ec reason);

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
  /// The highest view that each member said it has prepared, plus one. Word of a view may come
  /// before the view does.
  std::vector<std::uint32_t> prepared_numbers_;
  std::map<std::size_t, ec> lost_;
  std::optional<takeover> takeover_;
  std::optional<successor> successor_;      // whom we expect to take over
  member_set passed_over_;                  // who did not, in this view: it may see no reason to
  std::optional<foreign_takeover> foreign_; // to whom we gave our promise
  /// A takeover that was ahead of ours. Others reach whoever began it, even if we do not: it gets
  /// the time that it needs, else two that lost each other might pass each other for ever.
  std::optional<std::uint32_t> yields_to_;
  bool ended_ = false;
  bool committed_ = false;
};

} // namespace waggle
