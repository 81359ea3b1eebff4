#include "runtime/watch/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/event_logs.hpp"

namespace waggle {
namespace {

using namespace event_logs;
using json = nlohmann::json;
using testing::ElementsAre, testing::IsEmpty;

struct frame {
  std::string kind;
  json data;
};

std::vector<frame> frames_of(const std::string& text) {
  std::vector<frame> out;
  std::istringstream in{text};
  std::string kind;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("event: "))
      kind = line.substr(7);
    else if (line.starts_with("data: "))
      out.push_back({kind, json::parse(line.substr(6))});
  }
  return out;
}

/// Of `watched`, from its first call on, `passed` later.
std::vector<frame> at(replay& watched, milliseconds passed) {
  std::string all;
  for (auto next = watched.next(steady_time{passed}); !next.empty();
       next = watched.next(steady_time{passed}))
    all += next;
  return frames_of(all);
}

std::shared_ptr<const recording> recorded(const std::vector<std::string>& logs) {
  auto all = of(logs);
  EXPECT_TRUE(all.align().ok());
  return std::make_shared<const recording>(std::move(all));
}

/// Peer 1 and peer 2, whose clock is ahead, train; peer 3, which writes no log, comes and is lost.
class Replay : public testing::Test {
protected:
  Replay() {
    a.add(0, watch::started{"0.1", "red", "trainer"});
    a.add(10, watch::phase_changed{"joining", "training", ""});
    b.add(5, watch::started{"0.1", "red", "node"});
    a.add(100, watch::peer_joined{id_of(3), "127.0.0.1:1", "client", "tcp"});
    a.add(110, watch::peer_joined{id_of(2), "", "node", ""});
    for (int i = 1; i <= 80; ++i) {
      a.round(1000 * i, i);
      b.round(1000 * i, i);
      watch::epochs_ended ended{
        .epoch = static_cast<std::uint64_t>(i), .samples = 64, .loss = 100 - i, .duration_s = 1};
      a.add(1000 * i + 1, ended);
    }
    a.add(50'500, watch::peer_left{id_of(3), "peer_lost", 50});
    a.add(50'600, watch::slow{id_of(2), "far", "80 ms away", 80});
    a.add(70'000, watch::slow{id_of(2), "", "not any more", std::nullopt});
    b.add(50'550, watch::member_lost{id_of(3), round_of(50), "stalled"});
    from = recorded({a.text, b.text});
  }

  std::vector<frame> see(std::int64_t t, std::int64_t speed, milliseconds passed = {}) {
    replay watched{from, {id_of(1), t0 + t, speed}};
    auto all = at(watched, 0ms);
    if (passed > 0ms)
      return at(watched, passed);
    return all;
  }

  log_writer a{1, 0};
  log_writer b{2, 3000};
  std::shared_ptr<const recording> from;
};

TEST_F(Replay, TheSnapshotIsThePictureOfThatTime) {
  auto all = see(50'700, 1);
  ASSERT_EQ(all.size(), 1U);
  const auto& seen = all[0].data;
  EXPECT_EQ(all[0].kind, "snapshot");
  EXPECT_EQ(seen["now"], t0 + 50'700);
  EXPECT_EQ(
    seen["self"],
    (json{{"peer", to_string(id_of(1))}, {"run", "red"}, {"role", "trainer"}, {"version", "0.1"}}));
  EXPECT_EQ(seen["status"]["phase"], "training");
  EXPECT_EQ(seen["status"]["epoch"], 50);
  EXPECT_EQ(seen["status"]["loss"], 50);
  EXPECT_EQ(seen["status"]["samples_per_second"], 64) << "used ones, by wall time";
  ASSERT_EQ(seen["peers"]["peers"].size(), 2U);
  const auto& second = seen["peers"]["peers"][1];
  EXPECT_EQ(second["id"], to_string(id_of(2)));
  EXPECT_EQ(second["role"], "node");
  EXPECT_EQ(second["slow"]["cause"], "far");
  EXPECT_EQ(seen["peers"]["left"],
            json::parse("[{\"peer\":\"" + to_string(id_of(3)) + "\",\"t\":"
                        + std::to_string(t0 + 50'500) + ",\"reason\":\"peer_lost\"}]"));
  EXPECT_EQ(seen["rounds"].size(), 50U);
  EXPECT_EQ(seen["rounds"].back()["epoch"], 0);
  EXPECT_EQ(seen["loss"].size(), 50U);
  EXPECT_EQ(seen["loss"].back()[2], 50);
  EXPECT_EQ(seen["replay"]["from"], t0);
  EXPECT_EQ(seen["replay"]["to"], t0 + 80'001);
  EXPECT_EQ(seen["replay"]["peers"].size(), 2U);
}

TEST_F(Replay, RoundsAreThoseOfTheLogExceptForTheirNumbersAndCorrectedTimes) {
  replay watched{from, {id_of(2), t0 + 80'001, 0}};
  auto seen = at(watched, 0ms)[0].data["rounds"];
  ASSERT_EQ(seen.size(), event_ring::rounds_kept);
  std::istringstream lines{b.text};
  std::vector<json> written;
  for (std::string line; std::getline(lines, line);)
    if (auto each = json::parse(line); each["type"] == "round")
      written.push_back(each);
  for (std::size_t i = 1; i <= seen.size(); ++i) {
    auto is = seen[seen.size() - i];
    auto was = written[written.size() - i];
    for (const auto* key : {"t", "began"})
      was[key] = was[key].get<std::int64_t>() - 3000;
    is.erase("seq");
    was.erase("seq");
    EXPECT_EQ(is, was);
  }
}

TEST_F(Replay, EventsComeInOrderAtTheChosenSpeed) {
  // Own ones, and what others say of more than their rounds and epochs.
  auto all = see(50'400, 10, 100ms);
  std::vector<std::string> types;
  for (const auto& each : all)
    if (each.kind == "event")
      types.push_back(each.data["type"]);
  EXPECT_THAT(types, ElementsAre("peer_left", "member_lost", "slow", "round", "epoch"));
  for (const auto& each : see(50'400, 1, 99ms))
    EXPECT_NE(each.kind, "event");
}

TEST_F(Replay, StandsStillAtSpeedZeroAndAtItsEnd) {
  auto still = see(50'400, 0, 5000ms);
  ASSERT_EQ(still.size(), 1U);
  EXPECT_EQ(still[0].kind, "vitals");
  EXPECT_EQ(still[0].data["t"], t0 + 50'400);
  auto end = see(80'001, replay_request::speed_max, 5000ms);
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].data["t"], t0 + 80'001);
}

TEST_F(Replay, WhatIsTooQuickToBeSeenStillCounts) {
  auto all = see(0, 1000, 75'000ms / 1000);
  std::size_t rounds = 0;
  for (const auto& each : all)
    rounds += each.kind == "event" && each.data["type"] == "round" ? 1 : 0;
  EXPECT_EQ(rounds, 16U);
  replay watched{from, {id_of(1), t0, 1000}};
  static_cast<void>(at(watched, 0ms));
  auto later = at(watched, 1000ms); // with vitals
  EXPECT_EQ(later.back().kind, "vitals");
  EXPECT_EQ(later.back().data["status"]["epoch"], 80);
  EXPECT_FALSE(later.back().data["peers"]["peers"][1].contains("slow"));
}

TEST_F(Replay, AStartForgetsWhoWasThere) {
  a.add(90'000, watch::started{"0.2", "red", "trainer"});
  auto again = recorded({a.text});
  replay watched{again, {std::nullopt, t0 + 99'999, 0}};
  auto seen = at(watched, 0ms)[0].data;
  EXPECT_EQ(seen["peers"]["peers"].size(), 1U);
  EXPECT_THAT(seen["peers"]["left"], IsEmpty());
  EXPECT_EQ(seen["self"]["version"], "0.2");
}

TEST_F(Replay, ALogThatBeginsInTheMiddleIsShown) {
  log_writer rolled{4, 0};
  rolled.add(0, watch::slow{id_of(5), "far", "80 ms away", 80});
  rolled.round(10, 1);
  rolled.add(20, watch::peer_left{id_of(6), "timeout", 1});
  auto again = recorded({rolled.text});
  replay watched{again, {std::nullopt, t0 + 20, 0}};
  auto seen = at(watched, 0ms)[0].data;
  EXPECT_EQ(seen["peers"]["peers"].size(), 1U);
  EXPECT_EQ(seen["rounds"].size(), 1U);
  EXPECT_EQ(seen["self"]["run"], "");
}

TEST_F(Replay, TheOwnLossIsShownAmongManyPeers) {
  std::vector<std::string> logs;
  for (int n = 1; n <= 20; ++n) {
    log_writer each{n, 0};
    watch::epochs_ended ended{.loss = n};
    each.add(n, ended);
    logs.push_back(each.text);
  }
  replay watched{recorded(logs), {id_of(20), t0 + 20, 0}};
  auto losses = at(watched, 0ms)[0].data["loss"];
  ASSERT_EQ(losses.size(), 16U);
  EXPECT_EQ(losses.back()[1], to_string(id_of(20)));
}

TEST_F(Replay, NumbersThatNobodyHasDoNoHarm) {
  auto from_line = [&](const std::string& epoch) {
    return R"({"seq":1,"t":1700000000000,"type":"epoch","peer":")" + to_string(id_of(1))
           + R"(","epoch":)" + epoch
           + R"(,"loss":"<b>","samples":-1e308,"duration_s":1e-308,"epochs":1})"
             "\n";
  };
  for (const auto* epoch : {"1e300", "-1e300", "18446744073709551615", "{}", "null"}) {
    replay watched{recorded({from_line(epoch)}), {std::nullopt, t0, 0}};
    EXPECT_FALSE(at(watched, 0ms)[0].data["status"].contains("global_epoch")) << epoch;
  }
}

TEST(ReplayRequest, ReadsItsQueryAndRefusesNonsense) {
  auto id = to_string(id_of(7));
  auto good = replay_request::parse("speed=0&at=-5&peer=" + id);
  EXPECT_EQ(good->at, -5);
  EXPECT_EQ(good->speed, 0);
  EXPECT_EQ(good->as, id_of(7));
  EXPECT_TRUE(replay_request::parse("").ok());
  for (const auto& bad :
       {std::string{"at"}, std::string{"at="}, std::string{"at=1e3"}, std::string{"at=1&at=2"},
        std::string{"speed=-1"}, std::string{"speed=100001"}, std::string{"peer=xyz"},
        std::string{"at=99999999999999999999"}, std::string{"=&"}, std::string{"other=1"},
        "peer=" + id + "00"})
    EXPECT_FALSE(replay_request::parse(bad).ok()) << bad;
}

} // namespace
} // namespace waggle
