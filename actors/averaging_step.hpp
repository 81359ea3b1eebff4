#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/allreduce_round.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/error_feedback.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// What is wrong with a caller's order; ec::none: nothing. Does not look at the values themselves.
/// @param auxiliary the peer reduces only, and needs no vector of its own.
failure check_request(const average_vector& order, bool auxiliary);

/// One vector on its way through the averager: what was ordered, how far it is, what is sent of it,
/// and what the caller gets. Not thread-safe.
struct averaging_step {
  caf::typed_response_promise<round_report> promise;
  average_vector what;
  std::uint64_t elements = 0;
  codec_plan codecs;
  std::shared_ptr<const float_vector> sent; // values, or with error feedback: and what is owed
  bool known_finite = false; // all values of `what` were looked at, or there are none
  bool triggered = false;
  bool cancelled = false;
  steady_time began;
  std::uint32_t failures = 0;
  double matchmaking_seconds = 0;

  // Of the attempt that is under way.
  step_stage stage = step_stage::looking_for_group;
  steady_time attempt_began;
  std::optional<round_plan> plan; // of the group that was found
  bool regrouped = false;         // that group does not meet again at once
  bool replaced = false;          // `plan`, by a new partition while its round was running
  round_id follows;               // the persistent group's last round; zero: found by matchmaking
  allreduce_round_actor round;

  void begin_attempt(steady_time now);
  [[nodiscard]] milliseconds time_left(steady_time now) const;

  /// Looks at our vector unless somebody did.
  [[nodiscard]] bool is_finite();

  /// Decides what is sent. Once per step, whatever its attempts.
  /// @param feedback null: our values as they are.
  void begin_sending(error_feedback* feedback, vector_pool& vectors);
  /// Whether what was sent has counted decides what `feedback` owes from now on.
  void settle(error_feedback& feedback, const round_report& report, const peer_id& self) const;

  /// What the caller gets for the mean: itself, or our vector moved towards it (`alpha`, `deltas`).
  [[nodiscard]] std::shared_ptr<const float_vector>
  result(std::shared_ptr<const float_vector> mean, double weight_sum, vector_pool& vectors) const;
};

} // namespace waggle
