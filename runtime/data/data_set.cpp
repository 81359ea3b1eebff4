#include "runtime/data/data_set.hpp"

#include <array>
#include <fstream>
#include <set>
#include <string_view>

#include "runtime/core/try.hpp"
#include "runtime/data/images.hpp"
#include "runtime/data/line_blocks.hpp"
#include "runtime/data/sentence.hpp"
#include "runtime/data/tokens.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

bool has_file(const fs::path& folder, const std::string& name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

/// The endings of these files, and of those in the folders among them.
std::set<fs::path> endings_of(const std::vector<fs::path>& paths) {
  std::set<fs::path> out;
  std::error_code error;
  for (const auto& path : paths) {
    if (!fs::is_directory(path, error)) {
      out.insert(path.extension());
      continue;
    }
    fs::directory_iterator entry{path, error};
    for (fs::directory_iterator end; !error && entry != end; entry.increment(error))
      if (entry->is_regular_file(error))
        out.insert(entry->path().extension());
  }
  return out;
}

/// Whether gzip, xz, zstd, bzip2 or zip has written it.
bool is_packed(const fs::path& file) {
  std::array<char, 16> begin{};
  std::ifstream{file, std::ios::binary}.read(begin.data(), begin.size());
  for (std::string_view how :
       {"\x1f\x8b\x08", "\xfd\x37zXZ", "\x28\xb5\x2f\xfd", "BZh91AY&SY", "PK\x03\x04"})
    if (std::string_view{begin.data(), begin.size()}.starts_with(how))
      return true;
  return false;
}

} // namespace

data_format format_of(const fs::path& path) {
  if (path == "synthetic")
    return data_format::synthetic;
  for (const auto* images : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"})
    if (has_file(path, images) || has_file(path, std::string{images} + ".gz"))
      return data_format::idx;
  for (const auto* batch : {"data_batch_1.bin", "test_batch.bin"})
    if (has_file(path, batch))
      return data_format::cifar;
  auto endings = endings_of(named_paths(path));
  if (endings == std::set<fs::path>{".bin"})
    return data_format::tokens;
  return endings == std::set<fs::path>{".jsonl"} ? data_format::lines : data_format::text;
}

std::string option_of(data_role role) {
  return role == data_role::training ? "--data" : "--eval-data";
}

result<data_files> files_of(const data_request& request) {
  auto option = option_of(request.role);
  switch (format_of(request.path)) {
    case data_format::idx:
      return idx_files(request.path, request.role);
    case data_format::cifar:
      return cifar_files(request.path, request.role);
    case data_format::tokens:
      return list_data_files(request.path, (request.context + 1) * request.token_bytes, option);
    case data_format::lines:
      return list_data_files(request.path, 1, option);
    case data_format::synthetic:
    case data_format::text:
      break;
  }
  return list_data_files(request.path, request.context + 1, option);
}

std::optional<std::string> packed_text(const data_request& request) {
  auto files = files_of(request);
  if (!files || format_of(request.path) != data_format::text)
    return std::nullopt;
  std::vector<fs::path> packed;
  for (const auto& file : files->files)
    if (is_packed(file.path))
      packed.push_back(file.path);
  if (packed.empty())
    return std::nullopt;
  return sentence("of ", option_of(request.role), " ", request.path, ", ", packed.size(), " of ",
                  files->files.size(), " files are packed, the first ", packed.front().string(),
                  ": their packed bytes are trained on, not the text in them; unpack them first");
}

std::size_t window_of(const sample_shape& shape, std::size_t context) {
  return shape.what == sample_shape::kind::images ? 1 : context + 1;
}

std::size_t drawn_window_of(const sample_data& data, std::size_t context) {
  return data.in_blocks() ? 1 : window_of(data.shape(), context);
}

result<std::shared_ptr<const sample_data>> open_data_set(const data_request& request) {
  auto bad = [&](const std::string& why) {
    return failure{ec::bad_config, option_of(request.role) + " " + request.path + why};
  };
  auto format = format_of(request.path);
  bool text =
    format == data_format::synthetic || format == data_format::text || format == data_format::lines;
  if (text && request.classes != 0 && request.classes != 256)
    return bad(" is text, whose bytes are 256 classes: leave --classes "
               + std::to_string(request.classes) + " out");
  if (format == data_format::synthetic) {
    auto made = make_synthetic_text();
    if (made->sizes().front() < request.context + 1)
      return failure{ec::bad_config, "--context " + std::to_string(request.context)
                                       + " is longer than the synthetic text: give a smaller one, "
                                         "or --data"};
    return made;
  }
  if (format == data_format::text && endings_of(named_paths(request.path)).contains(".jsonl"))
    return bad(
      " has lines of JSON (.jsonl) and other files: name one kind, such as \"DIR/*.jsonl\"");
  if (format == data_format::text)
    return open_text(request.path, request.context + 1, option_of(request.role));
  if (format == data_format::tokens && request.classes == 0)
    return bad(" holds tokens (.bin): --classes N says how many there are, e.g. 50257 with GPT-2's "
               "tokenizer");
  WAGGLE_TRY(files, files_of(request));
  if (format == data_format::tokens)
    return open_tokens(*files, request);
  if (format == data_format::lines)
    return open_line_blocks(*files, request);
  auto classes = static_cast<std::int64_t>(request.classes == 0 ? 10 : request.classes);
  if (classes > 256)
    return bad(" holds labels of one byte, so --classes " + std::to_string(classes)
               + " must be at most 256");
  return format == data_format::idx ? open_idx(*files, option_of(request.role), classes)
                                    : open_cifar(*files, option_of(request.role), classes);
}

std::string data_set_identity(const data_request& request) {
  auto format = format_of(request.path);
  if (format == data_format::synthetic)
    return request.path;
  auto files = files_of(request);
  if (!files)
    return {};
  auto identity = identity_of(files->files);
  switch (format) {
    case data_format::tokens:
      identity = sentence(identity, ", uint", 8 * request.token_bytes);
      break;
    case data_format::idx:
    case data_format::cifar:
      identity += ", images of uint8";
      break;
    case data_format::lines:
      identity = sentence(identity, ", in blocks of ", block_bytes(request), " bytes");
      break;
    case data_format::synthetic:
    case data_format::text:
      break;
  }
  return identity + lines_of(files->files);
}

} // namespace waggle
