#include "runtime/core/wait_log.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

struct WaitLog : ::testing::Test {
  /// "": nothing is logged; a warning begins with "! ".
  std::string at(std::chrono::milliseconds when, const std::string& what) {
    auto line = log.look(what, steady_time{} + 1h + when);
    return line ? (line->late ? "! " : "") + line->text : "";
  }
  wait_log log;
};

TEST_F(WaitLog, SaysItAtOnceAndThenEveryTenSecondsAsAWarning) {
  EXPECT_EQ(at(0s, "a peer"), "waiting for a peer");
  EXPECT_EQ(at(5s, "a peer"), "");
  EXPECT_EQ(at(10s, "a peer"), "! for 10 s now waiting for a peer");
  EXPECT_EQ(at(19s, "a peer"), "");
  EXPECT_EQ(at(20s, "a peer"), "! for 20 s now waiting for a peer");
}

TEST_F(WaitLog, IsNotSilencedByAReasonThatKeepsChanging) {
  EXPECT_EQ(at(0s, "a"), "waiting for a");
  EXPECT_EQ(at(6s, "b"), "waiting for b");
  EXPECT_EQ(at(11s, "a"), "! for 11 s now waiting, at present for a");
  EXPECT_EQ(log.since(), steady_time{} + 1h + 11s);
}

TEST_F(WaitLog, AnAttemptThatFailsDoesNotEndTheWait) {
  EXPECT_EQ(at(0s, "room"), "waiting for room");
  EXPECT_EQ(at(6s, ""), "");
  EXPECT_EQ(at(8s, "room"), "waiting for room");
  EXPECT_EQ(at(12s, "room"), "! for 12 s now waiting, at present for room");
}

TEST_F(WaitLog, AWaitThatIsOverBeginsAnew) {
  EXPECT_EQ(at(0s, "room"), "waiting for room");
  EXPECT_EQ(at(6s, ""), "");
  EXPECT_EQ(at(20s, ""), "");
  EXPECT_EQ(at(30s, "room"), "waiting for room");
  EXPECT_EQ(at(39s, "room"), "");
  EXPECT_EQ(at(40s, "room"), "! for 10 s now waiting for room");
}

} // namespace
} // namespace waggle
