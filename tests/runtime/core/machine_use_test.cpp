#include "runtime/core/machine_use.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace waggle {
namespace {

namespace fs = std::filesystem;

/// A folder with files as /proc and /sys have them.
struct MachineUse : ::testing::Test {
  const fs::path root =
    fs::temp_directory_path() / ("waggle-machine-" + std::to_string(::getpid()));

  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& file, const std::string& content) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream{root / file} << content;
  }
};

TEST_F(MachineUse, IsTheScarcerOfTheMachinesAndTheContainersMemory) {
  write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    750 kB\n");
  EXPECT_EQ(read_machine({}, root).memory, 0.25);
  write("proc/self/cgroup", "1:name=systemd:/x\n0::/job/7\n");
  write("sys/fs/cgroup/job/7/memory.max", "max\n");
  write("sys/fs/cgroup/job/7/memory.current", "900\n");
  EXPECT_EQ(read_machine({}, root).memory, 0.25) << "it has no limit";
  write("sys/fs/cgroup/job/7/memory.max", "1000\n");
  EXPECT_EQ(read_machine({}, root).memory, 0.9);
  write("sys/fs/cgroup/job/7/memory.stat", "anon 500\ninactive_file 100\nactive_file 300\n");
  EXPECT_EQ(read_machine({}, root).memory, 0.5) << "files can be dropped";
}

TEST_F(MachineUse, IsNothingWhereNothingCanBeRead) {
  auto nothing = read_machine(root / "no such folder", root);
  EXPECT_EQ(nothing.memory, std::nullopt);
  EXPECT_EQ(nothing.disk, std::nullopt);
  EXPECT_EQ(nothing.load, std::nullopt);
  write("proc/meminfo", "MemTotal: x kB\n");
  write("proc/loadavg", "-\n");
  EXPECT_EQ(read_machine({}, root).memory, std::nullopt);
  EXPECT_EQ(read_machine({}, root).load, std::nullopt);
}

TEST_F(MachineUse, OfThisMachineLiesWithinItsBounds) {
  auto is = read_machine("/tmp");
  for (const auto& share : {is.memory, is.disk}) {
    ASSERT_TRUE(share.has_value());
    EXPECT_GT(*share, 0);
    EXPECT_LE(*share, 1);
  }
  EXPECT_GE(is.load.value_or(-1), 0);
}

TEST(MachineWatch, LooksEveryTwoSecondsAtMost) {
  int looks = 0;
  machine_watch watch{[&] {
    machine_use is;
    is.load = ++looks;
    return is;
  }};
  EXPECT_EQ(watch.latest(), machine_use{});
  steady_time now{1h};
  EXPECT_EQ(watch.look(now).load, 1);
  EXPECT_EQ(watch.look(now + 1999ms).load, 1);
  EXPECT_EQ(watch.look(now + 2s).load, 2);
  EXPECT_EQ(watch.latest().load, 2);
}

} // namespace
} // namespace waggle
