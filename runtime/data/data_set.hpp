#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/agreement/data_files.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/sample_data.hpp"

namespace waggle {

/// The data sets that --data and --eval-data name. The format follows from the names of the files.
enum class data_format : std::uint8_t {
  synthetic, // the word
  text,      // any files
  lines,     // of JSON: files that end with .jsonl
  tokens,    // files that end with .bin, without a header
  idx,       // a folder with MNIST's names, packed (.gz) or not
  cifar      // a folder with CIFAR-10's names
};
/// Of what a value of the option names (named_paths). Looks at names only: `open_data_set` reports
/// what is wrong with the files.
data_format format_of(const std::filesystem::path& value);

/// Which half of a set is meant, where a folder holds both.
enum class data_role : std::uint8_t { training, evaluation };
/// "--data" or "--eval-data".
std::string option_of(data_role role);

/// How to read a set.
struct data_request {
  std::string path = "synthetic";
  data_role role = data_role::training;
  std::size_t context = 64;    // items that a prediction of text or tokens depends on
  std::size_t token_bytes = 2; // 2 or 4
  std::uint64_t classes = 0;   // 0: 256 of text, 10 of images; tokens need a number
};

/// The files of the set. Fails with ec::bad_config and a sentence. REQUIRES: it is not synthetic.
result<data_files> files_of(const data_request& request);

/// A sentence about files of text that are archives (gzip, xz, …), whose packed bytes would be
/// trained on; nothing if there are none. REQUIRES: it is not synthetic.
std::optional<std::string> packed_text(const data_request& request);

/// Opens the set, and checks sizes, headers and labels. Packed files are unpacked in memory. Fails
/// with ec::bad_config and a sentence that names the file and what to do.
result<std::shared_ptr<const sample_data>> open_data_set(const data_request& request);

/// The number of items of a sample: an image, or the context and what follows it.
std::size_t window_of(const sample_shape& shape, std::size_t context);
/// The same of what is drawn by number: of data in blocks, 1, a block.
std::size_t drawn_window_of(const sample_data& data, std::size_t context);

/// For comparison between peers: the names and sizes of the files, and the type of an item. Empty:
/// there is no such data on this machine.
std::string data_set_identity(const data_request& request);

} // namespace waggle
