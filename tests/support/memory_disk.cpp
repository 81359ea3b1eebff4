#include "tests/support/memory_disk.hpp"

namespace waggle {

namespace {

failure absent(const std::filesystem::path& file) {
  return {ec::io_error, "cannot read " + file.string() + ": No such file or directory"};
}

} // namespace

result<std::string> memory_disk::read(const std::filesystem::path& file, std::uint64_t bytes_max) {
  std::lock_guard guard{mutex_};
  auto found = files_.find(file);
  if (found == files_.end())
    return absent(file);
  if (found->second.size() > bytes_max)
    return failure{ec::oversize, file.string() + " has " + std::to_string(found->second.size())
                                   + " bytes, more than " + std::to_string(bytes_max)};
  return found->second;
}

result<std::string> memory_disk::read_begin(const std::filesystem::path& file, std::size_t bytes) {
  std::lock_guard guard{mutex_};
  auto found = files_.find(file);
  if (found == files_.end())
    return absent(file);
  return found->second.substr(0, bytes);
}

status memory_disk::write(const std::filesystem::path& file,
                          std::initializer_list<byte_span> pieces) {
  std::lock_guard guard{mutex_};
  if (write_fault_)
    return *write_fault_;
  std::string content;
  for (auto piece : pieces)
    content += as_string_view(piece);
  files_[file] = std::move(content);
  return done{};
}

status memory_disk::write_from(const std::filesystem::path& file, const byte_source& content) {
  auto all = read_all(content);
  return all ? write(file, {all->view()}) : status{all.error()};
}

status memory_disk::append(const std::filesystem::path& file, byte_span bytes) {
  std::lock_guard guard{mutex_};
  if (write_fault_)
    return *write_fault_;
  files_[file] += as_string_view(bytes);
  return done{};
}

result<std::shared_ptr<byte_store>> memory_disk::make_store(const std::filesystem::path&) {
  std::lock_guard guard{mutex_};
  if (write_fault_)
    return *write_fault_;
  return make_memory_store();
}

result<std::vector<std::string>> memory_disk::list(const std::filesystem::path& folder) {
  std::lock_guard guard{mutex_};
  std::vector<std::string> names;
  for (const auto& [file, content] : files_)
    if (file.parent_path() == folder)
      names.push_back(file.filename().string());
  return names;
}

status memory_disk::remove(const std::filesystem::path& file) {
  std::lock_guard guard{mutex_};
  files_.erase(file);
  return done{};
}

void memory_disk::fail_writes(std::optional<failure> why) {
  std::lock_guard guard{mutex_};
  write_fault_ = std::move(why);
}

void memory_disk::corrupt(const std::filesystem::path& file, std::string content) {
  std::lock_guard guard{mutex_};
  files_[file] = std::move(content);
}

} // namespace waggle
