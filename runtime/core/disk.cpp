#include "runtime/core/disk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace waggle {

namespace {

namespace fs = std::filesystem;

failure broken(const char* what, const fs::path& file, int error) {
  return {ec::io_error, std::string{what} + " " + file.string() + ": " + std::strerror(error)};
}

class file_handle {
public:
  explicit file_handle(int number) : number_(number) {}
  ~file_handle() {
    if (number_ >= 0)
      ::close(number_);
  }
  file_handle(const file_handle&) = delete;
  file_handle& operator=(const file_handle&) = delete;
  [[nodiscard]] int get() const { return number_; }

private:
  int number_;
};

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

class system_disk final : public disk {
public:
  result<std::string> read(const fs::path& file, std::uint64_t bytes_max) override {
    std::error_code error;
    auto size = fs::file_size(file, error);
    if (error)
      return broken("cannot read", file, error.value());
    if (size > bytes_max)
      return failure{ec::oversize, file.string() + " has " + std::to_string(size) + " bytes"};
    std::ifstream in{file, std::ios::binary};
    std::string content(size, '\0');
    if (!in.read(content.data(), static_cast<std::streamsize>(size)))
      return broken("cannot read", file, errno);
    return content;
  }

  status write(const fs::path& file, std::initializer_list<byte_span> pieces) override {
    auto folder = file.has_parent_path() ? file.parent_path() : fs::path{"."};
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
      return broken("cannot make folder", folder, error.value());
    auto draft = file;
    draft += ".new";
    {
      file_handle out{::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
      if (out.get() < 0)
        return broken("cannot write", draft, errno);
      for (auto piece : pieces)
        if (!write_all(out.get(), piece))
          return abandon(draft, errno);
      if (::fsync(out.get()) != 0)
        return abandon(draft, errno);
    }
    if (::rename(draft.c_str(), file.c_str()) != 0)
      return abandon(draft, errno);
    file_handle parent{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (parent.get() < 0 || ::fsync(parent.get()) != 0)
      return broken("cannot sync", folder, errno);
    return done{};
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
  static status abandon(const fs::path& draft, int error) {
    ::unlink(draft.c_str());
    return broken("cannot write", draft, error);
  }
};

} // namespace

std::shared_ptr<disk> make_system_disk() {
  return std::make_shared<system_disk>();
}

result<std::string> memory_disk::read(const fs::path& file, std::uint64_t bytes_max) {
  std::lock_guard guard{mutex_};
  auto found = files_.find(file);
  if (found == files_.end())
    return broken("cannot read", file, ENOENT);
  if (found->second.size() > bytes_max)
    return failure{ec::oversize, file.string()};
  return found->second;
}

status memory_disk::write(const fs::path& file, std::initializer_list<byte_span> pieces) {
  std::lock_guard guard{mutex_};
  if (write_fault_)
    return *write_fault_;
  std::string content;
  for (auto piece : pieces)
    content += as_string_view(piece);
  files_[file] = std::move(content);
  return done{};
}

result<std::vector<std::string>> memory_disk::list(const fs::path& folder) {
  std::lock_guard guard{mutex_};
  std::vector<std::string> names;
  for (const auto& [file, content] : files_)
    if (file.parent_path() == folder)
      names.push_back(file.filename().string());
  return names;
}

status memory_disk::remove(const fs::path& file) {
  std::lock_guard guard{mutex_};
  files_.erase(file);
  return done{};
}

void memory_disk::fail_writes(std::optional<failure> why) {
  std::lock_guard guard{mutex_};
  write_fault_ = std::move(why);
}

void memory_disk::corrupt(const fs::path& file, std::string content) {
  std::lock_guard guard{mutex_};
  files_[file] = std::move(content);
}

} // namespace waggle
