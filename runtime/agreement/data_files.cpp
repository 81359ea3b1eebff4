#include "runtime/agreement/data_files.hpp"

#include <algorithm>

namespace waggle {

namespace {

namespace fs = std::filesystem;

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

std::string count(std::size_t n, const char* one, const char* many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
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

} // namespace

std::optional<std::string> data_files::left_out() const {
  std::vector<std::string> parts;
  if (folders > 0)
    parts.push_back(
      count(folders, "folder, whose files are not read", "folders, whose files are not read"));
  if (too_short > 0)
    parts.push_back(count(too_short, "file", "files") + " of less than " + std::to_string(shortest)
                    + " bytes, which is one sample");
  if (broken > 0)
    parts.push_back(count(broken, "link or file that leads nowhere or cannot be read",
                          "links or files that lead nowhere or cannot be read"));
  if (others > 0)
    parts.push_back(count(others, "pipe, socket or device", "pipes, sockets or devices"));
  if (repeated > 0)
    parts.push_back(
      count(repeated, "link to a file of the same folder", "links to files of the same folder"));
  if (parts.empty())
    return std::nullopt;
  std::string all;
  for (std::size_t i = 0; i < parts.size(); ++i)
    all += (i == 0 ? "" : i + 1 < parts.size() ? ", " : " and ") + parts[i];
  return all;
}

result<data_files> list_data_files(const fs::path& path, std::size_t shortest,
                                   const std::string& option) {
  data_files found;
  found.shortest = shortest;
  std::error_code error;
  auto what = fs::status(path, error);
  if (error || !fs::exists(what))
    return bad("cannot read " + option + " " + path.string() + ": "
               + (error ? error : make_error_code(std::errc::no_such_file_or_directory)).message());
  if (fs::is_directory(what)) {
    auto home = fs::canonical(path, error);
    fs::directory_iterator entry{path, error};
    for (fs::directory_iterator end; !error && entry != end; entry.increment(error))
      take(found, *entry, home);
    if (error)
      return bad("cannot read " + option + " " + path.string() + ": " + error.message());
    std::ranges::sort(found.files, [](const auto& a, const auto& b) { return a.path < b.path; });
  } else if (!fs::is_regular_file(what)) {
    return bad(option + " " + path.string()
               + " is neither a file nor a folder: save the text in a file first");
  } else {
    auto bytes = fs::file_size(path, error);
    if (error)
      return bad("cannot read " + option + " " + path.string() + ": " + error.message());
    if (bytes >= shortest)
      found.files.push_back({path, bytes});
  }
  if (!found.files.empty())
    return found;
  auto beside = found.left_out();
  return bad(option + " " + path.string() + " has no text of at least " + std::to_string(shortest)
             + " bytes: give a longer one, or a smaller --context"
             + (beside ? "; it has " + *beside : std::string{}));
}

} // namespace waggle
