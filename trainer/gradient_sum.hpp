#pragma once

// Internal to trainer/: includes LibTorch.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/learner.hpp"
#include "trainer/host_staging.hpp"

namespace waggle {

/// Accumulates the gradients of an epoch's passes, and returns their mean over all samples. Owns
/// the .grad of the parameters: views of one flat float32 vector on their device, in the order of
/// the parameters. It does so in one of two ways.
///
/// Beside the .grad: the sum can be taken in the middle of a pass, and a pass whose gradient is not
/// finite costs nothing but itself. The gradient of the last pass stays in the .grad until the next
/// pass overwrites it. The second vector exists only while an epoch has more than one pass. It is
/// taken from the pool of the rounds and becomes the outgoing vector of the round. So two vectors
/// of the pool are in use at a time (this one and a result), and each is always used for the same
/// purpose: peers on this machine map the memory that they have read from.
///
/// In place (hivemind's reuse_grad_buffers): autograd adds up in the .grad, the only vector, which
/// saves one, and the time to add two. In host memory it becomes the outgoing vector of the round;
/// the next pass takes another one from the pool. The sum can be dropped at any time, and is
/// dropped if a pass is not finite, but REQUIRES to take it: no pass is running. All passes have
/// equally many samples. The scale of the loss stays the same until the sum is empty.
///
/// Only the computing thread may call the methods of the first group.
class gradient_sum {
public:
  /// The parameters' .grad are replaced. `numbers`: state_table::numbers. REQUIRES: they are on one
  /// device.
  gradient_sum(std::vector<torch::Tensor> parameters, bool in_place, std::size_t numbers = 0);

  /// Where vectors in host memory come from; without a pool, from the heap.
  void use_vectors(std::shared_ptr<vector_pool> vectors) { vectors_ = std::move(vectors); }

  // -- the computing thread -----------------------------------------------------------------------

  /// Prepares the parameters' .grad for the next backward pass. Returns the number by which its
  /// loss must be multiplied: `scale`, or that of the gradients with which it is added up.
  double begin_pass(double scale);

  /// Instead of a backward pass: adds this gradient, of the loss times what begin_pass returned.
  void add(const torch::Tensor& gradient);

  /// The pass that runs is over `samples` samples, and its loss is finite. From now on its gradient
  /// counts, and can be taken as a vector of the pool that is filled by `computed`. Returns whether
  /// that is possible: not beside earlier passes, and not in place.
  bool offer(std::uint64_t samples);
  /// The .grad of this parameter has its gradient of the pass that runs. Others have none: no layer
  /// has used them.
  void computed(std::size_t parameter);
  /// The same of one for which another copy of the model has a gradient, which is added.
  void computed_elsewhere(std::size_t parameter) { computed_[parameter] = true; }

  struct outcome {
    bool finite = false;    // loss and gradient
    std::uint64_t lost = 0; // micro_step::lost
    bool taken = false;     // micro_step::taken
  };
  /// The backward pass over `samples` samples has ended; its loss was multiplied by what begin_pass
  /// returned. Adds the gradient, unless it or the loss is not finite.
  outcome end_pass(std::uint64_t samples, bool finite_loss);
  /// Takes the mean, on the device of the parameters. It is valid until the next pass begins.
  /// Undefined if there are no samples.
  torch::Tensor take_mean();
  /// The pass that is about to begin ends so far in the data: see `position`.
  void will_draw(std::uint64_t until) { next_position_ = until; }
  /// A copy of the sum, which stays; and what continues it: see learner. REQUIRES: no
  /// pass runs.
  [[nodiscard]] partial_gradient copy();
  status load(const partial_gradient& partial);
  /// The data of all passes up to here are in no sum.
  void load_position(std::uint64_t position);

  // -- any thread ---------------------------------------------------------------------------------

  /// Takes the mean: writes it to `out` (zeros if there are no samples) and returns the number of
  /// samples.
  std::uint64_t take_mean(std::span<float> out);
  /// The same without a copy, with the values of the update_terms behind it. Nothing if the sum is
  /// not in a vector of the pool.
  std::optional<learner::mean_gradient> take_vector();
  /// Which parameters had a gradient in the passes whose sum was taken or dropped last.
  [[nodiscard]] std::vector<bool> taken_present() const;
  /// Empties the sum, returns the number of its samples.
  std::uint64_t drop();
  [[nodiscard]] std::uint64_t samples() const { return samples_.load(); }
  /// How far in the data the last pass came that has ended; and the last one of those whose sum was
  /// taken or dropped.
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] std::uint64_t taken_position() const;

private:
  /// As long as all parameters, of unspecified values.
  struct vector {
    torch::Tensor values;
    std::shared_ptr<float_vector> memory; // of the pool; null: of LibTorch
  };
  /// Where in the vector the values of a parameter begin, and how many these are.
  struct range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  /// The gradient of the pass that runs, as the round gets it.
  struct early_gradient {
    learner::mean_gradient mean;
    bool gone = false; // taken or dropped; guarded by mutex_
  };

  /// From the pool, if there is one and the parameters are in host memory.
  [[nodiscard]] vector new_vector() const;
  /// Makes the .grad views of `gradient`.
  void bind(const torch::Tensor& gradient);
  void write_early(std::size_t parameter);
  /// Behind the gradient in a vector of the pool.
  void write_terms(float_vector& to, const std::vector<bool>& present) const;

  // -- REQUIRE: the lock is held

  /// Makes sum_ the sum of all passes. REQUIRES: it is defined.
  void complete_sum();
  /// Writes the sum of all passes to host memory. REQUIRES: there was at least one pass.
  void write_sum(torch::Tensor to);
  /// By which the sum is divided for the mean.
  [[nodiscard]] double divisor() const;
  std::uint64_t empty();

  const std::vector<torch::Tensor> parameters_;
  const bool in_place_;
  const std::size_t numbers_;
  const torch::Device device_;
  std::vector<range> ranges_; // of the parameters
  std::int64_t size_ = 0;
  /// Moves sums between the device and host memory. Marked whenever a sum has changed, so that a
  /// sum is taken without waiting for the pass that runs.
  host_staging staging_;
  std::shared_ptr<vector_pool> vectors_; // null: use the heap

  // -- the computing thread's
  double pass_scale_ = 1;               // beside the .grad
  std::vector<bool> computed_;          // of the parameters, in the pass that runs
  bool repeats_ = false;                // some are computed in several pieces
  std::optional<early_gradient> early_; // set with the lock
  std::uint64_t next_position_ = 0;

  mutable std::mutex mutex_;
  // -- guarded by mutex_
  torch::Tensor bound_;         // of which the .grad are views; read while last_pass_ > 0
  vector sum_;                  // beside the .grad: Σ b·∇ without the last pass; or bound_
  std::uint64_t last_pass_ = 0; // samples in bound_; 0: ignore it, or it is sum_
  double scale_ = 1;            // of the loss, in the sum
  std::uint64_t passes_ = 0;    // in the sum, in place
  std::vector<bool> present_;   // parameters with a gradient in the sum
  std::vector<bool> taken_present_;
  bool in_pass_ = false;             // one runs that changes sum_
  bool dropped_ = false;             // since it began
  std::uint64_t position_ = 0;       // of the pass that ended last
  std::uint64_t taken_position_ = 0; // of the sum that was taken or dropped last
  std::atomic<std::uint64_t> samples_{0};
};

} // namespace waggle
