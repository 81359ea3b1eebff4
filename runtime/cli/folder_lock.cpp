#include "runtime/cli/folder_lock.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace waggle {

result<std::unique_ptr<folder_lock>> folder_lock::take(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return failure{ec::bad_config,
                   "cannot use --data-dir " + folder.string() + ": " + error.message()};
  auto file = folder / "lock";
  int handle = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (handle < 0)
    return failure{ec::bad_config,
                   "cannot write to --data-dir " + folder.string() + ": " + std::strerror(errno)};
  if (::flock(handle, LOCK_EX | LOCK_NB) != 0) {
    ::close(handle);
    return std::unique_ptr<folder_lock>{};
  }
  return std::unique_ptr<folder_lock>{new folder_lock{handle}};
}

folder_lock::~folder_lock() {
  ::close(handle_);
}

} // namespace waggle
