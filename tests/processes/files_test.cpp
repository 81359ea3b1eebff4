// Files of a peer that other users could read, hold or replace, and what a killed peer left.

#include <sys/stat.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;

struct Files : ::testing::Test {
  peer start(const std::string& run = "files") { return {folder, "a", {"node", "--run-id", run}}; }
  fs::path data() const { return folder.path() / "a"; }
  static unsigned mode_of(const fs::path& what) {
    struct stat found {};
    EXPECT_EQ(::stat(what.c_str(), &found), 0) << what;
    return found.st_mode & 07777U;
  }

  scratch_folder folder;
};

TEST_F(Files, OfAPeerAreItsOwn) {
  auto a = start();
  (void)a.await_address();
  EXPECT_EQ(mode_of(data() / "identity.pem"), 0600U);
  EXPECT_EQ(mode_of(data() / "lock"), 0600U);
  EXPECT_EQ(mode_of(data()) & 022U, 0U);
  a.signal(SIGTERM);
  EXPECT_EQ(a.await_exit(), 0) << a.log();
}

TEST_F(Files, AKeyThatOthersCanReadEndsTheStartWithOneSentence) {
  {
    auto a = start();
    (void)a.await_address();
    a.signal(SIGTERM);
    ASSERT_EQ(a.await_exit(), 0) << a.log();
  }
  fs::permissions(data() / "identity.pem", fs::perms{0644});
  auto a = start();
  EXPECT_EQ(a.await_exit(), 2);
  EXPECT_NE(a.log().find("chmod 600"), std::string::npos) << a.log();
}

TEST_F(Files, ThatWereLeftHalfWrittenAreRemovedAndAnOpenFolderIsNamed) {
  fs::create_directories(data());
  std::ofstream{data() / "known_peers.new"} << "half";
  std::ofstream{data() / "temporary-aB3dE6"} << "half";
  fs::permissions(data(), fs::perms{0777});
  auto a = start();
  (void)a.await_address();
  EXPECT_FALSE(fs::exists(data() / "known_peers.new"));
  EXPECT_FALSE(fs::exists(data() / "temporary-aB3dE6"));
  EXPECT_NE(a.log().find("chmod go-w"), std::string::npos) << a.log();
}

/// Whoever knows the name may join.
TEST_F(Files, AndTheNameOfTheRunAreNotForStrangers) {
  auto a = start("a-secret-name");
  auto where = a.await_address();
  peer stranger{folder, "b", {"node", "--run-id", "guess", "--initial-peers", to_string(where)}};
  constexpr auto what_to_check =
    "this peer belongs to another run: the run's name must be the same on all peers";
  ASSERT_TRUE(eventually([&] { return stranger.log().find(what_to_check) != std::string::npos; }))
    << stranger.log();
  EXPECT_EQ(stranger.log().find("a-secret-name"), std::string::npos);
}

} // namespace
} // namespace waggle::testing
