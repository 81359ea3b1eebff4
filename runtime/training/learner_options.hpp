#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/precision.hpp"

namespace waggle {

/// What a user chooses of a learner besides its optimizer: the model, the data, the device.
struct learner_options : model_shape {
  std::string model = "char-gpt";     // in model_table, or a TorchScript file (FILE.pt)
  std::string loss = "cross-entropy"; // of a TorchScript module without its own; or mse
  std::string data = "synthetic";     // or any other data set (runtime/data/data_set.hpp)
  std::size_t token_bytes = 2;        // of tokens: 2 or 4
  std::uint64_t classes = 0;          // 0: those of the data
  std::string eval_data;              // empty: the model is not evaluated
  std::int64_t micro_batch = 8;
  std::string device = "auto"; // "cpu", "cuda", "cuda:N"
  /// Copies of the model that run passes side by side, each with `threads` compute threads. A pass
  /// of the learner is one pass of each.
  std::int64_t replicas = 1;
  std::vector<std::string> devices; // of the replicas, in turn; empty: all on `device`
  /// The optimizer and its statistics are in host memory; passes read a copy of the parameters on
  /// `device`, and can run while the optimizer steps.
  bool offload_optimizer = false;
  precision format = precision::float32;
  /// Of the loss. No rule: it is not scaled; no value: as `format` needs.
  std::optional<std::optional<loss_scale_rule>> loss_scale;
  bool reuse_gradient_buffers = false; // accumulate in the .grad; see gradient_sum
  int threads = 1;

  [[nodiscard]] std::optional<loss_scale_rule> scale_rule() const {
    return loss_scale                     ? *loss_scale
           : format == precision::float16 ? std::optional{loss_scale_rule{}}
                                          : std::nullopt;
  }
  /// Of one pass of the learner.
  [[nodiscard]] std::uint64_t samples_per_pass() const {
    return static_cast<std::uint64_t>(replicas * micro_batch);
  }
  [[nodiscard]] std::uint64_t compute_threads() const {
    return static_cast<std::uint64_t>(replicas * threads);
  }
};

} // namespace waggle
