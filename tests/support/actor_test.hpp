#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <gtest/gtest.h>

#include "actors/caf_error.hpp"
#include "actors/messages.hpp"
#include "tests/support/test_context.hpp"

namespace waggle::testing {

/// Actors on one thread and a virtual clock: nothing runs outside `settle`, `pass` and `ask`. Swarm
/// time (`wall`) moves with the virtual clock.
class actor_test : public ::testing::Test {
protected:
  struct config_type : caf::actor_system_config {
    config_type() { set("scheduler.policy", caf::atom("testing")); }
  };

  ~actor_test() override { end_actors(); }

  /// Ends all spawned actors. For fixtures whose own members the actors use: their destructors call
  /// it first.
  void end_actors() {
    // ~actor_system would wait forever for actors that are alive and messages that are unprocessed.
    for (const auto& handle : spawned_)
      if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(handle))
        caf::anon_send_exit(alive, caf::exit_reason::kill);
    settle();
    // Pending timeouts hold references to actors that have ended.
    while (sched.has_pending_timeout()) {
      sched.trigger_timeouts();
      settle();
    }
    spawned_.clear();
  }

  /// Spawns an actor that ends together with the fixture.
  template <class Function, class... Arguments>
  auto spawn(Function behaviour, Arguments&&... arguments) {
    auto handle = sys.spawn(behaviour, std::forward<Arguments>(arguments)...);
    keep(handle);
    settle();
    return handle;
  }

  /// The same for an actor that is a class.
  template <class Actor, class... Arguments>
  auto spawn(Arguments&&... arguments) {
    auto handle = sys.spawn<Actor>(std::forward<Arguments>(arguments)...);
    keep(handle);
    settle();
    return handle;
  }

  /// Makes the fixture end an actor that was spawned by other means.
  template <class Handle>
  void keep(const Handle& handle) {
    spawned_.push_back(handle.address());
  }

  /// Runs everything that can run without advancing the time.
  void settle() { sched.run(); }

  /// Advances the time by `dt`, stopping at every timer on the way.
  void pass(std::chrono::nanoseconds dt) {
    settle();
    auto until = sched.clock().now() + dt;
    while (sched.clock().now() < until) {
      auto target = until;
      const auto& timers = sched.clock().schedule();
      if (!timers.empty() && timers.begin()->first < target)
        target = std::max(timers.begin()->first, sched.clock().now());
      auto step = target - sched.clock().now();
      wall->advance(step);
      sched.advance_time(step);
      settle();
      if (step.count() == 0 && timers.empty())
        break;
    }
  }

  /// Sends without a sender, then runs.
  template <class Handle, class Message>
  void tell(const Handle& receiver, Message message) {
    caf::anon_send(receiver, std::move(message));
    settle();
  }

  /// A pending request; see `ask_later`.
  template <class Answer>
  struct pending {
    std::shared_ptr<std::optional<result<Answer>>> answer =
      std::make_shared<std::optional<result<Answer>>>();

    [[nodiscard]] bool answered() const { return answer->has_value(); }
    /// A request without an answer yet counts as ec::not_ready.
    [[nodiscard]] result<Answer> get() const {
      return answered() ? **answer : result<Answer>{failure{ec::not_ready, "not answered yet"}};
    }
  };

  /// Sends a request and runs; the answer may arrive while time advances later.
  template <class Answer, class Handle, class Question>
  pending<Answer> ask_later(const Handle& receiver, Question question) {
    pending<Answer> out;
    keep(sys.spawn([cell = out.answer, receiver, question](caf::event_based_actor* self) {
      self->request(receiver, std::chrono::minutes{24 * 60}, question)
        .then([cell](const Answer& a) { cell->emplace(a); },
              [cell](const caf::error& why) { cell->emplace(from_caf(why)); });
    }));
    settle();
    return out;
  }

  /// Sends a request that is answered without advancing the time.
  template <class Answer, class Handle, class Question>
  result<Answer> ask(const Handle& receiver, Question question) {
    return ask_later<Answer>(receiver, std::move(question)).get();
  }

  /// What `source` sends first to a listener that subscribes.
  template <class Event, class Subscription, class Handle>
  std::optional<Event> first_event(const Handle& source) {
    using listener = decltype(Subscription::listener);
    auto got = std::make_shared<std::optional<Event>>();
    auto reader = spawn([got](typename listener::pointer self) -> typename listener::behavior_type {
      return {[got, self](const Event& event) {
        *got = event;
        self->quit();
      }};
    });
    tell(source, Subscription{reader});
    return *got;
  }

  template <class Handle>
  [[nodiscard]] static bool alive(const Handle& handle) {
    return !caf::actor_cast<caf::abstract_actor*>(handle)->getf(
      caf::abstract_actor::is_terminated_flag);
  }

  std::shared_ptr<manual_clock> wall = std::make_shared<manual_clock>();
  config_type config;
  caf::actor_system sys{config};
  caf::scheduler::test_coordinator& sched =
    dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler());

private:
  std::vector<caf::actor_addr> spawned_; // weak
};

} // namespace waggle::testing
