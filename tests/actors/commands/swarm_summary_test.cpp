#include "actors/commands/swarm_summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace waggle;
using ::testing::HasSubstr;
using ::testing::Not;
using json = nlohmann::json;

namespace {

constexpr const char* document =
  R"({"peer":"0123456789abcdef","run":"demo","version":"0.1.0","phase":"training",
  "epoch":5,"global_epoch":5,"samples_toward_epoch":17,"target_batch_size":64,"loss":1.5,"first_loss":4.0,
  "samples":{"used":100,"dropped":3},"rounds":{"complete":4,"shrunk":1,"failed":2},"local_fallbacks":2,
  "last_outcome":"complete","parameters":"ff00","bytes":{"in":1000,"out":2000},"peers":4})";

swarm_summary::peer peer_with(const std::string& id, double first, double last) {
  swarm_summary::peer p;
  p.last.id = id;
  p.last.first_loss = first;
  p.last.loss = last;
  return p;
}

constexpr double none = std::numeric_limits<double>::quiet_NaN();

} // namespace

TEST(Snapshot, ReadsTheStatusDocument) {
  auto s = parse_snapshot(document);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->id, "0123456789abcdef");
  EXPECT_EQ(s->phase, "training");
  EXPECT_EQ(s->epoch, 5U);
  EXPECT_EQ(s->samples_toward_epoch, 17U);
  EXPECT_EQ(s->loss, 1.5);
  EXPECT_EQ(s->first_loss, 4.0);
  EXPECT_EQ(s->used, 100U);
  EXPECT_EQ(s->dropped, 3U);
  EXPECT_EQ(s->complete, 4U);
  EXPECT_EQ(s->shrunk, 1U);
  EXPECT_EQ(s->failed, 2U);
  EXPECT_EQ(s->last_outcome, "complete");
  EXPECT_EQ(s->parameters, "ff00");
  EXPECT_EQ(s->bytes, 3000U);
}

TEST(Snapshot, AnUnknownLossIsNotANumber) {
  auto s = parse_snapshot(R"({"peer":"a","loss":null})");
  ASSERT_TRUE(s);
  EXPECT_TRUE(std::isnan(s->loss));
  EXPECT_TRUE(std::isnan(s->first_loss));
  EXPECT_EQ(s->epoch, 0U);
}

TEST(Snapshot, WhatIsNoStatusDocumentIsNone) {
  for (const char* text : {"", "{", "[]", "3", "null", "\"peer\"", "{}", R"({"peer":3})",
                           R"({"peer":null})", "<html>"})
    EXPECT_FALSE(parse_snapshot(text)) << text;
}

TEST(Snapshot, FieldsOfAnotherKindCountAsMissing) {
  auto s = parse_snapshot(
    R"({"peer":"a","samples":3,"rounds":"x","bytes":[1],"epoch":"five","phase":{},"loss":"low",
                              "samples_toward_epoch":-4,"parameters":7})");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->used, 0U);
  EXPECT_EQ(s->complete, 0U);
  EXPECT_EQ(s->bytes, 0U);
  EXPECT_EQ(s->epoch, 0U);
  EXPECT_EQ(s->samples_toward_epoch, 0U);
  EXPECT_EQ(s->phase, "");
  EXPECT_TRUE(std::isnan(s->loss));
  EXPECT_FALSE(parse_snapshot(R"({"peer":"a","epoch":1e300})")->epoch);
}

TEST(SwarmSummary, TheStartIsTheFirstLossOfAPeerThatWasThereFromTheStart) {
  swarm_summary s;
  EXPECT_TRUE(std::isnan(s.start_loss()));
  s.peers = {peer_with("late", 1, 1), peer_with("silent", none, none), peer_with("a", 5, 2)};
  s.peers[0].joined_late = true;
  EXPECT_EQ(s.start_loss(), 5);
}

TEST(SwarmSummary, EveryLivingPeerHasToFallBelowTheBar) {
  swarm_summary s;
  s.peers = {peer_with("a", 5, 2.9), peer_with("b", 5, 2.9)};
  EXPECT_TRUE(s.losses_fell_below(0.6));
  s.peers[1].last.loss = 3.0;
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "equal is not below";
  s.peers[1].killed = true;
  EXPECT_TRUE(s.losses_fell_below(0.6)) << "the dead are excused";
  s.peers.push_back(peer_with("late", none, none));
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "a peer from the start that never trained is not";
  s.peers.back().joined_late = true;
  EXPECT_TRUE(s.losses_fell_below(0.6));
  s.peers.back().last.loss = 4;
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "a late one that trained counts";
}

TEST(SwarmSummary, WithoutAnyLossNothingFell) {
  swarm_summary s;
  EXPECT_FALSE(s.losses_fell_below(0.6));
  s.peers = {peer_with("a", none, none)};
  EXPECT_FALSE(s.losses_fell_below(0.6));
}

TEST(SwarmSummary, JsonHasTheFieldsThatScriptsRead) {
  swarm_summary s;
  s.peers = {peer_with("a", 5, 2), peer_with("b", 5, none)};
  s.peers[0].last.epoch = 9;
  s.peers[0].last.used = 100;
  s.peers[0].last.dropped = 1;
  s.peers[0].last.complete = 3;
  s.peers[0].last.failed = 1;
  s.peers[1].last.used = 50;
  s.peers[1].last.complete = 2;
  s.kills = 1;
  s.joins = 2;
  s.seconds = 12.5;
  s.parameters_equal = true;
  auto doc = json::parse(s.json());
  ASSERT_EQ(doc["peers"].size(), 2U);
  EXPECT_EQ(doc["peers"][0]["id"], "a");
  EXPECT_EQ(doc["peers"][0]["first_loss"], 5.0);
  EXPECT_EQ(doc["peers"][0]["last_loss"], 2.0);
  EXPECT_EQ(doc["peers"][0]["epoch"], 9);
  EXPECT_EQ(doc["peers"][0]["samples"], 100);
  EXPECT_TRUE(doc["peers"][1]["last_loss"].is_null());
  EXPECT_EQ(doc["rounds"], json::parse(R"({"complete":3,"shrunk":0,"failed":1})"))
    << "a round has many members and counts once";
  EXPECT_EQ(doc["samples"], json::parse(R"({"used":150,"dropped":1})"));
  EXPECT_EQ(doc["kills"], 1);
  EXPECT_EQ(doc["joins"], 2);
  EXPECT_EQ(doc["seconds"], 12.5);
  EXPECT_EQ(doc["parameters_equal"], true);
}

TEST(SwarmSummary, WhatWasNeverComparedIsNeitherEqualNorNot) {
  swarm_summary s;
  EXPECT_TRUE(json::parse(s.json())["parameters_equal"].is_null());
  EXPECT_THAT(s.text(), HasSubstr("unknown"));
  EXPECT_TRUE(json::parse(s.json())["peers"].empty());
}

TEST(SwarmSummary, TextSaysWhichPromisesHeld) {
  swarm_summary s;
  s.peers = {peer_with("0123456789", 5, 2)};
  s.parameters_equal = true;
  EXPECT_THAT(s.text(), Not(HasSubstr("BROKEN")));
  EXPECT_THAT(s.text(), HasSubstr("01234567  "));
  EXPECT_THAT(s.text(),
              HasSubstr("last loss  samples  rounds complete  shrunk  failed  remarks\n"));
  EXPECT_THAT(s.text(), HasSubstr("    2.000        0                0       0       0  \n"));
  s.parameters_equal = false;
  EXPECT_THAT(s.text(), HasSubstr("BROKEN  all parameters"));
  s.peers[0].last.loss = 4;
  EXPECT_THAT(s.text(), HasSubstr("BROKEN  the loss"));
}

TEST(SwarmTable, ShowsOnePeerPerLine) {
  swarm_summary::peer p;
  EXPECT_THAT(table_row(p), ::testing::StartsWith("?"));
  EXPECT_THAT(table_row(p), HasSubstr(" -  ")) << "an unknown loss is a dash";
  p.last = *parse_snapshot(document);
  EXPECT_EQ(table_row(p), "01234567  training       5       17   1.500       0.0  complete");
  p.killed = true;
  EXPECT_THAT(table_row(p), HasSubstr("killed"));
  EXPECT_EQ(table_row(p).find("  complete"), table_head().find("  last round"))
    << "columns stand under their heads";
}

TEST(SwarmTable, LongWordsFromAPeerDoNotBreakTheLine) {
  swarm_summary::peer p;
  p.last.id = std::string(1000, 'a');
  p.last.phase = std::string(1000, 'b');
  p.last.last_outcome = std::string(1000, 'c');
  EXPECT_LT(table_row(p).size(), 100U);
}
