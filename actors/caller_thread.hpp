#pragma once

#include <caf/actor_system.hpp>
#include <caf/logger.hpp>
#include <caf/scoped_actor.hpp>

namespace waggle {

/// Exists while a thread that CAF did not start makes an actor system, spawns actors in it or asks
/// them. CAF stores the system's log in each such thread until it ends or uses another system, and
/// ~actor_system waits until no thread has it: without this object a peer that is used in one
/// thread and destroyed in another waits for the first one to end.
class caller_thread {
public:
  caller_thread() = default;
  ~caller_thread() { caf::logger::set_current_actor_system(nullptr); }
  caller_thread(const caller_thread&) = delete;
  caller_thread& operator=(const caller_thread&) = delete;
};

/// A caf::scoped_actor of such a thread.
class caller_actor : private caller_thread, public caf::scoped_actor {
public:
  using caf::scoped_actor::scoped_actor;
};

} // namespace waggle
