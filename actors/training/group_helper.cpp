// progress, links, time ─► choose_help ─► enter_group │ quit_group
//   member: samples reach the target, or a member calls ─► average_in_group, without values
//   a round ─► evidence, sample_claims: what is believed from now on
// get_state_snapshot ─► the cached state ─ too old? ─► state_fetcher: what most members offer ─► answer

#include "actors/training/group_helper.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/training/missed_updates.hpp"

namespace waggle {

namespace {

constexpr auto client_look_interval = 100ms;
/// After so many votes that ended without a majority the members' states are held to be only
/// approximately equal. A single one may meet members that are between two epochs.
constexpr int ties_max = 3;

} // namespace

group_helper::group_helper(caf::actor_config& cfg, node_context ctx, help_config config,
                           helper_peers peers)
  : group_helper_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    peers_(std::move(peers)) {
  own_.self = ctx_.record.id;
  own_.known = &known_;
  end_on_exception(this, ctx_);
}

void group_helper::on_exit() {
  stop_fetching({ec::shutting_down, {}});
  peers_ = {};
  readers_.clear();
}

group_helper::behavior_type group_helper::make_behavior() {
  delayed_send(this, client_look_interval, look_for_clients{});
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
      delayed_send(this, client_look_interval, again);
      if (state_ && !sync_.busy() && now() - state_used_ >= config_.state_idle)
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
  if (place_ == place::member && !in_round_)
    observe_samples(own_, connected_, claims_);
  if (place_ == place::entering || now() < enter_after_)
    return tell();
  auto choice = choose_help(own_, connected_);
  // A history that more peers claim than train ours may not be believed.
  if (auto sentence = doubts_.note(choice.doubted, now()))
    ctx_.log_caused("disbelieved histories", now(), spdlog::level::warn, *sentence);
  show_doubts();
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
      if (samples_toward(own_, connected_, claims_, now()).full())
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
        claims_.begin_epoch(now()); // earlier claims were made to another group
        take_members(group);
        log_about about{{.epoch = group.epoch}};
        ctx_.log->info("reduces for clients: in a group of {} at epoch {} of history {}",
                       group.members.size(), group.epoch.value(), short_name(past.branch));
        react();
      },
      [this, through = choice.through](const caf::error& error) {
        auto why = from_caf(error);
        log_about about{{.remote = through.front().id, .reason = why.code}};
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
  log_about about{{.epoch = own_.epoch}};
  ctx_.log->info("left the group of epoch {}: {}", own_.epoch.value(), why);
  send(peers_.averager, quit_group{});
  stop_fetching({ec::not_ready, "we have left that group"});
  place_ = place::outside;
  in_round_ = false;
  weighs_samples_ = false;
  ties_ = 0;
  uncompared_until_ = {};
  own_statistics_ = false;
  ++rounds_; // ignore later reports of this group's rounds
  own_.members.clear();
  own_.past = {};
  own_.epoch = {};
  clientless_since_.reset();
  enter_after_ = now() + config_.entry_pause;
}

void group_helper::take_members(const group_view& group) {
  own_.members = {group.members.begin(), group.members.end()};
  elements_ = group.elements;
}

// -- rounds ---------------------------------------------------------------------------------------

void group_helper::begin_round() {
  if (in_round_)
    return;
  in_round_ = true;
  claims_.begin_epoch(now());
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
  round_ended event{report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  if (report.outcome == round_outcome::failed) {
    leave(to_string(report.why));
    return tell();
  }
  known_.on_round(report.contributors);
  check_deliveries(report);
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

// -- what is believed -----------------------------------------------------------------------------

/// Compares what the members claimed before the round with its weight.
void group_helper::check_deliveries(const round_report& report) {
  weighs_samples_ =
    weighs_samples_ || weighs_samples(report.weight_sum, report.contributors.size());
  // Without any weight nobody has delivered anything, whatever is averaged.
  if (report.outcome != round_outcome::complete || (!weighs_samples_ && report.weight_sum > 0))
    return;
  auto found = claims_.end_round(report.participants, report.weight_sum, 0, now());
  for (const auto& who : found.suspects)
    disbelieve("disbelieved claims",
               fmt::format("peer {} claimed samples and did not contribute them ({} were missing "
                           "from the round): what it claims does not count for a while",
                           short_name(who), found.missing));
}

void group_helper::disbelieve(std::string_view kind, const std::string& what) {
  ctx_.metrics->count_refused_input(ec::protocol_violation);
  ctx_.log_caused(kind, now(), spdlog::level::warn, what);
  show_doubts();
}

void group_helper::show_doubts() {
  auto all =
    static_cast<double>(doubts_.strangers() + claims_.suspects(now()) + sync_.refused(now()));
  if (std::exchange(disbelieved_, all) != all)
    ctx_.metrics->set_disbelieved_peers(all);
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
  if (sync_.busy())
    return;
  auto holders = holders_of(own_, connected_);
  if (holders.empty())
    return refuse_readers({ec::not_ready, "no member of our group can give its state"});
  fetched_branch_ = own_.past.branch;
  fetch_state question{std::move(holders), fetched_branch_, {}, config_.fetch_timeout, nullptr};
  for (const auto& reader : readers_)
    question.epoch_min = std::max(question.epoch_min, reader.wanted.epoch_min);
  auto how = config_.fetch;
  if (elements_ > 0)
    how.download.bytes_max = std::min(how.download.bytes_max, state_bytes_max(elements_));
  bool compared = how.compare == state_comparison::none && now() >= uncompared_until_;
  if (compared)
    how.compare = own_statistics_ ? state_comparison::parameters : state_comparison::content;
  request_state( // the fetcher tells the operator of suspects
    this, ctx_, peers_.switchboard, sync_, request_, std::move(how), std::move(question),
    [this](const fetched_state& fetched, const auto&) { on_fetched(fetched); },
    [this, compared](const failure& why, const auto& suspects) {
      on_no_state(why, compared && why.code == ec::hash_mismatch && suspects.empty());
    });
}

/// `tie`: the offers were compared although it is not known that they can be, and none has won.
void group_helper::on_no_state(const failure& why, bool tie) {
  show_doubts();
  if (tie
      && !std::exchange(own_statistics_, true)) // with --strategy diloco, the rest is a peer's own
    return fetch();
  if (tie) {
    if (++ties_ >= ties_max) {
      ties_ = 0;
      uncompared_until_ = now() + config_.uncompared_for;
      ctx_.log_caused("uncompared states", now(), spdlog::level::warn,
                      "the members of our group offer different states of one epoch, as peers do "
                      "whose models are only approximately equal: passing on that of one member");
    }
    return fetch();
  }
  log_about about{{.reason = why.code}};
  ctx_.log->warn("could not download a client's state to pass it on: {}", to_string(why));
  refuse_readers(why);
}

/// Ends the current download, which was for a group that we have left.
void group_helper::stop_fetching(const failure& why) {
  stop_request(this, sync_, request_);
  refuse_readers(why);
}

/// The reason why the state cannot be passed on.
failure group_helper::check_fetched(const fetched_state& fetched,
                                    const result<training_state>& state) const {
  if (!state)
    return state.error();
  if (state->epoch != fetched.epoch || state->parameters != fetched.parameters)
    return {ec::malformed, "the state is not the one that was offered"};
  if (state->past.branch != fetched_branch_)
    return {ec::wrong_run, "the state is of another history than our group's"};
  if (state->epoch.value() > own_.epoch.value() + state_sync::epochs_ahead)
    return {ec::epoch_mismatch, "the state is of an epoch that our group has not reached"};
  return {};
}

void group_helper::on_fetched(const fetched_state& fetched) {
  show_doubts();
  auto state = check_state(*fetched.state);
  auto why = check_fetched(fetched, state);
  if (why.code != ec::none) {
    ctx_.metrics->count_state_not_loaded("refused");
    sync_.refused_state(now());
    disbelieve("disbelieved states",
               fmt::format("peer {} sent a state that is not our group's ({}): it is not asked for "
                           "a while",
                           short_name(fetched.donor), to_string(why)));
    return refuse_readers(why);
  }
  sync_.loaded(now());
  ctx_.metrics->count_state_loaded(fetched.resumed, sync_.took());
  ties_ = 0;
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
