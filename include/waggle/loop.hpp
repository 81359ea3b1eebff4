#pragma once

// A training loop over plain arrays of floats as a peer of a run, without LibTorch. Link
// waggle::loop.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/loop/swarm.hpp"
#include "runtime/training/step_outcome.hpp"

namespace waggle {

/// What the optimizer keeps for each value of a parameter, e.g. a momentum.
struct loop_statistic {
  std::string name;
  std::span<float> values; // as many as the parameter has
  bool never_negative = false;
};

struct loop_parameter {
  std::string name; // other peers compare names and shapes
  std::vector<std::uint64_t> shape;
  std::span<float> values; // row by row; the product of `shape`
  std::vector<loop_statistic> statistics{};
};

struct loop_options {
  std::vector<loop_parameter> parameters{};
  /// The optimizer's name and numbers as text, which other peers compare.
  std::string optimizer = "own";
  double learning_rate = 0; // the first one, which other peers compare
  /// One step of the optimizer: changes parameters and statistics. `gradient`: the mean over all
  /// samples, the parameters' values one after another. `rate`: the run's (rate_owner::run), or
  /// where gradients are averaged the one that all members take: the median of their loops' rates
  /// (loop::wish). Called in `step` and in the destructor only. What it throws ends the loop.
  std::function<void(std::span<const float> gradient, double rate)> update{};
  /// A hash of what `update` makes of fixed values, if its bits depend on the machine: peers with
  /// another one compare parameters up to rounding. 0: not known, they compare bytes.
  std::uint64_t rounding = 0;
};

/// Makes a loop of your own a peer of a run, as waggle::optimizer does for LibTorch. It reads and
/// writes the arrays in `step` and in the destructor only, which must outlive it. Not thread-safe:
/// use it on one thread.
class loop {
public:
  /// Starts to listen and to look for the run. Changes no array: the first `step` loads the state
  /// of the run. Fails with a sentence.
  static result<loop> start(const swarm& in, loop_options options);
  /// Leaves the run. Waits up to 5 s for a running round and for peers that need the last state.
  ~loop();
  loop(loop&&) noexcept;
  loop& operator=(loop&&) = delete;

  /// Contributes `gradient`, the mean over `samples` samples, and returns when the next one can be
  /// computed. `loss`: the mean over the same samples, if it is known; with one that is not finite,
  /// the gradient is dropped. Once it has found the run, network failures change the outcome only.
  /// Throws std::invalid_argument if the gradient has another length or the samples are none or too
  /// many, and swarm_error (swarm.hpp).
  step_outcome step(std::span<const float> gradient, std::uint64_t samples,
                    std::optional<double> loss);
  /// The learning rate that this loop wants from its next `step` on; the first one is
  /// loop_options::learning_rate. Without effect if the run owns the rate, or parameters are
  /// averaged. Throws std::invalid_argument for a rate that is none.
  void wish(double rate);
  /// Keeps `bytes` (at most 64 KiB) over a restart, with the samples of the next `step`: where the
  /// loop is in its data, say. Throws std::length_error.
  void keep(std::string bytes);
  /// Before the first `step`: waits as it does, loads the checkpoint or the state of the run into
  /// the arrays, and returns what was kept with the last sample in it; empty: nothing. Throws
  /// swarm_error.
  [[nodiscard]] std::string kept();

private:
  struct impl;
  explicit loop(std::unique_ptr<impl> parts);

  std::unique_ptr<impl> impl_;
};

} // namespace waggle
