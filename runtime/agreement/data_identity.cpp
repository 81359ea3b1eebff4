#include "runtime/agreement/data_identity.hpp"

#include <array>
#include <fstream>
#include <map>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

/// A file name may hold any byte, but the agreement's values only printable ones.
std::string printable(std::string text) {
  for (auto& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return text;
}

} // namespace

std::string data_identity(const fs::path& path, std::size_t shortest) {
  auto listed = list_data_files(path, shortest);
  return listed ? identity_of(listed->files) : std::string{};
}

std::string content_identity(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  sha256_stream hash;
  std::uint64_t bytes = 0;
  std::array<char, 1U << 16U> piece{};
  while (in.read(piece.data(), piece.size()) || in.gcount() > 0) {
    auto n = static_cast<std::size_t>(in.gcount());
    hash.add(std::string_view{piece.data(), n});
    bytes += n;
  }
  if (bytes == 0 || in.bad())
    return {};
  return std::to_string(bytes) + " bytes, " + to_string(hash.finish()).substr(0, 16);
}

std::string identity_of(const std::vector<data_files::file>& list) {
  std::map<std::string, std::uintmax_t> files; // sizes by name
  for (const auto& file : list)
    files.emplace(file.path.filename().string(), file.bytes);
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
