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
#include "runtime/training/resumable_learner.hpp"
#include "trainer/host_staging.hpp"

namespace waggle {

/// A flat float32 tensor in host memory that belongs to the caller.
torch::Tensor view_of(std::span<float> values);
torch::Tensor view_of(std::span<const float> values); // torch has no read-only tensors

/// Accumulates the gradients of an epoch's passes, and returns their mean over all samples. Owns
/// the .grad of the parameters: views of one flat float32 vector on their device, in the order of
/// the parameters.
///
/// Only the computing thread may call the methods of the first group.
class gradient_sum {
public:
  virtual ~gradient_sum() = default;

  /// Where vectors in host memory come from; without a pool, from the heap.
  void use_vectors(std::shared_ptr<vector_pool> vectors) { vectors_ = std::move(vectors); }

  // -- the computing thread -----------------------------------------------------------------------

  /// Prepares the parameters' .grad for the next backward pass. Returns the number by which its
  /// loss must be multiplied: `scale`, or that of the gradients with which it is added up.
  virtual double begin_pass(double scale) = 0;

  /// Instead of a backward pass: adds this gradient, of the loss times what begin_pass returned.
  virtual void add(const torch::Tensor& gradient) = 0;

  struct outcome {
    bool finite = false;    // loss and gradient
    std::uint64_t lost = 0; // micro_step::lost
  };
  /// The backward pass over `samples` samples has ended; its loss was multiplied by what begin_pass
  /// returned. Adds the gradient, unless it or the loss is not finite.
  virtual outcome end_pass(std::uint64_t samples, bool finite_loss) = 0;
  /// Takes the mean, on the device of the parameters. It is valid until the next pass begins.
  /// Undefined if there are no samples.
  virtual torch::Tensor take_mean() = 0;
  /// The pass that is about to begin ends so far in the data: see `position`.
  void will_draw(std::uint64_t until) { next_position_ = until; }
  /// A copy of the sum, which stays; and what continues it: see resumable_learner. REQUIRES: no
  /// pass runs.
  [[nodiscard]] virtual partial_gradient copy() = 0;
  virtual status load(const partial_gradient& partial) = 0;
  /// The data of all passes up to here are in no sum.
  void load_position(std::uint64_t position);

  // -- any thread ---------------------------------------------------------------------------------

  /// Takes the mean: writes it to `out` (zeros if there are no samples) and returns the number of
  /// samples.
  virtual std::uint64_t take_mean(std::span<float> out) = 0;
  /// The same without a copy. Nothing if the sum is not in a vector of the pool.
  virtual std::optional<learner::mean_gradient> take_vector() = 0;
  /// Empties the sum, returns the number of its samples.
  virtual std::uint64_t drop() = 0;
  [[nodiscard]] std::uint64_t samples() const { return samples_.load(); }
  /// How far in the data the last pass came that has ended; and the last one of those whose sum was
  /// taken or dropped.
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] std::uint64_t taken_position() const;

protected:
  explicit gradient_sum(std::vector<torch::Tensor> parameters);

  /// A vector as long as all parameters, of unspecified values: from the pool, if there is one and
  /// the parameters are in host memory.
  struct vector {
    torch::Tensor values;
    std::shared_ptr<float_vector> memory; // null: of LibTorch
  };
  [[nodiscard]] vector new_vector() const;
  [[nodiscard]] torch::Tensor new_tensor() const;
  /// Makes the .grad views of `gradient`.
  void bind(const torch::Tensor& gradient);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Moves sums between the device and host memory. Marked whenever a sum has changed, so that a
  /// sum is taken without waiting for the pass that runs.
  [[nodiscard]] host_staging& staging() { return staging_; }
  mutable std::mutex mutex_;
  // -- guarded by mutex_: of the pass that ended last, of the sum that was taken or dropped last
  std::uint64_t position_ = 0;
  std::uint64_t taken_position_ = 0;
  std::uint64_t next_position_ = 0; // the computing thread's
  std::atomic<std::uint64_t> samples_{0};

private:
  std::vector<torch::Tensor> parameters_;
  std::int64_t size_ = 0;
  torch::Device device_;
  host_staging staging_;
  std::shared_ptr<vector_pool> vectors_; // null: use the heap
};

/// Two vectors: the sum can be taken in the middle of a pass, and a pass whose gradient is not
/// finite costs nothing but itself.
///
/// The gradient of the last pass stays in the .grad until the next pass overwrites it. The second
/// vector exists only while an epoch has more than one pass. It is taken from the pool of the
/// rounds and becomes the outgoing vector of the round. So two vectors of the pool are in use at a
/// time (this one and a result), and each is always used for the same purpose: peers on this
/// machine map the memory that they have read from.
class separate_sum final : public gradient_sum {
public:
  /// The parameters' .grad are replaced. REQUIRES: they are on one device.
  explicit separate_sum(std::vector<torch::Tensor> parameters);

  double begin_pass(double scale) override;
  void add(const torch::Tensor& gradient) override;
  outcome end_pass(std::uint64_t samples, bool finite_loss) override;
  torch::Tensor take_mean() override;
  std::uint64_t take_mean(std::span<float> out) override;
  std::optional<learner::mean_gradient> take_vector() override;
  std::uint64_t drop() override;
  [[nodiscard]] partial_gradient copy() override;
  status load(const partial_gradient& partial) override;

private:
  // REQUIRE: the lock is held.
  void add_last_pass();
  void write_sum(torch::Tensor to);
  void empty();

  double scale_ = 1;       // of the pass
  torch::Tensor gradient_; // of the last pass
  // -- guarded by mutex_, as gradient_ while last_pass_ > 0
  vector earlier_;              // Σ b·∇ without the last pass, if not 0
  std::uint64_t last_pass_ = 0; // samples in gradient_; 0: ignore gradient_
};

/// One vector, the .grad, to which autograd adds (hivemind's reuse_grad_buffers): saves a vector,
/// and the time to add two. In host memory the vector itself becomes the outgoing vector of the
/// round; the next pass takes another one from the pool.
///
/// The sum can be dropped at any time, and is dropped if a pass is not finite, but REQUIRES to take
/// it: no pass is running. All passes have equally many samples. The scale of the loss stays the
/// same until the sum is empty.
class in_place_sum final : public gradient_sum {
public:
  /// The parameters' .grad are replaced. REQUIRES: they are on one device.
  explicit in_place_sum(std::vector<torch::Tensor> parameters);

  double begin_pass(double scale) override;
  void add(const torch::Tensor& gradient) override;
  outcome end_pass(std::uint64_t samples, bool finite_loss) override;
  torch::Tensor take_mean() override;
  std::uint64_t take_mean(std::span<float> out) override;
  std::optional<learner::mean_gradient> take_vector() override;
  std::uint64_t drop() override;
  [[nodiscard]] partial_gradient copy() override;
  status load(const partial_gradient& partial) override;

private:
  // REQUIRE: the lock is held.
  std::uint64_t empty();
  [[nodiscard]] double divisor() const { return static_cast<double>(passes_) * scale_; }

  // -- guarded by mutex_; the values of sum_ while no pass runs
  vector sum_;       // scale · Σ ∇; none before the first pass, and after it was taken
  double scale_ = 1; // of all passes in the sum
  std::uint64_t passes_ = 0;
  bool in_pass_ = false;
  bool dropped_ = false; // since the running pass began
};

} // namespace waggle
