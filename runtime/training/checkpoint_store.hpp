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
/// checkpoints, regardless of their content: the newest is the one written last, not the one with
/// the highest epoch, which may belong to a history that was abandoned. The store keeps the last
/// two checkpoints of the history that is being written, and the last one of each other history. A
/// checkpoint is written atomically. Beside them, the file "own-state" holds what belongs to this
/// peer only (learner::own_state), as of the newest checkpoint: a checkpoint is what other peers
/// would receive. Not thread-safe.
class checkpoint_store {
public:
  checkpoint_store(std::shared_ptr<disk> files, std::filesystem::path folder)
    : files_(std::move(files)), folder_(std::move(folder)) {}

  /// The number of other histories whose last checkpoint is kept; beyond it, the oldest is deleted.
  static constexpr std::size_t histories_max = 8;

  /// Writes the own state, if it is not empty, and a sealed image, then deletes the checkpoints
  /// that are not kept. Returns the file's name.
  result<std::filesystem::path> save(const byte_source& image, const std::string& own = {});

  struct found {
    epoch_id epoch;
    history past;
    std::filesystem::path file;
    std::string image; // valid
  };
  struct search {
    std::optional<found> newest;
    std::vector<failure> skipped; // checkpoints that are damaged or do not fit, newest first
    std::string own;              // empty: there is none, or it does not belong to `newest`
  };
  /// The newest checkpoint that is undamaged and belongs to a learner with this schema.
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
  [[nodiscard]] result<std::string> load_own(const digest& schema);

  std::shared_ptr<disk> files_;
  std::filesystem::path folder_;
};

} // namespace waggle
