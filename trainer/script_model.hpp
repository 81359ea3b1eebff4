#pragma once

// Internal to trainer/: includes LibTorch.

#include <filesystem>

#include "trainer/training_model.hpp"

namespace torch::jit {
struct Module;
}

namespace waggle {

/// Loads a TorchScript module to be trained: its parameters that require a gradient, by name, tied
/// ones once and under the first of their names, sorted; its running means and variances are the
/// buffers. Tensors without values are left out. Computes once with samples of zeros to find out
/// whether it can be trained. Fails with ec::bad_config and a sentence that says how to save it
/// again.
result<std::shared_ptr<training_model>> load_script_model(const learner_config& config,
                                                          const sample_shape& shape);

/// The module alone, with tied parameters made one tensor, for exporting it. Fails as above, if it
/// cannot be read.
result<torch::jit::Module> load_module(const std::filesystem::path& file);
/// The tensors of it that a state contains, as above, and all buffers that one may contain
/// (is_exchanged).
training_model::named_tensors trained_parameters(const torch::jit::Module& module);
training_model::named_tensors exchanged_buffers(const torch::jit::Module& module);

} // namespace waggle
