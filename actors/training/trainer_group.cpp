// How a trainer finds the run's group, founds one, enters and leaves.
//
//   outside ─ choose_history ─► enter ─► enter_group ─► on_entered ─► member
//                            └► wait, or found ─► found_group ─────┘     │ leave, yield_to
//      ▲                                                                 │
//      └─────────────────────────────────────────────────────────────────┘

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/new_name.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/entry_search.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/founding.hpp"

namespace waggle {

namespace {

constexpr auto entry_pause = 200ms;
/// An exclusion lasts 5 s at least (fault_memory).
constexpr milliseconds pause_if_excluded{1'000};
constexpr auto patience_with_founder = 3s;
constexpr auto patience_behind = 2s;
/// How long the record of a peer counts that is neither in a group nor connected: it may be gone.
constexpr auto patience_with_records = 2s;
constexpr std::size_t avoided_max = 1'000; // an attacker can make up any number of ids
/// Long enough to enter another group; an honest peer has corrected its claim by then.
constexpr auto disbelief = 500ms;

} // namespace

history_choice trainer::choose() const {
  history_view own{ctx_.record.id,
                   at_.past(),
                   place_ == place::member,
                   !ctx_.is_client(),
                   place_ == place::member && group_.members.size() == 1,
                   provisional_,
                   &known_};
  // In many groups, no round decides for the run.
  if (!config_.many_groups && !former_.members.empty()
      && now() - former_since_ < former_group::lasts)
    own.former = &former_;
  std::vector<swarm_progress::peer> others;
  bool reached = std::any_of(view_.peers.begin(), view_.peers.end(), [this](const auto& peer) {
    return peer.claim.group_size > 0 && connected_.contains(peer.who.id);
  });
  for (const auto& peer : view_.peers) {
    bool in_group = peer.claim.group_size > 0;
    // Records can be made up, and outlive their peers, so connected peers take precedence.
    bool connected = connected_.contains(peer.who.id);
    bool counts = in_group ? connected || !reached
                           : connected || now() - outside_since_ < patience_with_records;
    if (!counts || !is_live(peer.who.id) || (!in_group && passed_over_.contains(peer.who.id)))
      continue;
    auto doubted = disbelieved_.find(peer.who.id);
    bool claims_falsely = (doubted != disbelieved_.end() && now() < doubted->second)
                          || misleading_.holds(peer.who.id, now());
    if (place_ != place::member && claims_falsely)
      continue;
    others.push_back(peer);
    // Members that have not reported our group's fork yet are no reason to leave it.
    const auto& ours = at_.past();
    const auto& in = group_.members;
    auto& branch = others.back().claim.past.branch;
    if (place_ == place::member && !ours.parent.is_zero() && branch == ours.parent
        && peer.epoch <= ours.forked_at && std::find(in.begin(), in.end(), peer.who.id) != in.end())
      branch = ours.branch;
  }
  auto choice = choose_history(own, others);
  std::stable_partition(choice.through.begin(), choice.through.end(),
                        [this](const auto& peer) { return !avoided_.contains(peer.id); });
  return choice;
}

/// Whether a peer's report can be taken as current. For a member only connected peers count;
/// outside of a group, peers that may be reachable count too.
bool trainer::is_live(const peer_id& peer) const {
  if (peer == ctx_.record.id)
    return false;
  return connected_.contains(peer) || (place_ != place::member && !avoided_.contains(peer));
}

/// Whether most of the group have ended epochs without us, so that waiting here is futile.
bool trainer::left_behind() {
  if (config_.many_groups) // see follow_run
    return false;
  std::size_t ahead = 0;
  std::size_t far = 0;
  for (const auto& peer : view_.peers) {
    const auto& in = group_.members;
    if (peer.who.id == ctx_.record.id || peer.claim.past.branch != at_.past().branch
        || peer.epoch <= at_.epoch() || std::find(in.begin(), in.end(), peer.who.id) == in.end())
      continue;
    ++ahead;
    far += peer.epoch > at_.epoch().next() ? 1 : 0;
  }
  auto most = [this](std::size_t n) { return n > 0 && 2 * n > group_.members.size() - 1; };
  if (round_runs() || !most(ahead)) { // a running round will report its outcome
    behind_since_ = {};
    return false;
  }
  if (behind_since_ == steady_time{})
    behind_since_ = now();
  return most(far) || now() - behind_since_ >= patience_behind;
}

/// Whether most of the group that we lost can be reached again.
bool trainer::most_are_back() const {
  std::size_t back = 1; // this peer
  for (const auto& peer : lost_members_)
    back += peer != ctx_.record.id && connected_.contains(peer) ? 1 : 0;
  return 2 * back > lost_members_.size();
}

/// The group fell apart in this round. Only members that had completed one before count: whoever is
/// just admitted has done nothing yet.
void trainer::remember_group(const round_report& report) {
  former_group fell_apart{at_.past().branch, at_.epoch(), {}};
  for (const auto& [member, mark] : report.gathered)
    if (!has_just_entered(mark))
      fell_apart.members.push_back(member);
  if (fell_apart.members.empty()) // the round never began
    return;
  former_ = std::move(fell_apart);
  former_since_ = now();
}

void trainer::look_for_group() {
  if (now() < enter_after_ || loading_)
    return;
  if (too_much_under_way())
    return wait_for("the running pass, which takes longer than the epochs of the others");
  auto choice = choose();
  note_doubts(choice);
  switch (choice.what) {
    case course::enter:
      if (choice.without_evidence && choice.histories > 1)
        ctx_.log_caused(
          "claimed histories", now(), spdlog::level::warn,
          fmt::format("{} histories of this run are claimed, by peers with which this one has not "
                      "completed rounds: following {}, which {} of them hold",
                      choice.histories, short_name(choice.branch), choice.supporters));
      return enter(choice);
    case course::wait:
      if (awaited_ != choice.awaited) {
        awaited_ = choice.awaited;
        awaited_since_ = now();
      } else if (now() - awaited_since_ >= patience_with_founder) {
        passed_over_.insert(awaited_);
      }
      return wait_for("peer " + short_name(choice.awaited)
                      + ", which holds the run's state, to "
                        "begin");
    case course::found:
      if (may_found())
        found();
      return;
    case course::stay:
      return;
  }
}

/// There is no group to enter. Whether it is time to found one.
bool trainer::may_found() {
  founding_situation facts;
  facts.waited = std::chrono::duration_cast<milliseconds>(now() - outside_since_);
  facts.join_timeout = config_.join_timeout;
  facts.settle_time = config_.settle_time;
  facts.split_grace = config_.split_grace;
  facts.client = ctx_.is_client();
  facts.lost_group = lost_group_ && !most_are_back();
  facts.continue_on_split = config_.continue_on_split;
  facts.addresses_known = !dht_ || dht_->addresses_known;
  facts.connected = !connected_.empty();
  facts.has_work = at_.past().work > 0;
  facts.may_start_alone = config_.may_start_alone;
  for (const auto& peer : view_.peers) {
    facts.trainers_seen |=
      !peer.claim.auxiliary && !peer.claim.reduces_only && is_live(peer.who.id);
    facts.reducer_connected |= peer.claim.auxiliary && connected_.contains(peer.who.id);
  }
  auto decided = decide_founding(facts);
  if (!decided.now)
    wait_for(decided.waiting_for);
  else if (decided.alone == why_alone::no_reducer)
    ctx_.log->warn("no peer that others can reach trains or reduces for clients: training alone");
  else if (decided.alone == why_alone::nobody_reached)
    ctx_.log->warn("no peer of the run was reached within {:.0f} s: training alone",
                   seconds_of(config_.join_timeout));
  return decided.now;
}

void trainer::found() {
  place_ = place::entering;
  entered_as_client_ = ctx_.is_client();
  wait_for({});
  auto name = new_name<digest>(ctx_, random_);
  auto past = at_.past();
  past.parent = past.branch;
  past.forked_at = at_.epoch();
  past.branch = sha256_stream{}.add("waggle branch").add(ctx_.run_id).add(name.view()).finish();
  request(peers_.averager, 5s, found_group{at_.epoch(), past.branch})
    .then(
      [this, past](const group_view& group) {
        provisional_ = std::exchange(lost_group_, false) && !most_are_back();
        at_.found(past);
        merges_.merged(at_.epoch());
        place_ = place::member;
        outside_since_ = now();
        group_ = group;
        passed_over_.clear();
        avoided_.clear();
        since_fork_ = 0;
        line_began_ = at_.epoch();
        begin_counting();
        flight_.count_on();
        send(worker_, rename_history{past, at_.epoch()});
        if (past.parent.is_zero())
          ctx_.log->info("began the run's history {} at epoch {}", short_name(past.branch),
                         at_.epoch().value());
        else
          ctx_.log->info("{} as history {}, from epoch {} of {}",
                         provisional_ ? "cut off from most of the group: going on provisionally"
                                      : "going on",
                         short_name(past.branch), at_.epoch().value(), short_name(past.parent));
        if (const auto* given = flight_.given();
            given != nullptr
            && !given->resumed) { // the epoch will end with our own mean gradient (INV-6)
          ctx_.metrics->count_local_fallback();
          ++status_.local_fallbacks;
        }
        report_own_progress();
        react();
      },
      [this](const caf::error& why) {
        ctx_.log->debug("could not begin a group: {}", to_string(from_caf(why)));
        place_ = place::outside;
        enter_after_ = now() + entry_pause;
      });
}

void trainer::enter(const history_choice& choice) {
  place_ = place::entering;
  entered_as_client_ = ctx_.is_client();
  request(peers_.averager, config_.averaging_timeout + 5s,
          enter_group{choice.through, choice.branch, config_.averaging_timeout})
    .then([this, choice](const group_view& group) { on_entered(choice, group); },
          [this, choice](const caf::error& why) {
            auto reason = from_caf(why);
            ctx_.log->debug("could not enter the run's group: {}", to_string(reason));
            if (reason.code == ec::unreachable || reason.code == ec::timeout
                || reason.code == ec::peer_lost) {
              if (avoided_.size() >= avoided_max)
                avoided_.clear();
              avoided_.insert(choice.through.front().id); // the first one that was asked
            }
            if (reason.code == ec::not_ready) {
              if (disbelieved_.size() >= avoided_max)
                disbelieved_.clear();
              disbelieved_[choice.through.front().id] = now() + disbelief;
            }
            place_ = place::outside;
            enter_after_ =
              now() + (is_exclusion(reason.code) ? pause_if_excluded : milliseconds{entry_pause});
            if (auto what = awaited_after(reason); !what.empty())
              wait_for(what);
            react();
          });
}

void trainer::on_entered(const history_choice& choice, const group_view& group) {
  if (auto why = misled(choice, group)) {
    leave_misleading(group, *why);
    place_ = place::outside;
    return react();
  }
  place_ = place::member;
  group_ = group;
  lost_group_ = false;
  provisional_ = choice.provisional;
  if (choice.provisional && former_.branch != choice.parent) {
    former_ = {choice.parent, choice.forked_at, group.members};
    former_since_ = now();
  }
  passed_over_.clear();
  avoided_.clear();
  outside_since_ = now();
  wait_for({});
  move_to(choice, group.epoch);
  epoch_began_ = now();
  begin_counting();
  flight_.forget_resumed(); // the group has an epoch of its own
  report_own_progress();
  react();
}

/// What the operator is told about a history that is given up.
std::string trainer::where_it_is_kept(const digest& branch) const {
  if (!config_.checkpoints)
    return "No checkpoints of it are kept";
  auto files = *config_.checkpoints;
  auto last = files.last_of(branch);
  if (!last || !*last)
    return "There is no checkpoint of it";
  return "Its last checkpoint stays on disk: " + (*last)->string();
}

/// Our group is at this epoch of this history now: we are in step, or have to download a state.
void trainer::move_to(const history_choice& choice, epoch_id epoch) {
  auto before = at_.past();
  auto epoch_before = at_.epoch();
  at_.enter(choice.branch, choice.work, epoch);
  if (!at_.in_step()) {
    bool other = !before.branch.is_zero() && before.branch != choice.branch;
    if (other && (since_fork_ > 0 || before.work > 0)) {
      ctx_.log->warn(
        "history {} (up to epoch {}, {} of our samples since epoch {}) is not continued: "
        "the run's is {} at epoch {}, which {} peers hold. {}",
        short_name(before.branch), epoch_before.value(), since_fork_, line_began_.value(),
        short_name(choice.branch), epoch.value(), choice.supporters,
        where_it_is_kept(before.branch));
      if (since_fork_ > 0)
        ctx_.metrics->count_discarded("history_lost", static_cast<double>(since_fork_));
    }
    const auto* why = other ? "history_lost" : "left_out";
    drop_contribution(why); // it may come back into the model
    if (other || !keeps_progress())
      drop_accumulated(why);
    since_fork_ = 0;
    line_began_ = at_.epoch();
  }
  if (at_.in_step() && at_.epoch() != epoch_before)
    send(worker_, rename_history{at_.past(), at_.epoch()});
}

/// Our group has changed between rounds.
void trainer::on_group(const group_view& seen) {
  bool later = config_.many_groups && seen.epoch > at_.epoch();
  bool goes_on = later && !round_runs(); // otherwise end_epoch follows
  if (place_ == place::member && seen.member && (later || seen.epoch == at_.epoch())) {
    group_ = seen;
    if (goes_on)
      follow_run();
  }
  if (place_ == place::member && seen.member && config_.many_groups && seen.epoch < at_.epoch())
    group_.members = seen.members; // our state is ahead of what the others have claimed
  if (goes_on || !config_.many_groups)
    report_own_progress();
}

/// Other groups have ended epochs without us. With a state within the tolerance we go on at the
/// run's epoch; otherwise we download one.
void trainer::follow_run() {
  merge();
  if (place_ != place::member)
    return;
  bool was_in_step = at_.in_step();
  go_to(group_.epoch);
  if (was_in_step && !at_.in_step())
    ctx_.log->info("the run has gone on to epoch {} without us: downloading its state",
                   group_.epoch.value());
}

/// Our work stays our own: what others claim is not ours to repeat.
void trainer::go_to(epoch_id epoch) {
  history_choice to;
  to.branch = at_.past().branch;
  to.work = at_.past().work;
  move_to(to, epoch);
  begin_counting();
}

/// Others have averaged without us for more epochs than the tolerance allows.
void trainer::replace_outdated_state() {
  merge();
  if (place_ != place::member)
    return;
  ctx_.log->info("the others averaged, and we did not for more than {} epochs: downloading a state",
                 config_.epoch_difference_max);
  at_.outdate();
  go_to(at_.epoch());
  report_own_progress();
}

/// Whether others have averaged without us for more epochs than the tolerance allows.
bool trainer::is_outdated() {
  if (!config_.many_groups || !at_.in_step() || round_runs())
    return false;
  merge_age::others others;
  for (const auto& peer : view_.peers) {
    const auto& who = peer.who.id;
    const auto& claim = peer.claim;
    if (who != ctx_.record.id && connected_.contains(who) && claim.ready && claim.group_size > 0
        && claim.past.branch == at_.past().branch && !claim.auxiliary && !claim.reduces_only)
      others[who] = {claim.past.work, known_.covers(who)};
  }
  return merges_.is_outdated(at_.epoch(), others);
}

/// Our state is older than the tolerance allows. That only happens while a round of ours runs: its
/// end decides how we go on, and until then no pass begins.
bool trainer::is_stale() const {
  return config_.many_groups
         && group_.epoch.value() > at_.epoch().value() + config_.epoch_difference_max;
}

/// Leaves the group and returns to the state that the model holds.
void trainer::leave(const std::string& why) {
  if (!why.empty())
    ctx_.log->info("left the group of epoch {}: {}", at_.epoch().value(), why);
  send(peers_.averager, quit_group{});
  merge();
  stop_fetching();
  // The contribution was for a state that we do not have, or is a copy that will be outdated.
  if (!at_.in_step() || averages_parameters())
    drop_contribution("left_out");
  at_.leave();
  place_ = place::outside;
  group_ = {};
  behind_since_ = {};
  flight_.interrupt();
  outside_since_ = now();
  awaited_ = {};
  give_awaited(); // newcomers ask another donor
}

void trainer::yield_to(const history_choice& choice) {
  leave("history " + short_name(choice.branch) + " is held by " + std::to_string(choice.supporters)
        + (choice.supporters == 1 ? " peer" : " peers") + " and has more work");
  report_own_progress();
  if (!loading_) // otherwise look_for_group enters once the model is loaded
    enter(choice);
}

} // namespace waggle
