#include "runtime/cli/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/net/refusals.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using level = finding::level;

const endpoint there{"10.0.0.1", 7700};

TEST(Findings, EachReasonOfARefusalHasACure) {
  for (auto code :
       {ec::timeout, ec::unreachable, ec::wrong_run, ec::wrong_version, ec::agreement_mismatch,
        ec::clock_skew, ec::malformed, ec::overloaded, ec::duplicate_identity, ec::bad_signature}) {
    auto found = judge_dial(there, there, {code, "a detail"}, std::nullopt);
    EXPECT_NE(found.how, level::good) << to_string(code);
    EXPECT_THAT(found.cure, Not(IsEmpty())) << to_string(code);
    EXPECT_THAT(found.seen, HasSubstr("10.0.0.1:7700")) << to_string(code);
  }
  EXPECT_EQ(judge_dial(there, there, {}, peer_id{}).how, level::good);
  EXPECT_THAT(judge_dial(there, there, {ec::wrong_version, std::string{net::not_a_peer}}, {}).seen,
              HasSubstr("another program"));
  auto itself = judge_dial({"seed", 7700}, there, {ec::duplicate_identity, {}}, std::nullopt);
  EXPECT_EQ(itself.how, level::warning) << "a name may stand for this peer, too";
  EXPECT_THAT(itself.seen, HasSubstr("seed:7700 (10.0.0.1:7700)"));
  EXPECT_EQ(
    judge_dial(there, there, {ec::duplicate_identity, std::string{net::identity_in_use}}, {}).how,
    level::bad);
}

TEST(Findings, ClocksAreJudgedByTheLimitsOfPeers) {
  net::clock_limits limits{500ms, 15'000ms};
  EXPECT_EQ(judge_clock(there, 100ms, limits).how, level::good);
  auto behind = judge_clock(there, -2s, limits);
  EXPECT_EQ(behind.how, level::warning);
  EXPECT_THAT(behind.seen, HasSubstr("2.0 s behind"));
  EXPECT_EQ(judge_clock(there, 60s, limits).how, level::bad);
  EXPECT_EQ(judge_clock(there, swarm_clock::duration::max(), limits).how, level::bad);
}

TEST(Findings, OnlyAPathThatPassesSmallMessagesIsJudged) {
  EXPECT_EQ(judge_path(there, true, true, true).how, level::good);
  EXPECT_THAT(judge_path(there, true, false, true).seen, HasSubstr("do not, to 10"));
  EXPECT_THAT(judge_path(there, true, true, false).seen, HasSubstr("do not, from 10"));
  EXPECT_EQ(judge_path(there, false, false, false).how, level::warning);
}

TEST(Findings, LoopbackIsEnoughForPeersOfThisMachine) {
  const std::vector<endpoint> loopback{{"127.0.0.1", 0}}, all{{"::", 7700}};
  EXPECT_FALSE(judge_loopback(loopback, {}, {{"127.0.0.1", 7700}}));
  EXPECT_FALSE(judge_loopback(all, {}, {there}));
  EXPECT_FALSE(judge_loopback(loopback, {}, {}));
  EXPECT_TRUE(judge_loopback(loopback, {}, {there}));
  EXPECT_THAT(judge_loopback(all, loopback, {there})->cure, HasSubstr("announce"));
}

TEST(Findings, AFolderMayHaveSeveralFaults) {
  folder_facts facts{"d", true, "", {}, false, "d/identity.pem", "others may write to d", 1 << 20};
  auto found = judge_folder(facts);
  ASSERT_THAT(found, SizeIs(4));
  EXPECT_EQ(found[1].cure.substr(0, 24), "chmod 600 d/identity.pem");
  EXPECT_EQ(found.back().how, level::bad) << "a MiB is too little";
  facts = {"d", false, "no", {}, false, {}, {}, 0};
  EXPECT_THAT(judge_folder(facts), SizeIs(1))
    << "of a folder that cannot be used nothing else counts";
}

TEST(Findings, ASwarmIsSplitIfItsPeersHoldSeveralHistories) {
  auto member = [](const std::string& id, const std::string& fields) {
    return asked_member{id, {there}, "{\"version\":\"0.1.0\"" + fields + "}", {}};
  };
  auto one = judge_swarm({member("aaaaaaaabb", R"(,"history":"h1")"),
                          member("bbbbbbbbcc", R"(,"history":"h1","differing_peers":0)"),
                          asked_member{"cccccccc", {}, {}, {}}});
  ASSERT_THAT(one, SizeIs(2));
  EXPECT_FALSE(any_bad(one));
  EXPECT_THAT(one[0].seen, HasSubstr("2 peers of 3 peers answer; 1 are clients"));
  auto two = judge_swarm({member("aaaaaaaabb", R"(,"history":"h1")"),
                          member("bbbbbbbbcc", R"(,"history":"h2","differing_peers":2)"),
                          asked_member{"dddddddd", {there}, {}, {ec::timeout, "no answer"}},
                          asked_member{"eeeeeeee", {there}, "nonsense", {}}});
  EXPECT_TRUE(any_bad(two));
  EXPECT_THAT(two[1].seen, HasSubstr("h1: aaaaaaaa; h2: bbbbbbbb"));
  EXPECT_THAT(two, SizeIs(5));
  EXPECT_TRUE(any_bad(judge_swarm({}))) << "nobody answers";
}

TEST(Findings, ThoseThatWereLostAndAnswerAreBehindASplit) {
  auto lost = lost_members(
    R"([{"targets":["10.0.0.1:7700"],"labels":{"run":"r","peer":"aaaaaaaa","role":"trainer"}},
        {"targets":["10.0.0.2:7700"],"labels":{"run":"r","peer":"bbbbbbbb","role":"lost"}},
        {"targets":["10.0.0.3:7700"],"labels":{"run":"r","peer":"cccccccc","role":"lost"}},
        {"targets":["10.0.0.4:7700"],"labels":{"run":"r","peer":"dddddddd","role":"lost"}},
        7, {}, {"labels":7}, {"targets":[],"labels":{"run":"r","role":"lost"}},
        {"targets":[7],"labels":{"run":"r","role":"lost"}}])",
    2);
  ASSERT_THAT(lost, SizeIs(2));
  EXPECT_EQ(lost[0].id, "bbbbbbbb");
  EXPECT_EQ(lost[0].addresses, (std::vector{endpoint{"10.0.0.2", 7700}}));
  EXPECT_THAT(lost_members("no json", 2), IsEmpty());
  std::vector<asked_member> all{{"aaaaaaaa", {there}, R"({"history":"h1"})", {}}, lost[0], lost[1]};
  auto gone = judge_swarm(all);
  EXPECT_FALSE(any_bad(gone));
  EXPECT_THAT(gone[0].seen, HasSubstr("1 peer of 1 peer answer"));
  all[1].status = R"({"history":"h2","run_tag":"r","peer":"bbbbbbbb1"})";
  for (const auto* other : {R"({"history":"h3","run_tag":"another","peer":"cccccccc1"})",
                            R"({"history":"h3","run_tag":"r","peer":"aaaaaaaa1"})"}) {
    all[2].status = other; // has got its address
    EXPECT_THAT(judge_swarm(all)[0].seen, HasSubstr("2 peers of 2 peers answer"));
  }
  auto split = judge_swarm(all);
  EXPECT_TRUE(any_bad(split));
  EXPECT_THAT(split[1].seen, HasSubstr("h1: aaaaaaaa; h2: bbbbbbbb"));
}

TEST(Findings, WhatPeersWroteCannotDriveATerminal) {
  auto member = asked_member{"aa", {there}, R"({"notice":"\u001b[2Jgone","version":7})", {}};
  for (const auto& f : judge_swarm({member}))
    EXPECT_THAT(to_line(f), Not(HasSubstr("\x1b")));
  auto parsed = nlohmann::json::parse(to_json(judge_swarm({member})));
  EXPECT_TRUE(parsed.is_array());
  EXPECT_THAT(judge_dial(there, there, {ec::agreement_mismatch, "\x1b[31m"}, {}).seen,
              Not(HasSubstr("\x1b")));
}

} // namespace
} // namespace waggle
