#pragma once

// Internal to trainer/: functions that the learner and the plain loop share.

#include <memory>
#include <string>

#include <torch/torch.h>

#include "runtime/core/result.hpp"
#include "trainer/byte_data.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// Returns the device that --device selects. Fails with ec::bad_config if this machine has no such
/// device.
result<torch::Device> device_of(const std::string& name);

/// Bytes of one sample: the context and the byte to predict.
std::size_t window_of(const learner_config& config);

/// Opens the text that --data selects. It has at least one whole window. Fails with ec::bad_config.
result<std::shared_ptr<const byte_data>> open_data(const learner_config& config);

/// Sets the number of compute threads of ATen and of OpenBLAS. They have separate thread pools, and
/// `at::set_num_threads` sets only ATen's. Applies to the calling thread (OpenMP) and to the whole
/// process (OpenBLAS).
void set_threads(int threads);

/// Returns the next `batch` windows of the sampler as int64 [batch, window] on `device`. Fails with
/// ec::io_error if the data cannot be read any more.
result<torch::Tensor> next_windows(window_sampler& sampler, std::int64_t batch,
                                   const torch::Device& device);

} // namespace waggle
