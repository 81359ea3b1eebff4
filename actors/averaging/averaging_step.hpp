#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/error_feedback.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// The parts of a round, as error feedback needs them.
std::vector<coded_part> coded_parts_of(const round_plan& plan);

/// Checks a caller's request, but not its values; ec::none: it is valid.
/// @param auxiliary the peer reduces only, and needs no vector of its own.
failure check_request(const average_vector& what, bool auxiliary);

/// One request to the averager: the request itself, its stage, the vector that is sent, and the
/// result. Not thread-safe.
struct averaging_step {
  caf::typed_response_promise<round_report> promise;
  average_vector what;
  std::uint64_t elements = 0;
  codec_plan codecs;
  std::shared_ptr<const float_vector> sent; // the values, plus the residual with error feedback
  bool known_finite = false;                // all values of `what` were checked, or there are none
  bool triggered = false;
  bool cancelled = false;
  steady_time began;
  std::uint32_t failures = 0;
  double matchmaking_seconds = 0;
  int not_admitted = 0; // so many open groups that were found did not admit us
  /// Of a round that failed here after this peer had reported that it holds its result: the others
  /// may have committed it.
  std::optional<round_plan> held;
  /// Of the caller that wants to know how the search ends.
  std::optional<caf::typed_response_promise<step_stage>> await_group;

  // Of the current attempt.
  step_stage stage = step_stage::looking_for_group;
  steady_time attempt_began;
  std::optional<round_plan> plan;      // of the group that was found
  partition_terms terms;               // that go with it
  bool others_left = false;            // the next round is to have other members
  bool kept_group = false;             // the group was not found by this step
  std::vector<peer_disconnected> lost; // members whose links were lost before the trigger

  void begin_attempt(steady_time now);
  [[nodiscard]] milliseconds time_left(steady_time now) const;

  /// Answers `await_group`, if the question is open.
  void tell_stage();

  /// Whether our vector is finite; checks it on the first call.
  [[nodiscard]] bool is_finite();

  /// Determines the vector that is sent. Called once per step, not per attempt.
  /// @param feedback null: our values are sent unchanged.
  void begin_sending(error_feedback* feedback, vector_pool& vectors);
  /// Updates the residual of `feedback`, which depends on whether our vector counted. In a round
  /// that this peer held, it most likely did.
  void settle(error_feedback& feedback, const round_report& report, const peer_id& self) const;

  /// The caller's result: the mean, or our vector moved towards it (`alpha`, `deltas`).
  [[nodiscard]] std::shared_ptr<const float_vector>
  result(std::shared_ptr<const float_vector> mean, double weight_sum, vector_pool& vectors) const;
};

} // namespace waggle
