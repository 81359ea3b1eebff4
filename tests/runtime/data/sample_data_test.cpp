#include "runtime/data/sample_data.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/scratch_folder.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

class SampleData : public ::testing::Test {
protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream{folder / name} << text;
  }
  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

std::string piece_of(const sample_data& data, std::size_t which) {
  std::vector<std::byte> bytes(data.sizes()[which]);
  EXPECT_TRUE(data.read(which, 0, bytes).ok());
  return std::string{as_string_view(bytes)};
}

std::string next_of(window_sampler& sampler) {
  std::vector<std::byte> bytes(sampler.window());
  auto read = sampler.read_next(bytes);
  EXPECT_TRUE(read) << read.error().detail;
  return std::string{as_string_view(bytes)};
}

TEST_F(SampleData, FolderIsReadInTheOrderOfItsNamesWithoutShortFiles) {
  write("c", "third piece");
  write("a", "first piece");
  write("b", "tiny");
  fs::create_directory(folder / "d");
  auto data = open_text(folder, 5);
  ASSERT_EQ((*data)->sizes().size(), 2u);
  EXPECT_EQ(piece_of(**data, 0), "first piece");
  EXPECT_EQ(piece_of(**data, 1), "third piece");
}

TEST_F(SampleData, EveryWindowOfEveryPieceIsDrawnAndNoOther) {
  write("a", "abcd");
  write("b", "efghi");
  write("c", "xyz");
  auto data = open_text(folder, 3);
  window_sampler sampler{*data, 3, random_source{4}};
  std::map<std::string, int> seen;
  for (int i = 0; i < 6000; ++i)
    ++seen[next_of(sampler)];
  std::set<std::string> windows;
  for (const auto& [window, count] : seen) {
    windows.insert(window);
    EXPECT_NEAR(count, 1000, 150) << window; // five standard deviations
  }
  EXPECT_EQ(windows, (std::set<std::string>{"abc", "bcd", "efg", "fgh", "ghi", "xyz"}));
}

// A mapped file would end the process with SIGBUS.
TEST_F(SampleData, AFileThatBecomesShorterIsAnErrorThatSaysSo) {
  write("a", std::string(8'192, 'x'));
  auto data = open_text(folder / "a", 100);
  window_sampler sampler{*data, 100, random_source{4}};
  EXPECT_EQ(next_of(sampler), std::string(100, 'x'));
  fs::resize_file(folder / "a", 50);
  std::vector<std::byte> window(100);
  auto read = sampler.read_next(window);
  EXPECT_EQ(read.error().code, ec::io_error);
  EXPECT_NE(read.error().detail.find((folder / "a").string() + " has become shorter than the 8192"),
            std::string::npos)
    << read.error().detail;
}

TEST_F(SampleData, AFileIsReadAfterItsNameIsGone) {
  write("a", "abc");
  auto data = open_text(folder / "a", 3);
  write("b", "xyz");
  fs::rename(folder / "b", folder / "a");
  EXPECT_EQ(piece_of(**data, 0), "abc");
}

TEST_F(SampleData, MoreFilesThanMayBeOpenAreReadAndOneThatIsReplacedIsNoticed) {
  constexpr std::size_t many = 600;
  for (std::size_t i = 0; i < many; ++i)
    write(std::to_string(1'000 + i), std::to_string(1'000 + i));
  auto data = open_text(folder, 4);
  for (std::size_t i = 0; i < many; ++i)
    ASSERT_EQ(piece_of(**data, i), std::to_string(1'000 + i));
  auto open = std::distance(fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{});
  EXPECT_LT(open, 300);
  write("other", "fake");
  fs::rename(folder / "other", folder / "1000");
  std::vector<std::byte> bytes(4);
  auto read = (*data)->read(0, 0, bytes);
  EXPECT_NE(read.error().detail.find("was replaced"), std::string::npos) << read.error().detail;
}

TEST_F(SampleData, SameSeedDrawsTheSameWindowsAndAnotherSeedOthers) {
  auto data = make_synthetic_text();
  auto draw = [&](std::uint64_t seed) {
    window_sampler sampler{data, 16, random_source{seed}};
    std::vector<std::uint64_t> places;
    for (int i = 0; i < 50; ++i)
      places.push_back(sampler.next().at);
    return places;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST_F(SampleData, SyntheticTextIsTheSameEverywhereAndHasFourFollowersPerLetter) {
  auto a = make_synthetic_text();
  auto b = make_synthetic_text();
  auto text = piece_of(*a, 0);
  EXPECT_EQ(text, piece_of(*b, 0));
  EXPECT_EQ(text.size(), 1u << 20U);
  std::map<char, std::set<char>> followers;
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    followers[text[i]].insert(text[i + 1]);
  for (const auto& [letter, after] : followers)
    EXPECT_LE(after.size(), 4u) << letter;
}

} // namespace

} // namespace waggle
