#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/averaging/group_bandwidths.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/codec/error_feedback.hpp"

namespace waggle {

/// The id of a plan that replaces the one with id `replaced`: a hash over both.
[[nodiscard]] round_id id_of_change(const round_id& replaced, const round_plan& plan);

/// A group that averages round after round without matchmaking, and that peers enter and leave
/// between rounds.
///
/// Every member knows the plan of the next round before any member begins it. After a committed
/// round that plan follows from what was committed: its members are the participants of the
/// committed view, so a member that was lost in the round is not expected again, and no messages
/// are needed. Only the first member (the leader) changes the plan otherwise: to admit peers, or to
/// repartition the work. It sends the changed plan to all members before it begins the round. A
/// member that has begun the round of the old plan by then cancels it, unless it has already
/// reported that it holds the result: the others may have considered the leader lost and committed.
///
/// A group belongs to a branch of the run's history. If a round is decided without a majority of
/// the members that decided the one before, the branch gets another name: the others may have gone
/// on, too.
///
/// A client leads only where it is alone, as a group of one. With the plan that admits another
/// peer, the first member that others can reach becomes the leader. A peer that reaches a member
/// and not the leader could never enter: that member asks for the lead (hand_lead_to).
///
/// The id of the next round is a hash of what it follows from, so members with different plans do
/// not meet in one round, and nobody can send another plan under the id of a round (id_of_change).
///
/// The rounds may average several vectors in turn (terms::vectors), of different lengths. Where an
/// epoch has a round for each of them, the second follows from the first as the rounds of two
/// epochs follow from each other, so members that were lost in the first are not expected in the
/// second. The leader changes the plan only before the first, so no peer enters between the two.
///
/// A member whose plan never leads to a round has lost the group and must enter again.
/// Not thread-safe.
class open_group {
public:
  /// What all members share, and some settings of our own.
  struct terms {
    std::string prefix{};
    digest schema{}; // over everything that members must share; compared when a peer enters
    /// At least one. Each epoch averages one of them, in turn by its number, or all.
    std::vector<codec_plan> vectors{};
    bool all_each_epoch = false;
    aggregation reduce_by{};
    std::uint32_t min_contributors = 1; // see contributors_needed
    std::size_t members_max = round_members_max;
    partition_terms partition{}; // `bandwidths` is ignored
    epoch_id end{};              // no round follows from this epoch on; 0: not known
  };
  struct applicant {
    round_member member;
    digest schema; // zero: an auxiliary that takes the terms from the group
    digest branch; // the branch that it wants to take part in
    member_bandwidth bandwidth;
    std::string host{}; // where it is; empty: not known
  };

  /// Without vectors, it is no member of a group until `use`.
  open_group(round_member self, terms shared, member_bandwidth bandwidth);
  /// Begins anew, in no group, with other terms. terms::end stays, and what was called last.
  void use(round_member self, terms shared, member_bandwidth bandwidth);

  // -- membership ---------------------------------------------------------------------------------

  [[nodiscard]] bool is_member() const { return next_.has_value(); }
  /// The plan of the next round. REQUIRES: is_member().
  [[nodiscard]] const round_plan& next() const { return *next_; }
  [[nodiscard]] std::size_t position() const;
  [[nodiscard]] bool leads() const { return is_member() && position() == 0; }
  /// Whether the next round is the last one of its epoch. REQUIRES: is_member().
  [[nodiscard]] bool ends_epoch() const {
    return !terms_.all_each_epoch || round_ + 1 == terms_.vectors.size();
  }
  /// Which of terms::vectors the next round averages. REQUIRES: is_member().
  [[nodiscard]] std::size_t turn() const { return turn_of(next_->epoch, round_); }
  /// Where the residual of that vector is among those of all.
  [[nodiscard]] residual_range residual() const;
  [[nodiscard]] bool contains(const peer_id& peer) const;
  /// The link of this peer was lost, or it applies again: if it is a member, it has missed
  /// messages, and takes part in no round until it has entered again.
  void lost(const peer_id& peer) {
    if (contains(peer))
      lost_.insert(peer);
  }
  [[nodiscard]] bool is_lost(const peer_id& member) const { return lost_.contains(member); }
  [[nodiscard]] const digest& branch() const { return branch_; }

  /// How others reach us may have changed. A member of a group of several stays what its plan says
  /// until it enters again.
  void become(round_member self);
  /// Begins a group of one. `seed` is random, so that two groups never have the same id.
  void found(epoch_id epoch, const digest& branch, const round_id& seed);
  /// Begins with the group that matchmaking formed; all its members do this with the same plan. Its
  /// branch is zero, which is no history and never forks. `agreed`: what matchmaking agreed on.
  void adopt(const round_plan& plan, const partition_terms& agreed);
  void leave();

  // -- after a round ------------------------------------------------------------------------------

  /// The round of `next()` was committed; `stayed` are the positions of the committed view's
  /// participants. False: no member is left that may lead and reduce, so the group has ended.
  bool advance(member_set stayed);

  // -- as the leader ------------------------------------------------------------------------------

  /// ec::none: it enters with the next plan. Otherwise the reason: not_ready (we are in no group),
  /// not_a_leader (ask next().members.front()), wrong_run (another branch), schema_mismatch,
  /// group_full.
  [[nodiscard]] ec apply(const applicant& who);
  void withdraw(const peer_id& who) { waiting_.erase(who); }
  /// The plan that admits the applicants; nothing if there are none, we do not lead, or the second
  /// round of an epoch is next. Once two members have finished a round of the group, it admits no
  /// more newcomers than there are such members, so that these are a quorum if all newcomers are
  /// silent. The others wait for the next plan, unless there is no further round to wait for
  /// (terms::end); hosts take turns. It becomes next() and must be sent to its members and to the
  /// members of the plan that it replaces.
  [[nodiscard]] std::optional<round_plan> admit();
  /// A member's bandwidth has changed, or is 0: it leaves soon, and reduces no more where another
  /// one can. Returns the plan that repartitions the work, if that is worth it; handle it like that
  /// of `admit`.
  [[nodiscard]] std::optional<round_plan> on_bandwidth(const peer_id& who,
                                                       std::optional<double> bandwidth);

  /// Whether all members are on our host (round_plan::one_host). Returns a plan if that has
  /// changed, as on_bandwidth does.
  [[nodiscard]] std::optional<round_plan> on_one_host(bool one_host);

  /// This member leads from now on. False, and nothing changes, if it cannot, is new, or we do not
  /// lead. True: handle next() like the plan of `admit`; it must not admit anybody.
  [[nodiscard]] bool hand_lead_to(const peer_id& who);

  /// To be called after several changes: next() becomes one change of the plan `replaced`, which
  /// the other members know.
  void seal(const round_id& replaced) { next_->id = id_of_change(replaced, *next_); }

  // -- as a member --------------------------------------------------------------------------------

  /// The leader `from` replaces the plan whose id is `replaces` by `plan`. If the round of the
  /// replaced plan has not been reached here yet, the new plan is kept until then: the last
  /// `early_plans_max` of each member, because any of them may lead by then. True: next() has
  /// changed. Fails with ec::protocol_violation or schema_mismatch, and then changes nothing.
  result<bool> on_plan(const peer_id& from, const round_id& replaces, const round_plan& plan);
  /// The leader `from`, to which we applied, sent the plan that admits us.
  status enter(const peer_id& from, const round_plan& plan, const digest& branch);

  /// `from` calls the members to the round with this id. Its plan may not have arrived yet; calls
  /// of peers that are not members are ignored. Whether it is the next round.
  bool on_call(const peer_id& from, const round_id& upcoming) {
    if (is_member() && !contains(from))
      return false;
    called_ = upcoming;
    return is_called();
  }
  /// Whether a member has called the next round.
  [[nodiscard]] bool is_called() const { return is_member() && next_->id == called_; }

  /// The terms, with the schema that an applicant must have.
  [[nodiscard]] const terms& shared() const { return terms_; }

  /// A leader that admits peers one after another may be so many plans ahead of us.
  static constexpr std::size_t early_plans_max = 16;

private:
  [[nodiscard]] std::size_t turn_of(epoch_id epoch, std::size_t round) const {
    return terms_.all_each_epoch ? round : epoch.value() % terms_.vectors.size();
  }
  [[nodiscard]] status check(const round_plan& plan) const;
  [[nodiscard]] bool partition(round_plan& plan) const;
  [[nodiscard]] std::vector<applicant> take_admitted();
  [[nodiscard]] bool make_room(const std::string& host);
  [[nodiscard]] bool may_change_plan() const { return leads() && round_ == 0; }
  void replace(round_plan plan);
  const round_plan& change(round_plan plan) {
    plan.id = id_of_change(next_->id, plan);
    replace(std::move(plan));
    return *next_;
  }
  void keep_early(const peer_id& from, const round_id& replaces, const round_plan& plan);
  void take_early();

  struct early_plan {
    peer_id from;
    round_id replaces;
    round_plan plan;
  };

  round_member self_;
  terms terms_;
  group_bandwidths bandwidths_;
  std::optional<round_plan> next_;
  std::size_t round_ = 0;  // of its epoch is next_
  std::set<peer_id> lost_; // members of next_
  digest branch_;
  round_id called_; // the last round that a member called; perhaps not reached yet
  std::map<peer_id, applicant> waiting_; // bounded by members_max
  std::vector<early_plan> early_;        // in order of arrival
};

/// Whether `from` may admit peers with this plan: it leads it, or gives up the lead with it, as a
/// client does that was alone. Otherwise anybody could admit peers in the name of another one.
[[nodiscard]] bool may_admit(const peer_id& from, const round_plan& plan);

} // namespace waggle
