#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "runtime/core/result.hpp"

namespace waggle {

/// A temporary folder that is deleted with this object, with everything in it.
class scratch_folder {
public:
  static result<std::unique_ptr<scratch_folder>> make() {
    auto name = (std::filesystem::temp_directory_path() / "waggle-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      return failure{ec::bad_config,
                     "cannot create the folder " + name + ": set TMPDIR to a writable folder"};
    return std::unique_ptr<scratch_folder>{new scratch_folder{name}};
  }
  ~scratch_folder() {
    std::error_code ignored; // files that remain are in the temporary folder
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
  explicit scratch_folder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

} // namespace waggle
