#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/agreement/data_files.hpp"

namespace waggle {

/// Identifies a data set for comparison between peers, by the names and sizes of its files but not
/// its path. One file: "text.txt of 1048576 bytes"; a folder: "14 files of 364123 bytes, 1a2b3c4d".
/// The files are those of list_data_files. Empty: no data at `path`.
std::string data_identity(const std::filesystem::path& path, std::size_t shortest);
/// Identifies a file by its content: "4096 bytes, 1a2b3c4d". Empty: it cannot be read.
std::string content_identity(const std::filesystem::path& file);
/// The same as data_identity of a list of files.
std::string identity_of(const std::vector<data_files::file>& files);

} // namespace waggle
