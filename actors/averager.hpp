#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/allreduce_round.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/standing_group.hpp"

namespace waggle {

struct averaging_config {
  /// The `kind` label of the rounds' metrics: gradients, params, state or vector.
  std::string kind = "vector";
  codec_id codec = codec_id::none; // how parts travel
  round_config round; // its deadline is cut to what the step has left
  /// Further attempts of one step after rounds that failed.
  std::uint32_t retries_max = 3;
  /// A group's leader may begin before a member's own word of the group is through: what arrives
  /// for an unknown round waits this long.
  milliseconds parked_for{10'000};
  std::size_t parked_events_max = 4096;
  /// How long a finished round still answers to would-be leaders that missed the end.
  milliseconds remembered_for{60'000};
  /// Result vectors kept for the next rounds.
  std::size_t vectors_kept = 2;
  /// Hears of every round that this peer took part in, failed attempts included, on the averager's
  /// thread. For applications that embed the averager, and for tests.
  std::function<void(const round_report&)> observer;
};

/// To itself: forget what is too old.
struct forget_old {};

struct averager_state {
  static inline const char* name = "averager";

  struct step {
    caf::typed_response_promise<round_report> promise;
    average_vector what;
    steady_time began;
    steady_time attempt_began;
    std::uint32_t failures = 0;
    double matchmaking_seconds = 0;
    std::optional<round_plan> plan; // of the running round
    round_id follows;               // the standing group's last round; zero: found by matchmaking
    allreduce_round_actor round;
  };
  struct parked_round {
    std::vector<inbound_event> events;
    steady_time since;
  };
  struct finished_round {
    wire::round_standing standing;
    steady_time at;
  };

  std::optional<step> current;
  std::uint64_t steps = 0; // generation of `current`
  standing_group group;
  std::map<round_id, parked_round> parked;
  std::size_t parked_events = 0;
  std::map<round_id, finished_round> finished;
  std::shared_ptr<vector_pool> pool;
};

using averager_impl =
  averager_actor::extend<caf::reacts_to<round_finished>, caf::reacts_to<forget_old>>;

/// Averages one vector at a time: finds a group (or keeps the standing one), runs an
/// allreduce_round, tries again while there is time. Routes what peers say about rounds to the
/// round.
///
/// A member of a standing group that needs another group (somebody new is there) says so to the
/// others under the id of their last round, so that nobody waits for it in vain.
averager_impl::behavior_type averager(averager_impl::stateful_pointer<averager_state> self,
                                      node_context ctx, averaging_config config,
                                      switchboard_actor switchboard, matchmaker_actor matchmaker);

} // namespace waggle

WAGGLE_LOCAL(forget_old)
