#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/allreduce/round_config.hpp"
#include "runtime/allreduce/round_report.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/codec_choice.hpp"

namespace waggle {

/// How a vector is averaged, whichever way its group is found.
struct averaging_config {
  /// The `kind` label of the rounds' metrics: gradients, params, progress or vector.
  std::string kind = "vector";
  codec_choice codec{}; // how parts are encoded
  /// A vector without tensor descriptions is treated as one tensor of this role.
  tensor_role role = tensor_role::unspecified;
  /// The share of what a lossy codec drops in one round that is added in the next (the decay of
  /// error_feedback). 0: nothing is kept.
  double error_feedback = 0;
  /// Reduces only: its own vector is neither sent nor changed.
  bool auxiliary = false;
  /// The longest vector that an auxiliary accepts when it adopts a group's terms, in elements.
  std::uint64_t elements_max = plan_elements_max;
  round_config round{}; // its deadline is cut to the time that the step has left
  /// Reports our measured bandwidth (node_context::bandwidth) to matchmaking. Off if the
  /// configuration declares a bandwidth.
  bool measures_bandwidth = true;
  /// Further attempts of one step after rounds that failed.
  std::uint32_t retries_max = 3;
  /// Unused vectors kept for the next rounds.
  std::size_t vectors_kept = 3;
  /// Threads for reducing large parts, beside the thread that reads the network. They need cores of
  /// their own; 0: the reading thread reduces all parts.
  std::size_t part_workers = 0;
  /// If false, part_workers run on the actor system's threads, for simulations on one thread.
  /// start_node sets it.
  bool detach_workers = true;
  /// Called with the report of every round that this peer took part in, failed attempts included,
  /// on the averager's thread. For applications that embed the averager, and for tests.
  std::function<void(const round_report&)> observer{};
};

status check_averaging_config(const averaging_config& config);

} // namespace waggle
