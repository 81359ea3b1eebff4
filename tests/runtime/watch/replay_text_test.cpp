#include "runtime/watch/replay_text.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/event_logs.hpp"

namespace waggle {
namespace {

using namespace event_logs;

using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::Not, testing::SizeIs,
  testing::StartsWith;

constexpr std::int64_t minute = 60'000, hour = 60 * minute;

class ReplayText : public testing::Test {
protected:
  ReplayText() { ::setenv("TZ", "UTC0", 1); }

  std::vector<std::string> text(const replay_choice& how = {}) {
    std::vector<std::string> logs;
    for (auto& each : peers)
      logs.push_back(each.text);
    all = of(logs);
    EXPECT_TRUE(all.align().ok());
    return replay_text(all, how);
  }
  static std::vector<std::string> with(const std::vector<std::string>& lines,
                                       const std::string& words) {
    std::vector<std::string> out;
    for (const auto& each : lines)
      if (each.find(words) != std::string::npos)
        out.push_back(each);
    return out;
  }
  static watch::epochs_ended epoch(std::uint64_t n, double loss) {
    return watch::epochs_ended{.epoch = n, .loss = loss, .duration_s = 1};
  }
  /// Peers 1 to 5, whose clocks differ; peer 9, which writes no log, is lost by all of them.
  void lose(std::int64_t t, int who = 9) {
    for (auto& each : peers)
      each.add(t, watch::peer_left{id_of(who), "the connection was closed", 6});
  }
  /// By which their clocks are corrected.
  void meet() {
    for (int i = 1; i <= 3; ++i)
      for (auto& each : peers)
        each.round(100 * i, i);
  }

  std::vector<log_writer> peers{{1, 0}, {2, 3000}, {3, -500}, {4, hour}, {5, 7}};
  timeline all;
};

TEST_F(ReplayText, BeginsWithTheSums) {
  for (auto& each : peers)
    each.add(0, watch::started{"0.1", "birds", "trainer"});
  for (int i = 1; i <= 60; ++i)
    for (auto& each : peers) {
      each.round(1000 * i, i, i == 7 ? "failed" : i % 20 == 0 ? "shrunk" : "complete");
      each.add(1000 * i + 1, epoch(static_cast<std::uint64_t>(i), 1.31 - 0.0045 * (i - 1)));
    }
  lose(20'000);
  lose(45'000);
  lose(31'000, 8);
  peers[0].add(40'000, watch::peer_left{id_of(7), "it leaves", 3, true});
  peers[1].add(41'000, watch::remark{watch::remark::what::split, "cut off from most of the group"});
  peers[2].add(42'000, watch::remark{watch::remark::what::split, "live peers train 2 histories"});
  peers[2].add(50'000,
               watch::remark{watch::remark::what::split, "live peers train 1 history again"});
  auto lines = text();
  ASSERT_GT(lines.size(), 3U);
  EXPECT_THAT(lines[0], AllOf(StartsWith("run birds, 5 logs, 2023-11-14 22:13:20 to 22:14:20 UTC"),
                              HasSubstr("(60 s)")));
  EXPECT_EQ(lines[1], "2 peers left (3 times), 1 split, 60 rounds, 3 shrunk, 1 failed, epochs 1 to "
                      "60, loss 1.31 → 1.04");
}

TEST_F(ReplayText, WhatSeveralPeersSayIsSaidOnce) {
  meet();
  lose(5000);
  auto lines = with(text(), "Peer 09000000 left");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr("22:13:25  5 peers   ! Peer 09000000 left: the connection was "
                                  "closed, after 6.0 s"));
  auto rounds = text({"rounds"});
  EXPECT_THAT(rounds, SizeIs(6)) << "each once, after the sums";
  EXPECT_THAT(rounds[3], HasSubstr("(5 peers)"));
}

TEST_F(ReplayText, OfANightOfFivePeersIsShorterThanTwoHundredLines) {
  constexpr int rounds = 2880; // every ten seconds of eight hours
  for (int i = 1; i <= rounds; ++i)
    for (auto& each : peers) {
      auto t = 10'000 * static_cast<std::int64_t>(i);
      watch::round_ended ended;
      ended.round.bytes = {std::byte(i), std::byte(i / 256)};
      ended.outcome = i % 97 == 0 ? "shrunk" : "complete";
      ended.began = t0 + t - 10;
      ended.duration_ms = 10;
      each.add(t, ended);
      each.add(t + 1, epoch(static_cast<std::uint64_t>(i), 2.0));
      if (i % 30 == 0)
        each.add(t + 2, watch::checkpoint{static_cast<std::uint64_t>(i), 1'000'000, 0.1, "ok"});
      if (i % 11 == 0)
        each.add(t + 3, watch::remark{watch::remark::what::notice, "in " + std::to_string(i)});
    }
  for (int i = 0; i < 150; ++i)
    lose(i * 3 * minute, 6 + i % 60);
  auto lines = text();
  EXPECT_LT(lines.size(), 200U);
  EXPECT_GT(lines.size(), 50U);
  EXPECT_THAT(with(lines, "shrunk"), Not(testing::IsEmpty()));
  EXPECT_LT(text({"problems"}).size(), 200U);
}

TEST_F(ReplayText, OnlyProblemsAreThoseAndRoundsThatLostAMember) {
  peers[0].round(1000, 1, "shrunk");
  peers[0].round(2000, 2);
  peers[0].add(3000, watch::peer_joined{id_of(9), "", "client", ""});
  peers[0].add(4000, watch::checkpoint{4, 10, 0.1, "the disk is full"});
  peers[0].add(5000, watch::checkpoint{5, 10, 0.1, "ok"});
  peers[0].add(6000, watch::peer_left{id_of(9), "it leaves", 3, true});
  auto lines = text({"problems"});
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(lines[3], HasSubstr("A round lost a member"));
  EXPECT_THAT(lines[4], HasSubstr("the disk is full"));
  EXPECT_THAT(text({"run"}), SizeIs(5));
  EXPECT_THAT(text({"epochs"}), testing::Contains("nothing of this kind"));
  std::size_t wanted = 0;
  for (const auto& each : all.events())
    wanted += is_wanted({"problems"}, each) ? 1 : 0;
  EXPECT_EQ(wanted, 2U);
  EXPECT_THAT(with(text(), "Checkpoint"), SizeIs(1)) << "one that was written is no news";
}

TEST_F(ReplayText, BeginsWhereItIsWanted) {
  meet();
  lose(1000);
  lose(100'000, 8);
  auto lines = text({"", t0 + 50'000});
  EXPECT_THAT(with(lines, "09000000"), SizeIs(0));
  EXPECT_THAT(with(lines, "08000000"), SizeIs(1));
  EXPECT_THAT(lines[1], StartsWith("1 peer left, "));
}

TEST(TimeWithin, IsTheOneInTheLogsOrNextToThem) {
  ::setenv("TZ", "UTC0", 1);
  auto at = [](const std::string& text) { // 22:13:20 on 2023-11-14, and eight hours more
    return time_within(text, t0, t0 + 8 * hour);
  };
  constexpr std::int64_t midnight = t0 + 106 * minute + 40'000;
  EXPECT_EQ(at("02:00").value(), midnight + 2 * hour);
  EXPECT_EQ(at("23:30:15").value(), midnight - 30 * minute + 15'000);
  EXPECT_EQ(at("2023-11-15 02:00").value(), midnight + 2 * hour);
  EXPECT_EQ(at("2023-11-15T02:00:01").value(), midnight + 2 * hour + 1000);
  EXPECT_EQ(at("21:00").value(), t0) << "shortly before them: all";
  EXPECT_EQ(at("2023-11-01 02:00").value(), t0);
  EXPECT_EQ(time_within("02:00", t0, t0 + 50 * hour).value(), midnight + 26 * hour)
    << "the last one";
  for (const auto* future : {"07:30", "2024-01-01 00:00"}) {
    ASSERT_FALSE(at(future).ok()) << future;
    EXPECT_THAT(at(future).error().detail,
                HasSubstr("is after the last event: these logs go from 2023-11-14 22:13:20 to"));
  }
  for (const auto* odd : {"", "2", "25:00", "02:00 ", "02:00x", "02:0a", "yesterday", "-1:00",
                          "2023-13-01 00:00", "2023-02-30 02:00", "9999999999999:00"})
    EXPECT_FALSE(at(odd).ok()) << odd;
}

} // namespace
} // namespace waggle
