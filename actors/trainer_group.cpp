// How a trainer finds the run's group, founds one, enters and leaves.
//
//   outside ─ choose_history ─► enter ─► enter_group ─► on_entered ─► member
//                            └► wait, or found ─► found_group ─────┘     │ leave, yield_to
//      ▲                                                                 │
//      └─────────────────────────────────────────────────────────────────┘

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/trainer.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr auto entry_pause = 200ms;
constexpr auto patience_with_founder = 3s;
constexpr auto alone_among_nodes = 3s;

} // namespace

history_choice trainer::choose() const {
  history_standing own{ctx_.record.id, line_, place_ == place::member, !ctx_.record.client_mode,
                       place_ == place::member && group_.members.size() == 1};
  std::vector<swarm_progress::peer> others;
  for (const auto& peer : view_.peers)
    if (is_heard(peer.who.id) && (peer.claim.group_size > 0 || !passed_over_.contains(peer.who.id)))
      others.push_back(peer);
  return choose_history(own, others);
}

/// Whether what a peer reported says something of the present. Records outlive their peers: to a
/// member only those count that it is connected to, to others also those that may be reached.
bool trainer::is_heard(const peer_id& peer) const {
  if (peer == ctx_.record.id)
    return false;
  return connected_.contains(peer) || (place_ != place::member && !unreachable_.contains(peer));
}

/// Most of the group have ended epochs without us: whatever we wait for here does not come.
bool trainer::left_behind() const {
  std::size_t ahead = 0;
  for (const auto& peer : view_.peers)
    ahead += peer.who.id != ctx_.record.id && peer.claim.line.branch == line_.branch
                 && peer.epoch.value() > epoch_.value() + 1
                 && std::find(group_.members.begin(), group_.members.end(), peer.who.id)
                      != group_.members.end()
               ? 1
               : 0;
  return ahead > 0 && 2 * ahead > group_.members.size() - 1;
}

void trainer::look_for_group() {
  if (now() < enter_after_)
    return;
  auto choice = choose();
  switch (choice.what) {
    case course::enter:
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
    case course::found: {
      bool others = std::any_of(view_.peers.begin(), view_.peers.end(), [&](const auto& peer) {
        return peer.who.id != ctx_.record.id && !peer.claim.auxiliary;
      });
      if (may_found(others))
        found();
      return;
    }
    case course::stay:
      return;
  }
}

/// Nobody else is to be followed: is it time to go on by ourselves?
bool trainer::may_found(bool others_seen) {
  auto waited = now() - outside_since_;
  if (lost_group_) {
    if (!config_.continue_on_split) {
      wait_for("most of the group, which cannot be reached (on-split is pause)");
      return false;
    }
    if (waited < config_.split_grace) {
      wait_for("most of the group, which cannot be reached");
      return false;
    }
    return true;
  }
  if (ctx_.record.client_mode && config_.join_timeout > 0ms && !connected_.empty())
    return client_may_found(waited);
  if (config_.join_timeout == 0ms || (dht_ && !dht_->addresses_known)) // the run's first peer
    return connected_.empty() || waited >= config_.settle_time;
  if (others_seen)
    return waited >= config_.settle_time;
  if (!connected_.empty()) {
    wait_for("a peer that trains: those reached do not");
    return waited >= std::min<milliseconds>(config_.join_timeout, alone_among_nodes);
  }
  if (waited >= config_.join_timeout && (line_.work > 0 || config_.may_start_alone)) {
    ctx_.log->warn("nobody of the run was reached within {:.0f} s: training alone",
                   seconds_of(config_.join_timeout));
    return true;
  }
  wait_for("any peer of the run: none of the addresses answers");
  return false;
}

/// A client that is connected, but with nobody who trains: who shall reduce for it?
bool trainer::client_may_found(std::chrono::nanoseconds waited) {
  for (const auto& peer : view_.peers)
    if (peer.claim.auxiliary && connected_.contains(peer.who.id))
      return waited >= config_.settle_time; // it comes in where it is needed
  if (waited < config_.join_timeout) {
    wait_for("a peer that others can reach: clients average through a trainer that is none, or a "
             "waggle node that reduces for them");
    return false;
  }
  ctx_.log->warn("no peer that others can reach trains or reduces for clients: training alone");
  return true;
}

void trainer::found() {
  place_ = place::entering;
  wait_for({});
  request(peers_.averager, 5s, found_group{epoch_})
    .then(
      [this](const group_view& group) {
        digest random;
        random_.fill(random.bytes);
        auto parent = line_;
        line_.parent = parent.branch;
        line_.forked_at = epoch_;
        line_.branch =
          sha256_stream{}.add("waggle branch").add(ctx_.run_id).add(random.view()).finish();
        provisional_ = std::exchange(lost_group_, false);
        held_ = {line_, epoch_};
        place_ = place::member;
        group_ = group;
        called_ = false;
        passed_over_.clear();
        since_fork_ = 0;
        line_began_ = epoch_;
        send(worker_, rename_history{line_});
        if (parent.branch.is_zero())
          ctx_.log->info("began the run's history {} at epoch {}", short_name(line_.branch),
                         epoch_.value());
        else
          ctx_.log->info("{} as history {}, from epoch {} of {}",
                         provisional_ ? "cut off from most of the group: going on provisionally"
                                      : "going on",
                         short_name(line_.branch), epoch_.value(), short_name(parent.branch));
        if (given_) { // the epoch ends with our own mean gradient (INV-6)
          ctx_.metrics->count_local_fallback();
          ++status_.local_fallbacks;
        }
        tell_progress();
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
  wait_for({});
  request(peers_.averager, config_.averaging_timeout + 5s,
          enter_group{choice.through, config_.averaging_timeout})
    .then([this, choice](const group_view& group) { on_entered(choice, group); },
          [this, choice](const caf::error& why) {
            auto reason = from_caf(why);
            ctx_.log->debug("could not enter the run's group: {}", to_string(reason));
            if (reason.code == ec::unreachable || reason.code == ec::timeout
                || reason.code == ec::peer_lost)
              for (const auto& peer : choice.through)
                unreachable_.insert(peer.id); // until it is connected
            place_ = place::outside;
            enter_after_ = now() + entry_pause;
            if (reason.code == ec::group_full || reason.code == ec::schema_mismatch)
              wait_for("room in the run's group: " + to_string(reason));
            react();
          });
}

void trainer::on_entered(const history_choice& choice, const group_view& group) {
  place_ = place::member;
  group_ = group;
  called_ = false;
  lost_group_ = false;
  provisional_ = false;
  passed_over_.clear();
  outside_since_ = now();
  in_step_ = line_.branch == choice.branch && epoch_ == group.epoch;
  if (!in_step_) {
    held_ = {line_, epoch_};
    bool other = !line_.branch.is_zero() && line_.branch != choice.branch;
    if (other && since_fork_ > 0) {
      ctx_.log->warn("history {} (epochs {} to {}, {} of our samples) gives way to {}, which {} "
                     "peers hold; its last checkpoint stays on disk",
                     short_name(line_.branch), line_began_.value(), epoch_.value(), since_fork_,
                     short_name(choice.branch), choice.voices);
      ctx_.metrics->count_discarded("history_lost", static_cast<double>(since_fork_));
    }
    drop_accumulated(other ? "history_lost" : "left_out");
    drop_contribution(other ? "history_lost" : "left_out");
    since_fork_ = 0;
    line_ = {choice.branch, {}, {}, choice.work};
    epoch_ = group.epoch;
    line_began_ = epoch_;
    missed_.clear();
    loaded_.reset();
  }
  epoch_began_ = now();
  tell_progress();
  react();
}

/// Back to what the model holds.
void trainer::leave(const std::string& why) {
  if (!why.empty())
    ctx_.log->info("left the group of epoch {}: {}", epoch_.value(), why);
  send(peers_.averager, quit_group{});
  if (!in_step_) {
    line_ = held_.line;
    epoch_ = held_.epoch;
    in_step_ = true;
    missed_.clear();
    loaded_.reset();
  }
  place_ = place::outside;
  group_ = {};
  called_ = false;
  ++rounds_; // what a round of this group still reports does not count
  if (given_)
    given_->in_round = false;
  outside_since_ = now();
  awaited_ = {};
}

void trainer::yield_to(const history_choice& choice) {
  leave("history " + short_name(choice.branch) + " is held by " + std::to_string(choice.voices)
        + (choice.voices == 1 ? " peer" : " peers") + " and has more work");
  tell_progress();
  enter(choice);
}

} // namespace waggle
