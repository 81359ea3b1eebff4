#include "runtime/agreement/data_identity.hpp"

#include <map>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// Sizes by name.
std::map<std::string, std::uintmax_t> files_of(const fs::path& path, std::size_t shortest) {
  std::map<std::string, std::uintmax_t> files;
  std::error_code error;
  auto take = [&](const fs::path& file) {
    auto size = fs::file_size(file, error);
    if (!error && size >= shortest)
      files.emplace(file.filename().string(), size);
  };
  if (!fs::is_directory(path, error)) {
    take(path);
    return files;
  }
  for (fs::directory_iterator entry{path, error}, end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown) && !entry->is_symlink(unknown))
      take(entry->path());
  }
  return files;
}

/// A file name may hold any byte, but the agreement's values only printable ones.
std::string printable(std::string text) {
  for (auto& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return text;
}

} // namespace

std::string data_identity(const fs::path& path, std::size_t shortest) {
  auto files = files_of(path, shortest);
  if (files.empty())
    return {};
  if (files.size() == 1)
    return printable(files.begin()->first) + " of " + std::to_string(files.begin()->second)
           + " bytes";
  sha256_stream hash;
  std::uintmax_t bytes = 0;
  for (const auto& [name, size] : files) {
    // A name contains no '/', so the list is unambiguous.
    hash.add(name + "/" + std::to_string(size) + "\n");
    bytes += size;
  }
  return std::to_string(files.size()) + " files of " + std::to_string(bytes) + " bytes, "
         + to_string(hash.finish()).substr(0, 16);
}

} // namespace waggle
