#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_set.hpp"

namespace waggle {

/// Lines of JSON, read a block at a time and never whole: data that is larger than memory. A block
/// is so many bytes of a file, and has the lines that begin in it, so nobody needs an index.
/// Blank lines, and the zeros of a hole in a sparse file, are none. A line is a text, or an object
/// with a field "text". Fails with ec::bad_config and a sentence, also if the first block of a file
/// has a line that is neither.
result<std::shared_ptr<const sample_data>> open_line_blocks(const data_files& files,
                                                            const data_request& request);
/// The bytes of a block: those of some windows.
std::size_t block_bytes(const data_request& request);

/// Windows of bytes that hold all of `text`: each begins with the last byte of the one before it;
/// the last one ends with the text, and one that is longer than the text ends with newlines.
std::vector<std::byte> cut_windows(std::string_view text, std::size_t window);

/// What a pass is over.
struct block_pass {
  std::vector<std::byte> windows;
  std::uint64_t weight = 0; // the windows; 1 of a block without any
  std::uint64_t blocks = 0;
  std::string left_out{}; // the first line that has no text, and why; empty: there is none
};
/// Reads the blocks with the numbers that `next` returns, until it returns none or they weigh at
/// least `weight`. Fails with ec::io_error, as sample_data::windows.
result<block_pass> read_blocks(const sample_data& data, std::size_t window, std::uint64_t weight,
                               const std::function<std::optional<std::uint64_t>()>& next);

} // namespace waggle
