#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "runtime/core/result.hpp"
#include "runtime/training/plateau.hpp"
#include "runtime/training/strategy_phase.hpp"

namespace waggle {

/// The numbers of DASO (HeAT: Distributed Asynchronous and Selective Optimization). Its epochs have
/// `batches` passes of the fastest peer; they are not the epochs of a run, which are rounds.
struct daso_rule {
  std::uint64_t epochs = 40;
  std::uint64_t batches = 50;
  std::uint64_t warmup = 4;
  std::uint64_t cooldown = 4;
  double stability = 0.05; // the loss has to fall by this share of the best one
  std::uint64_t max_skips = 8;
  std::uint64_t skip_reduction = 2;
  std::uint64_t local_skip_factor = 4;
  bool endless = false; // otherwise the run ends with the last epoch

  friend bool operator==(const daso_rule&, const daso_rule&) = default;
};

/// When the peers of a DASO run average, as a function of the mean losses of its rounds alone:
/// peers that were given the same ones are in the same state. All losses are float32, and so is
/// their sum, so that a state which was encoded and decoded continues equally. Not thread-safe.
///
/// - Warm-up, and cool-down until the end of the run: a round after each batch, for which all wait.
/// - Between them, a round every `global` batches, merged `wait` batches after it began, and one
///   for which all wait after the last batch. When the loss of an epoch has not improved for the
///   third time, the skips are divided, and begin at their largest value again after 1.
class daso_schedule {
public:
  /// Batches from one round to the next (0: each one, and all wait), from one average inside a peer
  /// to the next, and until a round is merged.
  struct skips {
    std::uint64_t global = 0;
    std::uint64_t local = 0;
    std::uint64_t wait = 0;

    friend bool operator==(const skips&, const skips&) = default;
  };
  /// A round between peers, by batches of its epoch, from 0. All wait for the round after the last
  /// batch, and for those without skips: then `behind` is 0 and `merged` is `begun`.
  struct round {
    std::uint64_t begun = 0;  // after the step of this batch
    std::uint64_t after = 1;  // batches since the one before
    std::uint64_t behind = 0; // b in x = (2b·x + Σ sent) / (2b + P)
    std::uint64_t merged = 0; // after the step of this batch

    friend bool operator==(const round&, const round&) = default;
  };
  static constexpr std::size_t value_count = 10; // of the encoded state
  static constexpr std::uint64_t count_max = 1U << 20U;

  explicit daso_schedule(const daso_rule& rule) : rule_(rule) {}

  [[nodiscard]] const skips& now() const { return now_; }
  [[nodiscard]] std::uint64_t epochs_done() const { return epoch_; }
  [[nodiscard]] strategy_phase phase() const;
  /// The next round, or, `later` rounds after it, one of the same epoch; beyond its end: the last.
  [[nodiscard]] round next(std::uint64_t later = 0) const;
  /// The next round has ended with this mean loss. One that is not known (plateau::known_loss_max)
  /// is not counted.
  void end_round(float loss);
  /// The same for a whole epoch: what decides on the skips.
  void end_epoch(float loss);

  /// As a tensor of the run's state: epochs, rounds of the present one, the three skips, the best
  /// loss (the largest float32 value if there is none), epochs without progress, the sum of the
  /// losses of the present epoch, its weight, and the mean loss of the last epoch.
  [[nodiscard]] std::array<float, value_count> encode() const;
  /// Reads what `encode` wrote. Fails with ec::malformed for what no losses lead to.
  static result<daso_schedule> decode(const daso_rule& rule, std::span<const float> values);

private:
  [[nodiscard]] std::uint64_t last_batch() const { return rule_.batches - 1; }
  [[nodiscard]] std::uint64_t batch_of(std::uint64_t round) const;
  [[nodiscard]] std::uint64_t merge_of(std::uint64_t begun) const;
  bool is_stable(float loss);

  daso_rule rule_;
  skips now_;
  std::uint64_t epoch_ = 0; // ended
  std::uint64_t round_ = 0; // ended, of the present epoch
  float best_ = std::numeric_limits<float>::max();
  std::uint64_t stale_ = 0; // epochs since the best one
  float sum_ = 0;           // of the losses of the present epoch, by batches
  std::uint64_t weight_ = 0;
  float last_loss_ = plateau::unknown_loss; // of the last epoch
};

} // namespace waggle
