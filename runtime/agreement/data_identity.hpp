#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace waggle {

/// Identifies a data set for comparison between peers, by the names and sizes of its files but not
/// its path. One file: "text.txt of 1048576 bytes"; a folder: "14 files of 364123 bytes, 1a2b3c4d".
/// The files are those of list_data_files. Empty: no data at `path`.
std::string data_identity(const std::filesystem::path& path, std::size_t shortest);

} // namespace waggle
