// shutdown: trainer: checkpoint ─► tracker: tombstone ─► switchboard: goodbye ─► all actors
//           ─► transport

#include "actors/node/node_supervisor.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"

namespace waggle {

namespace {

constexpr auto end_time = 1s; // an actor that computes or writes at this moment ends after that

} // namespace

node_supervisor::node_supervisor(caf::actor_config& cfg, node_context ctx, node_config config,
                                 node_parts parts, std::shared_ptr<net::transport> transport,
                                 std::shared_ptr<status_board> board, averaging_factory averages)
  : node_supervisor_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    transport_(std::move(transport)), board_(std::move(board)), parts_(std::move(parts)),
    averages_(std::move(averages)) {
  end_on_exception(this, ctx_);
}

void node_supervisor::on_exit() {
  ctx_.metrics->withdraw();
  board_->end();
  waiting_.clear();
  parts_ = {};
  averages_ = nullptr;
}

node_supervisor::behavior_type node_supervisor::make_behavior() {
  for (const auto& part : everybody(parts_))
    monitor(caf::actor_cast<caf::actor>(part));
  set_down_handler([this](const caf::down_msg& down) { on_down(down); });
  return {
    [this](const shut_down& msg) { return shut_down_all(msg); },
    [this](const add_averager& msg) { return add(msg); },
    [this](const end_averager& msg) { return end_one(msg); },
    [this](const continue_shutdown& msg) { advance(msg.stage); },
    [this](const restart_leaf& msg) {
      if (!stopping_)
        restart(msg.exporter);
    },
  };
}

caf::result<training_status> node_supervisor::shut_down_all(const shut_down& msg) {
  if (!stopping_) {
    ctx_.log->info("this peer is stopping: {}", msg.why);
    ctx_.note(watch::stopping{msg.why});
  }
  auto promise = make_response_promise<training_status>();
  waiting_.push_back(promise);
  begin_shutdown();
  return promise;
}

// -- averagers of a service ----------------------------------------------------------------------

caf::result<averaging_actors> node_supervisor::add(const add_averager& msg) {
  if (stopping_)
    return to_caf(ec::shutting_down, "this peer leaves the run");
  const auto& prefix = msg.how.matchmaking.prefix;
  auto same = [&prefix](const averaging_actors& other) { return other.prefix == prefix; };
  if ((config_.averaging && config_.averaging->matchmaking.prefix == prefix)
      || std::any_of(parts_.further.begin(), parts_.further.end(), same))
    return to_caf(ec::bad_config, "this peer has an averager '" + prefix + "' already");
  const auto& made = parts_.further.emplace_back(averages_(msg.how));
  monitor(made.matchmaker);
  monitor(made.group);
  monitor(made.averager);
  connect_averaging(parts_.switchboard, made);
  return made;
}

/// Its group goes on without it at once, and other peers that look for it are refused.
caf::result<caf::unit_t> node_supervisor::end_one(const end_averager& msg) {
  auto found = std::find_if(parts_.further.begin(), parts_.further.end(),
                            [&msg](const auto& each) { return each.prefix == msg.prefix; });
  if (found == parts_.further.end())
    return to_caf(ec::bad_config, "this peer has no averager '" + msg.prefix + "' that can end");
  auto ends = *found;
  parts_.further.erase(found);
  for (auto topic : {service_topic::matchmaking, service_topic::averaging})
    send(parts_.switchboard, serve{topic, {}, msg.prefix});
  auto promise = make_response_promise<caf::unit_t>();
  send_exit(ends.averager, caf::exit_reason::user_shutdown); // first: whoever waits learns why
  auto end = [this, ends, promise]() mutable {
    send_exit(ends.group, caf::exit_reason::user_shutdown);
    send_exit(ends.matchmaker, caf::exit_reason::user_shutdown);
    promise.deliver(caf::unit);
  };
  request(ends.group, end_time, quit_group{})
    .then([end]() mutable { end(); }, [end](const caf::error&) mutable { end(); });
  return promise;
}

// -- an actor has died --------------------------------------------------------------------------

void node_supervisor::on_down(const caf::down_msg& down) {
  auto why = from_caf(down.reason);
  auto is = [&](const auto& handle) { return handle && handle.address() == down.source; };
  if (ending_.erase(down.source) > 0 && ending_.empty())
    return answer();
  if (stopping_)
    return;
  if (is(parts_.exporter) || is(parts_.donor)) {
    bool exporter = is(parts_.exporter);
    std::string_view name = exporter ? "metrics-exporter" : "state-donor";
    ctx_.metrics->count_actor_restart(name);
    ctx_.note(watch::remark{watch::remark::what::restart, std::string{name}});
    ctx_.log->error("{} died and is started again: {}", name, to_string(why));
    auto pause = milliseconds{100} * (1U << std::min(restarts_++, 8U));
    delayed_send(this, pause, restart_leaf{exporter});
    return;
  }
  for (const auto& part : everybody(parts_))
    if (caf::actor_cast<caf::actor_addr>(part) == down.source) {
      ended_because_ = why.code == ec::none ? failure{ec::internal, "it ended unexpectedly"} : why;
      ctx_.log->critical("this peer ends: one of its actors died: {}", to_string(ended_because_));
      ctx_.note(watch::stopping{"one of its actors died: " + to_string(ended_because_)});
      return begin_shutdown();
    }
}

void node_supervisor::restart(bool exporter) {
  if (exporter) {
    parts_.exporter = spawn<metrics_exporter, caf::monitored>(
      ctx_, board_, config_.training.has_value(),
      config_.training && config_.training->training.auxiliary);
    send(parts_.reports, report_to{parts_.exporter});
    send(parts_.switchboard, listen_links{parts_.exporter});
    send(parts_.tracker, subscribe_progress{parts_.exporter});
    send(parts_.dht, subscribe_dht_status{parts_.exporter});
  } else {
    const auto& config = parts_.trainer ? config_.training->donor : config_.helping->donor;
    parts_.donor = spawn<state_donor, caf::monitored>(ctx_, config, snapshot_source(parts_));
    send(parts_.switchboard, serve{service_topic::state, parts_.donor});
  }
}

// -- shutdown ----------------------------------------------------------------------------------

void node_supervisor::begin_shutdown() {
  if (std::exchange(stopping_, true))
    return;
  ctx_.metrics->set_peer_state("leaving");
  board_->show_readiness(false, "leaving");
  if (parts_.helper) // so that its clients continue at once without it
    send(parts_.group, quit_group{});
  if (!parts_.trainer)
    return advance(1);
  request(parts_.trainer, config_.stop_training_timeout, stop_training{})
    .then(
      [this](const training_status& status) {
        last_status_ = status;
        advance(1);
      },
      [this](const caf::error& why) {
        if (ended_because_.code == ec::none)
          ctx_.log->warn("the trainer did not stop in time: {}", to_string(from_caf(why)));
        advance(1);
      });
}

void node_supervisor::advance(int stage) {
  auto next = [this, stage] { advance(stage + 1); };
  if (stage == 1) {
    send(parts_.tracker, announce_departure{});
    if (ctx_.links->peers().empty()) // nobody is there to be told
      return next();
    delayed_send(this, config_.goodbye_time, continue_shutdown{2});
  } else if (stage == 2) {
    request(parts_.switchboard, config_.goodbye_time, hang_up{})
      .then([next](caf::unit_t) { next(); }, [next](const caf::error&) { next(); });
  } else if (stage == 3) {
    end();
  } else {
    ctx_.log->warn("{} actors of this peer have not ended yet", ending_.size());
    answer();
  }
}

void node_supervisor::end() {
  for (const auto& part : everybody(parts_)) {
    auto actor = caf::actor_cast<caf::actor>(part);
    ending_.insert(actor.address());
    monitor(actor); // again: one that has died before sends another message then
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  transport_->stop();
  ctx_.metrics->withdraw();
  delayed_send(this, end_time, continue_shutdown{4});
}

/// Whoever is answered may start this peer again.
void node_supervisor::answer() {
  board_->end(); // first: whoever waited for the end begins nothing more here
  for (auto& promise : waiting_)
    promise.deliver(last_status_);
  parts_ = {};
  quit(ended_because_.code == ec::none ? caf::make_error(caf::exit_reason::user_shutdown)
                                       : to_caf(ended_because_));
}

} // namespace waggle
