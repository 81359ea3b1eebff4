// Which signals end a peer, and which do not.

#include <csignal>

#include <gmock/gmock.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

struct Signals : ::testing::Test {
  /// Those who run the tests may ignore signals; a peer goes on to ignore what it finds ignored.
  Signals() {
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT})
      std::signal(signal, SIG_DFL);
  }
  peer start(const std::string& name) {
    peer p{folder, name, {"node", "--run-id", "signals", "--log-level", "info"}};
    (void)p.await_address();
    return p;
  }
  scratch_folder folder;
};

TEST_F(Signals, ThatASystemSendsBeforeItKillsEndAPeerInOrder) {
  for (auto [signal, name] : {std::pair{SIGTERM, "SIGTERM"},
                              {SIGINT, "SIGINT"},
                              {SIGHUP, "SIGHUP"},
                              {SIGUSR1, "SIGUSR1"}}) {
    auto p = start(name);
    p.signal(signal);
    EXPECT_EQ(p.await_exit(), 0) << name << "\n" << p.log();
    EXPECT_THAT(p.log(), HasSubstr("this peer is stopping: received " + std::string{name}));
  }
}

TEST_F(Signals, QuitShowsTheStateUser2SwitchesDebugAndThePeerGoesOn) {
  auto p = start("a");
  ASSERT_TRUE(eventually([&] { return status_of(p).is_object(); })) << p.log();
  p.signal(SIGUSR2);
  p.signal(SIGQUIT);
  EXPECT_TRUE(eventually([&] {
    return p.log().find("uptime") != std::string::npos
           && p.log().find("received SIGUSR2: debug lines are on") != std::string::npos;
  }))
    << p.log();
  EXPECT_THAT(p.log(), HasSubstr("the state of this peer"));
  p.signal(SIGUSR2);
  EXPECT_TRUE(eventually([&] { return p.log().find("debug lines are off") != std::string::npos; }))
    << p.log();
  EXPECT_TRUE(p.runs());
  p.signal(SIGTERM);
  EXPECT_EQ(p.await_exit(), 0) << p.log();
}

TEST_F(Signals, HangUpIsIgnoredUnderNohup) {
  std::signal(SIGHUP, SIG_IGN);
  auto p = start("a");
  std::signal(SIGHUP, SIG_DFL);
  p.signal(SIGHUP);
  p.signal(SIGTERM);
  EXPECT_EQ(p.await_exit(), 0) << p.log();
  EXPECT_THAT(p.log(), HasSubstr("received SIGTERM"));
}

TEST_F(Signals, QuitShowsTheStateThoughTheShellIgnoredOrBlockedIt) {
  sigset_t quit;
  sigemptyset(&quit);
  sigaddset(&quit, SIGQUIT);
  for (bool blocked : {false, true}) {
    std::signal(SIGQUIT, blocked ? SIG_DFL : SIG_IGN);
    pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &quit, nullptr);
    auto p = start(blocked ? "blocked" : "ignored");
    std::signal(SIGQUIT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &quit, nullptr);
    p.signal(SIGQUIT);
    EXPECT_TRUE(eventually([&] { return p.log().find("uptime") != std::string::npos; })) << p.log();
    p.signal(SIGTERM);
    EXPECT_EQ(p.await_exit(), 0) << p.log();
  }
}

} // namespace
} // namespace waggle::testing
