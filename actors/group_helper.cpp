// progress, links, time ─► choose_help ─► enter_group │ quit_group
//   member: samples reach the target, or a member calls ─► average_in_group, without values
// get_state_snapshot ─► the cached state ─ too old? ─► state_fetcher: from a member ─► answer

#include "actors/group_helper.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/training/missed_updates.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

namespace {

constexpr auto look_interval = 100ms;

} // namespace

group_helper::group_helper(caf::actor_config& cfg, node_context ctx, help_config config,
                           helper_peers peers)
  : group_helper_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    peers_(std::move(peers)) {
  own_.self = ctx_.record.id;
  end_on_exception(this, ctx_);
}

void group_helper::on_exit() {
  stop_fetching({ec::shutting_down, {}});
  peers_ = {};
  readers_.clear();
}

group_helper::behavior_type group_helper::make_behavior() {
  delayed_send(this, look_interval, look_for_clients{});
  return {
    [this](const get_state_snapshot& msg) { return snapshot(msg); },
    [this](const swarm_progress& msg) {
      view_ = msg;
      react();
    },
    [this](const group_view& msg) {
      if (place_ != place::member || !msg.member || msg.epoch != own_.epoch)
        return;
      take_members(msg);
      react();
    },
    [this](const round_called& msg) {
      if (place_ == place::member && msg.epoch == own_.epoch)
        begin_round();
    },
    [this](const peer_connected& msg) {
      own_.links.insert(msg.peer.id);
      react();
    },
    [this](const peer_disconnected& msg) {
      own_.links.erase(msg.peer);
      refused_.erase(msg.peer);
      react();
    },
    [this](look_for_clients again) {
      delayed_send(this, look_interval, again);
      if (state_ && !fetcher_ && now() - state_used_ >= config_.state_idle)
        state_.reset();
      react();
    },
  };
}

/// Decides, on everything that is known now, what can be begun, and begins it.
void group_helper::react() {
  connected_.clear();
  for (const auto& peer : view_.peers)
    if (own_.links.contains(peer.who.id) && !refused_.contains(peer.who.id))
      connected_.push_back(peer);
  if (place_ == place::entering || now() < enter_after_)
    return tell();
  auto choice = choose_help(own_, connected_);
  switch (choice.what) {
    case help::enter:
      if (place_ == place::member)
        leave("history " + short_name(choice.past.branch) + " is preferred");
      enter(choice);
      break;
    case help::none:
      if (place_ != place::member)
        break;
      clientless_since_ = clientless_since_.value_or(now());
      if (now() - *clientless_since_ >= config_.patience_without_clients)
        leave("no client there needs this node");
      break;
    case help::stay:
      clientless_since_.reset();
      if (samples_toward(own_, connected_).full())
        begin_round();
      break;
  }
  tell();
}

void group_helper::enter(const help_choice& choice) {
  place_ = place::entering;
  request(peers_.averager, config_.entry_timeout + 5s,
          enter_group{choice.through, choice.past.branch, config_.entry_timeout})
    .then(
      [this, past = choice.past](const group_view& group) {
        place_ = place::member;
        in_round_ = false;
        own_.past = past;
        own_.epoch = group.epoch;
        clientless_since_.reset();
        take_members(group);
        ctx_.log->info("reduces for clients: in a group of {} at epoch {} of history {}",
                       group.members.size(), group.epoch.value(), short_name(past.branch));
        react();
      },
      [this, through = choice.through](const caf::error& error) {
        auto why = from_caf(error);
        place_ = place::outside;
        enter_after_ = now() + config_.entry_pause;
        if (why.code != ec::oversize)
          return ctx_.log->debug("could not enter a group of clients: {}", to_string(why));
        // Not tried again: each attempt costs the group a round.
        for (const auto& peer : through)
          refused_.insert(peer.id);
        ctx_.log->warn("does not reduce for peer {}: {} (--reduce-elements-max)",
                       short_name(through.front().id), to_string(why));
      });
}

void group_helper::leave(const std::string& why) {
  ctx_.log->info("left the group of epoch {}: {}", own_.epoch.value(), why);
  send(peers_.averager, quit_group{});
  stop_fetching({ec::not_ready, "we have left that group"});
  place_ = place::outside;
  in_round_ = false;
  ++rounds_; // ignore later reports of this group's rounds
  own_.members.clear();
  own_.past = {};
  own_.epoch = {};
  clientless_since_.reset();
  enter_after_ = now() + config_.entry_pause;
}

void group_helper::take_members(const group_view& group) {
  own_.members = {group.members.begin(), group.members.end()};
}

// -- rounds ---------------------------------------------------------------------------------------

void group_helper::begin_round() {
  if (in_round_)
    return;
  in_round_ = true;
  // Clients are connected only with this node, so it always forwards the call to the others.
  average_in_group question{nullptr, 0, own_.epoch, true, config_.round_timeout};
  auto number = ++rounds_;
  request(peers_.averager, config_.round_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (number == rounds_)
          on_round(round);
      },
      [this, number](const caf::error& why) {
        if (number == rounds_)
          leave(to_string(from_caf(why)));
      });
}

void group_helper::on_round(const group_round& round) {
  in_round_ = false;
  const auto& report = round.report;
  round_ended event{"gradients", report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  if (report.outcome == round_outcome::failed) {
    leave(to_string(report.why));
    return tell();
  }
  missed_update update;
  update.epoch = own_.epoch;
  update.work = samples_of(report.weight_sum) * report.contributors.size();
  update.branch = round.branch;
  update.before = own_.past.branch;
  own_.past = update.after(own_.past);
  own_.epoch = own_.epoch.next();
  if (!round.group.member) {
    leave("the round was decided without us");
    return tell();
  }
  take_members(round.group);
  react();
}

// -- reports --------------------------------------------------------------------------------------

void group_helper::tell() {
  history_claim claim;
  claim.auxiliary = true;
  claim.past = own_.past;
  claim.group_size = static_cast<std::uint32_t>(own_.members.size());
  claim.ready = place_ == place::member && !holders_of(own_, connected_).empty();
  auto clients = clients_among(own_, connected_);
  bool due = !reported_at_ || now() - *reported_at_ >= config_.report_interval;
  if (clients != reported_clients_)
    ctx_.log->info("reduces for {} {}", clients, clients == 1 ? "client" : "clients");
  if (!due && claim == reported_ && own_.epoch == reported_epoch_ && clients == reported_clients_)
    return;
  reported_at_ = now();
  reported_ = claim;
  reported_epoch_ = own_.epoch;
  reported_clients_ = clients;
  send(peers_.tracker, report_progress{own_.epoch, 0, {}, claim, 0});
  send(peers_.exporter, helper_status{clients, claim.group_size, own_.epoch, own_.past});
}

// -- the state of the clients ---------------------------------------------------------------------

bool group_helper::answers(const get_state_snapshot& wanted) const {
  return state_ && state_->past.branch == own_.past.branch && state_->epoch >= wanted.epoch_min;
}

caf::result<state_snapshot> group_helper::snapshot(const get_state_snapshot& wanted) {
  if (place_ != place::member)
    return to_caf(ec::not_ready, "this peer is in no group of clients now");
  if (!wanted.branch.is_zero() && wanted.branch != own_.past.branch)
    return to_caf(ec::wrong_run, "our group has another history");
  // No member can have that state yet, and the request must not delay those that can be answered.
  if (wanted.epoch_min.value() > own_.epoch.value() + 1)
    return to_caf(ec::epoch_mismatch, "our group has not reached that epoch");
  state_used_ = now();
  if (answers(wanted))
    return *state_;
  if (readers_.size() >= config_.waiting_max)
    return to_caf(ec::overloaded, "too many peers wait for this state");
  readers_.push_back({wanted, make_response_promise<state_snapshot>()});
  auto promise = readers_.back().promise;
  fetch();
  return promise;
}

/// One download at a time. A peer whose request times out meanwhile asks again, and gets the state
/// that was downloaded.
void group_helper::fetch() {
  if (fetcher_)
    return;
  auto holders = holders_of(own_, connected_);
  if (holders.empty())
    return refuse_readers({ec::not_ready, "no member of our group can give its state"});
  fetch_state question{std::move(holders), own_.past.branch, {}, config_.fetch_timeout, nullptr};
  for (const auto& reader : readers_)
    question.epoch_min = std::max(question.epoch_min, reader.wanted.epoch_min);
  fetch_began_ = now();
  fetcher_ = spawn<state_fetcher>(ctx_, config_.fetch, peers_.switchboard);
  auto number = ++fetches_;
  request(fetcher_, config_.fetch_timeout + 5s, std::move(question))
    .then(
      [this, number](const fetched_state& fetched) {
        if (number == fetches_)
          on_fetched(fetched);
      },
      [this, number](const caf::error& error) {
        if (number != fetches_)
          return;
        fetcher_ = nullptr;
        auto why = from_caf(error);
        ctx_.log->warn("could not download a client's state to pass it on: {}", to_string(why));
        refuse_readers(why);
      });
}

/// Ends the current download, which was for a group that we have left.
void group_helper::stop_fetching(const failure& why) {
  if (fetcher_) {
    send_exit(fetcher_, caf::exit_reason::user_shutdown);
    fetcher_ = nullptr;
    ++fetches_;
  }
  refuse_readers(why);
}

void group_helper::on_fetched(const fetched_state& fetched) {
  fetcher_ = nullptr;
  auto state = check_state(*fetched.state);
  auto why = !state ? state.error()
             : state->epoch != fetched.epoch
               ? failure{ec::malformed, "the state is not of the epoch that was offered"}
               : failure{};
  ctx_.metrics->count_state_download(why.code != ec::none ? "refused"
                                     : fetched.resumed    ? "resumed"
                                                          : "complete",
                                     seconds_of(now() - fetch_began_));
  if (why.code != ec::none)
    return refuse_readers(why);
  state_ =
    state_snapshot{state->epoch, state->parameters, fetched.state, state->past, fetched.content};
  state_used_ = now();
  for (auto& reader : std::exchange(readers_, {})) {
    if (place_ != place::member || state->past.branch != own_.past.branch)
      reader.promise.deliver(to_caf(ec::wrong_run, "our group has another history now"));
    else if (answers(reader.wanted))
      reader.promise.deliver(*state_);
    else
      readers_.push_back(std::move(reader)); // it asked while an older state was downloading
  }
  if (!readers_.empty())
    fetch();
}

void group_helper::refuse_readers(const failure& why) {
  for (auto& reader : std::exchange(readers_, {}))
    reader.promise.deliver(to_caf(why));
}

} // namespace waggle
