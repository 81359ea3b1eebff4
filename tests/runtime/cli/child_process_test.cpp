#include "runtime/cli/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/scratch_folder.hpp"

using namespace waggle;

namespace {

class ChildProcess : public ::testing::Test {
protected:
  [[nodiscard]] std::filesystem::path log() const { return folder_ / "log"; }
  static int wait_for(child_process& child) {
    std::optional<int> status;
    while (!(status = child.ended()))
      ::sched_yield();
    return *status;
  }

  waggle::testing::scratch_folder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

} // namespace

TEST_F(ChildProcess, WritesBothOutputsToItsLogAndTellsHowItEnded) {
  auto child = child_process::start({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, log());
  auto status = wait_for(*child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(child->ended(), status) << "the same on a second call";
  std::ifstream in{log()};
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), "out\nerr\n");
}

TEST_F(ChildProcess, InheritsNoVariableThatSetsAnOption) {
  const std::vector<const char*> options{"WAGGLE_IDENTITY", "INITIAL_PEERS", "PL_INITIAL_PEERS"};
  for (const char* name : options)
    ::setenv(name, "1", 1);
  auto child = child_process::start({"/usr/bin/env"}, log());
  for (const char* name : options)
    ::unsetenv(name);
  ASSERT_TRUE(child);
  EXPECT_EQ(wait_for(*child), 0);
  std::ifstream in{log()};
  bool path = false;
  for (std::string line; std::getline(in, line);) {
    EXPECT_EQ(line.find("WAGGLE_"), std::string::npos) << line;
    EXPECT_EQ(line.find("INITIAL_PEERS"), std::string::npos) << line;
    path = path || line.starts_with("PATH=");
  }
  EXPECT_TRUE(path) << "all others are inherited";
}

TEST_F(ChildProcess, GetsSignalsAlsoWhenTheParentHoldsThemBack) {
  sigset_t held;
  sigset_t before;
  sigemptyset(&held);
  sigaddset(&held, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &held, &before), 0);
  auto child = child_process::start({"/bin/sh", "-c", "kill -TERM $$; exit 0"}, log());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(child);
  auto status = wait_for(*child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(ChildProcess, IsKilledAndReapedWithItsOwner) {
  pid_t pid = 0;
  {
    auto child = child_process::start({"/bin/sleep", "1000"}, log());
    pid = child->pid();
    EXPECT_FALSE(child->ended());
    auto moved = std::move(*child);
    EXPECT_EQ(::kill(pid, 0), 0) << "moving does not end it";
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildProcess, SignalsEndIt) {
  auto child = child_process::start({"/bin/sleep", "1000"}, log());
  child->signal(SIGKILL);
  auto status = wait_for(*child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  child->signal(SIGKILL); // no effect on a process that has ended
}

TEST_F(ChildProcess, ItsEndReadsAsAnExitCodeOrASignal) {
  auto fails = child_process::start({"/bin/sh", "-c", "exit 3"}, log());
  EXPECT_EQ(how_it_ended(wait_for(*fails)), "with exit code 3");
  auto stays = child_process::start({"/bin/sleep", "1000"}, log());
  stays->signal(SIGKILL);
  EXPECT_EQ(how_it_ended(wait_for(*stays)), "by signal 9");
}

TEST_F(ChildProcess, SaysWhyItsLogCannotBeWritten) {
  auto child = child_process::start({"/bin/true"}, folder_ / "none" / "log");
  EXPECT_NE(child.error().detail.find("none/log"), std::string::npos);
}
