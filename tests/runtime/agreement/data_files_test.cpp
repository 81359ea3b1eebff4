#include "runtime/agreement/data_files.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre, ::testing::HasSubstr;

class DataFiles : public ::testing::Test {
protected:
  void write(const std::string& name, std::size_t bytes) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream{folder / name} << std::string(bytes, 'x');
  }
  std::vector<std::string> names_in(const std::string& name) const {
    auto found = list_data_files(folder / name, 33);
    EXPECT_TRUE(found) << found.error().detail;
    std::vector<std::string> names;
    if (found)
      for (const auto& file : found->files)
        names.push_back(file.path.filename().string());
    return names;
  }
  std::string left_out_of(const std::string& name) const {
    auto found = list_data_files(folder / name, 33);
    return found ? found->left_out().value_or("") : found.error().detail;
  }
  std::string refusal_of(const std::string& name) const {
    auto found = list_data_files(folder / name, 33);
    return found ? "" : found.error().detail;
  }

  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

TEST_F(DataFiles, LinksOfAModelHubAreFollowed) {
  write("blobs/1a2b", 100);
  write("blobs/3c4d", 200);
  fs::create_directories(folder / "snapshot");
  fs::create_symlink("../blobs/1a2b", folder / "snapshot/train.txt");
  fs::create_symlink("../blobs/3c4d", folder / "snapshot/more.txt");
  EXPECT_THAT(names_in("snapshot"), ElementsAre("more.txt", "train.txt"));
  EXPECT_EQ(left_out_of("snapshot"), "");
  EXPECT_THAT(names_in("snapshot/train.txt"), ElementsAre("train.txt"));
}

TEST_F(DataFiles, LinksOfAConfigMapAreFollowed) {
  write("map/..2024_01_01/text", 100);
  fs::create_directory_symlink("..2024_01_01", folder / "map/..data");
  fs::create_symlink("..data/text", folder / "map/text");
  EXPECT_THAT(names_in("map"), ElementsAre("text"));
  EXPECT_EQ(left_out_of("map"), "2 folders, whose files are not read");
}

TEST_F(DataFiles, AFileAndALinkToItAreReadOnce) {
  write("d/GPL-3", 100);
  fs::create_symlink("GPL-3", folder / "d/GPL");
  fs::create_directory_symlink("d", folder / "e");
  for (const char* name : {"d", "e"}) {
    EXPECT_THAT(names_in(name), ElementsAre("GPL-3"));
    EXPECT_EQ(left_out_of(name), "1 link to a file of the same folder");
    EXPECT_TRUE(list_data_files(folder / name, 33)->reads_all_text());
  }
}

TEST_F(DataFiles, WhatIsLeftOutIsSaidWithItsNumberAndReason) {
  write("d/text", 100);
  write("d/short", 32);
  write("d/shorter", 3);
  write("d/sub/text", 100);
  fs::create_symlink("nowhere", folder / "d/dangling");
  ASSERT_EQ(::mkfifo((folder / "d/pipe").c_str(), 0600), 0);
  EXPECT_THAT(names_in("d"), ElementsAre("text"));
  EXPECT_EQ(left_out_of("d"),
            "1 folder, whose files are not read, 2 files of less than 33 bytes, which is one "
            "sample, 1 link or file that leads nowhere or cannot be read and 1 pipe, socket or "
            "device");
  EXPECT_FALSE(list_data_files(folder / "d", 33)->reads_all_text());
}

TEST_F(DataFiles, AFolderOfFoldersIsRefusedWithTheReason) {
  write("d/a/text", 100);
  write("d/b/text", 100);
  EXPECT_THAT(refusal_of("d"), HasSubstr("has no text of at least 33 bytes"));
  EXPECT_THAT(refusal_of("d"), HasSubstr("it has 2 folders, whose files are not read"));
}

TEST_F(DataFiles, SeveralAreReadInTheirOrderAndThoseOfAPatternSorted) {
  for (const char* name : {"d/b.txt", "d/a.txt", "e/z", "e/y", "c.txt", "with,comma"})
    write(name, 100);
  auto in = [&](const std::string& names) { return names_in(names); };
  auto at = [&](const char* name) { return (folder / name).string(); };
  EXPECT_THAT(in("c.txt," + at("d/*.txt") + "," + at("e")),
              ElementsAre("c.txt", "a.txt", "b.txt", "y", "z"));
  EXPECT_THAT(in("with,comma"), ElementsAre("with,comma"));
  EXPECT_THAT(refusal_of("c.txt," + at("d/*.md")), HasSubstr("d/*.md: No such file"));
  EXPECT_THAT(refusal_of("c.txt," + at("*.txt")), HasSubstr("c.txt twice"));
  EXPECT_THAT(refusal_of("c.txt," + at("./d/../c.txt")), HasSubstr("c.txt twice"));
  auto named = [&](const std::string& names) {
    return identity_of(list_data_files(folder / names, 33)->files);
  };
  EXPECT_NE(named("c.txt," + at("e")), named("e," + at("c.txt"))) << "samples go by number";
}

TEST_F(DataFiles, WhatIsNoFileIsRefused) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of("pipe"), HasSubstr("neither a file nor a folder"));
  EXPECT_THAT(refusal_of("none"), HasSubstr("No such file"));
}

} // namespace
} // namespace waggle
