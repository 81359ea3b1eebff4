// find_group ─► group_search ─ declare ─► dht     look_up ─► dht ─► candidates ─► group_search
//                     │  ask ─► switchboard ─► join_group at the other side ─► answer ─► group_search
//                     ├─ begin: the plan ─► begin_group to all followers, group_formed to our caller
//                     └─ a leader's begin_group ─► checked ─► group_formed to our caller

#include "actors/matchmaker.hpp"

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = matchmaker_impl::stateful_pointer<matchmaker_state>;

constexpr auto tick_interval = 20ms;

struct broker {
  self_pointer self;
  const node_context& ctx;
  const matchmaking_config& config;
  const switchboard_actor& switchboard;
  const dht_router_actor& dht;

  matchmaker_state& state() const { return self->state; }
  group_search::moment now() const { return {self->clock().now(), ctx.wall->now()}; }

  // -- one search ---------------------------------------------------------------------------------

  std::size_t min_size() const {
    return std::max<std::size_t>(config.min_group_size, config.min_contributors);
  }
  std::size_t target_size() const { return std::min(config.target_group_size, round_members_max); }

  caf::result<group_formed> begin(const find_group& msg) const {
    auto& st = state();
    if (st.current || st.next)
      return to_caf(ec::overloaded, "one search at a time");
    if (msg.gather.size() > gather_bytes_max)
      return to_caf(ec::oversize, "gather has " + std::to_string(msg.gather.size())
                                    + " bytes, at most " + std::to_string(gather_bytes_max)
                                    + " travel");
    ++st.searches;
    auto promise = self->make_response_promise<group_formed>();
    matchmaker_state::waiting order{msg, promise, self->clock().now(), *st.key};
    if (st.loads)
      look_at_loads(std::move(order));
    else
      start(std::move(order));
    return promise;
  }

  void start(matchmaker_state::waiting order) const {
    auto& st = state();
    st.unmatched.clear();
    group_search::options opts;
    opts.min_group_size = min_size();
    opts.target_group_size = target_size();
    opts.expected_peers = order.what.expected_peers;
    auto waited = std::chrono::duration_cast<milliseconds>(self->clock().now() - order.began);
    opts.min_matchmaking_time =
      std::max(config.min_matchmaking_time, order.what.scheduled_in - waited);
    opts.request_timeout = config.request_timeout;
    opts.alone_after = config.alone_after;
    auto bandwidth = config.bandwidth ? config.bandwidth : st.measured;
    group_search::seeker me{ctx.record,        config.mode == member_mode::client,
                            bandwidth,         static_cast<std::uint32_t>(config.mode),
                            order.what.gather, config.bandwidth.has_value()};
    auto number = st.searches;
    st.current.emplace(group_search{std::move(me), opts, order.began + order.what.deadline,
                                    st.random->fork(std::to_string(number))},
                       order.key);
    auto& run = *st.current;
    run.what = std::move(order.what);
    run.bandwidth = bandwidth;
    run.schema = group_schema(config, run.what.codecs);
    run.began = order.began;
    run.promise = std::move(order.promise);
    if (asks_connected())
      for (const auto& [id, peer] : st.connected)
        run.search.candidate(peer, std::nullopt);
    perform(run.search.start(now()));
    self->delayed_send(self, tick_interval, search_tick{number});
  }

  /// With buckets, most of whom we are connected to are in another one.
  bool asks_connected() const { return state().current && state().current->key.bits().empty(); }

  void perform(const group_search::actions& actions) const {
    for (const auto& action : actions)
      if (state().current)
        std::visit([this](const auto& a) { (*this)(a); }, action);
  }

  void operator()(const group_search::declare& a) const {
    auto& st = state();
    publish(st.declaration->declare(st.current->key, a.expiration, ctx.wall->now()));
  }

  void operator()(const group_search::withdraw&) const {
    if (auto tombstone = state().declaration->withdraw(ctx.wall->now()))
      publish(*tombstone);
  }

  void publish(const record& entry) const {
    self
      ->request(dht, config.min_matchmaking_time + 1s,
                store_record{entry, config.min_matchmaking_time})
      .then([](const store_report&) { /* connected peers are asked without it */ },
            [ctx = ctx](const caf::error& why) {
              ctx.log->debug("could not declare for a group: {}", to_string(from_caf(why)));
            });
  }

  void operator()(const group_search::look_up&) const {
    auto& run = *state().current;
    if (std::exchange(run.looking_up, true))
      return;
    find_records question{record_kind::group_member, run.key.text(), true, config.request_timeout};
    self->request(dht, config.request_timeout + 1s, question)
      .then(
        [self = self, ctx = ctx, number = state().searches](const found_records& found) {
          auto& current = self->state.current;
          if (!current || self->state.searches != number)
            return;
          current->looking_up = false;
          for (const auto& entry : found.records) {
            auto other = read_declaration(entry);
            if (!other || other->who.id == ctx.record.id)
              continue;
            current->saw(other->who.id);
            if (!other->who.addresses.empty() || self->state.connected.contains(other->who.id))
              current->search.candidate(other->who, other->expiration);
          }
        },
        [self = self, number = state().searches](const caf::error&) {
          if (self->state.current && self->state.searches == number)
            self->state.current->looking_up = false; // the next interval tries again
        });
  }

  void operator()(const group_search::ask& a) const {
    auto& run = *state().current;
    wire::join_group question{
      config.prefix, run.key.text(), run.schema, run.what.epoch,  a.expiration,
      config.mode,   run.bandwidth,  ctx.record, run.what.gather, config.bandwidth.has_value()};
    auto answer = [self = self, ctx = ctx, config = config, board = switchboard, table = dht,
                   number = state().searches,
                   to = a.to](ec code, const std::vector<peer_record>& suggested) {
      broker b{self, ctx, config, board, table};
      if (!self->state.current || self->state.searches != number) {
        bool in_its_group = self->state.led_by == std::pair{number, to.id};
        if (code == ec::none && !in_its_group) // it counts on us, but we are not there any more
          b.tell_leave(to);
        return;
      }
      // What a peer says only to those that want the same as it does.
      if (code == ec::none || code == ec::not_a_leader || code == ec::group_full
          || code == ec::bad_expiration || code == ec::duplicate_peer)
        self->state.current->add_known(to.id);
      std::optional<peer_record> hint;
      if (!suggested.empty())
        hint = suggested.front();
      b.perform(self->state.current->search.on_answer(to.id, code, hint, b.now()));
    };
    self
      ->request(switchboard, config.request_timeout + 1s,
                call_peer{a.to, std::move(question), config.request_timeout})
      .then(
        [answer](const peer_answer& reply) {
          if (const auto* join = std::get_if<wire::join_reply>(&reply.what))
            answer(join->code, join->suggested);
          else
            answer(ec::protocol_violation, {});
        },
        [answer](const caf::error& why) { answer(from_caf(why).code, {}); });
  }

  void tell_leave(const peer_record& to) const {
    self->send(switchboard, tell_peer{to, wire::leave_group{config.prefix}, {}});
  }
  void operator()(const group_search::leave& a) const { tell_leave(a.leader); }

  void operator()(const group_search::disband& a) const {
    wire::disband_group word{config.prefix, {}};
    if (a.suggested)
      word.suggested.push_back(*a.suggested);
    for (const auto& follower : a.followers)
      self->send(switchboard, tell_peer{follower, word, {}});
  }

  void operator()(const group_search::begin& a) const {
    auto& st = state();
    round_plan plan;
    member_bandwidths bandwidths;
    bandwidths.emplace_back(st.current->bandwidth, config.bandwidth.has_value());
    st.random->fill(plan.id.bytes);
    plan.prefix = config.prefix;
    plan.epoch = st.current->what.epoch;
    plan.members.push_back({ctx.record, config.mode});
    plan.gathered.push_back(st.current->what.gather);
    for (const auto& follower : a.followers) {
      auto mode = static_cast<member_mode>(follower.mode);
      plan.members.push_back({follower.record, mode});
      plan.gathered.push_back(follower.gather);
      bandwidths.emplace_back(follower.bandwidth, follower.bandwidth_declared);
    }
    plan.elements = elements_of(st.current->what.codecs);
    plan.codecs = st.current->what.codecs;
    plan.reduce_by = config.reduce_by;
    plan.min_contributors = config.min_contributors;
    auto terms = terms_of(*st.current);
    terms.lines = std::move(bandwidths);
    auto divided = make_partition(plan, terms.lines, config.parts, config.min_vector_size);
    if (divided) {
      plan.shares = std::move(divided->shares);
      plan.part_elements = divided->part_elements;
    }
    auto valid = divided ? validate_plan(plan) : status{divided.error()};
    if (!valid) {
      group_search::disband word;
      for (const auto& follower : a.followers)
        word.followers.push_back(follower.record);
      (*this)(word);
      return end(valid.error());
    }
    for (const auto& follower : a.followers)
      self->send(switchboard, tell_peer{follower.record, wire::begin_group{plan}, {}});
    say_load();
    form(plan, std::move(terms));
  }

  partition_terms terms_of(const matchmaker_state::running& run) const {
    bool reduces = config.mode != member_mode::client && run.bandwidth.value_or(1) > 0;
    return {config.parts, config.min_vector_size, reduces, {}};
  }

  void operator()(const group_search::failed& a) const { end(a.why); }

  void form(const round_plan& plan, partition_terms terms) const {
    auto& st = state();
    auto run = std::move(*st.current);
    st.current.reset();
    st.unmatched = std::move(run.compatible);
    for (const auto& member : plan.members)
      st.unmatched.erase(member.peer.id);
    // Before the caller hears of the group, whatever becomes of its round: the next search must not
    // begin in the old bucket.
    bool regrouped = !run.key.bits().empty();
    if (run.key == *st.key)
      st.key->move_on(plan.id, position_in(plan), plan.members.size(), target_size());
    auto size = static_cast<double>(plan.members.size());
    ctx.metrics->count_matchmaking(ec::none, seconds_of(self->clock().now() - run.began), size);
    ctx.log->debug("matchmaking formed a group of {} for round {} under {}", plan.members.size(),
                   short_name(plan.id), run.key.text());
    run.promise.deliver(group_formed{plan, regrouped, std::move(terms)});
  }

  void end(const failure& why) const {
    bool wanted = why.code == ec::cancelled || why.code == ec::shutting_down;
    if (!wanted)
      say_load();
    auto run = std::move(*state().current);
    state().current.reset();
    ctx.metrics->count_matchmaking(why.code, seconds_of(self->clock().now() - run.began), 0);
    ctx.log->log(wanted ? spdlog::level::debug : spdlog::level::info,
                 "matchmaking found no group under {}: {}", run.key.text(), to_string(why));
    run.promise.deliver(to_caf(why));
  }

  // -- how many buckets --------------------------------------------------------------------------

  /// Begins the search once it is known how many bits the others' keys have, or cannot be.
  void look_at_loads(matchmaker_state::waiting order) const {
    auto& st = state();
    st.next = std::move(order);
    auto patience = std::min(config.request_timeout, milliseconds{st.next->what.deadline / 2});
    find_records question{record_kind::group_member, st.loads->name(), true, patience};
    auto go_on = [self = self, ctx = ctx, config = config, board = switchboard, table = dht,
                  number = st.searches](const std::vector<record>& said) {
      auto& st = self->state;
      if (!st.next || st.searches != number)
        return;
      broker b{self, ctx, config, board, table};
      auto order = *std::exchange(st.next, std::nullopt);
      b.follow(st.loads->known(said), order.key);
      b.start(std::move(order));
    };
    self->request(dht, patience + 1s, question)
      .then([go_on](const found_records& found) { go_on(found.records); },
            [go_on, ctx = ctx](const caf::error& why) {
              ctx.log->debug("could not ask how full buckets are: {}", to_string(from_caf(why)));
              go_on({});
            });
  }

  /// The key of the search that begins gets as many bits as everybody else's.
  void follow(const std::vector<bucket_load>& loads, group_key& key) const {
    auto length = elastic_length(loads, target_size(), min_size());
    if (!length || *length == key.bits().size())
      return;
    bool is_ours = key == *state().key; // else others were set meanwhile, for the next one
    auto& random = *state().random;
    key.resize(*length, [&] { return static_cast<unsigned>(random.below(2)); });
    if (is_ours)
      state().key = key;
    ctx.log->info("matchmaking under {} uses keys of {} bits from now on", config.prefix, *length);
  }

  /// Tells the others how many looked for a group in our bucket.
  void say_load() const {
    auto& st = state();
    if (!st.loads)
      return;
    bucket_load seen{st.current->key.bits().size(), st.current->seen.size() + 1};
    auto now = ctx.wall->now();
    publish(st.loads->say(seen, now + config.load_memory, now));
  }

  // -- what peers say ----------------------------------------------------------------------------

  caf::result<outbound_answer> answer(const inbound_call& msg) const {
    const auto* join = std::get_if<wire::join_group>(&msg.what);
    if (join == nullptr)
      return to_caf(ec::protocol_violation, "this is not for matchmaking");
    wire::join_reply reply;
    auto& current = state().current;
    group_search::actions then;
    if (!current) {
      reply.code = ec::not_looking;
      state().seekers.remember(msg.from.id, join->schema, join->group_key, now().steady);
    } else if (config.mode == member_mode::client) {
      reply.code = ec::protocol_violation;
    } else if (join->schema != current->schema) {
      reply.code = ec::schema_mismatch;
    } else if (join->group_key != current->key.text()) {
      reply.code = ec::wrong_group_key;
    } else if (join->epoch != current->what.epoch) {
      reply.code = ec::epoch_mismatch;
    } else {
      current->add_known(msg.from.id);
      group_search::seeker asker{msg.from,        join->mode == member_mode::client,
                                 join->bandwidth, static_cast<std::uint32_t>(join->mode),
                                 join->gather,    join->bandwidth_declared};
      auto decided = current->search.on_join(asker, join->expiration, now());
      reply.code = decided.code;
      if (decided.suggested)
        reply.suggested.push_back(*decided.suggested);
      then = std::move(decided.then);
    }
    if (reply.code != ec::none) {
      ctx.metrics->count_join_refused(reply.code);
      if (current)
        current->search.turned_away(msg.from.id, reply.code);
    }
    // The answer has to leave before a begin_group that it leads to: both take the same way.
    auto promise = self->make_response_promise<outbound_answer>();
    promise.deliver(outbound_answer{reply, {}});
    perform(then);
    return promise;
  }

  /// Who would be left out if a group that was found here went on among itself.
  seekers who_seeks(const codec_plan& codecs) const {
    const auto& st = state();
    auto found = st.seekers.wanting(group_schema(config, codecs), st.key->text(), now().steady);
    std::set<peer_id> all{found.begin(), found.end()};
    all.insert(st.unmatched.begin(), st.unmatched.end());
    return {{all.begin(), all.end()}};
  }

  void on_event(const inbound_event& msg) const {
    if (const auto* begun = std::get_if<wire::begin_group>(&msg.what))
      return on_begin(msg.from, begun->plan);
    auto& current = state().current;
    if (const auto* disbanded = std::get_if<wire::disband_group>(&msg.what)) {
      std::optional<peer_record> hint;
      if (!disbanded->suggested.empty())
        hint = disbanded->suggested.front();
      if (current && disbanded->prefix == config.prefix)
        perform(current->search.on_disband(msg.from.id, hint, now()));
    } else if (const auto* left = std::get_if<wire::leave_group>(&msg.what)) {
      if (current && left->prefix == config.prefix)
        current->search.on_leave(msg.from.id);
    }
  }

  void on_begin(const peer_record& from, const round_plan& plan) const {
    auto& current = state().current;
    auto valid = check(from, plan);
    if (!valid) {
      auto why = valid.error();
      // Our search ended while its word was on the way: nobody's fault.
      bool late = why.code == ec::not_looking || why.code == ec::epoch_mismatch;
      ctx.log->log(late ? spdlog::level::debug : spdlog::level::warn,
                   "peer {} sent a plan that we refuse: {}", short_name(from.id), to_string(why));
      ctx.metrics->count_refused_input(why.code);
      return decline(from, plan);
    }
    if (!current->search.on_begin(from.id))
      return decline(from, plan);
    if (auto orphans = current->search.take_followers(); !orphans.empty())
      (*this)(group_search::disband{std::move(orphans), from});
    state().led_by = {state().searches, from.id};
    (*this)(group_search::withdraw{});
    form(plan, terms_of(*current));
  }

  status check(const peer_record& from, const round_plan& plan) const {
    if (auto valid = validate_plan(plan); !valid)
      return valid;
    const auto& current = state().current;
    if (!current)
      return failure{ec::not_looking, "no search is going on"};
    if (plan.members[0].peer.id != from.id)
      return failure{ec::protocol_violation, "its first member did not send it"};
    auto mine = position_in(plan);
    if (mine == plan.members.size() || plan.members[mine].mode != config.mode)
      return failure{ec::protocol_violation, "we are not one of its members"};
    if (plan.gathered[mine] != current->what.gather)
      return failure{ec::protocol_violation, "it changes what we gave to the group"};
    if (plan.shares[mine] != 0 && current->bandwidth && *current->bandwidth <= 0)
      return failure{ec::protocol_violation, "we said that we never reduce"};
    if (plan.members.size() > target_size())
      return failure{ec::protocol_violation, "its group is larger than the target size"};
    if (plan.prefix != config.prefix || plan.codecs != current->what.codecs
        || plan.reduce_by != config.reduce_by
        || !may_be_part(plan.part_elements, plan.codecs, config.parts)
        || plan.min_contributors != config.min_contributors)
      return failure{ec::schema_mismatch, "it is for another vector"};
    if (plan.epoch != current->what.epoch)
      return failure{ec::epoch_mismatch, "it is for another epoch"};
    return done{};
  }

  /// Our index in it; the number of members if we are none.
  std::size_t position_in(const round_plan& plan) const {
    auto mine = std::find_if(plan.members.begin(), plan.members.end(),
                             [this](const auto& m) { return m.peer.id == ctx.record.id; });
    return static_cast<std::size_t>(mine - plan.members.begin());
  }

  // -- settings ----------------------------------------------------------------------------------

  caf::result<group_bits> set_bits(const set_group_bits& msg) const {
    auto key = group_key::make(config.prefix, msg.bits);
    if (!key)
      return to_caf(key.error());
    if (config.elastic_bits && key->bits().size() > bucket_load::bits_max)
      return to_caf(ec::bad_config, "at most " + std::to_string(bucket_load::bits_max)
                                      + " group bits where their number is elastic");
    state().key = std::move(*key);
    return group_bits{state().key->bits()};
  }

  void set_measured(const set_bandwidth& msg) const {
    auto value = msg.bytes_per_second;
    if (value && !(std::isfinite(*value) && *value > 0))
      return ctx.log->warn("matchmaking ignores a measured bandwidth of {}", *value);
    state().measured = value;
  }

  /// A leader counts on us in vain: its round must not wait for us.
  void decline(const peer_record& from, const round_plan& plan) const {
    for (std::uint32_t i = 0; i < plan.members.size(); ++i) {
      if (plan.members[i].peer.id != ctx.record.id)
        continue;
      wire::round_suspect word{plan.id, 0, i, ec::not_looking};
      self->send(switchboard, tell_peer{from, word, {}});
      // Others only over a link that is up: a made-up plan must not make us dial whom it names.
      for (const auto& member : plan.members)
        if (member.peer.id != from.id && state().connected.count(member.peer.id) > 0)
          self->send(switchboard, tell_peer{member.peer, word, {}});
    }
  }
};

} // namespace

matchmaker_impl::behavior_type matchmaker(self_pointer self, node_context ctx,
                                          matchmaking_config config, switchboard_actor switchboard,
                                          dht_router_actor dht) {
  end_on_exception(self, ctx);
  self->state.random = ctx.randomness("matchmaker " + config.prefix);
  self->state.declaration.emplace(ctx.run_id, ctx.record, ctx.self);
  if (auto valid = check_matchmaking_config(config, ctx.record.client_mode); !valid) {
    ctx.log->error("matchmaking cannot begin: {}", valid.error().detail);
    self->quit(to_caf(valid.error()));
    return matchmaker_impl::behavior_type::make_empty_behavior();
  }
  if (auto warning = matchmaking_warning(config))
    ctx.log->warn("{}", *warning);
  if (config.elastic_bits)
    self->state.loads.emplace(ctx.run_id, config.prefix, ctx.self);
  self->state.key = *group_key::make(config.prefix, config.initial_group_bits);
  auto with = [self, ctx, config, switchboard, dht](auto&& action) {
    return action(broker{self, ctx, config, switchboard, dht});
  };
  return {
    [with](const inbound_call& msg) -> caf::result<outbound_answer> {
      return with([&](const broker& b) { return b.answer(msg); });
    },
    [with](const inbound_event& msg) {
      msg.release();
      with([&](const broker& b) { b.on_event(msg); });
    },
    [with](const find_group& msg) { return with([&](const broker& b) { return b.begin(msg); }); },
    [with](const get_seekers& msg) {
      return with([&](const broker& b) { return b.who_seeks(msg.codecs); });
    },
    [self](get_group_bits) { return group_bits{self->state.key->bits()}; },
    [with](const set_group_bits& msg) {
      return with([&](const broker& b) { return b.set_bits(msg); });
    },
    [with](const set_bandwidth& msg) { with([&](const broker& b) { b.set_measured(msg); }); },
    [self, with](cancel_search) {
      if (auto& next = self->state.next) {
        next->promise.deliver(to_caf(ec::cancelled));
        next.reset();
      }
      if (self->state.current)
        with([&](const broker& b) {
          b.perform(self->state.current->search.cancel({ec::cancelled, {}}));
        });
    },
    [self, with](const peer_connected& msg) {
      self->state.connected[msg.peer.id] = msg.peer;
      if (with([](const broker& b) { return b.asks_connected(); }))
        self->state.current->search.candidate(msg.peer, std::nullopt);
    },
    [self, with](const peer_disconnected& msg) {
      self->state.connected.erase(msg.peer);
      if (self->state.current)
        with([&](const broker& b) {
          b.perform(self->state.current->search.on_lost(msg.peer, b.now()));
        });
    },
    [self, with](const search_tick& msg) {
      if (!self->state.current || self->state.searches != msg.search)
        return;
      with([&](const broker& b) { b.perform(self->state.current->search.on_time(b.now())); });
      if (self->state.current && self->state.searches == msg.search)
        self->delayed_send(self, tick_interval, msg);
    },
  };
}

} // namespace waggle
