#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/codec/codec.hpp"
#include "runtime/config/run_options.hpp"

namespace waggle {

/// What a user knows before a run.
struct planned_run {
  std::uint64_t peers = 4;
  link_speed link;
  std::uint64_t values = 0; // that are trained, and sent
  std::uint64_t frozen = 0;
  double step_seconds = 0.4; // of a pass
  std::uint64_t memory = 0;  // bytes of a peer; 0: not known
};

/// The same of a run, as its peers say on their pages: how many train, the time of a pass of the
/// slowest, the least of their bandwidths, and the longest way from the first to another peer. What
/// nobody says stays. `peers`: of the first.
planned_run seen_in(const std::vector<nlohmann::ordered_json>& statuses,
                    const nlohmann::ordered_json& peers, planned_run otherwise);

/// A strategy with its numbers and a codec, and what these cost in a planned run.
struct strategy_cost {
  std::string strategy{}; // "diloco:steps=50,overlap=25"
  codec_id codec = codec_id::none;
  std::uint64_t steps = 1;     // passes from one round of a value to its next one
  std::uint64_t overlap = 0;   // passes while a round runs
  std::uint64_t fragments = 1; // rounds within `steps`, each of a part of the values
  double bytes = 0;            // that a peer sends in a round and until the next one
  double round_seconds = 0;
  double share = 0;  // of the time in which a peer computes, 0 … 1
  double memory = 0; // bytes of a peer, with Adam
  /// How much higher the loss was than that of `data-parallel` after equal samples, in RESULTS.md.
  std::optional<double> loss_gap{};

  /// For `waggle train`.
  [[nodiscard]] std::string options() const;
};

/// The bytes of vectors that a peer sends in a round, headers included: it contributes (n − 1)/n of
/// its vector, and sends the result of 1/n to n − 1 others, or all n contributions to it where the
/// codec sends these back.
double bytes_sent(codec_id codec, std::uint64_t values, std::uint64_t peers);

/// The rows of the plan, first those that follow most closely what one process would learn: with
/// fewer steps between rounds, then with more bits.
std::vector<strategy_cost> strategy_costs(const planned_run& run);

/// The first row that fits into the memory and computes for at least `share_wanted` of the time; if
/// none does, the one that computes most. Null: none fits.
const strategy_cost* best_of(const std::vector<strategy_cost>& rows, const planned_run& run);
inline constexpr double share_wanted = 0.9;

} // namespace waggle
