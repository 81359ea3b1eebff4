#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/core/time_outs.hpp"
#include "runtime/progress/founding.hpp"
#include "runtime/progress/history_choice.hpp"
#include "runtime/progress/merge_age.hpp"
#include "runtime/progress/unbroken.hpp"

namespace waggle {

/// The peers of the run, as this one sees them.
struct run_view {
  peer_id self;
  swarm_progress progress{}; // what they claim
  std::set<peer_id> connected{};
  evidence known{};
  bool addresses_known = true; // there are, or may be, peers to ask for the run

  [[nodiscard]] bool is_connected(const peer_id& peer) const { return connected.contains(peer); }
};

/// What a decision about the group depends on beside what others claim.
struct membership_facts {
  steady_time now;
  history past;        // that this peer, or its group, trains
  epoch_id epoch;      // of its next round
  bool in_step = true; // with its group
  bool client = false; // others cannot reach this peer
  bool round_runs = false;
  bool idle = false; // no round is due, which would find the members that are gone
};

/// In which group a trainer is, and in which one it should be: whether to enter one, to found one,
/// to wait, or to leave.
///
/// | place    | transitions                                                                       |
/// |----------|-----------------------------------------------------------------------------------|
/// | outside  | a group trains the run's history → entering; none, we have the most work → member |
/// | entering | admitted → member; refused, misled or lost → outside                              |
/// | member   | round failed or decided without us → outside; another history → outside           |
/// | member   | no round is due, and the leader is gone → outside                                 |
///
/// Its caller carries the actions out, and reports what came of them. Not thread-safe.
class membership {
public:
  enum class place : std::uint8_t { outside, entering, member };
  struct options : founding_options {
    /// The averager is a moshpit_averager: the group is the whole run, each round averages with
    /// some of its peers, and epochs also end in groups that this peer is not in. Only for
    /// strategies whose peers are approximately equal.
    bool many_groups = false;
    /// If they are: a peer that is so many epochs behind the group trains on without a download.
    std::uint64_t epoch_difference_max = 1;
    /// The group is complete, and its first pass may begin, once it has so many members, or so much
    /// time has passed in it (0: without limit).
    std::size_t min_peers = 1;
    milliseconds wait_for_peers{0};
  };
  struct action {
    enum class kind : std::uint8_t {
      none,
      wait,       // for `why`
      found,      // a group of our own; `why`: a warning to the operator, or empty
      enter,      // `choice`; a member leaves its group first, because of `why`
      leave,      // because of `why`
      change_mode // leave, and enter again as a client, or as a peer that others reach
    };
    kind what = kind::none;
    std::optional<history_choice> choice{}; // none: nothing was compared
    std::string why{};
  };

  /// @param seen outlives this object.
  membership(const run_view& seen, options how)
    : seen_(seen), how_(how), merges_(how.epoch_difference_max) {}

  [[nodiscard]] action decide(const membership_facts& facts);
  /// From now on it leaves its group once no round runs, and looks for none.
  void pause() { paused_ = true; }
  void resume(steady_time now) {
    if (std::exchange(paused_, false) && place_ == place::outside)
      begin(now);
  }
  [[nodiscard]] bool is_paused() const { return paused_; }
  /// Whether it is outside and does not look for a group yet.
  [[nodiscard]] bool pauses(steady_time now) const { return now < enter_after_; }
  /// Whether our group has us with a mode that is outdated: others do not reach us any more, or
  /// again, which waits for our turn where half of the members are clients: a router that lets one
  /// in lets in all behind it. One that is alone need not leave, and of many groups the next one
  /// has the new mode.
  [[nodiscard]] bool has_other_mode(const membership_facts& facts) const;
  /// Whether others have averaged without us for more epochs than the tolerance allows.
  [[nodiscard]] bool is_outdated(const membership_facts& facts);
  /// A mean with others ended the epoch before `epoch`, or a state of `epoch` was loaded.
  void merged(epoch_id epoch) { merges_.merged(epoch); }

  /// How many members the group lacks to be complete, which it stays from then on: of the others,
  /// those count that report to hold the state of `branch`; without one, those that download it,
  /// too. @param trains it has begun already. REQUIRES: we hold it.
  [[nodiscard]] std::size_t lacks(bool trains, const std::optional<digest>& branch,
                                  steady_time now);
  [[nodiscard]] bool has_been_complete() const { return complete_; }

  // -- transitions --------------------------------------------------------------------------------

  /// Looks for a group from now on.
  void begin(steady_time now) { outside_since_ = now; }
  /// enter_group or found_group was sent. REQUIRES: outside.
  void asked(bool as_client);
  /// Admitted. REQUIRES: entering.
  void entered(const history_choice& choice, std::vector<peer_id> members, epoch_id epoch,
               steady_time now);
  /// Our group has begun. REQUIRES: entering.
  void founded(std::vector<peer_id> members, epoch_id epoch, steady_time now);
  /// Not admitted through this peer, the first one that was asked; null: the group could not begin.
  /// `excluded`: the group does not admit this peer for a while. REQUIRES: entering.
  void refused(ec why, bool excluded, const peer_id* by, steady_time now);
  /// The reason why the group that admitted us is not that of the history which we wanted.
  [[nodiscard]] std::optional<std::string>
  misled(const history_choice& choice, const std::vector<peer_id>& members, epoch_id epoch) const;
  /// Leaves the group of such a leader. Returns how long it is not asked. REQUIRES: entering.
  milliseconds leave_misleading(const peer_id& leader, steady_time now);
  /// No group is looked for before then.
  void pause_until(steady_time when) { enter_after_ = when; }
  void left(steady_time now);

  /// The members of the next round, its epoch, and how many are clients in it; nothing: not known.
  void take(std::vector<peer_id> members, epoch_id epoch, std::optional<std::size_t> clients = {}) {
    members_ = std::move(members);
    epoch_ = epoch;
    clients_ = clients;
  }
  void take_members(std::vector<peer_id> members) { members_ = std::move(members); }
  /// A round failed, and its group with it. @param excluded the others go on without us.
  /// @param tried its members that had completed a round before.
  void lost(bool excluded, const std::vector<peer_id>& tried, const membership_facts& facts);
  /// A round was decided without most of the members `tried`: the history forks.
  void fell_apart(const std::vector<peer_id>& tried, const membership_facts& facts);
  void on_connected(const peer_id& peer) { avoided_.erase(peer); }

  // -- where we are -------------------------------------------------------------------------------

  [[nodiscard]] place at() const { return place_; }
  [[nodiscard]] bool is_member() const { return place_ == place::member; }
  [[nodiscard]] bool has(const peer_id& peer) const;
  [[nodiscard]] const std::vector<peer_id>& members() const { return members_; }
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  /// We went on without most of our former group.
  [[nodiscard]] bool provisional() const { return provisional_; }

  // -- what is believed ---------------------------------------------------------------------------

  /// Finds the epoch of our history. Returns a sentence if a peer claims a later one, and none did
  /// before.
  std::optional<std::string> observe_epochs(const membership_facts& facts);
  /// That peers have reached whose claims count.
  [[nodiscard]] epoch_id epoch_of_run() const { return epoch_of_run_; }
  /// Peers whose claims do not count: with an epoch that nobody has reached, or a misleading group.
  [[nodiscard]] std::size_t disbelieved(steady_time now) const {
    return misleading_.count(now) + far_claims_;
  }
  /// Whether the samples that this peer reports count toward our group's epoch.
  [[nodiscard]] bool counts(const swarm_progress::peer& peer, const digest& branch,
                            epoch_id epoch) const;
  /// The peers that train this history with us. Anybody else can claim any parameters.
  [[nodiscard]] std::vector<const swarm_progress::peer*> voters(const digest& branch) const;
  /// The other members that train and have not reported a pass of this epoch; nothing if none
  /// trains.
  [[nodiscard]] std::optional<std::vector<peer_id>> without_pass(const digest& branch,
                                                                 epoch_id epoch) const;
  /// In many groups: how many other peers train this history. Of those with which we have completed
  /// no round yet, only about as many count as of the others: anybody can claim to train.
  [[nodiscard]] std::size_t peers_that_step(const digest& branch) const;
  /// The peers that can give the state of this history: members of the group, if there are any,
  /// those that we know first.
  [[nodiscard]] std::vector<peer_record> donors(const digest& branch) const;

private:
  [[nodiscard]] history_choice choose(const membership_facts& facts) const;
  [[nodiscard]] action look(const membership_facts& facts);
  [[nodiscard]] action review(const membership_facts& facts);
  [[nodiscard]] founding may_found(const membership_facts& facts) const;
  [[nodiscard]] bool is_live(const peer_id& peer) const;
  [[nodiscard]] bool left_behind(const membership_facts& facts);
  [[nodiscard]] bool lost_leader(const membership_facts& facts);
  [[nodiscard]] bool most_are_back() const;
  [[nodiscard]] bool has_turn() const;
  void become_member(std::vector<peer_id> members, epoch_id epoch, steady_time now);
  void remember(former_group group, steady_time now);

  const run_view& seen_;
  const options how_;
  merge_age merges_;
  bool paused_ = false;

  place place_ = place::outside;
  bool as_client_ = false; // in the present group, or the one that is being entered
  std::vector<peer_id> members_;
  epoch_id epoch_;                     // of the group's next round
  std::optional<std::size_t> clients_; // of members_
  bool provisional_ = false;
  bool complete_ = false;
  bool lost_group_ = false;           // the last round failed, and we were not excluded from it
  std::vector<peer_id> lost_members_; // of that group
  former_group former_;               // the last one that fell apart, or whom we go by since
  steady_time former_since_;
  unbroken behind_;                            // most members are ahead of us
  unbroken unled_;                             // our leader has no link with us
  steady_time outside_since_;                  // or in the group since
  std::optional<steady_time> connected_since_; // to any peer, when it last looked for a group
  steady_time enter_after_;
  peer_id awaited_; // the peer that should found the group
  steady_time awaited_since_;
  std::set<peer_id> passed_over_; // peers that were awaited and did not
  std::set<peer_id> avoided_;     // entering through them failed since we were last in a group
  /// Peers that claimed to be in a group and, asked to admit us, were not ready: their claims do
  /// not count. Otherwise one such peer and we would outweigh two that train together. Lasts long
  /// enough to enter another group; an honest peer has corrected its claim by then.
  time_outs disbelieved_{{milliseconds{500}, milliseconds{500}, 1'000}};
  time_outs misleading_;       // peers that admitted us into a group which is not the run's
  std::size_t far_claims_ = 0; // peers that claim an epoch which no member has reached
  epoch_id epoch_of_run_;
};

} // namespace waggle
