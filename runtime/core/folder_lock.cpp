#include "runtime/core/folder_lock.hpp"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace waggle {

result<std::unique_ptr<folder_lock>> folder_lock::take(const std::filesystem::path& folder,
                                                       const std::string& option) {
  std::error_code error;
  namespace fs = std::filesystem;
  std::vector<fs::path> missing;
  for (auto at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    missing.push_back(at);
  fs::create_directories(folder, error);
  for (const auto& made : missing)
    if (!error)
      fs::permissions(made, fs::perms::group_write | fs::perms::others_write,
                      fs::perm_options::remove, error);
  if (error)
    return failure{ec::bad_config,
                   "cannot use " + option + " " + folder.string() + ": " + error.message()};
  auto file = folder / "lock";
  // Whoever can open the file can lock it.
  unique_fd handle{
    ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)};
  auto foreign = [&file] {
    return failure{ec::bad_config, file.string() + " is not a file that waggle made: remove it"};
  };
  if (!handle && (errno == ELOOP || errno == EISDIR || errno == ENXIO))
    return foreign();
  if (!handle)
    return failure{ec::bad_config, "cannot write to " + option + " " + folder.string() + ": "
                                     + std::strerror(errno)};
  struct stat found {};
  if (::fstat(handle.get(), &found) != 0 || !S_ISREG(found.st_mode))
    return foreign();
  if (found.st_uid != ::geteuid())
    return failure{ec::bad_config,
                   file.string() + " belongs to another user (uid " + std::to_string(found.st_uid)
                     + "), who can hold it: remove it, or give this peer its own " + option};
  // Earlier versions made it readable, so that other users could hold it.
  if ((found.st_mode & 077U) != 0)
    (void)::fchmod(handle.get(), 0600);
  if (::flock(handle.get(), LOCK_EX | LOCK_NB) == 0)
    return std::unique_ptr<folder_lock>{new folder_lock{std::move(handle)}};
  if (errno == EWOULDBLOCK)
    return std::unique_ptr<folder_lock>{};
  return failure{ec::bad_config, "cannot lock " + file.string() + ": " + std::strerror(errno)
                                   + ": give this peer " + option
                                   + " on a file system with locks, such as a local disk"};
}

} // namespace waggle
