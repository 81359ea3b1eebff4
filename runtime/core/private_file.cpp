#include "runtime/core/private_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

namespace waggle {

namespace {

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777U));
  return text;
}

} // namespace

status check_private(int handle, const std::filesystem::path& file) {
  struct stat found {};
  if (::fstat(handle, &found) != 0)
    return failure{ec::bad_config,
                   "cannot examine '" + file.string() + "': " + std::strerror(errno)};
  if (!S_ISREG(found.st_mode))
    return failure{ec::bad_config, "'" + file.string() + "' is not a regular file"};
  auto user = ::geteuid();
  if (found.st_uid != user && found.st_uid != 0 && user != 0)
    return failure{ec::bad_config, "'" + file.string() + "' belongs to another user (uid "
                                     + std::to_string(found.st_uid)
                                     + "), who can read it: use a key of your own"};
  if ((found.st_mode & 077U) != 0)
    return failure{ec::bad_config, "other users can read '" + file.string() + "' (mode "
                                     + octal(found.st_mode) + "), which is secret: chmod 600 '"
                                     + file.string() + "'"};
  return done{};
}

std::optional<std::string> writable_by_others(const std::filesystem::path& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0 || (found.st_mode & S_ISVTX) != 0
      || (found.st_mode & 022U) == 0)
    return std::nullopt;
  return "other users can replace the files in '" + folder.string() + "' (mode "
         + octal(found.st_mode) + "): chmod go-w '" + folder.string() + "'";
}

} // namespace waggle
