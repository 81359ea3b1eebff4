#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/disk.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// Checkpoints in one folder, "checkpoint-<serial>-<epoch>-<branch>.wgl". The serial number counts
/// checkpoints, whatever they hold: the newest is the one written last, not the one with the
/// highest epoch, which may belong to a history that lost. The last two of the history that is
/// written are kept, and the last one of each other. A checkpoint is there whole or not at all.
/// Not thread-safe.
class checkpoint_store {
public:
  checkpoint_store(std::shared_ptr<disk> files, std::filesystem::path folder)
    : files_(std::move(files)), folder_(std::move(folder)) {}

  /// Histories besides the current one whose last checkpoint is kept; of more, the oldest goes.
  static constexpr std::size_t histories_max = 8;

  /// Writes a sealed image, then drops what is not kept. Returns the file's name.
  result<std::filesystem::path> save(const byte_source& image);

  struct found {
    epoch_id epoch;
    history line;
    std::filesystem::path file;
    std::string image; // valid
  };
  struct search {
    std::optional<found> newest;
    std::vector<failure> skipped; // checkpoints that are damaged or do not fit, newest first
  };
  /// The newest checkpoint that is whole and of a learner with this schema.
  result<search> load_newest(const digest& schema);

  /// The last checkpoint of this history, if there is one.
  result<std::optional<std::filesystem::path>> last_of(const digest& branch);

private:
  struct entry {
    std::uint64_t serial = 0;
    std::string branch; // short
    std::filesystem::path file;
  };
  [[nodiscard]] result<std::vector<entry>> list(); // newest first

  std::shared_ptr<disk> files_;
  std::filesystem::path folder_;
};

} // namespace waggle
