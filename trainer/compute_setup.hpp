#pragma once

// Internal to trainer/: functions that the learner and the plain loop share.

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "runtime/core/result.hpp"
#include "runtime/data/data_set.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// Returns the device that --device selects. Fails with ec::bad_config if this machine has no such
/// device.
result<torch::Device> device_of(const std::string& name);

/// Opens the data set that --data selects, or --eval-data. It has at least one sample. Fails with
/// ec::bad_config.
result<std::shared_ptr<const sample_data>> open_data(const learner_config& config,
                                                     data_role role = data_role::training);

/// "images of 1 × 28 × 28", "text", "tokens".
std::string description_of(const sample_shape& shape);

struct learner_inputs {
  std::vector<torch::Device> devices; // of the replicas, in turn; at least one
  std::shared_ptr<const sample_data> data;
};
/// All that a learner needs besides its model. Checks --precision and --eval-data, too. Fails with
/// ec::bad_config and a sentence.
result<learner_inputs> open_inputs(const learner_config& config);

/// Some samples, on a device. Text and tokens: inputs int64 [batch, context], targets, the values
/// one place further, [batch, context]. Images: inputs float32 [batch, channels, rows, columns]
/// from 0 to 1, targets int64 [batch], the labels.
struct batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};
/// Makes a batch of the bytes of `count` samples.
batch batch_of(std::span<const std::byte> samples, std::int64_t count, const sample_shape& shape,
               const torch::Device& device);
/// Returns the next `count` samples. Fails with ec::io_error if the data cannot be read any more.
result<batch> next_batch(window_sampler& sampler, std::int64_t count, const torch::Device& device);

/// Sets the number of compute threads of ATen and of OpenBLAS. They have separate thread pools, and
/// `at::set_num_threads` sets only ATen's. Applies to the calling thread (OpenMP) and to the whole
/// process (OpenBLAS).
void set_threads(int threads);

} // namespace waggle
