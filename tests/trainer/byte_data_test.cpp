#include "trainer/byte_data.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace waggle {

namespace {

namespace fs = std::filesystem;

class ByteData : public ::testing::Test {
protected:
  ByteData() {
    auto name = (fs::temp_directory_path() / "waggle-test-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~ByteData() override { fs::remove_all(folder); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream{folder / name} << text;
  }
  fs::path folder;
};

std::string text_of(byte_span bytes) {
  return std::string{as_string_view(bytes)};
}

TEST_F(ByteData, FolderIsReadInTheOrderOfItsNamesWithoutShortFiles) {
  write("c", "third piece");
  write("a", "first piece");
  write("b", "tiny");
  fs::create_directory(folder / "d");
  auto data = open_text(folder, 5);
  ASSERT_TRUE(data);
  ASSERT_EQ((*data)->pieces().size(), 2u);
  EXPECT_EQ(text_of((*data)->pieces()[0]), "first piece");
  EXPECT_EQ(text_of((*data)->pieces()[1]), "third piece");
}

TEST_F(ByteData, EveryWindowOfEveryPieceIsDrawnAndNoOther) {
  write("a", "abcd");
  write("b", "efghi");
  write("c", "xyz");
  auto data = open_text(folder, 3);
  ASSERT_TRUE(data);
  window_sampler sampler{*data, 3, random_source{4}};
  std::map<std::string, int> seen;
  for (int i = 0; i < 6000; ++i)
    ++seen[text_of({sampler.next(), 3})];
  std::set<std::string> windows;
  for (const auto& [window, count] : seen) {
    windows.insert(window);
    EXPECT_NEAR(count, 1000, 150) << window; // five standard deviations
  }
  EXPECT_EQ(windows, (std::set<std::string>{"abc", "bcd", "efg", "fgh", "ghi", "xyz"}));
}

TEST_F(ByteData, SameSeedDrawsTheSameWindowsAndAnotherSeedOthers) {
  auto data = make_synthetic_text();
  auto draw = [&](std::uint64_t seed) {
    window_sampler sampler{data, 16, random_source{seed}};
    std::vector<std::ptrdiff_t> places;
    for (int i = 0; i < 50; ++i)
      places.push_back(sampler.next() - data->pieces()[0].data());
    return places;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST_F(ByteData, SyntheticTextIsTheSameEverywhereAndHasFourFollowersPerLetter) {
  auto a = make_synthetic_text();
  auto b = make_synthetic_text();
  auto text = text_of(a->pieces()[0]);
  EXPECT_EQ(text, text_of(b->pieces()[0]));
  EXPECT_EQ(text.size(), 1u << 20U);
  std::map<char, std::set<char>> followers;
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    followers[text[i]].insert(text[i + 1]);
  for (const auto& [letter, after] : followers)
    EXPECT_LE(after.size(), 4u) << letter;
}

} // namespace

} // namespace waggle
