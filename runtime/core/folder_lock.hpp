#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/core/unique_fd.hpp"

namespace waggle {

/// Locks a data folder for one process.
class folder_lock {
public:
  /// Null: another process holds the lock. Fails with a sentence if the folder cannot be used, or
  /// if its lock belongs to another user, who could hold it for ever. Folders that do not
  /// exist are made such that only this user can write to them.
  /// `option`: what the operator gave the folder with.
  static result<std::unique_ptr<folder_lock>> take(const std::filesystem::path& folder,
                                                   const std::string& option = "--data-dir");

private:
  explicit folder_lock(unique_fd handle) : handle_(std::move(handle)) {}

  unique_fd handle_;
};

} // namespace waggle
