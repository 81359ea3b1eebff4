// find_group ─► group_search ─ declare ─► dht     look_up ─► dht ─► candidates ─► group_search
//                     │  ask ─► switchboard ─► join_group at the other side ─► answer ─► group_search
//                     ├─ begin: the plan ─► begin_group to all followers, group_formed to our caller
//                     └─ a leader's begin_group ─► checked ─► group_formed to our caller
// find_place: see matchmaker_places.cpp

#include "actors/averaging/matchmaker.hpp"

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"
#include "actors/new_name.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

constexpr auto tick_interval = 20ms;
/// Of an extra auxiliary, which is called by those that it asked too early.
constexpr auto retry_of_extra = 500ms;

} // namespace

matchmaker::matchmaker(caf::actor_config& cfg, node_context ctx, matchmaking_config config,
                       switchboard_actor switchboard, dht_router_actor dht)
  : matchmaker_base(cfg), ctx_(std::move(ctx)), mode_(config.mode), config_(std::move(config)),
    switchboard_(std::move(switchboard)), dht_(std::move(dht)),
    random_(ctx_.randomness("matchmaker " + config_.prefix)), declaration_(ctx_.run_id, ctx_.self) {
  end_on_exception(this, ctx_);
  if (config_.elastic_bits && !config_.extra)
    loads_.emplace(ctx_.run_id, config_.prefix, ctx_.self);
  if (auto key = group_key::make(config_.prefix, config_.initial_group_bits))
    key_ = std::move(*key);
}

void matchmaker::on_exit() {
  next_.reset();
  current_.reset();
  place_.reset();
  switchboard_ = nullptr;
  dht_ = nullptr;
}

matchmaker::behavior_type matchmaker::make_behavior() {
  return {
    [this](const inbound_call& msg) { return answer(msg); },
    [this](const inbound_event& msg) {
      msg.release();
      on_event(msg);
    },
    [this](const find_group& msg) { return begin(msg); },
    [this](find_place& msg) { return begin(msg); },
    [this](const is_plan_awaited& plan) { return place_ && place_->search.expects(plan.from); },
    [this](const plan_judged& msg) { judged(msg); },
    [this](const set_open_group& msg) {
      open_leader_ = msg.leader;
      open_full_ = msg.members >= target_size();
      open_schema_ = msg.leader ? group_schema(config_, msg.codecs) : digest{};
    },
    [this](is_place_wanted) {
      return open_leader_ && open_full_
             && !seekers_.wanting(open_schema_, key_->text(), clock().now()).empty();
    },
    [this](get_group_bits) { return group_bits{key_->bits()}; },
    [this](const set_group_bits& msg) -> caf::result<group_bits> {
      auto key = group_key::make(config_.prefix, msg.bits);
      if (!key)
        return to_caf(key.error());
      key_ = std::move(*key);
      return group_bits{key_->bits()};
    },
    [this](cancel_search) { cancel(); },
    [this](const peer_connected& msg) { on_connected(msg.peer); },
    [this](const peer_disconnected& msg) { on_disconnected(msg); },
    [this](const search_tick& msg) { on_time(msg); },
    [this](const place_expired& msg) {
      if (place_ && msg.search == places_)
        end_place({ec::timeout, "the group's leader did not admit us in time"});
    },
    [this](const ask_again& msg) {
      if (place_ && msg.search == places_ && place_->search.asks(msg.leader))
        ask_leader();
    },
  };
}

// -- one search ---------------------------------------------------------------------------------

std::size_t matchmaker::min_size() const {
  return std::max<std::size_t>(config_.min_group_size, config_.min_contributors);
}
std::size_t matchmaker::target_size() const {
  return std::min(config_.target_group_size, round_members_max);
}

caf::result<group_formed> matchmaker::begin(const find_group& msg) {
  if (current_ || next_)
    return to_caf(ec::overloaded, "one search at a time");
  if (msg.gather.size() > gather_bytes_max)
    return to_caf(ec::oversize, "gather has " + std::to_string(msg.gather.size())
                                  + " bytes, at most " + std::to_string(gather_bytes_max)
                                  + " are allowed");
  if (++searches_ == 1)
    if (auto warning = matchmaking_warning(config_))
      ctx_.log->warn("{}", *warning);
  auto promise = make_response_promise<group_formed>();
  waiting wanted{msg, promise, clock().now()};
  if (loads_)
    look_at_loads(std::move(wanted));
  else
    start(std::move(wanted));
  return promise;
}

void matchmaker::start(waiting wanted) {
  config_.mode = ctx_.mode(mode_);
  group_search::options opts{.min_group_size = min_size(),
                             .target_group_size = target_size(),
                             .members_max = round_members_max,
                             .expected_peers = wanted.what.expected_peers};
  // Otherwise the search would wait in vain for those that it avoids. Not if only a part of those
  // that are known are expected.
  if (opts.expected_peers < opts.target_group_size)
    for (const auto& peer : wanted.what.avoided)
      if (opts.expected_peers > opts.min_group_size && connected_.contains(peer)
          && !auxiliaries_.contains(peer)) // it was not expected
        --opts.expected_peers;
  opts.min_matchmaking_time = std::max(config_.min_matchmaking_time, wanted.what.gather_for);
  opts.request_timeout = config_.request_timeout;
  opts.alone_after = config_.alone_after;
  if (config_.extra)
    opts.retry = retry_of_extra;
  auto bandwidth = config_.bandwidth;
  if (const auto& measured = wanted.what.bandwidth; !bandwidth && measured)
    if (std::isfinite(*measured) && *measured > 0)
      bandwidth = measured;
  group_search::seeker me{ctx_.own_record(),
                          config_.mode == member_mode::client,
                          config_.extra,
                          bandwidth,
                          static_cast<std::uint32_t>(config_.mode),
                          wanted.what.gather,
                          config_.bandwidth.has_value()};
  auto number = searches_;
  current_.emplace(group_search{std::move(me), opts, wanted.began + wanted.what.deadline,
                                random_.fork(std::to_string(number))},
                   *key_);
  auto& run = *current_;
  run.what = std::move(wanted.what);
  run.bandwidth = bandwidth;
  run.schema = group_schema(config_, run.what.codecs);
  run.began = wanted.began;
  run.promise = std::move(wanted.promise);
  if (asks_connected())
    for (const auto& [id, peer] : connected_) {
      auto until = seekers_.expiration_of(id, run.schema, run.key.text(), now().steady);
      add_candidate(peer, until && *until < now().swarm ? std::nullopt : until);
    }
  perform(run.search.start(now()));
  call_extra();
  delayed_send(this, tick_interval, search_tick{number});
}

/// Asks the extra auxiliaries that asked us before we began to search: each of them answers that it
/// asks us in turn, which it does at once.
void matchmaker::call_extra() {
  if (!current_ || config_.mode != member_mode::node)
    return;
  for (const auto& id : extra_.wanting(current_->schema, config_.prefix, clock().now()))
    if (auto found = connected_.find(id); found != connected_.end() && !avoids(id))
      (*this)(group_search::ask{found->second, current_->search.expiration()});
}

void matchmaker::cancel() {
  if (next_) {
    next_->promise.deliver(to_caf(ec::cancelled));
    next_.reset();
  }
  if (current_)
    perform(current_->search.cancel({ec::cancelled, {}}));
  if (place_)
    end_place({ec::cancelled, {}});
}

void matchmaker::on_time(const search_tick& msg) {
  if (!current_ || searches_ != msg.search)
    return;
  perform(current_->search.on_time(now()));
  if (current_ && searches_ == msg.search)
    delayed_send(this, tick_interval, msg);
}

/// Whether connected peers are asked. With several buckets, most of them are in another one.
bool matchmaker::asks_connected() const {
  return current_ && (current_->key.bits().empty() || config_.extra);
}

/// Whether the current search avoids this peer, which was silent or wrong in rounds with us.
bool matchmaker::avoids(const peer_id& peer) const {
  const auto& avoided = current_->what.avoided;
  return std::binary_search(avoided.begin(), avoided.end(), peer);
}

void matchmaker::add_candidate(const peer_record& peer, std::optional<swarm_time> expiration) {
  if (!avoids(peer.id) && !extra_.contains(peer.id, clock().now())) // see call_extra
    current_->search.candidate(peer, expiration);
}

void matchmaker::perform(const group_search::actions& actions) {
  for (const auto& action : actions)
    if (current_)
      std::visit([this](const auto& a) { (*this)(a); }, action);
}

void matchmaker::operator()(const group_search::declare& a) {
  publish(declaration_.declare(current_->key, ctx_.own_record().addresses, a.expiration,
                               ctx_.wall->now()));
}

void matchmaker::operator()(const group_search::withdraw&) {
  if (auto tombstone = declaration_.withdraw(ctx_.wall->now()))
    publish(*tombstone);
}

void matchmaker::publish(const record& entry) {
  request(dht_, config_.min_matchmaking_time + 1s,
          store_record{entry, config_.min_matchmaking_time})
    .then([](const store_report&) { /* connected peers are asked anyway */ },
          [this](const caf::error& why) {
            ctx_.log->debug("could not declare for a group: {}", to_string(from_caf(why)));
          });
}

void matchmaker::operator()(const group_search::look_up&) {
  auto& run = *current_;
  if (std::exchange(run.looking_up, true))
    return;
  find_records question{record_kind::group_member, run.key.text(), true, config_.request_timeout};
  request(dht_, config_.request_timeout + 1s, question)
    .then(
      [this, number = searches_](const found_records& found) {
        if (!current_ || searches_ != number)
          return;
        current_->looking_up = false;
        for (const auto& entry : found.records) {
          auto other = read_declaration(entry);
          if (!other || other->who.id == ctx_.record.id)
            continue;
          if (!avoids(other->who.id))
            current_->saw(other->who.id);
          if (!other->who.addresses.empty() || connected_.contains(other->who.id))
            add_candidate(other->who, other->expiration);
        }
      },
      [this, number = searches_](const caf::error&) {
        if (current_ && searches_ == number)
          current_->looking_up = false; // the next interval tries again
      });
}

void matchmaker::operator()(const group_search::ask& a) {
  auto& run = *current_;
  wire::join_group question{config_.prefix,  run.key.text(),
                            run.schema,      run.what.epoch,
                            a.expiration,    config_.mode,
                            run.bandwidth,   ctx_.own_record(),
                            run.what.gather, config_.bandwidth.has_value()};
  request(switchboard_, config_.request_timeout + 1s,
          call_peer{a.to, std::move(question), config_.request_timeout})
    .then(
      [this, search = searches_, to = a.to](const peer_answer& reply) {
        if (const auto* join = std::get_if<wire::join_reply>(&reply.what))
          on_reply(search, to, join->code, join->suggested);
        else
          on_reply(search, to, ec::protocol_violation, {});
      },
      [this, search = searches_, to = a.to](const caf::error& why) {
        on_reply(search, to, from_caf(why).code, {});
      });
}

/// `to` has answered a request of search number `search`.
void matchmaker::on_reply(std::uint64_t search, const peer_record& to, ec code,
                          const std::vector<peer_record>& suggested) {
  if (!current_ || searches_ != search) {
    bool in_its_group = led_by_ == std::pair{search, to.id};
    if (code == ec::none && !in_its_group) // it has added us to its group, which we do not want now
      notify_leave(to);
    return;
  }
  // Codes that a peer sends only to peers that are compatible with it.
  bool compatible = code == ec::none || code == ec::not_a_leader || code == ec::group_full
                    || code == ec::bad_expiration || code == ec::duplicate_peer;
  if (compatible && !extra_.contains(to.id, clock().now()))
    current_->add_known(to.id);
  std::optional<peer_record> hint;
  if (!suggested.empty() && !avoids(suggested.front().id))
    hint = suggested.front();
  if (code == ec::not_looking && hint && hint->id != ctx_.record.id && current_->what.open_groups) {
    current_->open_group = std::move(hint);
    return perform(current_->search.cancel({ec::cancelled, {}}));
  }
  perform(current_->search.on_answer(to.id, code, hint, now()));
}

void matchmaker::notify_leave(const peer_record& to) {
  send(switchboard_, notify_peer{to, wire::leave_group{config_.prefix}, {}});
}
void matchmaker::operator()(const group_search::leave& a) {
  notify_leave(a.leader);
}

void matchmaker::operator()(const group_search::disband& a) {
  wire::disband_group message{config_.prefix, {}};
  if (a.suggested)
    message.suggested.push_back(*a.suggested);
  for (const auto& follower : a.followers)
    send(switchboard_, notify_peer{follower, message, {}});
}

void matchmaker::operator()(const group_search::begin& a) {
  auto id = new_name<round_id>(ctx_, random_);
  auto made = make_group_plan(config_, current_->purpose(), ctx_.own_record(), a.followers, id);
  if (!made) {
    group_search::disband message;
    for (const auto& follower : a.followers)
      message.followers.push_back(follower.record);
    (*this)(message);
    return end(made.error());
  }
  made->plan.one_host = ctx_.links->are_neighbours(made->plan, ctx_.record.id);
  for (const auto& follower : a.followers)
    send(switchboard_, notify_peer{follower.record, wire::begin_group{made->plan}, {}});
  announce_load();
  form(made->plan, std::move(made->terms));
}

void matchmaker::operator()(const group_search::failed& a) {
  end(a.why);
}

void matchmaker::form(const round_plan& plan, partition_terms terms) {
  auto run = std::move(*current_);
  current_.reset();
  for (const auto& member : plan.members)
    run.compatible.erase(member.peer.id);
  // Before the caller receives the group, and whatever the outcome of its round: the next search
  // must not begin in the old bucket.
  bool regrouped = config_.extra || !run.key.bits().empty();
  auto members = std::min(plan.members.size(), target_size());
  auto place = bucket_place(position_of(ctx_.record.id, plan), plan);
  if (place < members && !config_.extra)
    key_->move_on(plan.id, place, members, target_size());
  note_auxiliaries(plan);
  auto size = static_cast<double>(plan.members.size());
  ctx_.metrics->count_matchmaking(ec::none, seconds_of(clock().now() - run.began), size);
  log_about about{{.epoch = plan.epoch, .round = plan.id}};
  ctx_.log->debug("matchmaking formed a group of {} for round {} under {}", plan.members.size(),
                  short_name(plan.id), run.key.text());
  run.promise.deliver(group_formed{plan, regrouped, std::move(terms), !run.compatible.empty()});
}

void matchmaker::note_auxiliaries(const round_plan& plan) {
  for (const auto& member : plan.members)
    if (member.mode != member_mode::auxiliary)
      auxiliaries_.erase(member.peer.id);
    else if (auxiliaries_.size() < seen_max)
      auxiliaries_.insert(member.peer.id);
}

void matchmaker::end(const failure& why) {
  // An extra auxiliary that no group needs is no failure.
  bool wanted = why.code == ec::cancelled || why.code == ec::shutting_down || config_.extra;
  if (!wanted)
    announce_load();
  auto run = std::move(*current_);
  current_.reset();
  if (run.open_group) {
    ctx_.log->debug("matchmaking found the open group that {} leads",
                    short_name(run.open_group->id));
    group_formed found;
    found.open_group = std::move(run.open_group);
    run.promise.deliver(std::move(found));
    return;
  }
  if (run.seen.empty())
    leave_empty_bucket();
  if (!config_.extra)
    ctx_.metrics->count_matchmaking(why.code, seconds_of(clock().now() - run.began), 0);
  log_about about{{.reason = why.code}};
  ctx_.log->log(wanted ? spdlog::level::debug : spdlog::level::info,
                "matchmaking found no group under {}: {}", run.key.text(), to_string(why));
  run.promise.deliver(to_caf(why));
}

// -- links -------------------------------------------------------------------------------------

void matchmaker::on_connected(const peer_record& peer) {
  connected_[peer.id] = peer;
  if (asks_connected())
    add_candidate(peer, std::nullopt);
}

void matchmaker::on_disconnected(const peer_disconnected& msg) {
  connected_.erase(msg.peer);
  if (current_)
    perform(current_->search.on_lost(msg.peer, now()));
  if (place_ && place_->search.asks(msg.peer))
    on_refusal(msg.why);
}

} // namespace waggle
