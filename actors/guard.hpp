#pragma once

#include <exception>
#include <string>

#include <caf/spawn_options.hpp>
#include <spdlog/logger.h>

#include "actors/caf_error.hpp"
#include "actors/node_context.hpp"
#include "runtime/status/actor_census.hpp"

namespace waggle {

/// Turns an exception that leaves a handler of `self` (a bug, or out of memory) into a logged
/// ec::internal that ends the actor; its supervisor receives the reason. Counts the actor among
/// those that the status shows.
template <class Self>
void end_on_exception(Self self, const node_context& ctx) {
  self->set_exception_handler(
    [log = ctx.log, name = std::string{self->name()}](std::exception_ptr& thrown) -> caf::error {
      try {
        std::rethrow_exception(thrown);
      } catch (const std::exception& e) {
        log->error("{} ended by an exception: {}", name, e.what());
        return to_caf(ec::internal, e.what());
      } catch (...) {
        log->error("{} ended by an unknown exception", name);
        return to_caf(ec::internal, "unknown exception");
      }
    });
  if (!ctx.actors)
    return;
  ctx.actors->started(self->name());
  self->attach_functor([all = ctx.actors, name = std::string{self->name()}] { all->ended(name); });
}

/// What blocks or computes for long has a thread of its own, except where all share one. `by`: a
/// system or an actor.
template <class Actor, caf::spawn_options Options = caf::no_spawn_options, class By, class... Args>
auto spawn_apart(By& by, bool apart, Args&&... args) {
  return apart ? by.template spawn<Actor, Options + caf::detached>(std::forward<Args>(args)...)
               : by.template spawn<Actor, Options>(std::forward<Args>(args)...);
}

} // namespace waggle
