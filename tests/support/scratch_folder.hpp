#pragma once

#include <filesystem>

#include <stdlib.h>

namespace waggle::testing {

/// A temporary folder that is deleted at the end of the test.
class scratch_folder {
public:
  scratch_folder() {
    auto pattern = (std::filesystem::temp_directory_path() / "waggle-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~scratch_folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

} // namespace waggle::testing
