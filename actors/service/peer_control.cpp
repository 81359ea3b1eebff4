#include "actors/service/peer_control.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/service/running_node.hpp"

namespace waggle {

namespace {

constexpr std::size_t waiting_max = 256; // as control.hpp says
constexpr auto question_timeout = 5s;    // a trainer never blocks

} // namespace

peer_control::peer_control(caf::actor_config& cfg, const started_node& peer,
                           std::shared_ptr<averager_table> averagers)
  : peer_control_base(cfg), board_(peer.board), events_(peer.ctx.events),
    averagers_(std::move(averagers)), node_(peer.node), trainer_(peer.parts.trainer) {}

void peer_control::on_exit() {
  node_ = nullptr;
  trainer_ = nullptr;
  watchers_.clear();
}

peer_control::behavior_type peer_control::make_behavior() {
  monitor(node_);
  set_down_handler([this](const caf::down_msg&) { quit(); });
  return {
    [this](get_peer_state) -> caf::result<peer_state> {
      return trainer_ ? ask_trainer(get_training_status{})
                      : caf::result<peer_state>{state_without_trainer()};
    },
    [this](pause_peer) -> caf::result<peer_state> {
      if (trainer_)
        return ask_trainer(pause_training{});
      averagers_->pause();
      return state_without_trainer();
    },
    [this](resume_peer) -> caf::result<peer_state> {
      if (trainer_)
        return ask_trainer(resume_training{});
      averagers_->resume();
      return state_without_trainer();
    },
    [this](const leave_run& msg) { return leave(msg); },
    [this](const watch_peer& msg) { watch(msg); },
    [this](const event_noted& msg) { pass_on(msg); },
  };
}

template <class Question>
caf::result<peer_state> peer_control::ask_trainer(Question question) {
  auto promise = make_response_promise<peer_state>();
  request(trainer_, question_timeout, question)
    .then([this, promise](const training_status& s) mutable { promise.deliver(state_of(s)); },
          [promise](const caf::error& why) mutable { promise.deliver(why); });
  return promise;
}

peer_state peer_control::state_without_trainer() const {
  auto why_not = board_->why_not_ready();
  bool paused = averagers_->is_paused();
  return {paused ? "paused" : "serving", paused && why_not.empty() ? "paused" : why_not, 0, 0,
          std::numeric_limits<double>::quiet_NaN()};
}

peer_state peer_control::state_of(const training_status& s) const {
  return {std::string{to_string(s.phase)}, board_->why_not_ready(), s.epoch.value(), s.group_size,
          s.loss};
}

/// The node limits how long this takes.
caf::result<peer_state> peer_control::leave(const leave_run& msg) {
  auto promise = make_response_promise<peer_state>();
  request(node_, caf::infinite, shut_down{msg.why})
    .then(
      [this, promise, trains = static_cast<bool>(trainer_)](const training_status& last) mutable {
        auto now = trains ? state_of(last) : peer_state{};
        now.phase = to_string(trainer_phase::stopped);
        promise.deliver(std::move(now));
      },
      [promise](const caf::error& why) mutable { promise.deliver(why); });
  return promise;
}

void peer_control::watch(const watch_peer& msg) {
  auto same = [&msg](const watcher& w) { return w.listener == msg.listener; };
  if (!msg.listener || std::any_of(watchers_.begin(), watchers_.end(), same))
    return;
  watchers_.push_back({msg.listener});
  if (std::exchange(listens_, true))
    return;
  // The ring lives as long as the peer, and this actor until whoever watches is done with it.
  events_->listen([self = address()](const watch::event& what, swarm_time at) {
    auto alive = caf::actor_cast<caf::strong_actor_ptr>(self);
    if (alive)
      caf::anon_send(caf::actor_cast<note_listener_actor>(alive), event_noted{what, at});
    return alive != nullptr;
  });
}

void peer_control::pass_on(const event_noted& msg) {
  for (auto& each : watchers_) {
    if (each.waiting >= waiting_max) {
      ++each.missed;
      continue;
    }
    ++each.waiting;
    auto with = [this, who = each.listener](auto what) {
      auto at = std::find_if(watchers_.begin(), watchers_.end(),
                             [&who](const watcher& w) { return w.listener == who; });
      if (at != watchers_.end())
        what(at);
    };
    request(each.listener, caf::infinite, peer_event{msg.what, msg.at, each.missed})
      .then([with] { with([](auto at) { --at->waiting; }); },
            [this, with](const caf::error&) { // the listener has ended
              with([this](auto at) { watchers_.erase(at); });
            });
    each.missed = 0;
  }
}

result<control_actor> control_of(const node& peer) {
  const auto& it = *peer.running();
  if (it.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  caller_thread here;
  return control_actor{it.system->spawn<peer_control>(it.node, it.averagers)};
}

} // namespace waggle
