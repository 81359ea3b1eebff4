#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/core/result.hpp"

namespace waggle {

/// Locks a data folder for one process.
class folder_lock {
public:
  /// Null: another process holds the lock. Fails with a sentence if the folder cannot be used, or
  /// if its lock belongs to another user, who could hold it for ever. A folder that does not exist
  /// is made such that only this user can write to it.
  /// `option`: what the operator gave the folder with.
  static result<std::unique_ptr<folder_lock>> take(const std::filesystem::path& folder,
                                                   const std::string& option = "--data-dir");
  ~folder_lock();
  folder_lock(const folder_lock&) = delete;
  folder_lock& operator=(const folder_lock&) = delete;

private:
  explicit folder_lock(int handle) : handle_(handle) {}
  int handle_;
};

} // namespace waggle
