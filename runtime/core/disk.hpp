#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// Interface to the file system; tests replace it. Implementations are thread-safe; every failure
/// is ec::io_error with a sentence that names the file.
class disk {
public:
  virtual ~disk() = default;

  /// The whole file; fails with ec::oversize if it is larger than `bytes_max`.
  virtual result<std::string> read(const std::filesystem::path& file, std::uint64_t bytes_max) = 0;
  /// The first `bytes` bytes, or all if there are less.
  virtual result<std::string> read_begin(const std::filesystem::path& file, std::size_t bytes) = 0;
  /// Writes all pieces, one after another. Afterwards the file is either the old one or the
  /// complete new one, even if the machine loses power. Creates missing folders.
  virtual status write(const std::filesystem::path& file,
                       std::initializer_list<byte_span> pieces) = 0;
  /// The same with all of `content`, which is never in memory as a whole.
  virtual status write_from(const std::filesystem::path& file, const byte_source& content) = 0;
  /// Adds to the end of the file, which need not exist, without waiting for the medium: a machine
  /// that loses power may lose it. If it fails, a part may have been written.
  virtual status append(const std::filesystem::path& file, byte_span bytes) = 0;
  /// A store in an unnamed file of this folder, which disappears with the store, however this
  /// process ends. Its content needs no memory. Creates missing folders.
  virtual result<std::shared_ptr<byte_store>> make_store(const std::filesystem::path& folder) = 0;
  /// Names of the files in a folder, ascending; none if there is no such folder.
  virtual result<std::vector<std::string>> list(const std::filesystem::path& folder) = 0;
  virtual status remove(const std::filesystem::path& file) = 0;
};

/// Removes what a process that was killed while it wrote may have left in `folder`: drafts of the
/// files whose names begin with one of `stems`, and temporary files. Only for a folder that no
/// other process uses. Returns the names of the removed files; failures are ignored, because such a
/// file only costs room.
std::vector<std::string> remove_leftovers(disk& files, const std::filesystem::path& folder,
                                          std::initializer_list<std::string_view> stems);

/// The machine's file system.
std::shared_ptr<disk> make_system_disk();

} // namespace waggle
