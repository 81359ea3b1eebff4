#include "runtime/data/line_blocks.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class LineBlocks : public ::testing::Test {
protected:
  void write(const std::string& name, const std::string& content) const {
    std::ofstream{folder / name, std::ios::binary} << content;
  }
  /// Blocks have 32 · (context + 1) bytes.
  [[nodiscard]] data_request request(std::size_t context = 1) const {
    return data_request{.path = (folder / "*.jsonl").string(), .context = context};
  }
  [[nodiscard]] std::string refusal(std::size_t context = 1) const {
    auto opened = open_data_set(request(context));
    return opened ? "" : opened.error().detail;
  }
  /// The bytes of each block in windows of `window`.
  static std::vector<std::string> blocks_of(const sample_data& data, std::size_t window) {
    std::vector<std::string> out;
    for (std::uint64_t i = 0; i < data.sizes().at(0); ++i) {
      auto read = data.windows(window, std::vector{window_place{0, i}});
      EXPECT_TRUE(read) << read.error().detail;
      out.push_back(text_of(*read));
    }
    return out;
  }
  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

TEST_F(LineBlocks, EachLineIsInOneBlockWhateverTheSizesOfBoth) {
  std::string first, second, wanted;
  for (int i = 0; i < 90; ++i) {
    auto word = std::to_string(1000 + i) + std::string(i * 37 % 150, 'x');
    auto line = i % 3 == 0 ? '"' + word + '"' : R"({"n": 1, "text": ")" + word + "\"}";
    auto& file = i < 50 ? first : second;
    file += line
            + (i % 7 == 0    ? "\r\n\n"
               : i == 89     ? ""
               : i % 11 == 0 ? std::string(200, '\0')
                             : "\n");
    wanted += word + "\n";
  }
  write("a.jsonl", first);
  write("b.jsonl", second);
  for (std::size_t context : {1, 2, 3, 4, 9, 64, 1000}) {
    auto data = open_data_set(request(context));
    ASSERT_TRUE((*data)->in_blocks());
    auto block = block_bytes(request(context));
    EXPECT_EQ((*data)->sizes(), std::vector{(first.size() + block - 1) / block
                                            + (second.size() + block - 1) / block});
    auto blocks = blocks_of(**data, 20'000); // one window each: the text, and newlines
    std::string all;
    for (const auto& each : blocks)
      all += each.substr(0, each.find_last_not_of('\n') + 1) + (each.empty() ? "" : "\n");
    EXPECT_EQ(all, wanted) << context;
  }
}

TEST_F(LineBlocks, HolesAreReadAsNothing) {
  write("a.jsonl", "\"first\"\n");
  {
    std::ofstream end{folder / "a.jsonl", std::ios::binary | std::ios::in | std::ios::out};
    end.seekp(1 << 20);
    end << "\n\"last\"";
  }
  auto data = open_data_set(request());
  auto blocks = blocks_of(**data, 6);
  EXPECT_EQ(blocks.size(), ((1U << 20U) + 7 + 63) / 64);
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::string{}), "first\nlast\n\n");
  fs::resize_file(folder / "a.jsonl", 2000);
  EXPECT_FALSE((*data)->windows(6, std::vector{window_place{0, 1000}}))
    << "a file that was cut off is no hole";
}

TEST_F(LineBlocks, WhatIsNoTextIsRefusedWithItsPlace) {
  for (const auto& [line, why] : {std::pair{"{\"text\": 3}", "nor an object with a field"},
                                  {"[1]", "nor an object"},
                                  {"{\"body\": \"x\"}", "nor an object"},
                                  {"{\"text\": \"x\"", "no line of JSON"},
                                  {"\"\xff\"", "no line of JSON"}}) {
    write("a.jsonl", "\"one\"\n" + std::string{line} + "\n");
    EXPECT_THAT(refusal(), HasSubstr("a.jsonl, byte 6: ")) << line;
    EXPECT_THAT(refusal(), HasSubstr(why));
    write("a.jsonl", "\"one\"\n" + std::string(std::strlen(line), '\n') + "\n");
    EXPECT_EQ(refusal(), "") << "what it says to do";
  }
  write("a.jsonl", '"' + std::string(3 << 20, 'x') + '"');
  EXPECT_THAT(refusal(), HasSubstr("byte 0: the line is longer than 1048576 bytes"));
  write("a.jsonl", std::string(100, ' ') + "\n{");
  auto data = open_data_set(request());
  auto later = (*data)->windows(2, std::vector{window_place{0, 1}});
  EXPECT_EQ(later.error().code, ec::io_error);
  EXPECT_THAT(later.error().detail, HasSubstr("byte 101"));
}

TEST_F(LineBlocks, FormatsAreNotMixed) {
  write("a.jsonl", "\"one\"\n");
  write("b.txt", "some text");
  EXPECT_EQ(format_of(folder / "*.jsonl"), data_format::lines);
  auto r = request();
  r.path = folder.string();
  EXPECT_THAT(open_data_set(r).error().detail, HasSubstr("name one kind"));
  EXPECT_THAT(data_set_identity(request()), HasSubstr("a.jsonl of 6 bytes, in blocks of 64 bytes"));
}

TEST(CutWindows, HoldAllOfATextWhoseWindowsOverlapByOne) {
  EXPECT_TRUE(cut_windows("", 3).empty());
  EXPECT_EQ(text_of(cut_windows("a", 3)), "a\n\n");
  EXPECT_EQ(text_of(cut_windows("abc", 3)), "abc");
  EXPECT_EQ(text_of(cut_windows("abcd", 3)), "abcbcd");
  EXPECT_EQ(text_of(cut_windows("abcde", 3)), "abccde");
  EXPECT_EQ(text_of(cut_windows("abcdef", 3)), "abccdedef");
}

TEST_F(LineBlocks, APassIsOverBlocksThatWeighEnough) {
  write("a.jsonl", "\"abc\"\n" + std::string(150, '\n') + "\"defghijk\"\n");
  auto data = open_data_set(request()); // in blocks of 64
  auto pass = [&](std::uint64_t weight) {
    std::uint64_t next = 0;
    auto read = read_blocks(**data, 4, weight, [&]() -> std::optional<std::uint64_t> {
      return next < 3 ? std::optional{next++} : std::nullopt;
    });
    EXPECT_TRUE(read);
    return std::tuple{read->blocks, read->weight, text_of(read->windows)};
  };
  EXPECT_EQ(pass(1), std::tuple(1U, 1U, "abc\n"));
  EXPECT_EQ(pass(2), std::tuple(2U, 2U, "abc\n"));
  EXPECT_EQ(pass(3), std::tuple(3U, 5U, "abc\ndefgghijijk\n"));
  EXPECT_EQ(pass(9), std::tuple(3U, 5U, "abc\ndefgghijijk\n"));
}

TEST_F(LineBlocks, APassLeavesOutLinesThatAreNoTextAndSaysWhereTheFirstIs) {
  const std::string gap(100, '\n');
  for (const auto& [line, why] :
       {std::pair{std::string{"[1]"}, "byte 106: the line is neither a text"},
        {"{\"text", "byte 106: this is no line of JSON"},
        {'"' + std::string(3 << 20, 'x') + '"', "byte 106: the line is longer than 1048576"}}) {
    write("a.jsonl", "\"one\"\n" + gap + line + "\n\"two\"\n{\n\"three\"\n");
    auto data = open_data_set(request());
    std::uint64_t next = 0;
    auto pass = read_blocks(**data, 6, 1U << 20U, [&]() -> std::optional<std::uint64_t> {
      return next < (*data)->sizes().at(0) ? std::optional{next++} : std::nullopt;
    });
    auto text = text_of(pass->windows);
    std::erase(text, '\n'); // a window that is longer than its text ends with newlines
    EXPECT_EQ(text.substr(0, 6), "onetwo");
    EXPECT_EQ(text.substr(text.size() - 4), "hree");
    EXPECT_THAT(pass->left_out, HasSubstr(why));
  }
}

} // namespace

} // namespace waggle
