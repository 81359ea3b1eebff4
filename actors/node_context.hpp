#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/allreduce/link_table.hpp"
#include "runtime/allreduce/round_engine.hpp"
#include "runtime/allreduce/round_registry.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/byte_store.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/log_budget.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/vector_pool.hpp"
#include "runtime/core/wait_log.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/net/link_budget.hpp"
#include "runtime/net/own_reach.hpp"
#include "runtime/watch/event_ring.hpp"
#include "runtime/watch/events.hpp"

// Whoever logs includes spdlog (guard.hpp does).
namespace spdlog {
class logger;
namespace level {
enum level_enum : int;
}
} // namespace spdlog

namespace waggle {

class actor_census;        // runtime/status/actor_census.hpp
class bandwidth_estimator; // runtime/averaging/bandwidth_estimator.hpp
class machine_watch;       // runtime/core/machine_use.hpp
class run_curves;          // runtime/status/run_curves.hpp

/// A registry that answers peers that missed the end of a round over their link. Peers that are no
/// strangers any more need not wait for the strangers' memory.
inline std::shared_ptr<round_registry>
make_round_registry(std::shared_ptr<link_table> links,
                    std::shared_ptr<net::stranger_budget> strangers, bool all_known = false) {
  round_registry::limits limits{.all_known = all_known};
  return std::make_shared<round_registry>(
    limits,
    [links = std::move(links)](const peer_record& to, wire::event what) {
      links->tell(to.id, what, {});
    },
    [strangers = std::move(strangers)] { strangers->offer(true); });
}

/// Wraps the port through which a round reaches other peers, for example in a test that injects
/// faults. Called once per round.
using round_port_decorator =
  std::function<std::shared_ptr<round_port>(std::shared_ptr<round_port>)>;

/// Logs `text` if the budget has room for a line of this kind; returns whether. Null: no limit.
bool log_within(log_budget* budget, spdlog::logger& log, std::string_view kind, steady_time now,
                spdlog::level::level_enum level, const std::string& text);

/// Logs what wait_log::look decided.
void log_wait(spdlog::logger& log, const std::optional<wait_log::line>& line);

/// The identity and the dependencies that all actors of one peer share. Immutable, copied by value;
/// everything it points to is thread-safe. There are no globals, so that several peers can run in
/// one process.
struct node_context {
  std::string run_id;
  std::string label; // of the run, for people
  std::shared_ptr<const identity> self;
  peer_record record; // how others reached us at the start; no addresses in client mode
  std::shared_ptr<run_members> members; // null: whoever knows the run's key or name belongs to it
  std::shared_ptr<const wall_clock> wall;
  std::shared_ptr<const signature_verifier> verifier;
  std::shared_ptr<metric_families> metrics;
  std::shared_ptr<spdlog::logger> log;
  std::shared_ptr<log_budget> caused_lines; // see log_caused; null: no limit
  /// Takes how far a peer's clock is from ours (net::clock_watch). May be empty. Any thread.
  std::function<void(const peer_id&, swarm_clock::duration)> clock_compared;
  std::shared_ptr<link_table> links; // of the connected peers
  std::shared_ptr<round_registry> rounds;
  /// What peers that we have not averaged with may cost, all together.
  std::shared_ptr<net::stranger_budget> strangers = std::make_shared<net::stranger_budget>();
  /// For vectors that are averaged: peers on this host read them without a copy.
  std::shared_ptr<vector_pool> vectors;
  /// The same for encoded parts.
  std::shared_ptr<buffer_pool> encoded_parts;
  round_port_decorator port_decorator; // may be empty
  /// What has happened, for whoever watches this peer. Null: not kept.
  std::shared_ptr<event_ring> events;
  /// Null: not kept.
  std::shared_ptr<run_curves> curves;
  /// Of the actors of this peer. Null: not kept.
  std::shared_ptr<actor_census> actors;
  /// For copies of states, which may be too large for memory.
  byte_store_factory make_store;
  /// Measures our bandwidth to other machines. Null: not measured.
  std::shared_ptr<bandwidth_estimator> bandwidth;
  std::shared_ptr<machine_watch> machine; // null: not shown
  std::uint64_t seed = 0;
  /// Changes of how others reach us; dht_reach alone sets them.
  std::shared_ptr<net::own_reach> reach = std::make_shared<net::own_reach>();
  /// Takes a member of a round with which there is no link, and whether the round stalled because
  /// of that (reachability::unlinked). May be empty. Any thread.
  std::function<void(const peer_record&, bool stalled)> unlinked;
  /// Takes the leader of a group that we want to enter and do not reach. May be empty. Any thread.
  std::function<void(const peer_record&)> unreached;

  /// Whether this peer is a client now.
  [[nodiscard]] bool is_client() const { return record.client_mode || reach->as_client(); }
  /// The mode in rounds of a peer that was started with `configured`.
  [[nodiscard]] member_mode mode(member_mode configured) const {
    return configured == member_mode::node && reach->as_client() ? member_mode::client : configured;
  }
  /// How others reach us now.
  [[nodiscard]] peer_record own_record() const {
    auto now = record;
    if (auto changed = reach->addresses())
      now.addresses = std::move(*changed);
    if (reach->as_client()) {
      now.addresses.clear();
      now.client_mode = true;
    }
    return now;
  }

  /// Whether a peer is on the list of members now; empty: there is no list.
  [[nodiscard]] std::function<bool(const peer_id&)> listed() const {
    if (!members)
      return {};
    return [members = members, wall = wall](const peer_id& peer) {
      return members->judge(peer, wall->now()).here.code == ec::none;
    };
  }

  /// Adds an event of this moment.
  void note(const watch::event& what) const {
    if (events)
      events->note(what, record.id, wall->now());
  }

  /// Logs a line that another peer causes, at most so many a minute of each kind. Returns whether.
  bool log_caused(std::string_view kind, steady_time now, spdlog::level::level_enum level,
                  const std::string& text) const {
    return log_within(caused_lines.get(), *log, kind, now, level, text);
  }

  /// The source of randomness for the actor called `name`.
  [[nodiscard]] random_source randomness(std::string_view name) const {
    return random_source{seed}.fork(name);
  }
};

} // namespace waggle
