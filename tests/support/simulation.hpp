#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "actors/node/node.hpp"
#include "tests/support/memory_disk.hpp"
#include "tests/support/sim_network.hpp"

namespace waggle::testing {

/// Many complete peers in one process and one thread, on virtual time and an in-memory network. The
/// same seed and the same calls give the same trace. With WAGGLE_TRACES=FILE in the environment,
/// each simulation adds a line: its seed and the hash of all frames. A change that only moves code
/// leaves these lines as they were.
class simulation {
public:
  using index = std::size_t;

  explicit simulation(std::uint64_t seed, net::sim_network::options options = {});
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  class clock;
  struct peer {
    std::shared_ptr<const identity> self;
    started_node node;
    bool alive = true;
    std::shared_ptr<clock> machine;
    std::vector<round_report> rounds; // with values
    /// What it logged, if keep_log_lines was called before its start: "level text".
    std::shared_ptr<std::vector<std::string>> lines = std::make_shared<std::vector<std::string>>();
  };

  /// Starts a peer that joins through the peers `through`. Its disk is `files`; null: none. Its
  /// clock is ahead of the others' by `clock_offset`. Its identity is its own, or that of `as`.
  index start(node_config config, const std::vector<index>& through,
              std::shared_ptr<disk> files = nullptr, swarm_clock::duration clock_offset = {},
              std::optional<index> as = std::nullopt);
  /// Applies `port_decorator` to every round of the peers that are started from now on.
  void decorate_rounds(round_port_decorator port_decorator) {
    port_decorator_ = std::move(port_decorator);
  }
  /// Of the peers that are started from now on.
  void keep_log_lines() { keeps_lines_ = true; }
  /// Sets the clock of the peer's machine ahead, or back.
  void set_clock(index who, swarm_clock::duration by);
  /// Kills the peer: its connections are reset, or (`silently`) just stop.
  void crash(index who, bool silently);
  /// Shuts the peer down in good order.
  void shut_down(index who);
  /// Stops the peer's process, as SIGSTOP does: its links stay open, and messages and timers wait
  /// until `thaw`. A frozen peer must not be asked, killed or shut down.
  void freeze(index who) { frozen_.insert(who); }
  void thaw(index who) { frozen_.erase(who); }

  /// Also within a call, by what an actor does: the calls around it then end that much later.
  void run_for(std::chrono::nanoseconds time);
  /// Returns false if `what` did not become true within `limit` of virtual time.
  bool run_until(const std::function<bool()>& what, std::chrono::nanoseconds limit);

  /// Sends a request to an actor and runs until it answers (for at most 10 virtual seconds).
  template <class Answer, class Handle, class Question>
  std::optional<Answer> ask(const Handle& receiver, Question question) {
    std::optional<Answer> answer;
    auto asker = system_->spawn([&answer, receiver, question](caf::event_based_actor* self) {
      self->request(receiver, std::chrono::seconds{10}, question)
        .then([&answer](const Answer& a) { answer = a; }, [](const caf::error&) {});
    });
    run_until([&] { return answer.has_value(); }, std::chrono::seconds{11});
    return answer;
  }

  /// What `source` sends first to a listener that subscribes (within 10 virtual seconds).
  template <class Event, class Subscription, class Handle>
  std::optional<Event> first_event(const Handle& source) {
    using listener = decltype(Subscription::listener);
    auto got = std::make_shared<std::optional<Event>>();
    auto reader =
      system_->spawn([got](typename listener::pointer self) -> typename listener::behavior_type {
        return {[got, self](const Event& event) {
          *got = event;
          self->quit();
        }};
      });
    caf::anon_send(source, Subscription{reader});
    run_until([got] { return got->has_value(); }, std::chrono::seconds{10});
    return *got;
  }

  /// Sends a request to an actor; `then` receives the answer while the simulation runs on. Refusals
  /// are ignored.
  template <class Answer, class Handle, class Question>
  void later(const Handle& receiver, Question question, std::function<void(const Answer&)> then) {
    system_->spawn([then, receiver, question](caf::event_based_actor* self) {
      self->request(receiver, std::chrono::seconds{60}, question)
        .then([then](const Answer& a) { then(a); }, [](const caf::error&) {});
    });
  }

  [[nodiscard]] caf::actor_system& system() { return *system_; }
  [[nodiscard]] net::sim_network& network() { return network_; }
  [[nodiscard]] peer& operator[](index who) { return *peers_[who]; }
  [[nodiscard]] std::size_t size() const { return peers_.size(); }
  [[nodiscard]] std::vector<index> living() const;
  [[nodiscard]] double seconds() const;

private:
  struct system_config;

  void settle();
  /// Runs the next job of a peer that is not frozen; false: there is none.
  bool run_job();
  [[nodiscard]] std::optional<index> owner_of(const caf::resumable& job) const;
  /// The actors that were spawned since `before` and have no owner yet are those of `who`.
  void own_actors_since(caf::actor_id before, std::optional<index> who);
  bool step(steady_time until);

  std::unique_ptr<system_config> config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator& coordinator_;
  steady_time start_;
  net::sim_network network_;
  std::shared_ptr<const signature_verifier> verifier_;
  std::shared_ptr<spdlog::logger> log_;
  std::vector<std::unique_ptr<peer>> peers_;
  std::map<caf::actor_id, index> owners_; // the peers of actors, also of those that have ended
  std::set<index> frozen_;
  std::uint64_t seed_;
  round_port_decorator port_decorator_;
  bool keeps_lines_ = false;
};

} // namespace waggle::testing
