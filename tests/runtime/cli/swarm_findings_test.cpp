#include "runtime/cli/swarm_findings.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace waggle {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not, ::testing::SizeIs;
using json = nlohmann::ordered_json;
using level = finding::level;

const endpoint there{"10.0.0.1", 7700};
constexpr std::int64_t now = 1'790'000'000'000; // Unix milliseconds

const std::string one(64, 'a'), two(64, 'b');

asked_member member(const std::string& id, const std::string& fields = R"(,"history":"h1")") {
  asked_member out{id, {there}};
  out.status =
    R"({"version":"0.1.0","run_tag":"r","uptime_seconds":900,"peer":")" + id + "\"" + fields + "}";
  out.connected = true;
  return out;
}

asked_member silent(const std::string& id, ec code) {
  asked_member out{id, {there}};
  out.why = {code, "no answer"};
  return out;
}

asked_member lost(asked_member of, std::int64_t seconds_ago = 180) {
  of.left =
    seen_leaving{now - 1000 * seconds_ago, "the connection was closed", true, 3, "peer_lost"};
  return of;
}

std::vector<finding> of_kind(const std::vector<finding>& all, const std::string& check) {
  std::vector<finding> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out),
               [&](const finding& f) { return f.check == check; });
  return out;
}

TEST(SwarmFindings, ASwarmIsSplitIfItsPeersHoldSeveralHistories) {
  auto good = judge_swarm({member(one), member(two), asked_member{"cccccccc", {}}}, now);
  ASSERT_THAT(good, SizeIs(2));
  EXPECT_FALSE(any_bad(good));
  EXPECT_THAT(good[0].seen, HasSubstr("2 peers of 3 peers answer; 1 are clients"));
  auto split = judge_swarm({member(one), member(two, R"(,"history":"h2","differing_peers":2)"),
                            asked_member{"eeeeeeee", {there}, "nonsense"}},
                           now);
  EXPECT_TRUE(any_bad(split));
  EXPECT_THAT(split[1].seen, HasSubstr("h1: aaaaaaaa; h2: bbbbbbbb"));
  EXPECT_EQ(of_kind(split, "parameters").at(0).how, level::bad);
  EXPECT_TRUE(any_bad(judge_swarm({}, now))) << "nobody answers";
}

TEST(SwarmFindings, APeerThatIsCutOffIsBad) {
  auto all = judge_swarm({member(one, R"(,"provisional":true)")}, now);
  EXPECT_THAT(of_kind(all, "split").at(0).seen, HasSubstr("peer aaaaaaaa is cut off from most"));
  EXPECT_TRUE(any_bad(all));
  auto left_alone = member(one, R"(,"provisional":true)");
  auto dead = lost(silent(two, ec::peer_lost));
  EXPECT_THAT(of_kind(judge_swarm({left_alone, dead}, now), "split"), IsEmpty())
    << "processes that ended are no cut";
  auto unseen = lost(silent(std::string(64, 'c'), ec::unreachable));
  EXPECT_THAT(of_kind(judge_swarm({left_alone, dead, unseen}, now), "split"), SizeIs(1));
}

TEST(SwarmFindings, ThoseThatWereLostAndAnswerAreBehindASplit) {
  auto all = judge_swarm({member(one), lost(member(two))}, now);
  ASSERT_THAT(of_kind(all, "split"), SizeIs(1));
  EXPECT_THAT(of_kind(all, "split")[0].seen,
              AllOf(HasSubstr("peer bbbbbbbb was lost at"),
                    HasSubstr("3 m 0 s ago, 3 times in all"),
                    HasSubstr("the connection was closed; it runs, and answers here")));
  EXPECT_THAT(all[0].seen, HasSubstr("2 peers of 2 peers answer"));
  auto both = judge_swarm({member(one), lost(member(two)), member(two)}, now);
  EXPECT_THAT(both[0].seen, HasSubstr("2 peers of 2 peers answer")) << "it is counted once";
  auto crowded = lost(member(two));
  crowded.left->code = "overloaded";
  EXPECT_FALSE(any_bad(judge_swarm({member(one), crowded}, now)));
}

TEST(SwarmFindings, APeerThatWasKilledOrIsFrozenIsNamedWithItsCure) {
  auto killed = judge_swarm({member(one), lost(silent(two, ec::peer_lost))}, now);
  ASSERT_THAT(of_kind(killed, "lost"), SizeIs(1));
  EXPECT_EQ(of_kind(killed, "lost")[0].how, level::bad);
  EXPECT_THAT(of_kind(killed, "lost")[0].seen, HasSubstr("its process has ended"));
  EXPECT_THAT(of_kind(killed, "lost")[0].cure, HasSubstr("start it again"));
  EXPECT_THAT(killed[0].seen, HasSubstr("1 peer of 1 peer answer"));
  auto frozen = judge_swarm({member(one), lost(silent(two, ec::timeout))}, now);
  EXPECT_THAT(of_kind(frozen, "lost").at(0).seen, HasSubstr("its process is frozen"));
  EXPECT_TRUE(any_bad(judge_swarm({member(one), silent(two, ec::timeout)}, now)))
    << "before the others have lost it";
  auto away = judge_swarm({member(one), lost(silent(two, ec::unreachable))}, now);
  EXPECT_THAT(of_kind(away, "lost").at(0).seen, HasSubstr("does not answer from here"));
  EXPECT_TRUE(any_bad(away));
}

TEST(SwarmFindings, WhoLeftIsNamedOnceThoughOthersStillListIt) {
  auto listed = silent(two, ec::peer_lost);
  auto good = lost(listed);
  good.left->lost = false;
  EXPECT_FALSE(any_bad(judge_swarm({member(one), listed, good}, now)));
  auto bad = judge_swarm({member(one), listed, lost(listed)}, now);
  EXPECT_EQ(std::ranges::count(bad, level::bad, &finding::how), 1);
  listed.was_away = lost(listed).left; // it came back, and ended again
  EXPECT_THAT(of_kind(judge_swarm({member(one), listed, good}, now), "peer"), SizeIs(1));
}

TEST(SwarmFindings, APeerThatOnlyThisMachineDoesNotReachIsNoFaultOfTheRun) {
  auto connected = silent(two, ec::peer_lost);
  connected.connected = true;
  for (const auto& each : {connected, silent(two, ec::unreachable)}) {
    auto all = judge_swarm({member(one), each}, now);
    EXPECT_FALSE(any_bad(all));
    EXPECT_EQ(of_kind(all, "peer").at(0).how, level::warning);
  }
}

TEST(SwarmFindings, AGoodbyeARestartAndAnAddressOfSomebodyElseAreNotBad) {
  auto ordered = lost(silent(two, ec::peer_lost));
  ordered.left->lost = false;
  auto restarted = lost(member(two, R"(,"uptime_seconds":20)"), 60);
  restarted.status.replace(restarted.status.find("900"), 3, "20");
  auto other = lost(silent(two, ec::none));
  other.status = member(std::string(64, 'c')).status;
  auto back = member(two);
  back.was_away = lost(back).left;
  for (const auto& each : {ordered, restarted, other, back}) {
    auto all = judge_swarm({member(one), each}, now);
    EXPECT_FALSE(any_bad(all));
    EXPECT_THAT(of_kind(all, "left"), SizeIs(1));
  }
  EXPECT_THAT(of_kind(judge_swarm({member(one), back}, now), "left")[0].seen,
              HasSubstr("it is back"));
}

TEST(SwarmFindings, ANoticeHasItsCure) {
  auto all = judge_swarm({member(one, R"(,"notice":"a: b","notices":[
    {"matter":"x","seen":"in 9 of 32 epochs","cure":"raise X"},{"seen":"","cure":7},3])"),
                          member(two, R"(,"slow":[{"peer":"aaaa","cause":"far","text":"80 ms"}])")},
                         now);
  auto notices = of_kind(all, "notice");
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].cure, "raise X");
  EXPECT_EQ(notices[0].seen, "peer aaaaaaaa: in 9 of 32 epochs");
  EXPECT_EQ(json::parse(to_json(notices))[0]["cure"], "raise X");
  EXPECT_EQ(notices[1].seen, "peer bbbbbbbb: peer aaaa is slow: 80 ms");
  EXPECT_THAT(notices[1].cure, HasSubstr("raise --target-batch-size"));
}

TEST(SwarmFindings, ReadsMembersAndThoseWhoLeftInTheLastTenMinutes) {
  auto at = [](int seconds_ago) { return std::to_string(now - 1000 * seconds_ago); };
  auto document = json::parse(
    R"({"peers":[{"id":"a1","self":true,"addresses":[]},
                 {"id":"b1","connected":true,"addresses":["10.0.0.2:7700",7],
                  "left":{"t":)"
    + at(60) + R"(,"reason":"r","lost":true,"times":2}},3],
        "left":[{"peer":"c1","t":)"
    + at(590) + R"(,"reason":"gone","addresses":["10.0.0.3:7700"]},
                {"peer":"d1","t":)"
    + at(610) + R"(},{"peer":"e1"},"x",
                {"peer":"f1","t":1e300,"times":-4}]})");
  auto all = members_in(document, there, 64, now);
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].addresses, std::vector{there});
  EXPECT_TRUE(all[1].connected);
  EXPECT_EQ(all[1].was_away->times, 2U);
  EXPECT_EQ(all[2].id, "c1");
  EXPECT_EQ(all[2].left->reason, "gone");
  EXPECT_TRUE(all[2].left->lost);
  EXPECT_THAT(departures_in(document, false, now), SizeIs(1));
  EXPECT_THAT(departures_in(document, true, now), SizeIs(1));
  for (const auto* wrong : {"null", "[]", R"({"peers":3,"left":{}})", R"({"left":[null,[]]})"}) {
    EXPECT_THAT(members_in(json::parse(wrong), there, 64, now), IsEmpty());
    EXPECT_THAT(departures_in(json::parse(wrong), true, now), IsEmpty());
  }
}

TEST(SwarmFindings, WhatPeersWroteCannotDriveATerminal) {
  auto bad = member(one, R"(,"notice":"\u001b[2Jgone","waiting_for":"\u001b[1m")");
  for (const auto& f : judge_swarm({bad}, now))
    EXPECT_THAT(to_line(f), Not(HasSubstr("\x1b")));
  EXPECT_TRUE(json::parse(to_json(judge_swarm({bad}, now))).is_array());
}

} // namespace
} // namespace waggle
