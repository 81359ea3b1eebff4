// What a peer that trains does when its data changes while it runs.

#include <csignal>

#include <gmock/gmock.h>

#include "tests/processes/checkpoints.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Data : ::testing::Test {
  Data() {
    std::signal(SIGHUP, SIG_DFL);
    for (const char* name : {"a", "b"}) {
      fs::create_directories(text_of(name).parent_path());
      std::ofstream{text_of(name)} << std::string(100'000, 'x');
    }
  }
  fs::path text_of(const std::string& name) const {
    return folder.path() / ("data-" + name) / "text";
  }
  peer start(const std::string& name, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--data", text_of(name).parent_path().string()});
    return {folder, name,
            words("train --run-id data --model mlp --width 16 --layers 1 --context 32 "
                  "--micro-batch 4 --target-batch-size 32 --step-interval 5ms",
                  more)};
  }
  static bool trains_with(const peer& who, std::uint64_t members, std::uint64_t epoch) {
    auto s = status_of(who);
    return number(s, "group_size") == members && number(s, "epoch") >= epoch;
  }
  scratch_folder folder;
};

TEST_F(Data, AFileThatBecomesShorterEndsThePeerInOrderAndNotTheOthers) {
  auto a = start("a");
  auto b = start("b", {"--initial-peers", to_string(a.await_address())});
  ASSERT_TRUE(eventually([&] { return trains_with(b, 2, 5); })) << b.log();
  fs::resize_file(text_of("a"), 1'000);
  EXPECT_EQ(a.await_exit(), 1) << a.log();
  EXPECT_THAT(a.log(), HasSubstr("has become shorter than the 100000 bytes"));
  EXPECT_GE(last_checkpoint(folder.path() / "a").epoch, 5U);
  auto epoch = epoch_of(b);
  EXPECT_TRUE(eventually([&] { return trains_with(b, 1, epoch + 5); })) << b.log();
  b.signal(SIGHUP);
  EXPECT_EQ(b.await_exit(), 0) << b.log();
  EXPECT_GE(last_checkpoint(folder.path() / "b").epoch, epoch + 5) << "at the end";
}

TEST_F(Data, APassOverFilesLargerThanMemoryReadsWhatItNeeds) {
  auto second = text_of("a").parent_path() / "second";
  std::ofstream{second} << "text";
  fs::resize_file(second, 20ULL << 30U); // a hole
  auto a = start("a", {"--passes", "1"});
  a.await_address();
  ASSERT_TRUE(eventually([&] { return trains_with(a, 1, 20); })) << a.log();
  std::istringstream status{content_of("/proc/" + std::to_string(a.pid()) + "/status")};
  std::uint64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:")
      status >> kib;
  EXPECT_GT(kib, 0U);
  EXPECT_LT(kib >> 10U, 2048U) << "of 20 GiB of text";
  a.signal(SIGHUP);
  EXPECT_EQ(a.await_exit(), 0) << a.log();
}

} // namespace
} // namespace waggle::testing
