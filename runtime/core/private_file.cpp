#include "runtime/core/private_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/core/unique_fd.hpp"

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

result<std::string> read_private(const std::filesystem::path& file, std::size_t bytes_max,
                                 std::string_view what) {
  auto unreadable = [&] {
    return failure{ec::io_error, "cannot read " + std::string{what} + "'" + file.string()
                                   + "': " + std::strerror(errno)};
  };
  unique_fd handle{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!handle)
    return unreadable();
  if (auto secret = check_private(handle.get(), file); !secret)
    return secret.error();
  std::string text(bytes_max, '\0');
  auto bytes = ::read(handle.get(), text.data(), text.size());
  if (bytes < 0)
    return unreadable();
  text.resize(static_cast<std::size_t>(bytes));
  return text;
}

status write_private(const std::filesystem::path& path, std::string_view bytes) {
  auto because = [](const std::filesystem::path& of, const char* what) {
    return failure{ec::io_error,
                   std::string{what} + " '" + of.string() + "': " + std::strerror(errno)};
  };
  std::error_code error;
  if (path.has_parent_path())
    std::filesystem::create_directories(path.parent_path(), error);
  if (error)
    return failure{ec::io_error,
                   "cannot create '" + path.parent_path().string() + "': " + error.message()};
  // Of this call only; a peer removes those that were left in its folder.
  auto temporary = (path.parent_path() / "temporary-XXXXXX").string();
  unique_fd file{::mkostemp(temporary.data(), O_CLOEXEC)};
  if (!file)
    return because(temporary, "cannot create");
  bool written =
    ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())
    && ::fsync(file.get()) == 0;
  // link(2), unlike rename(2), does not replace a file that another process made meanwhile.
  if (!written || ::link(temporary.c_str(), path.c_str()) != 0) {
    auto why = because(path, "cannot write");
    ::unlink(temporary.c_str());
    return why;
  }
  ::unlink(temporary.c_str());
  return done{};
}

std::optional<std::string> readable_by_others(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0 || (found.st_mode & 077U) == 0)
    return std::nullopt;
  return "other users can read '" + file.string() + "' (mode " + octal(found.st_mode)
         + "), which holds the key of the run: chmod 600 '" + file.string() + "'";
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
