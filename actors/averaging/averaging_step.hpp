#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/averaging_messages.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/error_feedback.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// The parts of a round, as error feedback needs them.
std::vector<coded_part> coded_parts_of(const round_plan& plan);

/// Our vector in one round: what is sent, and the result. Not thread-safe.
struct averaging_step {
  average_in_group what;
  std::shared_ptr<const float_vector> sent; // the values, plus the residual with error feedback
  steady_time began;
  std::optional<round_plan> plan;
  /// Of a round that failed here after this peer had reported that it holds its result: the others
  /// may have committed it.
  std::optional<round_plan> held;

  [[nodiscard]] milliseconds time_left(steady_time now) const;

  /// Determines the vector that is sent. Once it has, further calls change nothing.
  /// @param feedback null: our values are sent unchanged.
  void begin_sending(error_feedback* feedback, residual_range where, vector_pool& vectors);
  /// Updates the residual of `feedback`, which depends on whether our vector counted. In a round
  /// that this peer held, it most likely did.
  void settle(error_feedback& feedback, const round_report& report, const peer_id& self) const;

  /// The caller's result: the mean, or with `deltas` our vector moved towards it.
  [[nodiscard]] std::shared_ptr<const float_vector>
  result(std::shared_ptr<const float_vector> mean, double weight_sum, vector_pool& vectors) const;
};

/// The attempts to average one vector in a group that is found for it. Not thread-safe.
struct group_attempts {
  steady_time began{};
  milliseconds deadline{0}; // of all attempts together
  std::uint32_t failures = 0;
  steady_time search_began{};
  double matchmaking_seconds = 0;

  [[nodiscard]] milliseconds time_left(steady_time now) const;
  void on_search_over(steady_time now) { matchmaking_seconds += seconds_of(now - search_began); }
  /// Whether to look for another group after the round of this report; logs it.
  [[nodiscard]] bool again(const round_report& report, std::uint32_t retries_max,
                           const node_context& ctx, steady_time now) const;
};

} // namespace waggle
