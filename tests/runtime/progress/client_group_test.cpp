#include "runtime/progress/client_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

swarm_progress::peer client(std::uint8_t n, std::uint32_t group_size, std::uint64_t samples = 0,
                            const std::string& past = "a", std::uint64_t work = 10) {
  swarm_progress::peer p;
  p.who.id = id_of(n);
  p.who.client_mode = true;
  p.epoch = epoch_id{4};
  p.samples = samples;
  p.claim.past = {sha256(past), {}, {}, work};
  p.claim.group_size = group_size;
  p.claim.ready = true;
  p.claim.target_batch_size = 100;
  return p;
}

class ClientGroup : public ::testing::Test {
protected:
  client_group::action see(const std::vector<swarm_progress::peer>& peers) {
    return group.decide(peers, now);
  }
  void pass(milliseconds time) { now += time; }
  /// In a group with clients 2 and 3 at epoch 4.
  void help_two() {
    for (std::uint8_t n : {2, 3})
      group.on_connected(id_of(n));
    ASSERT_TRUE(see({client(2, 1)}).enter);
    group.asked();
    group.entered({sha256("a"), {}, {}, 10}, epoch_id{4}, {id_of(9), id_of(2), id_of(3)}, now);
  }
  sample_claims::shortfall end_round(double weight_sum, bool complete = true) {
    std::vector<peer_id> both{id_of(2), id_of(3)};
    return group.advance({sha256("a"), {}, {}, 20}, both, both, weight_sum, complete, now);
  }

  steady_time now{1h};
  client_group group{id_of(9), {200ms, 1s}};
};

TEST_F(ClientGroup, IsEnteredOnceAClientIsConnectedAndNotAskedTwice) {
  EXPECT_FALSE(see({client(2, 1)}).enter) << "it cannot be dialled";
  group.on_connected(id_of(2));
  auto next = see({client(2, 1)});
  ASSERT_TRUE(next.enter && next.choice);
  EXPECT_THAT(next.leave, IsEmpty());
  EXPECT_EQ(next.choice->through.front().id, id_of(2));
  group.asked();
  EXPECT_FALSE(see({client(2, 1)}).choice) << "nothing is compared while it enters";
  EXPECT_FALSE(group.is_member());
}

TEST_F(ClientGroup, AfterARefusalItPauses) {
  group.on_connected(id_of(2));
  ASSERT_TRUE(see({client(2, 1)}).enter);
  group.asked();
  group.refused({}, now);
  pass(199ms);
  EXPECT_FALSE(see({client(2, 1)}).enter);
  pass(1ms);
  EXPECT_TRUE(see({client(2, 1)}).enter);
}

TEST_F(ClientGroup, PeersWithVectorsThatAreTooLongAreNotAskedAgainWhileConnected) {
  group.on_connected(id_of(2));
  ASSERT_TRUE(see({client(2, 1)}).enter);
  group.asked();
  group.refused({client(2, 1).who}, now);
  pass(1h);
  EXPECT_FALSE(see({client(2, 1)}).enter);
  EXPECT_EQ(group.clients(), 0U);
  group.on_disconnected(id_of(2));
  group.on_connected(id_of(2));
  EXPECT_TRUE(see({client(2, 1)}).enter);
}

TEST_F(ClientGroup, ItsRoundIsCalledWhenTheSamplesSufficeAndOnceAtATime) {
  help_two();
  EXPECT_FALSE(see({client(2, 3, 60), client(3, 3, 39)}).call);
  ASSERT_TRUE(see({client(2, 3, 60), client(3, 3, 40)}).call);
  auto round = group.begin_round(now);
  ASSERT_NE(round, 0U);
  EXPECT_EQ(group.begin_round(now), 0U);
  EXPECT_TRUE(group.awaits(round));
  end_round(100);
  EXPECT_FALSE(group.awaits(round));
  EXPECT_TRUE(group.is_member_at(epoch_id{5}));
  EXPECT_EQ(group.past().work, 20U);
  EXPECT_GT(group.begin_round(now), round);
}

TEST_F(ClientGroup, TheResultOfAFormerGroupsRoundIsIgnored) {
  help_two();
  auto round = group.begin_round(now);
  group.left(now);
  EXPECT_FALSE(group.awaits(round));
  pass(200ms);
  help_two();
  EXPECT_FALSE(group.awaits(round));
  auto next = group.begin_round(now);
  EXPECT_NE(next, 0U) << "no round of this group runs";
  EXPECT_NE(next, round);
}

TEST_F(ClientGroup, IsLeftWithoutClientsAfterAWhileUnlessOneComesBack) {
  help_two();
  EXPECT_THAT(see({}).leave, IsEmpty());
  pass(900ms);
  EXPECT_THAT(see({client(2, 3)}).leave, IsEmpty());
  pass(900ms);
  group.on_disconnected(id_of(2));
  group.on_disconnected(id_of(3));
  EXPECT_THAT(see({}).leave, IsEmpty()) << "the time begins anew";
  pass(999ms);
  EXPECT_THAT(see({}).leave, IsEmpty());
  pass(1ms);
  EXPECT_THAT(see({}).leave, HasSubstr("no client"));
}

TEST_F(ClientGroup, IsLeftForAHistoryThatIsPreferred) {
  help_two();
  see({client(2, 3), client(3, 3)});
  group.on_connected(id_of(5));
  auto next = see({client(5, 1, 0, "b", 1'000)});
  EXPECT_TRUE(next.enter);
  EXPECT_THAT(next.leave, HasSubstr(short_name(sha256("b"))));
}

// Two nodes that heard of the clients in different orders. Any round that each completes with its
// own client would keep the two histories apart.
TEST_F(ClientGroup, OfTwoNodesWithAClientEachOneLeavesBeforeARound) {
  std::string small = "a", large = "b";
  if (sha256(large) < sha256(small))
    std::swap(small, large);
  std::vector<peer_id> nodes{id_of(8), id_of(9)};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& ours = i == 0 ? small : large;
    client_group node{nodes[i], {200ms, 1s}};
    std::vector<swarm_progress::peer> seen{client(2, 1, 0, small), client(3, 1, 0, large)};
    for (std::uint8_t n : {2, 3, 8, 9})
      node.on_connected(id_of(n));
    node.asked();
    node.entered({sha256(ours), {}, {}, 10}, epoch_id{4}, {nodes[i], seen[i].who.id}, now);
    for (auto& each : seen)
      each.claim.group_size = 2;
    auto other = client(i == 0 ? 9 : 8, 2, 0, i == 0 ? large : small);
    other.who.client_mode = false;
    other.claim.auxiliary = true;
    seen.push_back(other);
    auto next = node.decide(seen, now);
    EXPECT_FALSE(next.enter) << "it has a node";
    EXPECT_EQ(next.leave.empty(), i == 0) << next.leave;
  }
}

TEST_F(ClientGroup, SamplesThatWereNotDeliveredDoNotCount) {
  help_two();
  see({client(2, 3, 60), client(3, 3, 900)});
  group.begin_round(now);
  auto found = end_round(100);
  EXPECT_THAT(found.suspects, ElementsAre(id_of(3)));
  EXPECT_EQ(found.missing, 60U) << "no claim counts for more than the target";
  EXPECT_EQ(group.suspects(now), 1U);
}

TEST_F(ClientGroup, WhereEachContributorHasTheSameWeightSamplesAreNotCompared) {
  help_two();
  see({client(2, 3, 60), client(3, 3, 900)});
  group.begin_round(now);
  EXPECT_THAT(end_round(2).suspects, IsEmpty());
}

TEST_F(ClientGroup, ClaimsToBeReadyWhereAMemberHasTheState) {
  EXPECT_FALSE(group.claim().ready);
  EXPECT_EQ(group.claim().group_size, 0U);
  help_two();
  see({});
  EXPECT_FALSE(group.claim().ready) << "no member reports that it has it";
  see({client(2, 3), client(3, 3)});
  auto claim = group.claim();
  EXPECT_TRUE(claim.ready && claim.auxiliary);
  EXPECT_EQ(claim.group_size, 3U);
  EXPECT_EQ(claim.past.branch, sha256("a"));
  group.left(now);
  EXPECT_EQ(group.claim().group_size, 0U);
  EXPECT_FALSE(group.claim().ready);
}

} // namespace
} // namespace waggle
