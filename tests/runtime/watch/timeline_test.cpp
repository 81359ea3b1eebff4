#include "runtime/watch/timeline.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/event_logs.hpp"

namespace waggle {
namespace {

using namespace event_logs;

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

std::vector<std::string> types_in(const timeline& all) {
  std::vector<std::string> out;
  for (const auto& event : all.events())
    out.push_back(event.type);
  return out;
}

TEST(Timeline, RoundsCorrectAClockThatIsThreeSecondsAhead) {
  log_writer a{1, 0};
  log_writer b{2, 3000};
  for (int i = 1; i <= 5; ++i) {
    a.round(100 * i, i);
    b.round(100 * i + (i % 2 == 0 ? 1 : 0), i); // the end reaches it a moment later
  }
  b.add(1000, watch::peer_left{id_of(3), "peer_lost", 1});
  a.add(1500, watch::member_lost{id_of(3), round_of(9), "stalled"});
  b.add(2000, watch::peer_joined{id_of(3), "", "node", "tcp"});
  auto all = of({a.text, b.text});
  ASSERT_TRUE(all.align().ok());
  EXPECT_EQ(all.offsets().at(id_of(2)) - all.offsets().at(id_of(1)), 3000);
  EXPECT_THAT(all.unaligned(), IsEmpty());
  auto types = types_in(all);
  ASSERT_THAT(types, SizeIs(13));
  EXPECT_THAT(std::vector(types.end() - 3, types.end()),
              ElementsAre("peer_left", "member_lost", "peer_joined"));
}

TEST(Timeline, PeersThatShareNoRoundKeepTheirClocksAndAreNamed) {
  log_writer a{1, 0};
  a.round(0, 1);
  log_writer b{2, 3000};
  b.round(0, 1, "failed"); // it did not end together
  auto all = of({a.text, b.text});
  ASSERT_TRUE(all.align().ok());
  EXPECT_THAT(all.unaligned(), ElementsAre(id_of(2)));
}

TEST(Timeline, ClocksAreCorrectedThroughPeersInBetween) {
  log_writer a{1, 0};
  log_writer b{2, 500};
  log_writer c{3, -700};
  a.round(0, 1);
  a.round(10, 2);
  b.round(0, 1);
  b.round(50, 3);
  c.round(50, 3);
  auto all = of({a.text, b.text, c.text});
  ASSERT_TRUE(all.align().ok());
  EXPECT_EQ(all.offsets().at(id_of(3)) - all.offsets().at(id_of(1)), -700);
}

TEST(Timeline, ALogThatIsCutAnywhereInItsLastLineIsRead) {
  log_writer a{1, 0};
  a.add(0, watch::stopping{"one"});
  auto whole = a.text.size();
  a.add(1, watch::stopping{"two"});
  for (auto end = whole; end < a.text.size() - 1; ++end) {
    auto all = of({a.text.substr(0, end)});
    ASSERT_TRUE(all.align().ok());
    EXPECT_THAT(all.events(), SizeIs(1)) << end;
    EXPECT_EQ(all.left_out(), end == whole ? 0U : 1U);
  }
}

TEST(Timeline, LinesThatOverlapAreThereOnce) {
  log_writer a{1, 0};
  a.add(0, watch::stopping{"one"});
  a.add(1, watch::stopping{"two"});
  auto all = of({a.text, a.text});
  ASSERT_TRUE(all.align().ok());
  EXPECT_THAT(all.events(), SizeIs(2));
}

TEST(Timeline, RefusesLogsOfSeveralRunsAndNoLogs) {
  log_writer a{1, 0};
  a.add(0, watch::started{"1", "red", "trainer"});
  log_writer b{2, 0};
  b.add(0, watch::started{"1", "blue", "trainer"});
  EXPECT_THAT(of({a.text, b.text}).align().error().detail, HasSubstr("blue and red"));
  EXPECT_FALSE(of({std::string(1 << 20, 'x')}).align().ok());
}

TEST(Timeline, LeavesOutWhatIsNoEventOfThisVersion) {
  auto id = to_string(id_of(1));
  auto event = [&](const std::string& t, const std::string& type, const std::string& more = "") {
    return "{\"seq\":1,\"t\":" + t + ",\"type\":\"" + type + "\",\"peer\":\"" + id + "\"" + more
           + "}";
  };
  EXPECT_TRUE(parse_event(event("1700000000000", "stop")).ok());
  for (const auto& line :
       {event("1700000000000", "teleported"), event("0", "stop"), event("4200000000000", "stop"),
        event("NaN", "stop"), event("1e999", "stop"), event("1700000000000", "round"),
        event("1700000000000", "round", ",\"round\":\"00\",\"began\":1,\"duration_ms\":1"),
        std::string{"{\"seq\":1}"}, std::string{"[]"}, std::string(100'000, '['), std::string{}})
    EXPECT_FALSE(parse_event(line).ok()) << line.substr(0, 100);
}

TEST(Timeline, TextNamesWhatHappened) {
  ::setenv("TZ", "UTC0", 1);
  log_writer a{1, 0};
  a.add(0, watch::peer_left{id_of(3), "silent for 1.1 s", 5});
  auto left = parse_event(a.text.substr(0, a.text.size() - 1));
  EXPECT_EQ(text_of(*left),
            "22:13:20.000 01000000 Peer 03000000 left: silent for 1.1 s, after 5.0 s");
}

} // namespace
} // namespace waggle
