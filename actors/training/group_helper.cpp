// progress, links, time ─► client_group ─► enter_group │ quit_group
//   member: samples reach the target, or a member calls ─► average_in_group, without values
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
    peers_(std::move(peers)),
    group_(ctx_.record.id, {config_.entry_pause, config_.patience_without_clients}, ctx_.listed()) {
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
      if (!msg.member || !group_.is_member_at(msg.epoch))
        return;
      take_members(msg);
      react();
    },
    [this](const round_called& msg) {
      if (group_.is_member_at(msg.epoch))
        begin_round();
    },
    [this](const peer_connected& msg) {
      group_.on_connected(msg.peer.id);
      react();
    },
    [this](const peer_disconnected& msg) {
      group_.on_disconnected(msg.peer);
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
  auto next = group_.decide(view_.peers, now());
  if (next.choice) {
    // A history that more peers claim than train ours may not be believed.
    if (auto sentence = doubts_.note(next.choice->doubted, now()))
      ctx_.log_caused("disbelieved histories", now(), spdlog::level::warn, *sentence);
    show_doubts();
  }
  if (!next.leave.empty())
    leave(next.leave);
  if (next.enter)
    enter(*next.choice);
  if (next.call)
    begin_round();
  tell();
}

void group_helper::enter(const history_choice& choice) {
  group_.asked();
  request(peers_.averager, config_.entry_timeout + 5s,
          enter_group{choice.through, choice.branch, config_.entry_timeout})
    .then(
      [this, past = history{choice.branch, {}, {}, choice.work}](const group_view& group) {
        group_.entered(past, group.epoch, group.members, now());
        elements_ = group.elements;
        log_about about{{.epoch = group.epoch}};
        ctx_.log->info("reduces for clients: in a group of {} at epoch {} of history {}",
                       group.members.size(), group.epoch.value(), short_name(past.branch));
        react();
      },
      [this, through = choice.through](const caf::error& error) {
        auto why = from_caf(error);
        log_about about{{.remote = through.front().id, .reason = why.code}};
        bool too_long = why.code == ec::oversize;
        // Not tried again: each attempt costs the group a round.
        group_.refused(too_long ? through : std::vector<peer_record>{}, now());
        if (!too_long)
          return ctx_.log->debug("could not enter a group of clients: {}", to_string(why));
        ctx_.log->warn("does not reduce for peer {}: {} (--reduce-elements-max)",
                       short_name(through.front().id), to_string(why));
      });
}

void group_helper::leave(const std::string& why) {
  log_about about{{.epoch = group_.epoch()}};
  ctx_.log->info("left the group of epoch {}: {}", group_.epoch().value(), why);
  send(peers_.averager, quit_group{});
  stop_fetching({ec::not_ready, "we have left that group"});
  group_.left(now());
  ties_ = 0;
  uncompared_until_ = {};
  own_statistics_ = false;
}

void group_helper::take_members(const group_view& group) {
  group_.take_members(group.members);
  elements_ = group.elements;
}

// -- rounds ---------------------------------------------------------------------------------------

void group_helper::begin_round() {
  auto number = group_.begin_round(now());
  if (number == 0)
    return;
  // Clients are connected only with this node, so it always forwards the call to the others.
  average_in_group question{nullptr, 0, group_.epoch(), true, config_.round_timeout};
  request(peers_.averager, config_.round_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (group_.awaits(number))
          on_round(round);
      },
      [this, number](const caf::error& why) {
        if (group_.awaits(number))
          leave(to_string(from_caf(why)));
      });
}

void group_helper::on_round(const group_round& round) {
  const auto& report = round.report;
  round_ended event{report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  if (report.outcome == round_outcome::failed) {
    leave(to_string(report.why));
    return tell();
  }
  missed_update update;
  update.epoch = group_.epoch();
  update.work = samples_of(report.weight_sum) * report.contributors.size();
  update.branch = round.branch;
  update.before = group_.past().branch;
  auto found = group_.advance(update.after(group_.past()), report.contributors, report.participants,
                              report.weight_sum, report.outcome == round_outcome::complete, now());
  for (const auto& who : found.suspects)
    disbelieve("disbelieved claims",
               fmt::format("peer {} claimed samples and did not contribute them ({} were missing "
                           "from the round): what it claims does not count for a while",
                           short_name(who), found.missing));
  if (!round.group.member) {
    leave("the round was decided without us");
    return tell();
  }
  take_members(round.group);
  react();
}

// -- what is believed -----------------------------------------------------------------------------

void group_helper::disbelieve(std::string_view kind, const std::string& what) {
  ctx_.metrics->count_refused_input(ec::protocol_violation);
  ctx_.log_caused(kind, now(), spdlog::level::warn, what);
  show_doubts();
}

void group_helper::show_doubts() {
  auto all =
    static_cast<double>(doubts_.strangers() + group_.suspects(now()) + sync_.refused(now()));
  if (std::exchange(disbelieved_, all) != all)
    ctx_.metrics->set_disbelieved_peers(all);
}

// -- reports --------------------------------------------------------------------------------------

void group_helper::tell() {
  report seen{group_.claim(), group_.epoch(), group_.clients()};
  bool due = !reported_at_ || now() - *reported_at_ >= config_.report_interval;
  if (seen.clients != reported_.clients)
    ctx_.log->info("reduces for {} {}", seen.clients, seen.clients == 1 ? "client" : "clients");
  if (!due && seen == reported_)
    return;
  reported_at_ = now();
  reported_ = seen;
  send(peers_.tracker, report_progress{seen.epoch, 0, {}, seen.claim, 0});
  send(peers_.exporter,
       helper_status{seen.clients, seen.claim.group_size, seen.epoch, seen.claim.past});
}

// -- the state of the clients ---------------------------------------------------------------------

bool group_helper::answers(const get_state_snapshot& wanted) const {
  return state_ && state_->past.branch == group_.past().branch && state_->epoch >= wanted.epoch_min;
}

caf::result<state_snapshot> group_helper::snapshot(const get_state_snapshot& wanted) {
  if (!wanted.owner.is_zero())
    return to_caf(ec::not_found, "this peer keeps nothing of others");
  if (!group_.is_member())
    return to_caf(ec::not_ready, "this peer is in no group of clients now");
  if (!wanted.branch.is_zero() && wanted.branch != group_.past().branch)
    return to_caf(ec::wrong_run, "our group has another history");
  // No member can have that state yet, and the request must not delay those that can be answered.
  if (wanted.epoch_min.value() > group_.epoch().value() + 1)
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
  auto holders = group_.holders();
  if (holders.empty())
    return refuse_readers({ec::not_ready, "no member of our group can give its state"});
  fetched_branch_ = group_.past().branch;
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
  if (state->epoch.value() > group_.epoch().value() + state_sync::epochs_ahead)
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
    if (!group_.is_member() || state->past.branch != group_.past().branch)
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
