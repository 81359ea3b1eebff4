#include "runtime/cli/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/crypto/member_list.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not, ::testing::SizeIs;
using level = finding::level;

const endpoint there{"10.0.0.1", 7700};

TEST(Findings, EachReasonOfARefusalHasACure) {
  for (auto code : {ec::timeout, ec::unreachable, ec::wrong_run, ec::wrong_version,
                    ec::agreement_mismatch, ec::clock_skew, ec::malformed, ec::overloaded,
                    ec::duplicate_identity, ec::bad_signature, ec::not_a_member}) {
    auto found = judge_dial(there, there, {code, "a detail"}, std::nullopt);
    EXPECT_NE(found.how, level::good) << to_string(code);
    EXPECT_THAT(found.cure, Not(IsEmpty())) << to_string(code);
    EXPECT_THAT(found.seen, HasSubstr("10.0.0.1:7700")) << to_string(code);
  }
  EXPECT_EQ(judge_dial(there, there, {}, peer_id{}).how, level::good);
  EXPECT_THAT(judge_dial(there, there, {ec::wrong_version, std::string{net::not_a_peer}}, {}).seen,
              HasSubstr("another program"));
  auto listless = run_members{{}}.judge({}, {}).here;
  EXPECT_THAT(judge_dial(there, there, listless, {}).cure, HasSubstr("a newer list"));
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

TEST(Findings, AnAddressThatThisMachineLacksIsNoPortThatIsTaken) {
  auto lacking = judge_port(
    there, {ec::bad_config, "cannot listen: " + std::string{net::no_such_address}}, std::nullopt);
  EXPECT_EQ(lacking.check, "address");
  EXPECT_THAT(lacking.seen, HasSubstr("this machine has no such address"));
  EXPECT_THAT(lacking.cure, Not(HasSubstr("stop the program")));
  auto taken =
    judge_port(there, {ec::bad_config, "cannot listen: the port is taken"}, std::nullopt);
  EXPECT_THAT(taken.cure, HasSubstr("stop the program"));
}

TEST(Findings, AModelMustFitIntoMemory) {
  constexpr std::uint64_t gigabyte = 1'000'000'000;
  EXPECT_EQ(judge_memory(4 * gigabyte, gigabyte / 4).how, level::good);
  auto large = judge_memory(4 * gigabyte, gigabyte);
  EXPECT_EQ(large.how, level::bad);
  EXPECT_THAT(large.seen, HasSubstr("whose parameters take 1.0 GB, needs about 8.2 GB"));
  EXPECT_EQ(judge_memory(4 * gigabyte).how, level::good) << "the model is not known";
}

TEST(Findings, ACopyOfTheFolderOfARunningPeerIsNotItsFolder) {
  folder_facts facts{"d", true, "", there, true};
  facts.free_bytes = std::uint64_t{1} << 34U;
  EXPECT_EQ(judge_folder(facts)[0].how, level::warning);
  facts.locked = false;
  EXPECT_EQ(judge_folder(facts)[0].how, level::bad);
  EXPECT_THAT(judge_folder(facts)[0].seen, HasSubstr("is a copy of the folder of the peer"));
  facts.running.reset();
  facts.key_bad = "'d/identity.pem' is not an Ed25519 private key in PEM";
  EXPECT_EQ(judge_folder(facts)[1].check, "key");
  EXPECT_TRUE(any_bad(judge_folder(facts)));
  peer_id own{};
  auto peers = [&](const std::string& id, const std::string& more) {
    return R"({"peers":[3,{"id":")" + id + "\"" + more + "}]}";
  };
  EXPECT_TRUE(judge_identity(own, peers(to_string(own), R"(,"connected":true)")));
  EXPECT_FALSE(judge_identity(own, peers(to_string(own), R"(,"connected":false)")));
  EXPECT_FALSE(judge_identity(own, peers("ab", R"(,"connected":true)")));
  EXPECT_FALSE(judge_identity(own, "{"));
}

TEST(Findings, AFolderMayHaveSeveralFaults) {
  folder_facts facts{"d", true, "", {}, false, "d/identity.pem"};
  facts.open_to_others = "others may write to d";
  facts.free_bytes = 1 << 20;
  auto found = judge_folder(facts);
  ASSERT_THAT(found, SizeIs(4));
  EXPECT_EQ(found[1].cure.substr(0, 24), "chmod 600 d/identity.pem");
  EXPECT_EQ(found.back().how, level::bad) << "a MiB is too little";
  facts = {"d", false, "no"};
  EXPECT_THAT(judge_folder(facts), SizeIs(1))
    << "of a folder that cannot be used nothing else counts";
}

TEST(Findings, WhatPeersWroteCannotDriveATerminal) {
  EXPECT_THAT(judge_dial(there, there, {ec::agreement_mismatch, "\x1b[31m"}, {}).seen,
              Not(HasSubstr("\x1b")));
}

} // namespace
} // namespace waggle
