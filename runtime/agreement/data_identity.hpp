#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace waggle {

/// What peers compare of a data set: names and sizes of its files, not where they lie. One file:
/// "text.txt of 1048576 bytes"; a folder: "14 files of 364123 bytes, 1a2b3c4d". As in training,
/// links and files shorter than `shortest` do not count. Empty: there is nothing to read here.
std::string data_identity(const std::filesystem::path& path, std::size_t shortest);

} // namespace waggle
