#include "runtime/cli/peer_address.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/cli/scratch_folder.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

TEST(PeerAddress, IsFoundWhileThePeerRuns) {
  auto scratch = *scratch_folder::make();
  auto home = scratch->path();
  auto folder = home / "peer";
  fs::create_directories(folder);
  auto written = peer_address::write(folder, {"127.0.0.1", 7712});
  EXPECT_EQ(*address_of_running_peer(folder), (endpoint{"127.0.0.1", 7712}));
  written->reset();
  auto gone = address_of_running_peer(folder);
  EXPECT_NE(gone.error().detail.find(folder.string()), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "address"));
}

TEST(PeerAddress, OfAWildcardIsLoopback) {
  auto scratch = *scratch_folder::make();
  auto home = scratch->path();
  auto ipv6 = peer_address::write(home, {"::", 7700});
  EXPECT_EQ(*address_of_running_peer(home), (endpoint{"::1", 7700}));
  auto ipv4 = peer_address::write(home, {"0.0.0.0", 7700});
  EXPECT_EQ(*address_of_running_peer(home), (endpoint{"127.0.0.1", 7700}));
}

TEST(PeerAddress, OfAnotherProcessOrNonsenseIsNone) {
  auto scratch = *scratch_folder::make();
  auto home = scratch->path();
  auto with = [&](const std::string& text) {
    std::ofstream{home / "address"} << text;
    return address_of_running_peer(home).ok();
  };
  EXPECT_FALSE(with("127.0.0.1:7700\n999999999 1 pid:[1]\n"));
  EXPECT_FALSE(with("127.0.0.1:7700\n" + std::to_string(::getpid()) + " 1 pid:[1]\n"))
    << "a later process with the same number";
  EXPECT_FALSE(with("127.0.0.1:7700\n../../etc 1\n"));
  EXPECT_FALSE(with("127.0.0.1:7700\n"));
  EXPECT_FALSE(with("nowhere\n1 1 1\n"));
  EXPECT_FALSE(with(""));
}

TEST(PeerAddress, IsFoundFromTheFolderThatHasThoseOfThePeersUnlessThereAreSeveral) {
  auto scratch = *scratch_folder::make();
  auto home = scratch->path() / ".waggle";
  auto folder = [&](const char* run, int number) {
    auto made = default_folder(home, run, number);
    fs::create_directories(made);
    return made;
  };
  auto one = peer_address::write(folder("birds", 1), {"127.0.0.1", 7700});
  EXPECT_EQ(*address_of_running_peer(home), (endpoint{"127.0.0.1", 7700}));
  for (auto other : {folder("birds", 3), folder("bees", 1)}) {
    auto another = peer_address::write(other, {"127.0.0.1", 7701});
    EXPECT_NE(address_of_running_peer(home).error().detail.find("--data-dir"), std::string::npos);
    EXPECT_EQ(*address_of_running_peer(other), (endpoint{"127.0.0.1", 7701}));
  }
}

} // namespace
} // namespace waggle
