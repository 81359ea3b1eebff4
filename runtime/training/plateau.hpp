#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// When the schedule `plateau` lowers the learning rate. The defaults are those of PyTorch's
/// ReduceLROnPlateau.
struct plateau_rule {
  double peak = 1e-3;
  double factor = 0.1;         // below 1
  std::uint64_t patience = 10; // so many epochs in sequence may be without progress
  double threshold = 1e-4;     // less is no progress: relative to the best loss, or absolute
  bool absolute = false;
  std::uint64_t cooldown = 0; // so many epochs after the rate fell do not count as without progress
  double floor = 0;           // a learning rate
  double least_change = 1e-8; // PyTorch's eps: the rate falls by more than this, or stays
  epoch_id begins{};          // the first epoch whose loss counts

  friend bool operator==(const plateau_rule&, const plateau_rule&) = default;
};

/// What a plateau has decided last, for people.
struct plateau_report {
  std::uint64_t reductions = 0; // of the run
  double rate = 0;              // of the next update, if there was a reduction
  bool lowered = false;         // by the last loss
  double rate_before = 0;       // of the last update
  double loss = 0;              // of the last update, mean over its samples
  double best = 0;
};

/// Lowers the learning rate when the loss of the swarm stops to improve (PyTorch's
/// ReduceLROnPlateau with mode "min", in double). A deterministic function of the losses, in which
/// each loss is a float32 value: peers that were given the same ones are in the same state.
///
/// Invariant: the rate is the peak after `reductions()` reductions, so it lies between 0 and the
/// peak. Not thread-safe.
class plateau {
public:
  /// A loss is known if its magnitude is below this. A mean of which one summand has the value
  /// `unknown_loss` is not known, unless that summand weighs less than 1e-10 of all.
  static constexpr double known_loss_max = 1e20;
  static constexpr float unknown_loss = 1e30F;
  static constexpr std::uint64_t count_max = 1U
                                             << 20U; // of epochs and reductions; exact in float32
  static constexpr std::size_t value_count = 4;      // of the encoded state

  /// REQUIRES: patience and cooldown are at most count_max.
  explicit plateau(const plateau_rule& rule) : rule_(rule), rate_(rule.peak) {}

  /// The mean loss of an epoch whose update was applied. A loss that is not known changes nothing.
  /// Returns whether the rate is lower now.
  bool advance(float loss);

  [[nodiscard]] const plateau_rule& rule() const { return rule_; }
  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] std::uint64_t reductions() const { return reductions_; }
  /// Infinite before the first loss.
  [[nodiscard]] double best() const { return best_; }

  /// As a tensor of the run's state: the best loss (the largest float32 value if there is none),
  /// epochs without progress, epochs of the cooldown that are left, reductions.
  [[nodiscard]] std::array<float, value_count> encode() const;
  /// Reads what `encode` wrote. Fails with ec::malformed for anything that no sequence of losses
  /// leads to: a loss that is NaN or too large, a count that is no whole number or above its limit,
  /// more reductions than the rule allows.
  static result<plateau> decode(const plateau_rule& rule, std::span<const float> values);

private:
  [[nodiscard]] bool improves(double loss) const;
  bool lower();

  plateau_rule rule_;
  double rate_;
  double best_ = std::numeric_limits<double>::infinity();
  std::uint64_t bad_epochs_ = 0;
  std::uint64_t cooldown_left_ = 0;
  std::uint64_t reductions_ = 0;
};

} // namespace waggle
