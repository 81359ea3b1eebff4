#include "runtime/core/folder_lock.hpp"

#include <cerrno>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/scratch_folder.hpp"

namespace {

int flock_error = 0; // of a file system
} // namespace

/// In place of the C library's.
extern "C" int flock(int handle, int how) noexcept {
  errno = flock_error;
  return flock_error != 0 ? -1 : static_cast<int>(::syscall(SYS_flock, handle, how));
}

namespace waggle {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

struct FolderLock : ::testing::Test {
  static unsigned mode_of(const fs::path& what) {
    struct stat found {};
    EXPECT_EQ(::stat(what.c_str(), &found), 0) << what;
    return found.st_mode & 07777U;
  }
  void expect_refused(const char* words) const {
    auto taken = folder_lock::take(folder);
    EXPECT_EQ(taken.error().code, ec::bad_config);
    EXPECT_THAT(taken.error().detail, HasSubstr(words));
    EXPECT_THAT(taken.error().detail, HasSubstr((folder / "lock").string()));
  }

  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

TEST_F(FolderLock, IsHeldByOneProcess) {
  auto first = folder_lock::take(folder);
  ASSERT_TRUE(first.ok() && *first);
  EXPECT_FALSE(*folder_lock::take(folder));
  *first = nullptr;
  auto third = folder_lock::take(folder);
  EXPECT_TRUE(third.ok() && *third);
}

TEST_F(FolderLock, CannotBeOpenedByOtherUsers) {
  auto mask = ::umask(0);
  auto lock = folder_lock::take(folder / "all" / "new");
  ::umask(mask);
  ASSERT_TRUE(lock.ok() && *lock);
  EXPECT_EQ(mode_of(folder / "all" / "new" / "lock"), 0600U);
  EXPECT_EQ(mode_of(folder / "all" / "new") & 022U, 0U) << "nor can they make files beside it";
  EXPECT_EQ(mode_of(folder / "all") & 022U, 0U) << "nor can they replace the folder";
}

TEST_F(FolderLock, OfANetworkFileSystemWithoutLocksIsNoOtherPeer) {
  flock_error = ENOLCK;
  expect_refused("No locks available: give this peer --data-dir on a file system with locks");
  flock_error = EWOULDBLOCK;
  auto taken = folder_lock::take(folder);
  flock_error = 0;
  EXPECT_FALSE(*taken);
}

TEST_F(FolderLock, OfAnEarlierVersionIsClosedToOtherUsers) {
  std::ofstream{folder / "lock"};
  fs::permissions(folder / "lock", fs::perms{0644});
  auto lock = folder_lock::take(folder);
  ASSERT_TRUE(lock.ok() && *lock);
  EXPECT_EQ(mode_of(folder / "lock"), 0600U);
}

TEST_F(FolderLock, OfAnotherUserIsRefusedWithASentence) {
  std::ofstream{folder / "lock"};
  if (::chown((folder / "lock").c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "only root can give files away";
  expect_refused("belongs to another user (uid 12345)");
}

TEST_F(FolderLock, ThatIsALinkToAnotherFileIsRefused) {
  std::ofstream{folder / "elsewhere"};
  fs::create_symlink(folder / "elsewhere", folder / "lock");
  expect_refused("is not a file that waggle made");
}

TEST_F(FolderLock, ThatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder / "lock").c_str(), 0600), 0);
  expect_refused("is not a file that waggle made");
  fs::remove(folder / "lock");
  fs::create_directory(folder / "lock");
  expect_refused("is not a file that waggle made");
}

} // namespace
} // namespace waggle
