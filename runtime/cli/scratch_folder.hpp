#pragma once

#include <filesystem>
#include <memory>

#include "runtime/core/result.hpp"

namespace waggle {

/// A temporary folder that is deleted with this object, with everything in it.
class scratch_folder {
public:
  static result<std::unique_ptr<scratch_folder>> make();
  ~scratch_folder();
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
  explicit scratch_folder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

} // namespace waggle
