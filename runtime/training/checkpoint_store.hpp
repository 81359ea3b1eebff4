#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/disk.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// Checkpoints in one folder, "checkpoint-<epoch>.wgl", the last two of which are kept. A
/// checkpoint is there whole or not at all. Those of later epochs than the one written are of
/// another history (another model, or damaged): they are left alone. Not thread-safe.
class checkpoint_store {
public:
  checkpoint_store(std::shared_ptr<disk> files, std::filesystem::path folder)
    : files_(std::move(files)), folder_(std::move(folder)) {}

  /// Writes a checkpoint, then drops the ones before it and its predecessor.
  status save(const training_state& state);

  struct found {
    epoch_id epoch;
    std::string image; // a valid encode_state
  };
  struct search {
    std::optional<found> newest;
    std::vector<failure> skipped; // checkpoints that are damaged or do not fit, newest first
  };
  /// The newest checkpoint that is whole and of a learner with this schema.
  result<search> load_newest(const digest& schema);

private:
  [[nodiscard]] result<std::vector<std::pair<epoch_id, std::filesystem::path>>> list();

  std::shared_ptr<disk> files_;
  std::filesystem::path folder_;
};

} // namespace waggle
