#include "runtime/core/disk.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/core/try.hpp"
#include "runtime/core/unique_fd.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

failure broken(const char* what, const fs::path& file, int error) {
  return {ec::io_error, std::string{what} + " " + file.string() + ": " + std::strerror(error)};
}

constexpr std::string_view draft_suffix = ".new";
constexpr std::string_view temporary_stem = "temporary-";

bool write_all(int file, byte_span bytes) {
  while (!bytes.empty()) {
    auto n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// Reads and writes by position, so that several threads may use it. Reads normally come from the
/// page cache.
class file_store final : public byte_store {
public:
  file_store(int file, fs::path folder) : file_(file), folder_(std::move(folder)) {}

  [[nodiscard]] std::uint64_t size() const override { return size_.load(); }

  status read(std::uint64_t at, std::span<std::byte> out) const override {
    while (!out.empty()) {
      auto n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return broken("cannot read a temporary file in", folder_, n < 0 ? errno : EIO);
      out = out.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    return done{};
  }

  status write(std::uint64_t at, byte_span bytes) override {
    while (!bytes.empty()) {
      auto n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return broken("cannot write a temporary file in", folder_, n < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    auto known = size_.load();
    while (known < at && !size_.compare_exchange_weak(known, at)) {
    }
    return done{};
  }

  [[nodiscard]] std::uint64_t room() const override {
    struct statvfs about {};
    if (::fstatvfs(file_.get(), &about) != 0)
      return byte_store::room();
    return std::uint64_t{about.f_bavail} * about.f_frsize;
  }

private:
  unique_fd file_;
  fs::path folder_; // for error messages
  std::atomic<std::uint64_t> size_{0};
};

/// A file without a name in its folder. Not all file systems support creating one directly.
int open_unnamed(const fs::path& folder) {
  auto file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
    return file;
  auto name = (folder / (std::string{temporary_stem} + "XXXXXX")).string();
  file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0)
    ::unlink(name.c_str());
  return file;
}

class system_disk final : public disk {
public:
  result<std::string> read(const fs::path& file, std::uint64_t bytes_max) override {
    std::error_code error;
    auto size = fs::file_size(file, error);
    if (error)
      return broken("cannot read", file, error.value());
    if (size > bytes_max)
      return failure{ec::oversize, file.string() + " has " + std::to_string(size)
                                     + " bytes, more than " + std::to_string(bytes_max)};
    std::ifstream in{file, std::ios::binary};
    std::string content;
    try {
      content.resize(size);
    } catch (const std::bad_alloc&) {
      return failure{ec::io_error, "there is no memory for the " + std::to_string(size)
                                     + " bytes of " + file.string()};
    }
    if (!in.read(content.data(), static_cast<std::streamsize>(size)))
      return broken("cannot read", file, errno);
    return content;
  }

  result<std::string> read_begin(const fs::path& file, std::size_t bytes) override {
    std::ifstream in{file, std::ios::binary};
    std::string content(bytes, '\0');
    in.read(content.data(), static_cast<std::streamsize>(bytes));
    if (in.bad() || !in.is_open())
      return broken("cannot read", file, errno);
    content.resize(static_cast<std::size_t>(in.gcount()));
    return content;
  }

  status write(const fs::path& file, std::initializer_list<byte_span> pieces) override {
    return replace(file, [&](int out) -> status {
      for (auto piece : pieces)
        if (!write_all(out, piece))
          return broken("cannot write", file, errno);
      return done{};
    });
  }

  status write_from(const fs::path& file, const byte_source& content) override {
    return replace(file, [&](int out) {
      return for_each_piece(content, 0, content.size(), [&](byte_span piece) -> status {
        if (!write_all(out, piece))
          return broken("cannot write", file, errno);
        return done{};
      });
    });
  }

  status append(const fs::path& file, byte_span bytes) override {
    WAGGLE_TRY(made, make_folder(file.has_parent_path() ? file.parent_path() : fs::path{"."}));
    unique_fd out{
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644)};
    if (out.get() < 0 || !write_all(out.get(), bytes))
      return broken("cannot write", file, errno);
    return done{};
  }

  result<std::shared_ptr<byte_store>> make_store(const fs::path& folder) override {
    WAGGLE_TRY(made, make_folder(folder));
    auto file = open_unnamed(folder);
    if (file < 0)
      return broken("cannot make a temporary file in", folder, errno);
    return std::shared_ptr<byte_store>{std::make_shared<file_store>(file, folder)};
  }

  result<std::vector<std::string>> list(const fs::path& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entries{folder, error};
    if (error == std::errc::no_such_file_or_directory)
      return names;
    if (error)
      return broken("cannot list", folder, error.value());
    for (const auto& entry : entries)
      if (entry.is_regular_file(error))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  status remove(const fs::path& file) override {
    std::error_code error;
    fs::remove(file, error);
    if (error)
      return broken("cannot remove", file, error.value());
    return done{};
  }

private:
  static status make_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
      return broken("cannot make folder", folder, error.value());
    return done{};
  }

  /// Lets `fill` write a draft, which replaces `file` once it is on the medium.
  static status replace(const fs::path& file, const std::function<status(int)>& fill) {
    auto folder = file.has_parent_path() ? file.parent_path() : fs::path{"."};
    WAGGLE_TRY(made, make_folder(folder));
    auto draft = file;
    draft += draft_suffix;
    {
      unique_fd out{
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644)};
      if (out.get() < 0)
        return broken("cannot write", draft, errno);
      if (auto filled = fill(out.get()); !filled) {
        ::unlink(draft.c_str());
        return filled;
      }
      if (::fsync(out.get()) != 0)
        return abandon(draft, errno);
    }
    if (::rename(draft.c_str(), file.c_str()) != 0)
      return abandon(draft, errno);
    unique_fd parent{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (parent.get() < 0 || ::fsync(parent.get()) != 0)
      return broken("cannot sync", folder, errno);
    return done{};
  }

  static status abandon(const fs::path& draft, int error) {
    ::unlink(draft.c_str());
    return broken("cannot write", draft, error);
  }
};

} // namespace

std::vector<std::string> remove_leftovers(disk& files, const fs::path& folder,
                                          std::initializer_list<std::string_view> stems) {
  std::vector<std::string> removed;
  auto names = files.list(folder);
  if (!names)
    return removed;
  for (std::string_view name : *names) {
    bool draft = name.ends_with(draft_suffix)
                 && std::any_of(stems.begin(), stems.end(),
                                [&](std::string_view stem) { return name.starts_with(stem); });
    bool temporary = name.starts_with(temporary_stem) && name.size() == temporary_stem.size() + 6;
    if ((draft || temporary) && files.remove(folder / name))
      removed.emplace_back(name);
  }
  return removed;
}

std::shared_ptr<disk> make_system_disk() {
  return std::make_shared<system_disk>();
}

} // namespace waggle
