#pragma once

// A peer as an actor, for the actors of a service. Link waggle::actors, for a loop's peer
// waggle::loop. The process with both peers and the other actors:
//
//     auto peer = waggle::control_of(node);
//     self->request(peer, 5s, waggle::pause_peer{}).then([](const waggle::peer_state& now) { … });
//     self->send(peer, waggle::watch_peer{caf::actor_cast<waggle::event_listener_actor>(self)});

#include <cstdint>
#include <string>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include "runtime/core/result.hpp"
#include "runtime/watch/events.hpp"

namespace waggle {

class node;
class swarm;

struct peer_state {
  /// Of a loop's peer "starting", "joining", "syncing", "training", "averaging", "finished",
  /// "stopped" or "paused"; of others "serving" or "paused".
  std::string phase;
  std::string waiting_for;      // why it takes part in no rounds; empty: it does
  std::uint64_t epoch = 0;      // these of a loop's peer only
  std::uint32_t group_size = 0; // peers that average with it, itself included; 0: in no group
  double loss = 0;              // smoothed; NaN before the first step
};

/// Query for the state.
struct get_peer_state {};
/// Command: end the round that runs, then contribute to none and compute nothing, but stay
/// connected, until resume_peer. Others go on at once without it. A loop's `step` does not return
/// meanwhile; averager::average fails with ec::not_ready.
struct pause_peer {};
/// Command: go on. A loop's peer downloads the state first if the run has gone on without it.
struct resume_peer {};
/// Command: leave the run, and end all actors of the peer. A loop's next `step` throws swarm_error.
struct leave_run {
  std::string why; // for the log
};

/// An event of the peer, as in /api/v1/events.
struct peer_event {
  watch::event what;
  swarm_time at;            // Unix time, of the clock that peers compare
  std::uint64_t missed = 0; // dropped before this one: the listener was too slow
};
using event_listener_actor = caf::typed_actor<caf::reacts_to<peer_event>>;
/// Command: send the listener each event from now on, as long as it lives. At most 256 wait in its
/// mailbox.
struct watch_peer {
  event_listener_actor listener;
};

/// Ends with its peer, which those that monitor it notice, or when nobody holds a handle any more.
/// It must be asked with a deadline: a loop's peer computes and copies states on the loop's thread.
using control_actor =
  caf::typed_actor<caf::replies_to<get_peer_state>::with<peer_state>,
                   caf::replies_to<pause_peer>::with<peer_state>,
                   caf::replies_to<resume_peer>::with<peer_state>,
                   // Answered when all other actors of the peer have ended.
                   caf::replies_to<leave_run>::with<peer_state>, caf::reacts_to<watch_peer>>;

/// Starts such an actor. Fails with ec::shutting_down after the peer has left.
result<control_actor> control_of(const node& peer);
/// Call it on the loop's thread. Fails with ec::not_ready before a loop or an optimizer was
/// constructed with the swarm, and after it was destroyed.
result<control_actor> control_of(const swarm& peer);

} // namespace waggle

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::peer_state)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::get_peer_state)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::pause_peer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::resume_peer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::leave_run)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::peer_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(waggle::watch_peer)
