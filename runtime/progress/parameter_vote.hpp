#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/progress/progress_ledger.hpp"

namespace waggle {

/// Compares this peer's parameters with those of the others. Peers at the same epoch of the same
/// history must hold the same ones; if they do not, those that fewer peers hold are given up, and
/// those that are not finite in any case.
///
/// If the updates of some of them round differently, parameters count as the same that are nearer
/// to each other than rounding_max: see README.md. Not thread-safe.
class parameter_vote {
public:
  /// Of the distance, relative to the length of the parameters. An update that one peer missed is
  /// usually larger.
  static constexpr double rounding_max = 1e-5;

  /// @param not_finite what peers report whose parameters are of no use.
  explicit parameter_vote(const digest& not_finite) : not_finite_(not_finite) {}

  /// Our model is of this epoch. Zero: its parameters are not known.
  void hold(epoch_id epoch, const digest& parameters, const parameter_sketch& sketch = {}) {
    epoch_ = epoch;
    parameters_ = parameters;
    sketch_ = sketch;
  }
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const digest& parameters() const { return parameters_; }
  [[nodiscard]] const parameter_sketch& sketch() const { return sketch_; }
  /// Peers at our epoch with other parameters, when last compared.
  [[nodiscard]] std::uint32_t differing() const { return differing_; }

  struct outcome {
    bool minority = false;    // our parameters are to be given up
    bool changed = false;     // differing() has
    peer_id first;            // of those that differ
    std::string_view found{}; // at this epoch, for the first time: "equal" or "differing"
  };
  using peers = std::vector<const swarm_progress::peer*>;
  /// REQUIRES: parameters() are known.
  outcome compare(const peers& voters);
  /// The first of these peers whose updates round differently than ours or another one's; null: all
  /// of them round alike, as far as is known.
  [[nodiscard]] const swarm_progress::peer* rounds_unlike(const peers& voters) const;

private:
  digest not_finite_;
  epoch_id epoch_;
  digest parameters_;
  parameter_sketch sketch_;
  std::uint32_t differing_ = 0;
  std::optional<epoch_id> compared_; // of the last comparison
  std::optional<epoch_id> differed_; // of the last one in which others had other parameters
};

} // namespace waggle
