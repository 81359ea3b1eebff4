#pragma once

// Internal to trainer/: includes LibTorch.

#include <future>
#include <memory>

#include <c10/core/thread_pool.h>
#include <torch/torch.h>

#include "trainer/gradient_hooks.hpp"
#include "trainer/torch_learner.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

/// A further copy of a model, whose passes run beside those of the others on a thread of its own.
/// It reads the parameters of the first copy, on another device a copy of them that each pass
/// renews, and has a gradient of its own. Its running statistics are its own, too: the peer's are
/// those of the first copy.
///
/// The thread that calls `begin` calls `end`, too; between the two nobody changes the parameters.
class replica {
public:
  /// `model`: this copy, which shares it with nobody. `parameters`: the flat ones of the first
  /// copy.
  replica(const learner_config& config, torch::Device device, std::shared_ptr<training_model> model,
          torch::Tensor parameters);

  [[nodiscard]] const torch::Device& device() const { return device_; }

  /// Begins the forward and backward pass of these samples, whose loss is multiplied by `scale`.
  void begin(batch samples, double scale);

  struct pass {
    double loss = 0;
    torch::Tensor gradient{}; // flat; of the scaled loss; valid until the next pass begins
    bool finite = false;      // loss and gradient
    std::vector<std::size_t> present{}; // the parameters that have a gradient
  };
  /// Waits for the pass. Throws what it has thrown.
  pass end() { return running_.get(); }

private:
  pass compute(const batch& samples, double scale);

  const precision format_;
  const torch::Device device_;
  const torch::Tensor first_; // the parameters of the first copy
  std::shared_ptr<training_model> model_;
  torch::Tensor parameters_; // first_ itself, on its device
  torch::Tensor gradient_;
  std::optional<gradient_hooks> hooks_;

  std::future<pass> running_;
  c10::ThreadPool thread_; // of one; last: uses all of the above, and ends with a pass that runs
};

/// Makes the parameters, and the .grad if there is a `gradient`, of a model views of flat tensors.
/// Returns the parameters; `parameters` itself if it is defined.
torch::Tensor flatten(training_model& model, torch::Tensor parameters,
                      const torch::Tensor& gradient);

} // namespace waggle
