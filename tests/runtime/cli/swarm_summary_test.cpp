#include "runtime/cli/swarm_summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/cli/text_table.hpp"

using namespace waggle;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;
using json = nlohmann::json;

namespace {

constexpr const char* document =
  R"({"peer":"0123456789abcdef","run":"demo","version":"0.1.0","phase":"training",
  "epoch":5,"global_epoch":5,"samples_toward_epoch":17,"target_batch_size":64,"loss":1.5,"first_loss":4.0,"eval_loss":0.5,"eval_accuracy":0.875,
  "samples":{"used":100,"dropped":3},"passes":[{"pass":1,"once":60,"twice":0,"never":0},{"pass":2,"once":20,"twice":1,"never":39}],"rounds":{"complete":4,"shrunk":1,"failed":2},"local_fallbacks":2,
  "last_outcome":"complete","parameters":"ff00","bytes":{"in":1000,"out":2000,"shared":4000},"peers":4})";

swarm_summary::peer peer_with(const std::string& id, double first, double last) {
  swarm_summary::peer p;
  p.last.id = id;
  p.last.first_loss = first;
  p.last.loss = last;
  return p;
}

swarm_summary::peer at_epoch(const std::string& id, std::uint64_t epoch,
                             const std::string& parameters) {
  swarm_summary::peer p;
  p.last.id = id;
  p.last.epoch = epoch;
  p.last.parameters = parameters;
  return p;
}

constexpr auto wide = text_table::unlimited;
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
  EXPECT_EQ(s->eval_loss, 0.5);
  EXPECT_EQ(s->eval_accuracy, 0.875);
  EXPECT_EQ(s->used, 100U);
  EXPECT_EQ(s->dropped, 3U);
  ASSERT_EQ(s->passes.size(), 2U);
  EXPECT_EQ(s->passes[1].number, 2U);
  EXPECT_EQ(s->passes[1].once, 20U);
  EXPECT_EQ(s->passes[1].twice, 1U);
  EXPECT_EQ(s->passes[1].never, 39U);
  EXPECT_EQ(s->complete, 4U);
  EXPECT_EQ(s->shrunk, 1U);
  EXPECT_EQ(s->failed, 2U);
  EXPECT_EQ(s->last_outcome, "complete");
  EXPECT_EQ(s->parameters, "ff00");
  EXPECT_EQ(s->bytes_received, 1000U);
  EXPECT_EQ(s->bytes_sent, 2000U);
  EXPECT_EQ(s->bytes_shared, 4000U);
  EXPECT_EQ(s->bytes_moved(), 7000U) << "shared memory counts, too";
}

TEST(Snapshot, AnUnknownLossIsNotANumber) {
  auto s = parse_snapshot(R"({"peer":"a","loss":null})");
  ASSERT_TRUE(s);
  EXPECT_TRUE(std::isnan(s->loss));
  EXPECT_TRUE(std::isnan(s->first_loss));
  EXPECT_TRUE(std::isnan(s->eval_accuracy));
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
  EXPECT_EQ(s->bytes_moved(), 0U);
  EXPECT_EQ(s->epoch, 0U);
  EXPECT_EQ(s->samples_toward_epoch, 0U);
  EXPECT_EQ(s->phase, "");
  EXPECT_TRUE(std::isnan(s->loss));
  EXPECT_FALSE(parse_snapshot(R"({"peer":"a","epoch":1e300})")->epoch);
}

TEST(Snapshot, TextsAreShortAndPrintable) {
  auto s = parse_snapshot(R"({"peer":"\u001b[2J","phase":")" + std::string(100'000, 'x')
                          + R"(","parameters":"\u0000"})");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->id, "\\x1b[2J");
  EXPECT_EQ(s->phase.size(), 64U);
  EXPECT_EQ(s->parameters, "\\x00");
}

TEST(SwarmSummary, TheStartIsTheFirstLossOfAPeerThatWasThereFromTheStart) {
  swarm_summary s;
  EXPECT_TRUE(std::isnan(s.start_loss()));
  s.peers = {peer_with("late", 1, 1), peer_with("silent", none, none), peer_with("a", 5, 2)};
  s.peers[0].joined_late = true;
  EXPECT_EQ(s.start_loss(), 5);
}

TEST(SwarmSummary, EveryLivingPeerHasToFallBelowTheBar) {
  swarm_summary s{.peers = {peer_with("a", 5, 2.9), peer_with("b", 5, 2.9)}};
  EXPECT_TRUE(s.losses_fell_below(0.6));
  s.peers[1].last.loss = 3.0;
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "equal is not below";
  s.peers[1].killed = true;
  EXPECT_TRUE(s.losses_fell_below(0.6)) << "killed peers do not count";
  s.peers.push_back(peer_with("late", none, none));
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "a peer from the start that never trained is not";
  s.peers.back().joined_late = true;
  EXPECT_TRUE(s.losses_fell_below(0.6));
  s.peers.back().last.loss = 4;
  EXPECT_FALSE(s.losses_fell_below(0.6)) << "a late one that trained counts";
}

TEST(SwarmSummary, ShowsEachPassOverTheDataAsThePeerThatSawMostOfThem) {
  swarm_summary s{.peers = {peer_with("late", 5, 2), peer_with("a", 5, 2)}};
  s.peers[0].last.passes = {{2, 59, 1, 0}};
  s.peers[1].last.passes = {{1, 60, 0, 0}, {2, 59, 1, 0}, {3, 20, 0, 40}};
  auto text = s.text(wide);
  EXPECT_THAT(text, HasSubstr("held    pass 1 over the data: 60 samples in one update, 0 in two, 0 "
                              "in none\n"));
  EXPECT_THAT(text, HasSubstr("BROKEN  pass 2 over the data: 59 samples in one update, 1 in two"));
  EXPECT_THAT(text,
              HasSubstr("        pass 3 over the data: 20 samples in one update, 0 in two, 40 "
                        "in none so far\n"));
  auto passes = json::parse(s.json())["passes"];
  ASSERT_EQ(passes.size(), 3U);
  EXPECT_EQ(passes[1], (json{{"pass", 2}, {"once", 59}, {"twice", 1}, {"never", 0}}));
}

TEST(SwarmSummary, WithoutAnyLossNothingFell) {
  swarm_summary s;
  EXPECT_FALSE(s.losses_fell_below(0.6));
  s.peers = {peer_with("a", none, none)};
  EXPECT_FALSE(s.losses_fell_below(0.6));
}

TEST(SwarmSummary, JsonHasTheFieldsThatScriptsRead) {
  swarm_summary s{.peers = {peer_with("a", 5, 2), peer_with("b", 5, none)}};
  s.peers[0].last.epoch = 9;
  s.peers[0].last.used = 100;
  s.peers[0].last.dropped = 1;
  s.peers[0].last.complete = 3;
  s.peers[0].last.failed = 1;
  s.peers[0].last.bytes_received = 10;
  s.peers[0].last.bytes_sent = 20;
  s.peers[0].last.bytes_shared = 30;
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
  EXPECT_EQ(doc["peers"][0]["bytes"], json::parse(R"({"sent":20,"received":10,"shared":30})"));
  EXPECT_TRUE(doc["peers"][1]["last_loss"].is_null());
  EXPECT_EQ(doc["rounds"], json::parse(R"({"complete":3,"shrunk":0,"failed":1})"))
    << "a round has many members and counts once";
  EXPECT_EQ(doc["samples"], json::parse(R"({"used":150,"dropped":1})"));
  EXPECT_EQ(doc["kills"], 1);
  EXPECT_EQ(doc["joins"], 2);
  EXPECT_EQ(doc["seconds"], 12.5);
  EXPECT_EQ(doc["parameters_equal"], true);
  EXPECT_EQ(doc["strategy"], "collaborative");
}

TEST(SwarmSummary, WhatWasNeverComparedIsNeitherEqualNorNot) {
  swarm_summary s;
  EXPECT_TRUE(json::parse(s.json())["parameters_equal"].is_null());
  EXPECT_THAT(s.text(wide), HasSubstr("unknown"));
  EXPECT_TRUE(json::parse(s.json())["peers"].empty());
}

TEST(SwarmSummary, TextSaysWhichPromisesHeld) {
  swarm_summary s{.peers = {peer_with("0123456789", 5, 2)}, .parameters_equal = true};
  EXPECT_THAT(s.text(wide), Not(HasSubstr("BROKEN")));
  EXPECT_THAT(s.text(wide), HasSubstr("01234567  "));
  s.parameters_equal = false;
  EXPECT_THAT(s.text(wide), HasSubstr("BROKEN  the parameters"));
  s.peers[0].last.loss = 4;
  EXPECT_THAT(s.text(wide), HasSubstr("BROKEN  the loss"));
}

TEST(SwarmSummary, TextAddsUpSamplesAndBytes) {
  swarm_summary s{.peers = {peer_with("a", 5, 2), peer_with("b", 5, 2)}};
  s.peers[0].last.used = 1000;
  s.peers[1].last.used = 234;
  s.peers[1].last.dropped = 16;
  s.peers[0].last.bytes_sent = 1'000'000;
  s.peers[1].last.bytes_shared = 41'000'000;
  s.kills = 1;
  s.seconds = 200;
  EXPECT_THAT(s.text(wide), HasSubstr("\n1,234 samples used, 16 dropped, 42.0 MB moved\n"
                                      "1 killed, 0 joined later, 3 m 20 s\n"));
}

TEST(SwarmSummary, ComparesLivingPeersThatStandAtOneEpoch) {
  swarm_summary s;
  EXPECT_EQ(s.compare_parameters(), std::nullopt);
  s.peers = {at_epoch("a", 7, "ff"), at_epoch("b", 7, "ff"), at_epoch("c", 3, "00")};
  EXPECT_EQ(s.compare_parameters(), std::nullopt) << "one is at another epoch";
  s.peers[2].killed = true;
  EXPECT_EQ(s.compare_parameters(), true) << "killed peers do not count";
  s.peers[1].last.parameters = "ee";
  EXPECT_EQ(s.compare_parameters(), false);
  s.peers[1].last.parameters = "";
  EXPECT_EQ(s.compare_parameters(), std::nullopt) << "one did not report its parameters";
  s.peers[1] = at_epoch("b", 7, "ff");
  s.peers[1].silent = true;
  EXPECT_EQ(s.compare_parameters(), std::nullopt) << "earlier answers do not count";
}

TEST(SwarmSummary, NamesEachPeerThatEndedOtherwise) {
  swarm_summary s;
  s.peers = {at_epoch("aaaaaaaaaa", 60, "ff00"),       at_epoch("bbbbbbbbbb", 60, "ff00"),
             at_epoch("cccccccccc", 60, "0123456789"), at_epoch("dddddddddd", 57, "ff00"),
             at_epoch("eeeeeeeeee", 60, "ff00"),       at_epoch("ffffffffff", 3, "11")};
  s.peers[3].last.phase = "averaging";
  s.peers[5].killed = true;
  EXPECT_THAT(s.differences(60),
              ElementsAre("peer cccccccc ended with parameters 01234567, most with ff00",
                          "peer dddddddd ended at epoch 57 of 60, in phase averaging"));
  s.peers[3].silent = true;
  EXPECT_THAT(s.differences(60)[1], HasSubstr("epoch 57 of 60: it did not answer at the end"));
  s.peers.resize(2);
  EXPECT_THAT(s.differences(60), IsEmpty());
  s.peers[1].last.parameters.clear();
  EXPECT_THAT(s.differences(60), ElementsAre(HasSubstr("bbbbbbbb did not say which parameters")));
}

TEST(SwarmSummary, OfTwoPeersThatDifferOneIsNamed) {
  swarm_summary s{.peers = {at_epoch("a", 60, "00"), at_epoch("b", 60, "11")}};
  EXPECT_EQ(s.differences(60).size(), 1U);
}

TEST(SwarmSummary, PeersThatNeverBeganDidNotReachTheEnd) {
  swarm_summary s{.peers = {at_epoch("a", 0, ""), at_epoch("b", 0, "")}};
  EXPECT_EQ(s.differences(60).size(), 2U);
}
