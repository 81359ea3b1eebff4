#include "runtime/data/guarded_files.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace waggle {

namespace {

/// A process may have a thousand open files, sockets included.
constexpr std::size_t open_files_max = 256;

std::vector<std::uint64_t> items_of(const std::vector<data_files::file>& files,
                                    std::size_t item_bytes) {
  std::vector<std::uint64_t> items;
  for (const auto& file : files)
    items.push_back(file.bytes / item_bytes);
  return items;
}

} // namespace

items_in_files::items_in_files(const std::string& option,
                               const std::vector<data_files::file>& files,
                               const sample_shape& shape)
  : sample_data(shape, items_of(files, shape.item_bytes)), files_(option, files) {}

guarded_files::guarded_files(std::string option, const std::vector<data_files::file>& files)
  : option_(std::move(option)) {
  for (const auto& file : files)
    files_.push_back({file.path, file.bytes, 0, 0, {}});
}

failure guarded_files::unreadable(const opened& file, const std::string& why) const {
  return {ec::io_error, option_ + " " + file.path.string() + " " + why};
}

/// Closes the file that was opened first if too many are. A file that was closed meanwhile must
/// still be the one that it was.
status guarded_files::open(std::size_t which) const {
  auto& file = files_[which];
  if (file.open)
    return done{};
  unique_fd fresh{::open(file.path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fresh)
    return unreadable(file, std::string{"cannot be opened: "} + std::strerror(errno));
  struct stat info {};
  bool known = ::fstat(fresh.get(), &info) == 0;
  if (!known || (file.inode != 0 && (file.inode != info.st_ino || file.device != info.st_dev)))
    return unreadable(file, "was replaced");
  if (open_.size() >= open_files_max) {
    files_[open_.front()].open = {};
    open_.pop_front();
  }
  file.device = info.st_dev;
  file.inode = info.st_ino;
  file.open = std::move(fresh);
  open_.push_back(which);
  return done{};
}

status guarded_files::open_all() const {
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (auto opened = open(i); !opened)
      return failure{ec::bad_config, opened.error().detail};
  return done{};
}

status guarded_files::read(std::size_t which, std::uint64_t at, std::span<std::byte> out) const {
  auto good = read_now(which, at, out);
  if (good)
    return good;
  return failure{good.error().code, good.error().detail
                                      + ": restore it, and start this peer again, which resumes "
                                        "from its checkpoint"};
}

bool guarded_files::is_hole(std::size_t which, std::uint64_t begin, std::uint64_t end) const {
  if (!open(which))
    return false; // reading says why
  struct stat info {};
  if (::fstat(files_[which].open.get(), &info) != 0
      || info.st_size < static_cast<off_t>(files_[which].bytes))
    return false;
  auto data = ::lseek(files_[which].open.get(), static_cast<off_t>(begin), SEEK_DATA);
  return data < 0 ? errno == ENXIO : data >= static_cast<off_t>(end);
}

status guarded_files::read_now(std::size_t which, std::uint64_t at,
                               std::span<std::byte> out) const {
  if (auto ready = open(which); !ready)
    return ready;
  const auto& file = files_[which];
  while (!out.empty()) {
    auto n = ::pread(file.open.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return unreadable(file, std::string{"cannot be read: "} + std::strerror(errno));
    if (n == 0)
      return unreadable(file, "has become shorter than the " + std::to_string(file.bytes)
                                + " bytes that it had when this peer started");
    out = out.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return done{};
}

} // namespace waggle
