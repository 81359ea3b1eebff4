#pragma once

#include <cstdint>
#include <memory>

#include <torch/torch.h>

#include "runtime/training/loop_learner.hpp"
#include "trainer/swarm.hpp"

namespace waggle {

class module_state;

/// Takes part in a run with a loop, a module and an optimizer of your own:
///
///     auto swarm = waggle::join({.run = "birds", .initial_peers = {"10.0.0.1:7700"}});
///     auto adam = std::make_unique<torch::optim::AdamW>(net->parameters(), 1e-3);
///     waggle::optimizer optimizer{swarm, *net, std::move(adam)};
///     for (auto& batch : *loader) {
///       optimizer.zero_grad();
///       auto loss = net->loss(batch);
///       loss.backward();
///       if (optimizer.step(batch.size(0), loss) == waggle::step_outcome::finished)
///         break;
///     }
///
/// All peers' gradients are collected until they are of `target_batch_size` samples; then each peer
/// steps once with the mean over all of them. Only the thread that calls `step` touches a tensor,
/// and only within it (and in the destructor).
///
/// What is trained: the module's parameters that require gradients, in float32, tied ones once. A
/// parameter that the loss does not reach has a gradient of zeros, not none. Buffers stay each
/// peer's own. The optimizer is SGD, Adam or AdamW of torch::optim.
///
/// Not thread-safe. The module outlives it.
class optimizer {
public:
  /// Listens, and begins to look for the run; changes nothing of the module: the first `step` takes
  /// the run's state. Throws std::invalid_argument for a module or an optimizer that cannot take
  /// part, std::runtime_error if the peer cannot start.
  optimizer(const swarm& in, torch::nn::Module& module,
            std::unique_ptr<torch::optim::Optimizer> inner);
  /// The same; throws std::runtime_error if `joined` is none.
  optimizer(const result<swarm>& joined, torch::nn::Module& module,
            std::unique_ptr<torch::optim::Optimizer> inner);
  /// Leaves the run. Waits up to 5 s for a round under way and for peers that need the last state;
  /// then writes a checkpoint and says goodbye. While an exception passes: says goodbye at once.
  ~optimizer();
  optimizer(const optimizer&) = delete;
  optimizer& operator=(const optimizer&) = delete;

  /// Gives what lies in the parameters' .grad, the mean over `samples` samples, to the run. Returns
  /// when the next gradient is wanted: at once, or after an update, or after the run's state was
  /// loaded. Until the run is found that can take as long as the join timeout. Network trouble
  /// changes the outcome and never throws; a parameter that was added, cast or moved, peers that
  /// refuse this one, or a peer that broke throw std::runtime_error.
  step_outcome step(std::uint64_t samples, const torch::Tensor& loss);
  step_outcome step(std::uint64_t samples, double loss);
  /// Optimizer::zero_grad of torch. Allowed anywhere.
  void zero_grad();

  /// Of the last `step`.
  [[nodiscard]] step_outcome last() const { return last_; }
  /// For schedulers of torch::optim, where it owns the learning rate. It steps with the run, so do
  /// not step it.
  [[nodiscard]] torch::optim::Optimizer& inner();

private:
  std::shared_ptr<swarm_session> session_;
  torch::nn::Module& module_;
  std::unique_ptr<module_state> state_;
  std::shared_ptr<loop_port> port_;
  step_outcome last_ = step_outcome::held;
  int exceptions_; // under way when it was made
};

} // namespace waggle
