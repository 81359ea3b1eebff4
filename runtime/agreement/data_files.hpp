#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// The files from which a peer learns: those that --data names, and those of its folders. Links to
/// files are followed, because model hubs and Kubernetes store data sets as links.
struct data_files {
  struct file {
    std::filesystem::path path;
    std::uint64_t bytes = 0;
  };
  std::vector<file> files; // as they are named, those of a folder or pattern in ascending order

  // What was named or is in the folders beside them.
  std::size_t folders = 0;  // links to folders included
  std::size_t repeated = 0; // links to files of the same folder, which are read anyway
  std::size_t too_short = 0;
  std::size_t broken = 0; // links to nothing, files that cannot be looked at
  std::size_t others = 0; // sockets, devices, pipes
  std::size_t shortest = 0;

  /// "2 folders, whose files are not read, and 1 link that leads nowhere"; nothing if all is read.
  [[nodiscard]] std::optional<std::string> left_out() const;
  /// Whether only links to files that are read anyway are left out.
  [[nodiscard]] bool reads_all_text() const { return folders + too_short + broken + others == 0; }
};

/// What a value of --data names: itself, if there is such a file or folder. Otherwise what is
/// between its commas, where a pattern ("data/*.txt") is what matches it. A name without a file is
/// kept.
std::vector<std::filesystem::path> named_paths(const std::filesystem::path& value);

/// Lists the files of named_paths. Leaves out those that are shorter than `shortest` bytes. Fails
/// with ec::bad_config and a sentence if one of `path`, the value of `option`, cannot be read, or
/// is neither a file nor a folder, if one is named twice, or if there is no such file.
result<data_files> list_data_files(const std::filesystem::path& path, std::size_t shortest,
                                   const std::string& option = "--data");

/// Identifies a data set for comparison between peers, by the names and sizes of its files, in
/// order, but not their folders. One file: "text.txt of 1048576 bytes"; more: "14 files of 364123
/// bytes, 1a2b3c4d".
std::string identity_of(const std::vector<data_files::file>& files);
/// "\nb.txt of 100 bytes" for each of several files, by which a disagreement names the first one
/// that differs (listed_field). Nothing for one, which its identity names.
std::string lines_of(const std::vector<data_files::file>& files);
/// A field of a text: of its first line, and a fingerprint of each further one, if there are any.
agreed_field listed_field(std::string name, const std::string& text);
/// Identifies a file by its content: "4096 bytes, 1a2b3c4d". Empty: it cannot be read.
std::string content_identity(const std::filesystem::path& file);

} // namespace waggle
