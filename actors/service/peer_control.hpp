#pragma once

#include <vector>

#include <caf/all.hpp>

#include "actors/service/averager_table.hpp"
#include "waggle/control.hpp"

namespace waggle {

/// To itself, from whoever notes an event.
struct event_noted {
  watch::event what;
  swarm_time at;
};
using note_listener_actor = caf::typed_actor<caf::reacts_to<event_noted>>;
using peer_control_base = control_actor::extend_with<note_listener_actor>::base;

/// What waggle/control.hpp promises, on top of the peer's actors.
class peer_control final : public peer_control_base {
public:
  /// `averagers`: those of a peer without a trainer; otherwise null.
  peer_control(caf::actor_config& cfg, const started_node& peer,
               std::shared_ptr<averager_table> averagers);

  const char* name() const override { return "control"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct watcher {
    event_listener_actor listener;
    std::size_t waiting = 0; // events that it has not handled
    std::uint64_t missed = 0;
  };

  template <class Question>
  caf::result<peer_state> ask_trainer(Question question);
  [[nodiscard]] peer_state state_without_trainer() const;
  [[nodiscard]] peer_state state_of(const training_status& s) const;
  caf::result<peer_state> leave(const leave_run& msg);
  void watch(const watch_peer& msg);
  void pass_on(const event_noted& msg);

  const std::shared_ptr<const status_board> board_;
  const std::shared_ptr<event_ring> events_;
  const std::shared_ptr<averager_table> averagers_;
  node_actor node_;
  trainer_actor trainer_;
  std::vector<watcher> watchers_;
  bool listens_ = false; // to the ring
};

} // namespace waggle
