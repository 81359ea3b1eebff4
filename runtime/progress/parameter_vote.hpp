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
/// those that are not finite in any case. Not thread-safe.
class parameter_vote {
public:
  /// @param not_finite what peers report whose parameters are of no use.
  explicit parameter_vote(const digest& not_finite) : not_finite_(not_finite) {}

  /// Our model is of this epoch. Zero: its parameters are not known.
  void hold(epoch_id epoch, const digest& parameters) {
    epoch_ = epoch;
    parameters_ = parameters;
  }
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const digest& parameters() const { return parameters_; }
  /// Peers at our epoch with other parameters, when last compared.
  [[nodiscard]] std::uint32_t differing() const { return differing_; }

  struct outcome {
    bool minority = false;    // our parameters are to be given up
    bool changed = false;     // differing() has
    peer_id first;            // of those that differ
    std::string_view found{}; // at this epoch, for the first time: "equal" or "differing"
  };
  /// REQUIRES: parameters() are known.
  outcome compare(const std::vector<const swarm_progress::peer*>& voters);

private:
  digest not_finite_;
  epoch_id epoch_;
  digest parameters_;
  std::uint32_t differing_ = 0;
  std::optional<epoch_id> compared_; // of the last comparison
  std::optional<epoch_id> differed_; // of the last one in which others had other parameters
};

} // namespace waggle
