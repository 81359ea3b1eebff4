#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "actors/loop/swarm.hpp"
#include "runtime/training/step_outcome.hpp"
#include "trainer/batch_size.hpp"
#include "trainer/rule_optimizer.hpp"

namespace waggle {

class loop_port;
class module_state;

/// Tensors by name.
using named_tensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Makes a scheduler of an optimizer, such as a torch::optim::StepLR.
using scheduler_maker =
  std::function<std::unique_ptr<torch::optim::LRScheduler>(torch::optim::Optimizer&)>;

/// What a loop trains: a module, or parameters by name that are not in one.
class loop_parameters {
public:
  /// REQUIRES: `module` outlives this object.
  loop_parameters(torch::nn::Module& module) : module_(&module) {}
  loop_parameters(named_tensors tensors) : tensors_(std::move(tensors)) {}

  /// As they are now.
  [[nodiscard]] named_tensors parameters() const;
  [[nodiscard]] named_tensors buffers() const;

private:
  torch::nn::Module* module_ = nullptr;
  named_tensors tensors_; // without a module
};

/// Makes your own training loop, module and optimizer a peer of a run:
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
/// The peers accumulate gradients until all of them together have `target_batch_size` samples. Then
/// each peer makes one optimizer step with the mean over all these samples. With another
/// `swarm_options::strategy`, the optimizer steps in each `step`, and the peers average their
/// parameters meanwhile. The module's tensors are accessed only by the thread that calls `step`,
/// during the call (and in the destructor).
///
/// Trains the module's parameters that require gradients, in float32, tied ones once. Supports SGD,
/// Adam, AdamW, Adagrad and RMSprop of torch::optim, and rule_optimizer, which has all others, such
/// as muon. What is averaged and refused, what a loop may change, and what the options of
/// `swarm_options::more` do: examples/README.md.
///
/// Not thread-safe.
class optimizer {
public:
  /// Starts to listen and to look for the run. Does not change the module: the first `step` loads
  /// the state of the run. Throws std::invalid_argument if the module or the optimizer is not
  /// supported, std::runtime_error if the peer cannot start.
  /// `extra`: float32 tensors by name that the loop changes itself, such as the averages of a
  /// teacher network, in place: a tensor that takes their name later is not known here. All peers
  /// must name the same ones.
  /// `trained`: the module, or named_tensors.
  optimizer(const swarm& in, loop_parameters trained,
            std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra = {});
  /// The same; throws std::runtime_error if `joined` is a failure.
  optimizer(const result<swarm>& joined, loop_parameters trained,
            std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra = {});
  /// Leaves the run. Waits up to 5 s for a running round and for peers that need the last state,
  /// then writes a checkpoint and notifies the other peers. During stack unwinding it notifies them
  /// at once; if a state was being loaded then, the module may hold a part of it.
  ~optimizer();
  optimizer(const optimizer&) = delete;
  optimizer& operator=(const optimizer&) = delete;

  /// The loss times the scale of "loss-scale" in `swarm_options::more`, for the backward passes of
  /// the next `step`, which divides the parameters' .grad by it; without the option, `loss` itself.
  /// The scale stays the same until then. Do not clip the gradients yourself meanwhile
  /// ("max-gradient-norm" does it), and pass the unscaled loss to `step`.
  [[nodiscard]] torch::Tensor scaled(const torch::Tensor& loss);
  /// Contributes the parameters' .grad, the mean over `samples` samples, to the run. `loss`: the
  /// mean over the same samples, for the status and the schedule plateau. Returns when the next
  /// gradient can be computed: at once, after an update, or after the state of the run was loaded.
  /// Until the run is found this can take as long as the join timeout, and longer if this one may
  /// not start the run (swarm_options::join_timeout). Later network failures change the outcome and
  /// never throw.
  /// Throws std::invalid_argument if `samples` is 0, or larger than `target_batch_size` with a
  /// strategy that counts samples, or if the loss was not `scaled` although there is a
  /// "loss-scale". Throws std::runtime_error
  /// - if a parameter was added, cast or moved,
  /// - if a parameter group of the torch optimizer changed, or an option that is no number,
  /// - if all initial peers refuse this one, or no peer has answered for long, or
  /// - if an actor of this peer failed.
  step_outcome step(std::uint64_t samples, const torch::Tensor& loss);
  step_outcome step(std::uint64_t samples, double loss);
  /// The same with the number of samples in `batch` (batch_size_of).
  template <class Batch>
  requires(!std::is_arithmetic_v<Batch>) step_outcome
    step(const Batch& batch, const torch::Tensor& loss) {
    return step(batch_size_of(batch), loss);
  }
  template <class Batch>
  requires(!std::is_arithmetic_v<Batch>) step_outcome step(const Batch& batch, double loss) {
    return step(batch_size_of(batch), loss);
  }
  /// Keeps `bytes` (at most 64 KiB) for the next start from this data_dir: what your loop needs to
  /// go on, such as the place in its data. Call it before a `step`: it is kept with the samples of
  /// that step. Throws std::length_error.
  void keep(std::string bytes);
  /// Before the first `step` of a loop that may have stopped before: waits as `step` does, loads
  /// the checkpoint or the state of the run into the module, and returns what was kept with the
  /// last sample in it or, if the loop had left the run in order, with its last `step`. Empty:
  /// nothing. A peer alone that leaves after any step then goes on bit for bit. Throws as `step`
  /// does.
  [[nodiscard]] std::string kept();
  /// Calls zero_grad of the torch optimizer. Allowed at any time. With "reuse-grad-buffers" it does
  /// nothing between two updates, so that the backward passes add up in .grad; do not clear or
  /// change .grad in another way then, and pass equally many samples to each `step`. A gradient
  /// that is not finite is found when the sum is sent, and costs the sum.
  void zero_grad();

  /// Before each update, sets the rates to those that a scheduler has after as many steps as the
  /// run has made updates before it: so all peers use one rate, also those that join later. What
  /// the optimizer counted before the run is no update. Several step in the order of the calls.
  /// With strategies that step in each pass: after as many as the run has made averages. Name it in
  /// swarm_options::schedule, which peers compare. Throws std::invalid_argument if the run owns the
  /// rate, or with "delay-optimizer-step".
  void follow(scheduler_maker make);

  /// Calls `f` while the module has the parameters that all peers share instead of its own, to
  /// measure or save them: with "diloco" and "daso" the anchor. With other strategies, and before
  /// the first `step`, they are its own. `f` gets the buffers as they are, and what it writes to
  /// parameters is lost. A round's result waits for it, as for a pass. Throws what `f` throws, and
  /// std::logic_error if `f` calls `step` or this.
  void with_shared_weights(const std::function<void()>& f);

  /// The learning rate of the first parameter group in the last update; nothing before. The group
  /// keeps what the loop has set.
  [[nodiscard]] std::optional<double> rate() const;
  /// The outcome of the last `step`.
  [[nodiscard]] step_outcome last() const { return last_; }
  /// Change nothing of it but the numbers, and do not call its `step`: this class does. With a
  /// master copy it has no statistics.
  [[nodiscard]] torch::optim::Optimizer& inner();

private:
  double unscale();

  std::shared_ptr<swarm_session> session_;
  loop_parameters trained_;
  std::unique_ptr<module_state> state_;
  std::shared_ptr<loop_port> port_;
  step_outcome last_ = step_outcome::held;
  std::uint64_t passes_ = 0;    // since the .grad was cleared
  std::optional<double> scale_; // of the backward passes since the last step; none: no such pass
  int exceptions_;              // std::uncaught_exceptions() at construction
};

} // namespace waggle
