#include "runtime/data/line_blocks.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/try.hpp"
#include "runtime/data/guarded_files.hpp"
#include "runtime/data/sentence.hpp"

namespace waggle {

namespace {

constexpr std::size_t windows_of_block = 32;
constexpr std::size_t block_max = 4_MiB;
constexpr std::size_t line_max = 1_MiB; // or a block, if that is larger
constexpr std::size_t look_ahead = 4_KiB;
constexpr std::string_view ends{"\n\0", 2}; // of lines: a hole reads as zeros

std::vector<std::uint64_t> blocks_in(const data_files& files, std::size_t block) {
  std::uint64_t blocks = 0;
  for (const auto& file : files.files)
    blocks += (file.bytes + block - 1) / block;
  return {blocks};
}

class line_blocks final : public sample_data {
public:
  line_blocks(const data_files& files, const data_request& request)
    : sample_data({}, blocks_in(files, block_bytes(request))), option_(option_of(request.role)),
      block_(block_bytes(request)), files_(option_, files.files) {
    std::uint64_t blocks = 0;
    for (const auto& file : files.files)
      ends_.push_back(blocks += (file.bytes + block_ - 1) / block_);
  }

  [[nodiscard]] status open() const {
    WAGGLE_TRY(opened, files_.open_all());
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (auto first = text_of(i == 0 ? 0 : ends_[i - 1], nullptr); !first)
        return failure{ec::bad_config, first.error().detail};
    return done{};
  }
  [[nodiscard]] bool in_blocks() const override { return true; }
  status read(std::size_t /*piece*/, std::uint64_t /*at*/,
              std::span<std::byte> /*out*/) const override {
    return failure{ec::bad_config, option_ + " is lines of JSON, which are read by blocks"};
  }
  [[nodiscard]] result<std::vector<std::byte>> windows(std::size_t window,
                                                       std::span<const window_place> places,
                                                       std::string* left_out) const override {
    std::vector<std::byte> out;
    for (const auto& place : places) {
      WAGGLE_TRY(text, text_of(place.at, left_out));
      auto its = cut_windows(*text, window);
      out.insert(out.end(), its.begin(), its.end());
    }
    return out;
  }

private:
  /// The texts of a block, each with a newline. @param left_out see windows.
  [[nodiscard]] result<std::string> text_of(std::uint64_t number, std::string* left_out) const {
    auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, number) - ends_.begin());
    auto begin = (number - (file == 0 ? 0 : ends_[file - 1])) * block_;
    auto end = std::min(begin + block_, files_.bytes(file));
    auto start = begin == 0 ? 0 : begin - 1; // a line that begins here has an end before it
    std::string texts;
    if (files_.is_hole(file, start, end))
      return texts;
    std::string bytes;
    WAGGLE_TRY(good, append(file, start, end, bytes));
    auto at = begin == 0 ? 0 : bytes.find_first_of(ends);
    auto block_end = bytes.size();
    while ((at = bytes.find_first_not_of(ends, at)) < block_end) {
      WAGGLE_TRY(stop, end_of_line(file, start, at, bytes));
      auto text = record(file, start + at, std::string_view{bytes}.substr(at, *stop - at));
      if (text)
        texts += *text;
      else if (left_out == nullptr)
        return text.error();
      else if (left_out->empty())
        *left_out = text.error().detail;
      at = *stop;
    }
    return texts;
  }

  [[nodiscard]] status append(std::size_t file, std::uint64_t from, std::uint64_t to,
                              std::string& bytes) const {
    auto before = bytes.size();
    bytes.resize(before + static_cast<std::size_t>(to - from));
    return files_.read(file, from, std::as_writable_bytes(std::span{bytes}.subspan(before)));
  }

  /// Reads on if the line goes on behind `bytes`, which begin at `start` in the file. npos: so far
  /// that it is too long.
  [[nodiscard]] result<std::size_t> end_of_line(std::size_t file, std::uint64_t start,
                                                std::size_t at, std::string& bytes) const {
    for (auto from = at;;) {
      auto stop = bytes.find_first_of(ends, from);
      if (stop != std::string::npos || start + bytes.size() == files_.bytes(file))
        return std::min(stop, bytes.size());
      from = bytes.size();
      if (from - at > std::max(block_, line_max))
        return std::string::npos;
      auto next = start + from;
      auto more = std::max(look_ahead, from - at); // a long line is read in a few pieces
      WAGGLE_TRY(more_read, append(file, next, std::min(next + more, files_.bytes(file)), bytes));
    }
  }

  [[nodiscard]] result<std::string> record(std::size_t file, std::uint64_t at,
                                           std::string_view line) const {
    using json = nlohmann::json;
    if (auto most = std::max(block_, line_max); line.size() > most)
      return wrong(file, at, sentence("the line is longer than ", most, " bytes"));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      return std::string{};
    auto read = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (read.is_discarded())
      return wrong(file, at, "this is no line of JSON");
    if (read.is_object() && read.contains("text"))
      read = json(read["text"]);
    if (!read.is_string())
      return wrong(file, at, "the line is neither a text nor an object with a field \"text\"");
    auto text = read.get<std::string>();
    return text.empty() ? text : text + "\n";
  }

  [[nodiscard]] failure wrong(std::size_t file, std::uint64_t at, const std::string& why) const {
    return {ec::io_error,
            sentence(option_, " ", files_.path(file).string(), ", byte ", at, ": ", why,
                     ". Overwrite it with as many newlines, in the files of all peers")};
  }

  const std::string option_;
  const std::size_t block_;
  guarded_files files_;
  std::vector<std::uint64_t> ends_; // cumulative number of blocks, by file
};

} // namespace

std::size_t block_bytes(const data_request& request) {
  return std::min(windows_of_block * (request.context + 1), block_max);
}

result<std::shared_ptr<const sample_data>> open_line_blocks(const data_files& files,
                                                            const data_request& request) {
  auto made = std::make_shared<line_blocks>(files, request);
  WAGGLE_TRY(good, made->open());
  return std::shared_ptr<const sample_data>{made};
}

std::vector<std::byte> cut_windows(std::string_view text, std::size_t window) {
  std::vector<std::byte> out;
  if (text.empty())
    return out;
  auto add = [&](std::string_view part) {
    auto bytes = std::as_bytes(std::span{part});
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  if (text.size() <= window) {
    add(text);
    out.resize(window, std::byte{'\n'});
    return out;
  }
  auto last = text.size() - window;
  for (std::size_t at = 0; at < last; at += window - 1)
    add(text.substr(at, window));
  add(text.substr(last));
  return out;
}

result<block_pass> read_blocks(const sample_data& data, std::size_t window, std::uint64_t weight,
                               const std::function<std::optional<std::uint64_t>()>& next) {
  block_pass out;
  while (out.weight < weight) {
    auto number = next();
    if (!number)
      break;
    WAGGLE_TRY(windows, data.windows(window, std::vector{window_place{0, *number}}, &out.left_out));
    ++out.blocks;
    out.weight += std::max<std::uint64_t>(windows->size() / window, 1);
    out.windows.insert(out.windows.end(), windows->begin(), windows->end());
  }
  return out;
}

} // namespace waggle
