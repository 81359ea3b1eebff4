// This file is long: it is the wiring of one peer, in the order in which its parts start.

// start: transport ─► switchboard ─► (listening) ─► dht ─► address book ─► tracker ─► exporter
//        ─► averaging (matchmaker, group_averager; and averager or moshpit_averager)
//        ─► trainer or helper ─► donor ─► connect (services, listeners) ─► supervisor ─► bootstrap

#include "actors/node/node.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "actors/averaging/group_averager.hpp"
#include "actors/averaging/moshpit_averager.hpp"
#include "actors/caller_thread.hpp"
#include "actors/guard.hpp"
#include "actors/node/node_supervisor.hpp"
#include "actors/training/group_helper.hpp"
#include "actors/training/model_worker.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/net/clock_watch.hpp"
#include "runtime/net/kept_clock.hpp"
#include "runtime/net/local_addresses.hpp"
#include "runtime/net/name_resolver.hpp"
#include "runtime/status/run_curves.hpp"

namespace waggle {

namespace {

net::net_events counting(const std::shared_ptr<metric_families>& metrics,
                         const std::shared_ptr<status_board>& board,
                         const std::shared_ptr<bandwidth_estimator>& bandwidth,
                         caf::actor_clock& clock) {
  net::net_events events;
  events.refused = [metrics](ec why) { metrics->count_refused_input(why); };
  events.transferred = [metrics, board](bool outbound, bool data, std::size_t bytes) {
    metrics->count_network_bytes(outbound, data, static_cast<double>(bytes));
    board->count_bytes(outbound, bytes);
  };
  events.shared = [metrics, board](bool outbound, std::size_t bytes) {
    metrics->count_shared_bytes(outbound, static_cast<double>(bytes));
    board->count_shared_bytes(bytes);
  };
  events.shared_memory = [metrics](ec why) { metrics->count_shared_memory(why); };
  events.carried = [bandwidth, &clock](bool outbound, std::size_t bytes) {
    bandwidth->carried(outbound, bytes, clock.now());
  };
  events.opened = [metrics](bool outbound) { metrics->connection_opened(outbound); };
  events.closed = [metrics](bool outbound, ec why) { metrics->connection_closed(outbound, why); };
  events.dial_failed = [metrics](ec why) { metrics->count_dial_error(why); };
  events.http_served = [metrics](const std::string& route, unsigned code, double seconds) {
    metrics->count_http_request(route, static_cast<int>(code), seconds);
  };
  return events;
}

/// Logs links that were refused because of the options or the identity that one of the two peers
/// was started with, once per address. An initial peer that refuses our options is not logged here,
/// but by dht_joining.
void log_disagreements(const node_context& ctx, const std::vector<endpoint>& initial_peers,
                       caf::actor_clock& clock, net::net_events& events) {
  constexpr std::size_t addresses_told_max = 256;
  // Used on the I/O thread only.
  auto joins = std::make_shared<std::set<endpoint>>(initial_peers.begin(), initial_peers.end());
  events.resolved = [joins](const endpoint&, const std::vector<endpoint>& addresses) {
    if (joins->size() >= addresses_told_max)
      joins->clear(); // the addresses of a name change
    joins->insert(addresses.begin(), addresses.end());
  };
  events.disagreed = [log = ctx.log, budget = ctx.caused_lines, &clock, joins,
                      told = std::set<endpoint>{}](const endpoint& where, bool outbound,
                                                   const failure& why) mutable {
    bool known = (why.code == ec::agreement_mismatch || why.code == ec::not_a_member)
                 && joins->contains(where);
    if (told.size() >= addresses_told_max)
      told.clear();
    log_about about{{.reason = why.code}};
    if (!known && told.insert(where).second)
      log_within(budget.get(), *log, "refused links", clock.now(), spdlog::level::warn,
                 "no link with " + (outbound ? to_string(where) : "a peer at " + where.host) + ": "
                   + to_string(why));
  };
}

/// Tells the operator of clocks that are off, and shows the offset of this machine's.
std::function<void(const peer_id&, swarm_clock::duration)>
watch_clocks(const node_context& ctx, std::shared_ptr<status_board> board,
             std::shared_ptr<net::kept_clock> kept, net::clock_limits limits,
             caf::actor_clock& clock) {
  struct watching {
    std::mutex mutex;
    net::clock_watch watch;
  };
  auto state = std::make_shared<watching>();
  state->watch = net::clock_watch{{.limits = limits}};
  return [state, ctx, board = std::move(board), kept = std::move(kept),
          &clock](const peer_id& peer, swarm_clock::duration offset) {
    std::optional<std::string> sentence;
    {
      std::lock_guard guard{state->mutex};
      auto moved = kept->compared(offset);
      state->watch.moved(moved);
      sentence = state->watch.compared(peer, offset - moved, clock.now());
      board->set_clock_skew(seconds_of(state->watch.median()) - seconds_of(kept->machine_ahead()));
    }
    if (!sentence)
      return;
    log_about about{{.remote = peer}};
    if (ctx.log_caused("clocks", clock.now(), spdlog::level::warn, *sentence))
      ctx.note(watch::remark{watch::remark::what::clock, *sentence, 1000 * seconds_of(offset)});
  };
}

/// Null: this peer begins without an averager.
const node_config::averaging_parts* first_averager(const node_config& config) {
  if (config.averaging)
    return &*config.averaging;
  return config.further_averaging.empty() ? nullptr : &config.further_averaging.front();
}

/// Exports hashes of the values that all peers of a run must share, for dashboards to compare.
void show_config(metric_families& metrics, const node_config& config) {
  const auto* first = first_averager(config);
  if (first == nullptr)
    return metrics.set_config_info("", "", "none");
  metrics.set_config_info(config.agreement ? short_name(config.agreement->hash()) : "",
                          short_name(first->matchmaking.schema),
                          config.training ? config.training->training.strategy.text() : "average");
}

/// Connects the actors: which serves what, and which listens to which.
void connect(const node_parts& p) {
  auto serves = [&](service_topic topic, const auto& handle) {
    if (handle)
      caf::anon_send(p.switchboard, serve{topic, handle});
  };
  auto listens = [&](const auto& handle) {
    if (handle)
      caf::anon_send(p.switchboard, listen_links{handle});
  };
  serves(service_topic::dht, p.dht);
  serves(service_topic::progress, p.tracker);
  if (p.averager || p.rounds) // other groups are not searched for in the DHT
    serves(service_topic::matchmaking, p.matchmaker);
  serves(service_topic::averaging, p.group);
  serves(service_topic::state, p.donor);
  listens(p.dht);
  listens(p.addresses);
  listens(p.tracker);
  listens(p.matchmaker);
  listens(p.rounds);
  listens(p.group);
  listens(p.trainer);
  listens(p.helper);
  listens(p.exporter);
  for (const auto& each : p.further)
    connect_averaging(p.switchboard, each);
  caf::anon_send(p.tracker, subscribe_progress{p.exporter});
  auto follows_the_run = [&](const auto& handle) {
    if (!handle)
      return;
    caf::anon_send(p.tracker, subscribe_progress{handle});
    caf::anon_send(p.group, listen_group{handle});
  };
  follows_the_run(p.helper);
  follows_the_run(p.trainer);
}

result<std::shared_ptr<metric_families>> metrics_for(const node_config& config,
                                                     const node_dependencies& dependencies) {
  try {
    return std::make_shared<metric_families>(dependencies.registry, run_tag(config.run_id),
                                             short_name(dependencies.self->id()));
  } catch (const std::exception& e) { // prometheus-cpp throws, too
    return failure{
      ec::bad_config,
      "cannot export the metrics of this peer: " + std::string{e.what()}
        + "; give it a registry that merges families, and in which no running peer has "
          "its identity"};
  }
}

} // namespace

void connect_averaging(const wired_switchboard_actor& links, const averaging_actors& made) {
  caf::anon_send(links, serve{service_topic::matchmaking, made.matchmaker, made.prefix});
  caf::anon_send(links, serve{service_topic::averaging, made.group, made.prefix});
  caf::anon_send(links, listen_links{made.matchmaker});
  caf::anon_send(links, listen_links{made.group});
}

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
    add(pair.group);
    add(pair.matchmaker);
  }
  add(p.averager);
  add(p.rounds);
  add(p.matchmaker);
  add(p.tracker);
  add(p.reports);
  add(p.exporter);
  add(p.addresses);
  add(p.dht);
  add(p.switchboard);
  add(p.writer);
  return all;
}

snapshot_source_actor snapshot_source(const node_parts& p) {
  return p.trainer ? snapshot_source_actor{p.trainer} : snapshot_source_actor{p.helper};
}

/// Takes the list of an earlier start, and says so if this peer is not on it.
static void prepare_members(const node_context& ctx, const node_config& config, disk* files) {
  if (files != nullptr && !config.addresses.file.empty())
    load_kept_list(*files, config.addresses.file.parent_path(), ctx);
  if (auto why = ctx.members->judge(ctx.self->id(), ctx.wall->now()); why.here.code != ec::none)
    ctx.log->warn("this peer does not belong to the run yet: {}; send this id to whoever keeps the "
                  "list: {}",
                  why.here.detail, to_string(ctx.self->id()));
}

result<started_node> start_node(caf::actor_system& system, const node_config& config,
                                const node_dependencies& dependencies) {
  caller_thread here;
  WAGGLE_TRY(checked, check_node_config(config));
  WAGGLE_TRY(linked, check_link_config(config.switchboard.link));
  WAGGLE_TRY(announce, net::numeric_addresses(config.announce, net::system_lookup()));
  WAGGLE_TRY(metrics, metrics_for(config, dependencies));
  started_node out;
  auto& ctx = out.ctx;
  ctx.run_id = config.run_id;
  ctx.label = config.label.empty() ? config.run_id : config.label;
  ctx.self = dependencies.self;
  ctx.members = config.members;
  ctx.record = {dependencies.self->id(), dependencies.self->key(), {}, config.client_mode};
  auto steady = dependencies.steady;
  if (!steady)
    steady = [&clock = system.clock()] { return clock.now(); };
  auto kept = std::make_shared<net::kept_clock>(dependencies.wall, std::move(steady));
  ctx.wall = kept;
  ctx.verifier = dependencies.verifier;
  ctx.metrics = *metrics;
  ctx.log = dependencies.log;
  if (ctx.members)
    prepare_members(ctx, config, dependencies.files.get());
  ctx.caused_lines = std::make_shared<log_budget>();
  // The name of this start: the numbers of its events mean nothing after the next one.
  ctx.events = std::make_shared<event_ring>(to_hex(little_endian(entropy_seed())));
  auto clocks = net::clock_limits_for(config.progress.report_ttl);
  ctx.port_decorator = dependencies.port_decorator;
  ctx.links = std::make_shared<link_table>(config.trust_members);
  ctx.rounds = make_round_registry(ctx.links, ctx.strangers, ctx.members != nullptr);
  if (!config.averaging && !config.helping && !config.takes_averagers) {
    // This peer never begins a round, and never drops events that wait for one: keep none.
    round_registry::limits none{.all_known = ctx.members != nullptr};
    none.parked_events_max = none.strangers_events_max = 0;
    ctx.rounds = std::make_shared<round_registry>(none, [](const peer_record&, wire::event) {});
  }
  auto vectors_kept = config.averaging         ? config.averaging->averaging.vectors_kept
                      : config.helping         ? config.helping->averaging.averaging.vectors_kept
                      : config.takes_averagers ? averaging_config{}.vectors_kept
                                               : 0;
  ctx.vectors = vector_pool::make(vectors_kept, dependencies.memory);
  ctx.encoded_parts = buffer_pool::make(32_MiB, dependencies.memory);
  ctx.bandwidth = std::make_shared<bandwidth_estimator>();
  ctx.make_store =
    dependencies.make_store ? dependencies.make_store : [] { return make_memory_store(); };
  ctx.machine = dependencies.machine;
  ctx.seed = config.seed;
  ctx.curves = std::make_shared<run_curves>();
  ctx.actors = std::make_shared<actor_census>();
  out.board = std::make_shared<status_board>(ctx.metrics, ctx.events, config.pages, ctx.curves);
  ctx.clock_compared = watch_clocks(ctx, out.board, kept, clocks, system.clock());

  transport_request request{
    ctx.record,
    config.agreement,
    [board = out.board](const net::http_request& r) { return board->answer(r); },
    counting(ctx.metrics, out.board, ctx.bandwidth, system.clock()),
    ctx.wall,
    clocks};
  log_disagreements(ctx, config.initial_peers, system.clock(), request.events);
  request.events.clock_compared = ctx.clock_compared;
  request.events.narrow_path = [reach = ctx.reach](const std::optional<std::string>& host) {
    reach->set_narrow_path(host);
  };
  auto transport = dependencies.make_transport(std::move(request));
  auto& p = out.parts;
  p.switchboard = system.spawn<switchboard>(ctx, config.switchboard, transport);
  auto board = p.switchboard;
  auto bound = transport->listen(
    config.listen, config.client_mode ? net::on_link{} : [board](std::shared_ptr<net::link> link) {
      caf::anon_send(board, link_arrived{std::move(link)});
    });
  if (!bound) {
    caf::anon_send_exit(board, caf::exit_reason::user_shutdown);
    transport->stop();
    ctx.metrics->withdraw(); // the switchboard has them, too, until it has ended
    return bound.error();
  }
  out.bound = bound->front();
  auto dht = config.dht;
  if (!config.client_mode) {
    for (auto& where : *announce)
      if (where.port == 0)
        where.port = out.bound.port;
    auto own = *bound;
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i].host == config.listen[i].host) // not a name that the transport has given itself
        if (auto address = net::numeric_addresses({own[i]}, net::system_lookup()))
          own[i] = address->front();
    bool may_change = std::any_of(own.begin(), own.end(),
                                  [](const auto& where) { return net::is_wildcard(where.host); });
    auto read = [own, may_change, to = config.initial_peers] {
      return net::reached_at(own, may_change ? net::read_machine_addresses(to)
                                             : net::machine_addresses{});
    };
    ctx.record.addresses = announce->empty() ? read() : *announce;
    if (announce->empty() && may_change) {
      dht.reach.read_addresses = read;
      if (auto warning = net::only_of_links(net::read_machine_addresses({})))
        ctx.log->warn("{}", *warning);
    }
    transport->announce(ctx.record);
  }
  dht.joining.resolve = [weak = std::weak_ptr{transport}](
                          const endpoint& given, milliseconds timeout, net::on_resolved done) {
    if (auto network = weak.lock())
      network->resolve(given, timeout, std::move(done));
  };
  dht.reach.announce = [links = caf::actor_cast<caf::weak_actor_ptr>(board)](peer_record self) {
    if (auto to = caf::actor_cast<caf::strong_actor_ptr>(links))
      caf::anon_send(caf::actor_cast<link_owner_actor>(to), record_changed{std::move(self)});
  };
  if (!config.client_mode)
    dht.punching.dial =
      [weak = std::weak_ptr{transport}, links = caf::actor_cast<caf::weak_actor_ptr>(board)](
        const net::dial_target& to, milliseconds timeout, std::function<void(failure)> done) {
        auto ended = [links, done = std::move(done)](result<std::shared_ptr<net::link>> made) {
          auto owner = caf::actor_cast<caf::strong_actor_ptr>(links);
          if (made && *made && owner)
            caf::anon_send(caf::actor_cast<wired_switchboard_actor>(owner), link_arrived{*made});
          else if (made && *made)
            (*made)->close({ec::shutting_down, {}});
          done(made ? failure{} : made.error());
        };
        if (auto network = weak.lock())
          network->dial(to, timeout, std::move(ended));
      };
  if (!config.client_mode && announce->empty() && dependencies.router) {
    out.ports = std::make_shared<net::port_mapping>(dependencies.router);
    dht.reach.map_port = [weak = std::weak_ptr{out.ports}](std::uint16_t port,
                                                           net::port_mapping::on_mapped told) {
      if (auto ports = weak.lock())
        ports->want(port, std::move(told));
    };
  }
  const auto* first = first_averager(config);
  dht.reach.may_become_client = first && first->matchmaking.mode == member_mode::node;
  p.dht = system.spawn<dht_router>(ctx, std::move(dht), p.switchboard);
  ctx.unreached = [to = p.dht](const peer_record& leader) {
    caf::anon_send(to, member_unlinked{leader, false, false});
  };
  ctx.unlinked = [to = p.dht](const peer_record& member, bool stalled) {
    caf::anon_send(to, member_unlinked{member, stalled});
  };
  const bool apart = dependencies.detach_workers;
  known_peers known;
  if (dependencies.files && !config.addresses.file.empty()) {
    known = load_known_peers(*dependencies.files, config.addresses.file, ctx);
    p.addresses =
      spawn_apart<address_book>(system, apart, ctx, config.addresses, dependencies.files, known);
  }
  notify_of_lists(ctx, p.switchboard, p.addresses);
  p.tracker = system.spawn<progress_tracker>(ctx, config.progress, p.switchboard, p.dht);
  p.exporter =
    system.spawn<metrics_exporter>(ctx, out.board, config.training.has_value(),
                                   config.training && config.training->training.auxiliary);
  p.reports = system.spawn(report_relay, p.exporter);
  if (dependencies.files && config.event_log.bytes > 0)
    p.writer = spawn_apart<event_writer>(system, apart, ctx, dependencies.files, config.event_log);
  // The configuration of an averager; its workers are threads only if this peer has threads.
  auto averaging = [apart](const node_config::averaging_parts& parts) {
    auto all = parts.averaging;
    all.detach_workers = apart;
    return all;
  };
  averaging_factory averages = [&system, ctx, averaging, links = p.switchboard,
                                dht = p.dht](const node_config::averaging_parts& parts) {
    averaging_actors out;
    out.prefix = parts.matchmaking.prefix;
    out.matchmaker = system.spawn<matchmaker>(ctx, parts.matchmaking, links, dht);
    auto group =
      system.spawn<group_averager>(ctx, averaging(parts), parts.matchmaking, links, out.matchmaker);
    out.group = group;
    auto steps = system.spawn<vector_averager>(ctx, averaging(parts), out.matchmaker, group);
    caf::anon_send(group, listen_group{steps});
    out.averager = steps;
    return out;
  };
  auto group_for = [&](const node_config::averaging_parts& parts, epoch_id end) {
    p.matchmaker = system.spawn<matchmaker>(ctx, parts.matchmaking, p.switchboard, p.dht);
    return system.spawn<group_averager>(ctx, averaging(parts), parts.matchmaking, p.switchboard,
                                        p.matchmaker, end);
  };
  if (config.helping) {
    p.group = group_for(config.helping->averaging, {});
    p.helper = system.spawn<group_helper>(
      ctx, config.helping->help, helper_peers{p.group, p.tracker, p.switchboard, p.reports});
    p.donor = system.spawn<state_donor>(ctx, config.helping->donor, snapshot_source(p));
  } else if (config.averaging && config.training && !config.training->training.many_groups) {
    p.group = group_for(*config.averaging, epoch_id{config.training->training.max_epochs});
  } else if (config.averaging && config.training) {
    auto parts = *config.averaging;
    parts.matchmaking.extra = parts.averaging.auxiliary;
    p.rounds = group_for(parts, {});
    auto group =
      system.spawn<moshpit_averager>(ctx, averaging(parts), parts.matchmaking,
                                     config.training->training.epoch_difference_max, p.rounds);
    // Before the trainer subscribes, whose questions follow from what it has seen.
    caf::anon_send(p.tracker, subscribe_progress{group});
    p.group = group;
  } else if (config.averaging) {
    auto made = averages(*config.averaging);
    p.matchmaker = made.matchmaker;
    p.group = made.group;
    p.averager = made.averager;
  }
  for (const auto& parts : config.further_averaging)
    p.further.push_back(averages(parts));
  if (config.training) {
    trainer_peers peers{p.group, p.tracker, p.switchboard, p.reports};
    const auto& training = *config.training;
    const auto& files = training.training.checkpoints;
    p.keeper = spawn_apart<state_keeper>(system, apart, ctx, files);
    auto worker = [&system, ctx, training, files, keeper = p.keeper,
                   apart](model_listener_actor owner) {
      const auto& make = training.make_learner;
      auto beside = apart ? pass_place::in_another_thread : pass_place::beside;
      auto passes = training.training.delay_optimizer_step ? beside : pass_place::in_turn;
      auto evaluation = training.evaluation;
      if (evaluation)
        evaluation->own_thread = apart;
      return model_worker_actor{spawn_apart<model_worker>(system, apart, ctx, make, files, keeper,
                                                          std::move(owner), passes, evaluation)};
    };
    // It copies and checks whole vectors between two passes.
    p.trainer = spawn_apart<trainer>(system, apart, ctx, training.training, worker, peers);
    p.donor = system.spawn<state_donor>(ctx, training.donor, snapshot_source(p));
  }
  if (!p.trainer)
    ctx.metrics->set_peer_state("serving");
  show_config(*ctx.metrics, config);
  connect(p);
  out.node = system.spawn<node_supervisor>(ctx, config, p, transport, out.board, averages);
  caf::anon_send(p.dht, bootstrap_from{config.initial_peers, known.newest_first()});
  // Last, so that no listener receives the status of a DHT that has not begun to join.
  caf::anon_send(p.dht, subscribe_dht_status{p.exporter});
  if (p.trainer) {
    caf::anon_send(p.dht, subscribe_dht_status{p.trainer});
    caf::anon_send(p.trainer, start_training{});
  }
  return out;
}

} // namespace waggle
