#pragma once

// Internal to trainer/: what a learner and the plain loop have alike.

#include <memory>
#include <string>

#include <torch/torch.h>

#include "runtime/core/result.hpp"
#include "trainer/byte_data.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// The device that --device names. Fails with ec::bad_config if this machine has no such device.
result<torch::Device> device_of(const std::string& name);

/// Bytes of one sample: the context, and the byte to predict.
std::size_t window_of(const learner_config& config);

/// The text that --data names, with at least one whole window. Fails with ec::bad_config.
result<std::shared_ptr<const byte_data>> open_data(const learner_config& config);

/// Sets the number of compute threads: ATen has one pool of threads, OpenBLAS another, and
/// `at::set_num_threads` knows only its own. Counts for the calling thread (OpenMP) and for the
/// process (OpenBLAS).
void set_threads(int threads);

/// The sampler's next `batch` windows as int64 [batch, window] on `device`.
torch::Tensor next_windows(window_sampler& sampler, std::int64_t batch,
                           const torch::Device& device);

} // namespace waggle
