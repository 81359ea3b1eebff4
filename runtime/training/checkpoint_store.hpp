#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/disk.hpp"
#include "runtime/training/own_progress.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

/// Checkpoints in one folder, "checkpoint-<serial>-<epoch>-<branch>.wgl". The serial number counts
/// checkpoints, regardless of their content: the newest is the one written last, not the one with
/// the highest epoch, which may belong to a history that was abandoned. The store keeps the last
/// checkpoints of the history that is being written, and the last one of each other history. A
/// checkpoint is written atomically. Beside it, a file of the same name that ends with ".own" holds
/// what belongs to this peer only (own_progress): a checkpoint is what other peers would receive.
/// It is written first, and counts only for the state that it names. One file, run.curves, has the
/// course of the run up to the last checkpoint (training_curves). Not thread-safe.
///
/// The folder is `checkpoints` in a peer's data folder.
class checkpoint_store {
public:
  /// `kept`: checkpoints of the history that is being written, at least 1.
  checkpoint_store(std::shared_ptr<disk> files, std::filesystem::path folder, std::size_t kept = 2)
    : files_(std::move(files)), folder_(std::move(folder)), kept_(kept) {}

  /// The number of other histories whose last checkpoint is kept. Of more, the ones in the middle
  /// are deleted: what this peer wrote first is not rotated away by histories that come later.
  static constexpr std::size_t histories_max = 8;
  static constexpr std::size_t oldest_kept = 4;
  static constexpr std::uint64_t image_bytes_max = 64_GiB;

  /// Writes the own progress, if it is not empty, and a sealed image, then deletes the files that
  /// are not kept. Returns the image's name.
  result<std::filesystem::path> save(const byte_source& image, const own_progress& own = {});

  status save_curves(std::string_view image);
  /// Empty: there are none.
  result<std::string> load_curves();

  /// Removes what a process that was killed has left half written. REQUIRES: no other process
  /// writes to the folder.
  void remove_drafts();

  struct found {
    epoch_id epoch;
    history past;
    std::filesystem::path file;
    std::string image; // valid
  };
  struct search {
    std::optional<found> newest;
    std::vector<failure> skipped; // checkpoints that are damaged or do not fit, newest first
    own_progress own;             // of `newest`; empty: it cannot be used
    failure own_trouble;          // why it cannot; ec::none: it can
  };
  /// The newest checkpoint that is undamaged and belongs to a learner with this schema, whose
  /// images have `image_bytes` bytes; of a longer file, only the beginning is read. `tensors` of
  /// the learner, to report how others differ; null: not known. Without a schema: of any learner,
  /// and without own progress. Changes nothing, so it may be called for the folder of a peer that
  /// runs.
  result<search> load_newest(std::optional<digest> schema,
                             std::uint64_t image_bytes = image_bytes_max,
                             const state_table* tensors = nullptr);

  /// The same of any learner. Fails with ec::not_found if there is none, or with what is wrong with
  /// the newest.
  result<search> read_last();

  /// The last checkpoint of this history, if there is one.
  result<std::optional<std::filesystem::path>> last_of(const digest& branch);

private:
  struct entry {
    std::uint64_t serial = 0;
    std::string branch; // short
    std::filesystem::path file;
  };
  [[nodiscard]] result<std::vector<entry>> list(); // newest first
  [[nodiscard]] result<own_progress> load_own(const std::filesystem::path& image,
                                              const std::string& content);
  [[nodiscard]] status remove_orphans();

  std::shared_ptr<disk> files_;
  std::filesystem::path folder_;
  std::size_t kept_;
};

/// The folder with the checkpoints of a peer: for its data folder, for the one that contains it
/// (default_folder), or for itself. Fails with ec::bad_config if several peers have checkpoints
/// there.
result<std::filesystem::path> checkpoints_below(const std::filesystem::path& folder);

} // namespace waggle
