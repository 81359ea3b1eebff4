#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

struct checkpoint_loss {
  epoch_id epoch; // of the checkpoint
  std::uint64_t windows = 0;
  double loss = 0; // mean cross-entropy of a byte, in nats
};

/// The loss of a checkpoint's parameters, without an update. The windows are drawn from
/// `config.data` with a fixed seed: all models with the same context are compared on the same ones.
/// (They were not kept from training. Use a text that no peer trains on to measure that.)
/// `where`: a checkpoint, the folder of checkpoints, or the --data-dir of a peer; of a folder, the
/// newest one. `make` makes the learner that wrote it, with the model of `config`, whose
/// micro_batch windows are evaluated at once, `batches` times. Sets the number of compute threads.
/// Fails with ec::bad_config, like make_torch_learner, if there is no such checkpoint, or with the
/// reason why it is invalid.
result<checkpoint_loss> loss_of_checkpoint(const learner_config& config,
                                           const learner_factory& make,
                                           const std::filesystem::path& where,
                                           std::uint64_t batches);

} // namespace waggle
