#include <csignal>
#include <fstream>
#include <span>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/core/buffer_pool.hpp"
#include "tests/support/memory_disk.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

byte_span bytes(std::string_view text) {
  return as_byte_span(text);
}

/// The common contract of both kinds of disk.
class Disk : public testing::TestWithParam<bool> {
protected:
  Disk() {
    if (GetParam()) {
      auto pattern = (fs::temp_directory_path() / "waggle-disk-XXXXXX").string();
      folder = ::mkdtemp(pattern.data());
      files = make_system_disk();
    } else {
      folder = "/run";
      files = std::make_shared<memory_disk>();
    }
  }
  ~Disk() override {
    if (GetParam())
      fs::remove_all(folder);
  }

  fs::path folder;
  std::shared_ptr<disk> files;
};

TEST_P(Disk, ReadsThePiecesThatWereWritten) {
  auto file = folder / "a" / "b.bin";
  ASSERT_TRUE(files->write(file, {bytes("head"), bytes(""), bytes("tail")}).ok());
  EXPECT_EQ(*files->read(file, 100), "headtail");
  ASSERT_TRUE(files->write(file, {bytes("shorter")}).ok());
  EXPECT_EQ(*files->read(file, 100), "shorter");
}

TEST_P(Disk, AnEmptyFileIsAFile) {
  ASSERT_TRUE(files->write(folder / "empty", {}).ok());
  EXPECT_EQ(*files->read(folder / "empty", 0), "");
}

TEST_P(Disk, WhatAKilledProcessLeftHalfWrittenIsRemoved) {
  for (const auto* name : {"checkpoint-1.wgl", "checkpoint-2.wgl.new", "own-state.new", "notes.new",
                           "temporary-a1B2c3", "temporary-notes", "checkpoint.news"})
    ASSERT_TRUE(files->write(folder / name, {bytes("x")}).ok());
  using names = std::vector<std::string>;
  EXPECT_EQ(remove_leftovers(*files, folder, {"checkpoint-", "own-state"}),
            (names{"checkpoint-2.wgl.new", "own-state.new", "temporary-a1B2c3"}));
  EXPECT_EQ(*files->list(folder),
            (names{"checkpoint-1.wgl", "checkpoint.news", "notes.new", "temporary-notes"}));
  EXPECT_EQ(remove_leftovers(*files, folder / "missing", {"checkpoint-"}), names{});
}

TEST_P(Disk, AMissingFileIsNamedInTheError) {
  auto content = files->read(folder / "missing", 100);
  EXPECT_EQ(content.error().code, ec::io_error);
  EXPECT_NE(content.error().detail.find("missing"), std::string::npos);
}

TEST_P(Disk, DoesNotReadMoreThanAsked) {
  ASSERT_TRUE(files->write(folder / "big", {bytes("12345")}).ok());
  EXPECT_TRUE(files->read(folder / "big", 5).ok());
  EXPECT_EQ(files->read(folder / "big", 4).error().code, ec::oversize);
}

TEST_P(Disk, ListsNamesInOrderAndNothingOfAMissingFolder) {
  ASSERT_TRUE(files->write(folder / "b", {}).ok());
  ASSERT_TRUE(files->write(folder / "a", {}).ok());
  EXPECT_EQ(*files->list(folder), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(files->list(folder / "missing")->empty());
}

TEST_P(Disk, RemovesAndDoesNotMindWhatIsGone) {
  ASSERT_TRUE(files->write(folder / "a", {}).ok());
  EXPECT_TRUE(files->remove(folder / "a").ok());
  EXPECT_TRUE(files->remove(folder / "a").ok());
  EXPECT_TRUE(files->list(folder)->empty());
}

INSTANTIATE_TEST_SUITE_P(All, Disk, testing::Bool(),
                         [](const auto& which) { return which.param ? "System" : "Memory"; });

std::string text_of(const byte_source& from) {
  return std::string{as_string_view(read_all(from)->view())};
}

TEST_P(Disk, AStoreIsPutTogetherInAnyOrder) {
  auto store = files->make_store(folder / "made");
  EXPECT_EQ((*store)->room() < std::uint64_t{1} << 60U, GetParam()) << "only files know it";
  EXPECT_EQ((*store)->size(), 0U);
  ASSERT_TRUE((*store)->write(6, bytes("world")).ok());
  ASSERT_TRUE((*store)->write(0, bytes("hello ")).ok());
  EXPECT_EQ(text_of(**store), "hello world");
  std::string part(3, ' ');
  ASSERT_TRUE((*store)->read(4, std::as_writable_bytes(std::span{part})).ok());
  EXPECT_EQ(part, "o w");
  auto pool = buffer_pool::make(1_MiB);
  EXPECT_EQ(as_string_view((*store)->piece(6, 5, *pool)->view()), "world");
  EXPECT_TRUE(files->list(folder / "made")->empty()) << "it has no name";
}

TEST_P(Disk, UnwrittenBytesOfAStoreAreZero) {
  auto store = files->make_store(folder);
  ASSERT_TRUE((*store)->write(2, bytes("x")).ok());
  EXPECT_EQ(text_of(**store), (std::string{"\0\0x", 3}));
}

TEST_P(Disk, AFileIsWrittenFromAStoreOfSeveralPieces) {
  auto store = files->make_store(folder);
  std::string whole;
  for (std::size_t i = 0; whole.size() < 2 * byte_source_piece + 17; ++i)
    whole += std::to_string(i);
  ASSERT_TRUE((*store)->write(0, bytes(whole)).ok());
  ASSERT_TRUE(files->write_from(folder / "a" / "copy", **store).ok());
  EXPECT_EQ(*files->read(folder / "a" / "copy", 16_MiB), whole);
  std::string seen;
  auto read = for_each_piece(**store, 5, whole.size() - 5, [&](byte_span piece) -> status {
    EXPECT_LE(piece.size(), byte_source_piece);
    seen += as_string_view(piece);
    return done{};
  });
  EXPECT_TRUE(read.ok());
  EXPECT_EQ(seen, whole.substr(5));
}

class SystemDisk : public Disk {};
TEST(SystemDisk, AHugeFileIsRefusedBeforeMemoryIsAllocated) {
  auto pattern = (fs::temp_directory_path() / "waggle-disk-XXXXXX").string();
  fs::path folder = ::mkdtemp(pattern.data());
  std::ofstream{folder / "sparse"};
  fs::resize_file(folder / "sparse", 60_GiB); // takes no room on the medium
  auto content = make_system_disk()->read(folder / "sparse", 1_MiB);
  EXPECT_EQ(content.error().code, ec::oversize);
  EXPECT_NE(content.error().detail.find("64424509440 bytes, more than 1048576"), std::string::npos)
    << content.error().detail;
  fs::remove_all(folder);
}

TEST(SystemDisk, DoesNotWriteThroughALinkInPlaceOfADraft) {
  auto pattern = (fs::temp_directory_path() / "waggle-disk-XXXXXX").string();
  fs::path folder = ::mkdtemp(pattern.data());
  std::ofstream{folder / "victim"} << "precious";
  fs::create_symlink(folder / "victim", folder / "state.new");
  auto files = make_system_disk();
  EXPECT_FALSE(files->write(folder / "state", {bytes("x")}).ok());
  EXPECT_EQ(*files->read(folder / "victim", 100), "precious");
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Only, SystemDisk, testing::Values(true),
                         [](const auto&) { return "System"; });

/// While it lives, no file of this process may grow beyond `bytes`: simulates a full disk.
class file_size_limit {
public:
  explicit file_size_limit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;

private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_P(SystemDisk, AFullDiskLeavesTheOldFileAndNoDraft) {
  auto file = folder / "state";
  ASSERT_TRUE(files->write(file, {bytes("old")}).ok());
  {
    file_size_limit limit{10};
    EXPECT_EQ(files->write(file, {bytes("longer than ten bytes")}).error().code, ec::io_error);
  }
  EXPECT_EQ(*files->read(file, 100), "old");
  EXPECT_EQ(*files->list(folder), std::vector<std::string>{"state"});
}

TEST_P(SystemDisk, AFullDiskFailsAStoreAndWhatIsWrittenFromIt) {
  auto store = files->make_store(folder);
  ASSERT_TRUE((*store)->write(0, bytes("longer than ten bytes")).ok());
  ASSERT_TRUE(files->write(folder / "state", {bytes("old")}).ok());
  file_size_limit limit{10};
  EXPECT_EQ((*store)->write(8, bytes("more")).error().code, ec::io_error);
  EXPECT_EQ(files->write_from(folder / "state", **store).error().code, ec::io_error);
  EXPECT_EQ(*files->read(folder / "state", 100), "old");
  EXPECT_EQ(*files->list(folder), std::vector<std::string>{"state"});
}

TEST_P(SystemDisk, ADraftOfADeadProcessIsNoObstacle) {
  auto file = folder / "state";
  std::ofstream{file.string() + ".new"} << "half a st";
  ASSERT_TRUE(files->write(file, {bytes("whole")}).ok());
  EXPECT_EQ(*files->read(file, 100), "whole");
  EXPECT_EQ(*files->list(folder), std::vector<std::string>{"state"});
}

TEST_P(SystemDisk, AFileWhereAFolderShouldBeIsAnErrorThatNamesIt) {
  ASSERT_TRUE(files->write(folder / "file", {bytes("x")}).ok());
  auto written = files->write(folder / "file" / "state", {bytes("y")});
  EXPECT_EQ(written.error().code, ec::io_error);
  EXPECT_NE(written.error().detail.find("file"), std::string::npos);
}

TEST(MemoryDisk, FailsWritesOnDemandAndKeepsWhatItHad) {
  memory_disk files;
  ASSERT_TRUE(files.write("/a", {bytes("old")}).ok());
  files.fail_writes(failure{ec::io_error, "no space left"});
  EXPECT_EQ(files.write("/a", {bytes("new")}).error(), (failure{ec::io_error, "no space left"}));
  files.fail_writes(std::nullopt);
  EXPECT_EQ(*files.read("/a", 100), "old");
  files.corrupt("/a", "ol");
  EXPECT_EQ(*files.read("/a", 100), "ol");
}

} // namespace
} // namespace waggle
