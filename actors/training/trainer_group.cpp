// How a trainer finds the run's group, founds one, enters and leaves.
//
//   outside ─ membership ─► enter ─► enter_group ─► on_entered ─► member
//                        └► wait, or found ─► found_group ─────┘     │ leave
//      ▲                                                                 │
//      └─────────────────────────────────────────────────────────────────┘

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/new_name.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/averaging/entry_search.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

std::string checkpoint_of(const training_config& config, const digest& branch) {
  if (!config.checkpoints)
    return "No checkpoints of it are kept";
  auto files = *config.checkpoints;
  auto last = files.last_of(branch);
  return last && *last ? "Its last checkpoint stays on disk: " + (*last)->string()
                       : "There is no checkpoint of it";
}

} // namespace

membership_facts trainer::facts() const {
  return {now(),
          at_.past(),
          at_.epoch(),
          at_.in_step(),
          ctx_.is_client(),
          round_runs(),
          done() || !membership_.has_been_complete()};
}

/// Goes to the group that this peer should be in. Returns whether it is a member of it now.
bool trainer::follow_membership() {
  if (membership_.at() == membership::place::outside) {
    if (loads() || membership_.pauses(now()))
      return false;
    if (vector_.exceed(config_.missed_bytes_max)) {
      wait_for("the running pass, which takes longer than the epochs of the others");
      return false;
    }
  }
  auto next = membership_.decide(facts());
  if (next.choice) { // a history that more peers claim than train ours may not be believed
    if (auto sentence = doubts_.note(next.choice->doubted, now()))
      ctx_.log_caused("disbelieved histories", now(), spdlog::level::warn, *sentence);
    show_doubts();
  }
  using kind = membership::action::kind;
  switch (next.what) {
    case kind::none:
      return membership_.is_member();
    case kind::wait:
      wait_for(next.why);
      break;
    case kind::found:
      if (!next.why.empty())
        ctx_.log->warn("{}", next.why);
      found();
      break;
    case kind::enter:
      if (membership_.is_member()) {
        leave(next.why);
        report_own_progress();
        if (loads()) // it enters once the model is loaded
          break;
      } else if (next.choice->without_evidence && next.choice->histories > 1) {
        ctx_.log_caused(
          "claimed histories", now(), spdlog::level::warn,
          fmt::format("{} histories of this run are claimed, by peers with which this one has not "
                      "completed rounds: following {}, which {} of them hold",
                      next.choice->histories, short_name(next.choice->branch),
                      next.choice->supporters));
      }
      enter(*next.choice);
      break;
    case kind::leave:
      leave(next.why);
      if (membership_.is_paused())
        report_own_progress(); // so that nobody waits for our samples
      break;
    case kind::change_mode:
      change_mode();
      break;
  }
  return false;
}

void trainer::found() {
  membership_.asked(ctx_.is_client());
  wait_for({});
  auto name = new_name<digest>(ctx_, random_);
  auto past = at_.past();
  past.parent = past.branch;
  past.forked_at = at_.epoch();
  past.branch = sha256_stream{}.add("waggle branch").add(ctx_.run_id).add(name.view()).finish();
  request(peers_.averager, 5s, found_group{at_.epoch(), past.branch, past.parent})
    .then(
      [this, past](const group_view& group) {
        membership_.founded(group.members, group.epoch, now());
        at_.found(past);
        membership_.merged(at_.epoch());
        begin_counting();
        flight_.count_on();
        send(worker_, rename_history{past, at_.epoch()});
        log_about about{{.epoch = at_.epoch()}};
        ctx_.log->info("{}", report_.begin_history(past));
        if (const auto* given = flight_.given(); given != nullptr && !given->resumed)
          report_.fall_back();
        report_own_progress();
        react();
      },
      [this](const caf::error& why) {
        ctx_.log->debug("could not begin a group: {}", to_string(from_caf(why)));
        membership_.refused(from_caf(why).code, false, nullptr, now());
      });
}

void trainer::enter(const history_choice& choice) {
  membership_.asked(ctx_.is_client());
  request(peers_.averager, config_.averaging_timeout + 5s,
          enter_group{choice.through, choice.branch, config_.averaging_timeout, choice.parent})
    .then([this, choice](const group_view& group) { on_entered(choice, group); },
          [this, choice](const caf::error& why) {
            auto reason = from_caf(why);
            log_about about{{.epoch = at_.epoch(), .reason = reason.code}};
            ctx_.log->debug("could not enter the run's group: {}", to_string(reason));
            membership_.refused(reason.code, is_exclusion(reason.code), &choice.through.front().id,
                                now()); // the first one that was asked
            if (auto what = awaited_after(reason); !what.empty())
              wait_for(what);
            react();
          });
}

void trainer::on_entered(const history_choice& choice, const group_view& group) {
  if (auto why = membership_.misled(choice, group.members, group.epoch)) {
    send(peers_.averager, quit_group{});
    const auto& leader = group.members.front();
    auto lasts = membership_.leave_misleading(leader, now());
    disbelieve(fmt::format("peer {} admitted us into a group that is not the run's ({}): it is not "
                           "asked for {:.0f} s",
                           short_name(leader), *why, seconds_of(lasts)));
    return react();
  }
  membership_.entered(choice, group.members, group.epoch, now());
  wait_for({});
  move_to(choice, group.epoch);
  progress_.enter(now());
  begin_counting();
  flight_.forget_resumed(); // the group has an epoch of its own
  report_own_progress();
  react();
}

/// Our group is at this epoch of this history now: we are in step, or have to download a state.
void trainer::move_to(const history_choice& choice, epoch_id epoch) {
  auto before = at_.past();
  auto epoch_before = at_.epoch();
  at_.enter(choice.branch, choice.work, epoch);
  if (!at_.in_step()) {
    bool other = !before.branch.is_zero() && before.branch != choice.branch;
    if (auto lost = report_.leave_history(before, epoch_before, choice)) {
      log_about about{{.epoch = epoch}};
      ctx_.log->warn("{}. {}", *lost, checkpoint_of(config_, before.branch));
    }
    const auto* why = other ? "history_lost" : "left_out";
    drop_contribution(why); // it may come back into the model
    if (other || !keeps_progress())
      drop_accumulated(why);
  }
  if (at_.in_step() && at_.epoch() != epoch_before)
    send(worker_, rename_history{at_.past(), at_.epoch()});
}

/// Our group has changed between rounds.
void trainer::on_group(const group_view& seen) {
  bool later = config_.many_groups && seen.epoch > at_.epoch();
  bool goes_on = later && !round_runs(); // otherwise end_epoch follows
  if (membership_.is_member() && seen.member) {
    if (later || seen.epoch == at_.epoch())
      membership_.take(seen.members, seen.epoch, seen.clients);
    else if (config_.many_groups)
      membership_.take_members(seen.members); // our state is ahead of what the others have claimed
    if (goes_on)
      follow_run(false);
  }
  if (goes_on || !config_.many_groups)
    report_own_progress();
}

/// Other groups have ended epochs without us. With a state within the tolerance we go on at the
/// run's epoch; otherwise we download one. @param outdated so is ours, whatever its epoch.
void trainer::follow_run(bool outdated) {
  merge();
  if (!membership_.is_member())
    return;
  auto epoch = outdated ? at_.epoch() : membership_.epoch();
  log_about about{{.epoch = epoch}};
  bool was_in_step = at_.in_step();
  if (outdated)
    at_.outdate();
  history_choice to; // our work stays our own: what others claim is not ours to repeat
  to.branch = at_.past().branch;
  to.work = at_.past().work;
  move_to(to, epoch);
  begin_counting();
  if (outdated) {
    ctx_.log->info("the others averaged, and we did not for more than {} epochs: downloading a "
                   "state",
                   config_.epoch_difference_max);
    report_own_progress();
  } else if (was_in_step && !at_.in_step()) {
    ctx_.log->info("the run has gone on to epoch {} without us: downloading its state",
                   epoch.value());
  }
}

/// Whether training may begin: see training_config::min_peers.
bool trainer::enough_peers() {
  if (membership_.has_been_complete())
    return true;
  bool trains =
    report_.status.rounds_complete + report_.status.rounds_shrunk > 0; // others began without us
  // Of an epoch's samples, a newcomer that still downloads would draw none.
  bool by_samples = averages().due.counts == lane_clock::unit::swarm_samples;
  auto lacks =
    membership_.lacks(trains, by_samples ? std::optional{at_.past().branch} : std::nullopt, now());
  wait_for(lacks == 0
             ? std::string{}
             : fmt::format("{} more of the {} peers to begin with", lacks, config_.min_peers));
  if (lacks == 0)
    progress_.begin_passes(now()); // nobody was silent before
  return lacks == 0;
}

/// Leaves the group and returns to the state that the model holds.
void trainer::leave(const std::string& why) {
  log_about about{{.epoch = at_.epoch()}};
  if (!why.empty())
    ctx_.log->info("left the group of epoch {}: {}", at_.epoch().value(), why);
  send(peers_.averager, quit_group{});
  merge();
  stop_request(this, sync_, request_);
  // The contribution was for a state that we do not have, or is a copy that will be outdated.
  if (!at_.in_step() || averages_parameters())
    drop_contribution("left_out");
  at_.leave();
  membership_.left(now());
  flight_.interrupt();
  give_awaited(); // newcomers ask another donor
}

/// After a notice, this peer stays until its samples are in an update, or its time is over.
void trainer::follow_notice() {
  if (auto within = config_.leave ? config_.leave->within() : std::nullopt;
      within && notice_.begin(*within, now())) {
    ctx_.log->info(
      "this peer's machine will be taken away within {:.0f} s: it computes nothing new, "
      "and leaves when its samples are in an update",
      seconds_of(*within));
    report_own_progress(); // the others expect nothing of it any more
    if (ctx_.bandwidth)
      ctx_.bandwidth->withdraw(); // they lead and reduce in its place
  }
  if (!notice_.begun() || notice_.ended())
    return;
  unfinished_work left;
  left.samples = own_samples() + flight_.in_flight();
  left.pass_runs = pass_.runs;
  left.round_runs = round_runs() || awaits_merge() || vector_.waiting() > 0;
  left.alone = is_alone();
  left.only_donor = membership_.is_member() && at_.in_step() && report_.status.peers_behind > 0
                    && membership_.donors(at_.past().branch).empty();
  left.hands_over = hands_over(left);
  if (!notice_.ends(left, now()))
    return wait_for(left.pass_runs || left.round_runs || left.samples > 0
                      ? "an update with its last samples, before it leaves"
                    : left.hands_over
                      ? "a neighbour that keeps what only this peer has, before it leaves"
                      : "a newcomer that needs the state, before it leaves");
  wait_for({});
  if (left.samples > 0) {
    ctx_.log->warn("{} of this peer's samples are in no update when it leaves", left.samples);
  } else {
    ctx_.log->info("all samples of this peer are in updates{}, and it leaves",
                   averages().fragments > 1 ? " of a fragment" : "");
    membership_.pause(); // at once, so that no round waits for it
  }
}

/// Whether no other member, or outside of a group no other peer, computes: those that leave claim
/// that they do not.
bool trainer::is_alone() const {
  return std::ranges::none_of(seen_.progress.peers, [this](const auto& peer) {
    return peer.who.id != seen_.self && (!membership_.is_member() || membership_.has(peer.who.id))
           && peer.samples_per_second > notice_period::speed;
  });
}

/// Whether our next round is due now, because we leave before its time. Of gradients it is not: the
/// samples of an update are agreed.
bool trainer::hurries() const {
  bool possible = notice_.begun() && !notice_.ended() && steps_locally() && !config_.many_groups
                  && at_.in_step() && !pass_.runs && own_samples() > 0;
  return possible
         && (is_alone()
             || (progress_.may_end_early(now())
                 && notice_.hurries(progress_.until_end(now()), now())));
}

/// The group has us with a mode that is outdated.
void trainer::change_mode() {
  leave(ctx_.is_client() ? "others do not reach this peer: it enters again as a client"
                         : "others reach this peer again: it enters as a node");
  report_own_progress();
}

// -- what is believed -----------------------------------------------------------------------------

void trainer::show_doubts() {
  ctx_.metrics->set_disbelieved_peers(
    static_cast<double>(doubts_.strangers() + membership_.disbelieved(now())
                        + progress_.suspects(now()) + sync_.refused(now())));
}

/// A peer claims what is not so, and is not relied on for a while.
void trainer::disbelieve(const std::string& what) {
  ctx_.metrics->count_refused_input(ec::protocol_violation);
  if (ctx_.log_caused("disbelieved claims", now(), spdlog::level::warn, what))
    ctx_.note(watch::remark{watch::remark::what::disbelieved, what});
  doubts_.show(what, now());
  show_doubts();
}

/// Compares what the others claimed before the round with what it delivered.
void trainer::check_deliveries(const round_report& report, const contribution& given) {
  if (report.outcome != round_outcome::complete || !given.from_state || !progress_.is_comparable())
    return;
  auto found = progress_.end_round(report.participants, report.weight_sum, given.samples, now());
  for (const auto& who : found.suspects)
    disbelieve(fmt::format("peer {} claimed samples and did not contribute them ({} were missing "
                           "from the round): what it claims does not count for a while",
                           short_name(who), found.missing));
}

} // namespace waggle
