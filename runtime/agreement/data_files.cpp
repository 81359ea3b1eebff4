#include "runtime/agreement/data_files.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>

#include <glob.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

/// A file name may hold any byte, but the agreement's values only printable ones.
std::string printable(std::string text) {
  for (auto& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return text;
}

/// "text.txt of 1048576 bytes".
std::string words_of(const data_files::file& file) {
  return printable(file.path.filename().string()) + " of " + std::to_string(file.bytes) + " bytes";
}

/// @param home of the folder, without links.
void take(data_files& found, const fs::directory_entry& entry, const fs::path& home) {
  std::error_code error;
  if (entry.is_directory(error)) {
    ++found.folders;
    return;
  }
  if (!entry.is_regular_file(error)) {
    ++(fs::exists(entry.status(error)) ? found.others : found.broken);
    return;
  }
  if (entry.is_symlink(error)) {
    auto target = fs::canonical(entry.path(), error);
    if (!error && target.parent_path() == home) {
      ++found.repeated;
      return;
    }
  }
  auto bytes = entry.file_size(error);
  if (error)
    ++found.broken;
  else if (bytes < found.shortest)
    ++found.too_short;
  else
    found.files.push_back({entry.path(), bytes});
}

/// Adds the file at `path`, or those of that folder.
status list(const fs::path& path, const std::string& option, data_files& found) {
  std::error_code error;
  auto what = fs::status(path, error);
  if (error || !fs::exists(what))
    return bad("cannot read " + option + " " + path.string() + ": "
               + (error ? error : make_error_code(std::errc::no_such_file_or_directory)).message());
  if (!fs::is_directory(what) && !fs::is_regular_file(what))
    return bad(option + " " + path.string()
               + " is neither a file nor a folder: save the text in a file first");
  if (!fs::is_directory(what)) {
    auto bytes = fs::file_size(path, error);
    if (!error && bytes >= found.shortest)
      found.files.push_back({path, bytes});
    else if (!error)
      ++found.too_short;
  } else {
    auto home = fs::canonical(path, error);
    auto before = static_cast<std::ptrdiff_t>(found.files.size());
    fs::directory_iterator entry{path, error};
    for (fs::directory_iterator end; !error && entry != end; entry.increment(error))
      take(found, *entry, home);
    std::sort(found.files.begin() + before, found.files.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
  }
  if (error)
    return bad("cannot read " + option + " " + path.string() + ": " + error.message());
  return done{};
}

} // namespace

std::optional<std::string> data_files::left_out() const {
  struct kind {
    std::size_t n;
    std::string one, many;
  };
  auto lack = " of less than " + std::to_string(shortest) + " bytes, which is one sample";
  std::vector<std::string> parts;
  for (const auto& [n, one, many] :
       {kind{folders, "folder, whose files are not read", "folders, whose files are not read"},
        kind{too_short, "file" + lack, "files" + lack},
        kind{broken, "link or file that leads nowhere or cannot be read",
             "links or files that lead nowhere or cannot be read"},
        kind{others, "pipe, socket or device", "pipes, sockets or devices"},
        kind{repeated, "link to a file of the same folder", "links to files of the same folder"}})
    if (n > 0)
      parts.push_back(std::to_string(n) + " " + (n == 1 ? one : many));
  if (parts.empty())
    return std::nullopt;
  std::string all;
  for (std::size_t i = 0; i < parts.size(); ++i)
    all += (i == 0 ? "" : i + 1 < parts.size() ? ", " : " and ") + parts[i];
  return all;
}

std::vector<fs::path> named_paths(const fs::path& value) {
  std::error_code error;
  if (fs::exists(value, error))
    return {value};
  std::vector<fs::path> out;
  std::istringstream in{value.string()};
  for (std::string part; std::getline(in, part, ',');) {
    glob_t found{};
    if (!fs::exists(part, error) && ::glob(part.c_str(), 0, nullptr, &found) == 0)
      out.insert(out.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc); // in order
    else if (!part.empty())
      out.emplace_back(part);
    ::globfree(&found);
  }
  return out.empty() ? std::vector{value} : out;
}

result<data_files> list_data_files(const fs::path& path, std::size_t shortest,
                                   const std::string& option) {
  data_files found;
  found.shortest = shortest;
  for (const auto& each : named_paths(path))
    if (auto listed = list(each, option, found); !listed)
      return listed.error();
  std::set<fs::path> seen;
  std::error_code error;
  for (const auto& file : found.files)
    if (auto one = fs::canonical(file.path, error); !error && !seen.insert(one).second)
      return bad(option + " " + path.string() + " names " + file.path.string() + " twice");
  if (!found.files.empty())
    return found;
  auto beside = found.left_out();
  return bad(option + " " + path.string() + " has no text of at least " + std::to_string(shortest)
             + " bytes: give a longer one, or a smaller --context"
             + (beside ? "; it has " + *beside : std::string{}));
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

std::string lines_of(const std::vector<data_files::file>& list) {
  std::string lines;
  if (list.size() > 1)
    for (const auto& file : list)
      lines += "\n" + words_of(file);
  return lines;
}

agreed_field listed_field(std::string name, const std::string& text) {
  std::istringstream in{text};
  std::string first, line;
  std::getline(in, first);
  std::vector<compared_tensor> lines;
  while (std::getline(in, line))
    lines.push_back({line, sha256(line)});
  return lines.empty() ? agreed_field{std::move(name), std::move(first), {}, {}}
                       : tensors_field(std::move(name), std::move(first), lines);
}

std::string identity_of(const std::vector<data_files::file>& list) {
  if (list.size() == 1)
    return words_of(list.front());
  sha256_stream hash;
  std::uintmax_t bytes = 0;
  for (const auto& [path, size] : list) {
    // A name contains no '/', so the list is unambiguous.
    hash.add(path.filename().string() + "/" + std::to_string(size) + "\n");
    bytes += size;
  }
  return std::to_string(list.size()) + " files of " + std::to_string(bytes) + " bytes, "
         + to_string(hash.finish()).substr(0, 16);
}

} // namespace waggle
