#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "runtime/agreement/data_files.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/unique_fd.hpp"
#include "runtime/data/sample_data.hpp"

namespace waggle {

/// Files that are read when bytes of them are needed, and not mapped: a mapped file that somebody
/// makes shorter ends the process. At most 256 are open at a time. Not thread-safe.
class guarded_files {
public:
  /// `option`: that named them, for sentences.
  guarded_files(std::string option, const std::vector<data_files::file>& files);

  [[nodiscard]] std::size_t size() const { return files_.size(); }
  [[nodiscard]] std::uint64_t bytes(std::size_t which) const { return files_[which].bytes; }
  [[nodiscard]] const std::filesystem::path& path(std::size_t which) const {
    return files_[which].path;
  }

  /// Opens all files once, to find out which cannot be. Fails with ec::bad_config.
  [[nodiscard]] status open_all() const;
  /// Copies the bytes [at, at + out.size()) of a file. Fails with ec::io_error and a sentence for
  /// the operator, e.g. if the file was replaced, or became shorter. REQUIRES: they lie within the
  /// bytes that it had.
  [[nodiscard]] status read(std::size_t which, std::uint64_t at, std::span<std::byte> out) const;

  /// Whether these bytes are known to be zeros that the file system does not store.
  [[nodiscard]] bool is_hole(std::size_t which, std::uint64_t begin, std::uint64_t end) const;

private:
  struct opened {
    std::filesystem::path path;
    std::uint64_t bytes;
    dev_t device;
    ino_t inode; // 0: it was never opened
    unique_fd open;
  };
  [[nodiscard]] failure unreadable(const opened& file, const std::string& why) const;
  [[nodiscard]] status open(std::size_t which) const;
  [[nodiscard]] status read_now(std::size_t which, std::uint64_t at,
                                std::span<std::byte> out) const;

  std::string option_;
  mutable std::vector<opened> files_;
  mutable std::deque<std::size_t> open_; // the one that was opened first is in front
};

/// Items one after another in files, of which each is a piece.
class items_in_files : public sample_data {
public:
  items_in_files(const std::string& option, const std::vector<data_files::file>& files,
                 const sample_shape& shape);
  [[nodiscard]] const guarded_files& files() const { return files_; }
  status read(std::size_t piece, std::uint64_t at, std::span<std::byte> out) const override {
    return files_.read(piece, at * shape().item_bytes, out);
  }

private:
  guarded_files files_;
};

} // namespace waggle
