// birth: transport ─► switchboard ─► (listening) ─► dht ─► address book ─► tracker ─► matchmaker
//        ─► averager ─► exporter ─► trainer ─► donor ─► services and listeners are told of each other
//        ─► bootstrap
// death: trainer: checkpoint ─► tracker: goodbye ─► switchboard: hang up ─► everybody ─► transport

#include "actors/node.hpp"

#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "actors/group_averager.hpp"
#include "actors/guard.hpp"
#include "actors/model_worker.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"

namespace waggle {

namespace {

using self_pointer = node_impl::stateful_pointer<node_state>;

bool is_wildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

/// Addresses of this machine that others may reach, loopback only if there is nothing else.
std::vector<std::string> local_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (auto* i = all; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET
          || (i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0)
        continue;
      char text[INET_ADDRSTRLEN] = {};
      const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr)
        found.emplace_back(text);
    }
    freeifaddrs(all);
  }
  if (found.empty())
    found.emplace_back("127.0.0.1");
  if (found.size() > addresses_max)
    found.resize(addresses_max);
  return found;
}

std::vector<endpoint> announced(const node_config& config, const endpoint& bound) {
  if (config.announce)
    return {
      {config.announce->host, config.announce->port != 0 ? config.announce->port : bound.port}};
  if (!is_wildcard(bound.host))
    return {bound};
  std::vector<endpoint> all;
  for (const auto& host : local_addresses())
    all.push_back({host, bound.port});
  return all;
}

net::net_events counting(const std::shared_ptr<metric_families>& metrics,
                         const std::shared_ptr<status_board>& board,
                         const std::shared_ptr<bandwidth_estimator>& line,
                         caf::actor_clock& clock) {
  net::net_events events;
  events.refused = [metrics](ec why) { metrics->count_refused_input(why); };
  events.transferred = [metrics, board](bool outbound, bool data, std::size_t bytes) {
    metrics->count_network_bytes(outbound ? "out" : "in", data ? "data" : "control",
                                 static_cast<double>(bytes));
    board->count_bytes(outbound, bytes);
  };
  events.shared = [metrics, board](bool outbound, std::size_t bytes) {
    metrics->count_network_bytes(outbound ? "out" : "in", "shared", static_cast<double>(bytes));
    board->count_shared_bytes(bytes);
  };
  events.shared_memory = [metrics](ec why) { metrics->count_shared_memory(why); };
  events.carried = [line, &clock](bool outbound, std::size_t bytes) {
    line->carried(outbound, bytes, clock.now());
  };
  events.opened = [metrics](bool outbound) { metrics->connection_opened(outbound ? "out" : "in"); };
  events.closed = [metrics](bool outbound, ec why) {
    metrics->connection_closed(outbound ? "out" : "in", why);
  };
  events.dial_failed = [metrics](ec why) { metrics->count_dial_error(why); };
  events.http_served = [metrics](const std::string& route, unsigned code, double seconds) {
    metrics->count_http_request(route, static_cast<int>(code), seconds);
  };
  return events;
}

caf::actor_addr address_of(const caf::strong_actor_ptr& who) {
  return caf::actor_cast<caf::actor_addr>(who);
}

/// Tells the operator once per address of a peer that we do not link with because of how one of us
/// was started. That an initial peer refused our options is told by whoever joins through it.
std::function<void(const endpoint&, bool, const failure&)>
tell_disagreement(std::shared_ptr<spdlog::logger> log, const std::vector<endpoint>& initial_peers) {
  constexpr std::size_t addresses_told_max = 256;
  return
    [log = std::move(log), joins = std::set<endpoint>{initial_peers.begin(), initial_peers.end()},
     told = std::set<endpoint>{}](const endpoint& where, bool outbound,
                                  const failure& why) mutable {
      bool known = why.code == ec::agreement_mismatch && joins.contains(where);
      if (!known && told.size() < addresses_told_max && told.insert(where).second)
        log->warn("no link with {}: {}",
                  outbound ? to_string(where) : "a peer that came from " + where.host,
                  to_string(why));
    };
}

/// Shows what all peers of a run must have in common, as hashes that a dashboard can compare.
void show_config(metric_families& metrics, const node_config& config) {
  if (!config.averaging)
    return metrics.set_config_info("", "", "none");
  metrics.set_config_info(config.agreement ? short_name(config.agreement->hash()) : "",
                          short_name(config.averaging->matchmaking.schema),
                          config.training ? "collaborative" : "average");
}

/// Everything alive, in the order of death.
std::vector<caf::strong_actor_ptr> everybody(const node_parts& p) {
  std::vector<caf::strong_actor_ptr> all;
  auto add = [&all](const auto& handle) {
    if (handle)
      all.push_back(caf::actor_cast<caf::strong_actor_ptr>(handle));
  };
  add(p.donor);
  add(p.trainer);
  add(p.helper);
  add(p.keeper);
  add(p.group);
  for (const auto& pair : p.further) {
    add(pair.averager);
    add(pair.matchmaker);
  }
  add(p.averager);
  add(p.matchmaker);
  add(p.tracker);
  add(p.exporter);
  add(p.addresses);
  add(p.dht);
  add(p.switchboard);
  return all;
}

/// Who has the state that the donor gives away.
snapshot_source_actor snapshot_source(const node_parts& p) {
  return p.trainer ? snapshot_source_actor{p.trainer} : snapshot_source_actor{p.helper};
}

/// Tells who serves what and who wants to know what.
template <class Sender>
void introduce(Sender send, const node_parts& p, const node_config& config) {
  auto board = caf::actor_cast<switchboard_impl>(p.switchboard);
  auto tracker = caf::actor_cast<progress_tracker_impl>(p.tracker);
  auto serves = [&](service_topic topic, const auto& handle) {
    if (handle)
      send(board, serve{topic, caf::actor_cast<service_actor>(handle)});
  };
  auto listens = [&](const auto& handle) {
    if (handle)
      send(board, listen_links{caf::actor_cast<link_listener_actor>(handle)});
  };
  serves(service_topic::dht, p.dht);
  serves(service_topic::progress, p.tracker);
  serves(service_topic::matchmaking, p.matchmaker);
  serves(service_topic::averaging, p.averager);
  serves(service_topic::averaging, p.group);
  serves(service_topic::state, p.donor);
  listens(p.dht);
  listens(p.addresses);
  listens(p.tracker);
  listens(p.matchmaker);
  listens(p.averager);
  listens(p.group);
  listens(p.trainer);
  listens(p.helper);
  listens(p.exporter);
  for (std::size_t i = 0; i < p.further.size(); ++i) {
    send(board,
         serve{service_topic::matchmaking, caf::actor_cast<service_actor>(p.further[i].matchmaker),
               config.further_averaging[i].matchmaking.prefix});
    listens(p.further[i].matchmaker);
    listens(p.further[i].averager);
  }
  send(tracker, subscribe_progress{caf::actor_cast<progress_listener_actor>(p.exporter)});
  if (p.helper) {
    send(tracker, subscribe_progress{caf::actor_cast<progress_listener_actor>(p.helper)});
    send(caf::actor_cast<group_averager_wiring>(p.group),
         listen_group{caf::actor_cast<group_listener_actor>(p.helper)});
  }
  if (!p.trainer)
    return;
  send(tracker, subscribe_progress{caf::actor_cast<progress_listener_actor>(p.trainer)});
  send(caf::actor_cast<group_averager_wiring>(p.group),
       listen_group{caf::actor_cast<group_listener_actor>(p.trainer)});
}

struct supervisor {
  self_pointer self;
  const node_context& ctx;
  const node_config& config;
  const std::shared_ptr<status_board>& board;

  node_state& state() const { return self->state; }

  // -- death of one -------------------------------------------------------------------------------

  void on_down(const caf::down_msg& down) const {
    auto& st = state();
    auto& p = st.parts;
    auto why = from_caf(down.reason);
    auto is = [&](const auto& handle) { return handle && handle.address() == down.source; };
    if (st.stopping)
      return;
    if (is(p.exporter) || is(p.donor)) {
      bool exporter = is(p.exporter);
      ctx.metrics->count_actor_restart(exporter ? "metrics-exporter" : "state-donor");
      ctx.log->error("{} died and is started again: {}",
                     exporter ? "metrics-exporter" : "state-donor", to_string(why));
      auto pause = milliseconds{100} * (1U << std::min(st.restarts++, 8U));
      self->delayed_send(self, pause, restart_leaf{exporter});
      return;
    }
    for (const auto& part : everybody(p))
      if (address_of(part) == down.source) {
        st.ended_because = why.code == ec::none ? failure{ec::internal, "ended unasked"} : why;
        ctx.log->critical("this peer ends: one of its actors died: {}",
                          to_string(st.ended_because));
        return begin_shutdown();
      }
  }

  void restart(bool exporter) const {
    auto& p = state().parts;
    auto board_handle = caf::actor_cast<switchboard_impl>(p.switchboard);
    auto tracker = caf::actor_cast<progress_tracker_impl>(p.tracker);
    if (exporter) {
      p.exporter =
        self->spawn<caf::monitored>(metrics_exporter, ctx, board, config.training.has_value());
      self->send(board_handle, listen_links{caf::actor_cast<link_listener_actor>(p.exporter)});
      self->send(tracker, subscribe_progress{caf::actor_cast<progress_listener_actor>(p.exporter)});
      self->send(caf::actor_cast<dht_router_impl>(p.dht),
                 subscribe_dht_status{caf::actor_cast<dht_listener_actor>(p.exporter)});
    } else {
      p.donor = p.trainer ? self->spawn<caf::monitored>(state_donor, ctx, config.training->donor,
                                                        snapshot_source(p))
                          : self->spawn<caf::monitored>(state_donor, ctx, config.helping->donor,
                                                        snapshot_source(p));
      self->send(board_handle,
                 serve{service_topic::state, caf::actor_cast<service_actor>(p.donor)});
    }
  }

  // -- the orderly end ---------------------------------------------------------------------------

  void begin_shutdown() const {
    auto& st = state();
    if (std::exchange(st.stopping, true))
      return;
    ctx.metrics->set_peer_state("leaving");
    board->show_readiness(false, "leaving");
    if (st.parts.helper) // clients go on by themselves at once
      self->send(st.parts.group, quit_group{});
    if (!st.parts.trainer)
      return advance(1);
    self->request(st.parts.trainer, config.stop_training_timeout, stop_training{})
      .then(
        [self = self, ctx = ctx, config = config, board = board](const training_status& status) {
          self->state.last_status = status;
          supervisor{self, ctx, config, board}.advance(1);
        },
        [self = self, ctx = ctx, config = config, board = board](const caf::error& why) {
          if (self->state.ended_because.code == ec::none)
            ctx.log->warn("the trainer did not stop in time: {}", to_string(from_caf(why)));
          supervisor{self, ctx, config, board}.advance(1);
        });
  }

  void advance(int stage) const {
    auto& p = state().parts;
    if (stage == 1) {
      self->send(p.tracker, say_goodbye{});
      self->delayed_send(self, config.goodbye_time, continue_shutdown{2});
    } else if (stage == 2) {
      self->send(caf::actor_cast<switchboard_impl>(p.switchboard), hang_up{});
      self->delayed_send(self, config.goodbye_time, continue_shutdown{3});
    } else {
      end();
    }
  }

  void end() const {
    auto& st = state();
    auto reason = st.ended_because.code == ec::none
                    ? caf::make_error(caf::exit_reason::user_shutdown)
                    : to_caf(st.ended_because);
    for (const auto& part : everybody(st.parts))
      caf::anon_send_exit(caf::actor_cast<caf::actor>(part), caf::exit_reason::user_shutdown);
    st.transport->stop();
    for (auto& promise : st.waiting)
      promise.deliver(st.last_status);
    st.parts = {};
    self->quit(reason);
  }
};

/// Everything that would end an averager as soon as it begins. Peers that ask for a group under a
/// prefix must find one matchmaker.
status check_averaging(const node_config& config) {
  if (config.training && !config.averaging)
    return failure{ec::bad_config, "a peer that trains needs an averager"};
  if (config.helping) {
    if (config.averaging || config.training || config.client_mode)
      return failure{ec::bad_config,
                     "only a peer without a model that others can reach reduces for "
                     "clients"};
    const auto& parts = config.helping->averaging;
    if (parts.matchmaking.mode != member_mode::auxiliary || !parts.averaging.auxiliary)
      return failure{ec::bad_config, "whoever reduces for clients is an auxiliary"};
    if (auto valid = check_averaging_config(parts.averaging); !valid)
      return valid;
    return check_matchmaking_config(parts.matchmaking, false);
  }
  if (!config.averaging)
    return config.further_averaging.empty()
             ? status{done{}}
             : failure{ec::bad_config, "further averagers need a first one"};
  auto all = config.further_averaging;
  all.insert(all.begin(), *config.averaging);
  std::set<std::string> seen;
  for (const auto& parts : all) {
    if (!seen.insert(parts.matchmaking.prefix).second)
      return failure{ec::bad_config, "two averagers of one peer have the prefix '"
                                       + parts.matchmaking.prefix + "': give each its own"};
    if (auto valid = check_matchmaking_config(parts.matchmaking, config.client_mode); !valid)
      return valid;
    if (auto valid = check_averaging_config(parts.averaging); !valid)
      return valid;
    if (parts.averaging.auxiliary != (parts.matchmaking.mode == member_mode::auxiliary))
      return failure{ec::bad_config, "auxiliary: averaging and matchmaking disagree"};
  }
  return done{};
}

} // namespace

node_impl::behavior_type node(self_pointer self, node_context ctx, node_config config,
                              node_parts parts, std::shared_ptr<net::transport> transport,
                              std::shared_ptr<status_board> board) {
  end_on_exception(self, ctx);
  auto& st = self->state;
  st.parts = std::move(parts);
  st.transport = std::move(transport);
  for (const auto& part : everybody(st.parts))
    self->monitor(caf::actor_cast<caf::actor>(part));
  auto with = [self, ctx, config, board](auto&& action) {
    action(supervisor{self, ctx, config, board});
  };
  self->set_down_handler(
    [with](const caf::down_msg& down) { with([&](const supervisor& s) { s.on_down(down); }); });
  return {
    [self, ctx, with](const shut_down& msg) -> caf::result<training_status> {
      if (!self->state.stopping)
        ctx.log->info("this peer is stopping: {}", msg.why);
      auto promise = self->make_response_promise<training_status>();
      self->state.waiting.push_back(promise);
      with([](const supervisor& s) { s.begin_shutdown(); });
      return promise;
    },
    [with](const continue_shutdown& msg) {
      with([&](const supervisor& s) { s.advance(msg.stage); });
    },
    [self, with](const restart_leaf& msg) {
      if (!self->state.stopping)
        with([&](const supervisor& s) { s.restart(msg.exporter); });
    },
  };
}

result<started_node> start_node(caf::actor_system& system, const node_config& config,
                                const node_dependencies& dependencies) {
  if (auto checked = check_averaging(config); !checked)
    return checked.error();
  if (auto checked = check_link_config(config.switchboard.link); !checked)
    return checked.error();
  started_node out;
  auto& ctx = out.ctx;
  ctx.run_id = config.run_id;
  ctx.self = dependencies.self;
  ctx.record = {dependencies.self->id(), dependencies.self->key(), {}, config.client_mode};
  ctx.wall = dependencies.wall;
  ctx.verifier = dependencies.verifier;
  ctx.metrics = std::make_shared<metric_families>(dependencies.registry, config.run_id);
  ctx.log = dependencies.log;
  ctx.port_decorator = dependencies.port_decorator;
  ctx.links = std::make_shared<net::link_table>();
  ctx.rounds = make_round_registry(ctx.links);
  if (!config.averaging && !config.helping) {
    // Nobody here would ever begin a round, or drop what waits for one.
    round_registry::limits none;
    none.parked_events_max = 0;
    ctx.rounds = std::make_shared<round_registry>(none, [](const peer_record&, wire::event) {});
  }
  auto vectors_kept = config.averaging ? config.averaging->averaging.vectors_kept
                      : config.helping ? config.helping->averaging.averaging.vectors_kept
                                       : 0;
  ctx.vectors = vector_pool::make(vectors_kept, dependencies.memory);
  ctx.encoded_parts = buffer_pool::make(32_MiB, dependencies.memory);
  ctx.line = std::make_shared<bandwidth_estimator>();
  ctx.make_store =
    dependencies.make_store ? dependencies.make_store : [] { return make_memory_store(); };
  ctx.seed = config.seed;
  out.board = std::make_shared<status_board>(ctx.metrics);

  transport_request order{
    ctx.record, config.agreement,
    [board = out.board](const net::http_request& r) { return board->answer(r); },
    counting(ctx.metrics, out.board, ctx.line, system.clock())};
  order.events.disagreed = tell_disagreement(ctx.log, config.initial_peers);
  auto transport = dependencies.make_transport(std::move(order));
  auto& p = out.parts;
  auto board = system.spawn(switchboard, ctx, config.switchboard, transport);
  p.switchboard = board;
  auto bound = config.client_mode
                 ? transport->serve_http(config.listen)
                 : transport->listen(config.listen, [board](std::shared_ptr<net::link> link) {
                     caf::anon_send(board, link_arrived{std::move(link)});
                   });
  if (!bound) {
    caf::anon_send_exit(board, caf::exit_reason::user_shutdown);
    transport->stop();
    return bound.error();
  }
  out.bound = *bound;
  if (!config.client_mode) {
    ctx.record.addresses = announced(config, out.bound);
    transport->announce(ctx.record);
  }

  p.dht = system.spawn(dht_router, ctx, config.dht, p.switchboard);
  known_peers known;
  if (dependencies.files && !config.addresses.file.empty()) {
    known = load_known_peers(*dependencies.files, config.addresses.file, ctx);
    p.addresses = dependencies.detach_workers
                    ? system.spawn<caf::detached>(address_book, ctx, config.addresses,
                                                  dependencies.files, known)
                    : system.spawn(address_book, ctx, config.addresses, dependencies.files, known);
  }
  p.tracker = system.spawn(progress_tracker, ctx, config.progress, p.switchboard, p.dht);
  p.exporter = system.spawn(metrics_exporter, ctx, out.board, config.training.has_value());
  if (config.helping) {
    const auto& parts = config.helping->averaging;
    p.group = system.spawn<group_averager>(ctx, parts.averaging, parts.matchmaking, p.switchboard);
    p.helper = system.spawn<group_helper>(
      ctx, config.helping->help, helper_peers{p.group, p.tracker, p.switchboard, p.exporter});
    p.donor = system.spawn(state_donor, ctx, config.helping->donor, snapshot_source(p));
  } else if (config.averaging && config.training) {
    p.group = system.spawn<group_averager>(ctx, config.averaging->averaging,
                                           config.averaging->matchmaking, p.switchboard);
  } else if (config.averaging) {
    p.matchmaker =
      system.spawn(matchmaker, ctx, config.averaging->matchmaking, p.switchboard, p.dht);
    p.averager =
      system.spawn(averager, ctx, config.averaging->averaging, p.switchboard, p.matchmaker);
  }
  for (const auto& parts : config.further_averaging) {
    auto& pair = p.further.emplace_back();
    pair.matchmaker = system.spawn(matchmaker, ctx, parts.matchmaking, p.switchboard, p.dht);
    pair.averager = system.spawn(averager, ctx, parts.averaging, p.switchboard, pair.matchmaker);
  }
  if (config.training) {
    trainer_peers peers{p.group, p.tracker, p.switchboard, p.exporter};
    const auto& training = *config.training;
    const auto& files = training.training.checkpoints;
    p.keeper = dependencies.detach_workers ? system.spawn<state_keeper, caf::detached>(ctx, files)
                                           : system.spawn<state_keeper>(ctx, files);
    auto worker = [&system, ctx, training, files, keeper = p.keeper,
                   detached = dependencies.detach_workers](model_listener_actor owner) {
      const auto& make = training.make_learner;
      return model_worker_actor{
        detached
          ? system.spawn<model_worker, caf::detached>(ctx, make, files, keeper, std::move(owner))
          : system.spawn<model_worker>(ctx, make, files, keeper, std::move(owner))};
    };
    p.trainer = system.spawn<trainer>(ctx, training.training, worker, peers);
    p.donor = system.spawn(state_donor, ctx, training.donor, snapshot_source(p));
  }
  if (!p.trainer)
    ctx.metrics->set_peer_state("serving");
  show_config(*ctx.metrics, config);
  introduce([](const auto& to, auto msg) { caf::anon_send(to, std::move(msg)); }, p, config);
  out.node = system.spawn(node, ctx, config, p, transport, out.board);
  caf::anon_send(p.dht, bootstrap_from{config.initial_peers, known.newest_first()});
  // Later, so that nobody hears of a DHT that has not begun to join.
  caf::anon_send(caf::actor_cast<dht_router_impl>(p.dht),
                 subscribe_dht_status{caf::actor_cast<dht_listener_actor>(p.exporter)});
  if (p.trainer) {
    caf::anon_send(caf::actor_cast<dht_router_impl>(p.dht),
                   subscribe_dht_status{caf::actor_cast<dht_listener_actor>(p.trainer)});
    caf::anon_send(p.trainer, start_training{});
  }
  return out;
}

} // namespace waggle
