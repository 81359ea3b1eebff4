#include "actors/averaging/matchmaker.hpp"

#include "tests/actors/matchmaker/matchmaker_fixture.hpp"

namespace waggle {
namespace {

class Matchmaker : public matchmaker_fixture {};

// -- groups that form ---------------------------------------------------------------------------

TEST_F(Matchmaker, ConnectedPeersFormOneGroupAndHoldTheSamePlan) {
  std::vector<peer> peers;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    peers.push_back(wire_up(seed));
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < i; ++j)
      connect(peers[i], peers[j]);
  std::vector<pending<group_formed>> groups;
  for (const auto& p : peers)
    groups.push_back(find(p, search(10s, 4)));
  pass(300ms);
  for (const auto& group : groups) {
    ASSERT_TRUE(group.get()) << to_string(group.get().error());
    EXPECT_EQ(group.get()->plan, groups[0].get()->plan);
  }
  auto plan = groups[0].get()->plan;
  EXPECT_TRUE(validate_plan(plan));
  EXPECT_EQ(plan.members.size(), 4u);
  EXPECT_EQ(plan.epoch, epoch_id{3});
  EXPECT_EQ(plan.elements, 100u);
  for (const auto& p : peers)
    EXPECT_EQ(
      testing::exported(*p.ctx.metrics, "waggle_matchmaking_rounds_total{outcome=\"formed\""), 1.0);
}

TEST_F(Matchmaker, NeitherAsksNorAdmitsAPeerThatTheSearchAvoids) {
  auto us = wire_up(1);
  auto wanted = question(us);
  auto avoided = testing::test_peer(7);
  auto what = search(10s);
  what.avoided = {avoided.id};
  tell(us.maker, peer_connected{avoided});
  auto group = find(us, what);
  pass(1s);
  for (const auto& call : us.around->calls)
    EXPECT_NE(call.to.id, avoided.id);
  EXPECT_EQ(join(us, wanted, 7)->code, ec::excluded);
  EXPECT_EQ(join(us, wanted, 8)->code, ec::none);
}

TEST_F(Matchmaker, RefersPeersThatSearchToTheLeaderOfItsOpenGroup) {
  auto us = wire_up(1);
  auto leader = testing::test_peer(2);
  tell(us.maker, peer_connected{leader});
  auto wanted = question(us);
  auto referred = [&](const wire::join_group& what) {
    auto answer = join(us, what, 7);
    EXPECT_TRUE(answer && answer->code == ec::not_looking);
    return answer ? answer->suggested : std::vector<peer_record>{};
  };
  EXPECT_THAT(referred(wanted), ::testing::IsEmpty());
  tell(us.maker, set_open_group{leader.id, 2, search().codecs});
  EXPECT_THAT(referred(wanted), ::testing::ElementsAre(leader));
  auto another = wanted;
  another.schema.bytes[0] ^= std::byte{1};
  EXPECT_THAT(referred(another), ::testing::IsEmpty()) << "it searches for another vector";
  tell(us.maker, set_open_group{us.ctx.record.id, 2, search().codecs});
  EXPECT_THAT(referred(wanted), ::testing::ElementsAre(us.ctx.record));
  EXPECT_FALSE(*ask<bool>(us.maker, is_place_wanted{}));
  tell(us.maker, set_open_group{us.ctx.record.id, round_members_max, search().codecs});
  pass(1min); // those who asked when there was no group are forgotten
  EXPECT_FALSE(*ask<bool>(us.maker, is_place_wanted{})) << "nobody has asked since it is full";
  EXPECT_THAT(referred(wanted), ::testing::IsEmpty());
  EXPECT_TRUE(*ask<bool>(us.maker, is_place_wanted{}));
  tell(us.maker, set_open_group{});
  EXPECT_THAT(referred(wanted), ::testing::IsEmpty());
}

TEST_F(Matchmaker, ASearchForOpenGroupsEndsWithTheLeaderOfOne) {
  auto leader = testing::test_peer(2);
  for (bool open_groups : {true, false}) {
    auto us = start(open_groups ? 1 : 3);
    us.around->peer_says = [&](const wire::join_group&) {
      return std::optional{result<wire::join_reply>{wire::join_reply{ec::not_looking, {leader}}}};
    };
    auto what = search();
    what.open_groups = open_groups;
    auto found = find(us, what);
    tell(us.maker, peer_connected{testing::test_peer(4)});
    pass(100ms);
    EXPECT_EQ(found.answered(), open_groups);
    if (open_groups) {
      EXPECT_EQ(found.get()->open_group, leader);
    }
  }
}

// Otherwise a swarm larger than a group would split into groups that never mix.
TEST_F(Matchmaker, KnowsWhoIsLeftOverWhenItsGroupIsFull) {
  matchmaking_config config{.target_group_size = 3};
  std::vector<peer> peers;
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    peers.push_back(wire_up(seed, config));
  const auto& follower = peers[1];
  auto wanted = question(start(4, config), config);
  auto another = wanted;
  another.schema.bytes[0] ^= std::byte{1};
  std::vector<pending<group_formed>> groups{find(peers[0], search())};
  pass(100ms); // later searches follow earlier ones
  groups.push_back(find(follower, search()));
  pass(100ms);
  ASSERT_EQ(join(follower, wanted, 7)->code, ec::not_a_leader);
  ASSERT_EQ(join(follower, another, 8)->code, ec::schema_mismatch);
  groups.push_back(find(peers[2], search()));
  pass(9s);
  for (const auto& group : groups) {
    ASSERT_TRUE(group.get()) << to_string(group.get().error());
    EXPECT_EQ(group.get()->plan.members.size(), 3U);
  }
  EXPECT_TRUE(groups[1].get()->left_out);
}

TEST_F(Matchmaker, PeersThatOnlyShareTheTableMeetThere) {
  auto a = wire_up(1);
  auto b = wire_up(2);
  auto first = find(a, search(10s, 2));
  auto second = find(b, search(10s, 2));
  pass(1s);
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(second.get());
  EXPECT_EQ(first.get()->plan, second.get()->plan);
}

/// Peers that start with the same seed, as with `waggle train --seed 7` on every machine.
struct SameSeed : Matchmaker {
  SameSeed() { seed_of_all = 7; }
  /// The name of the round of two peers that have just started.
  round_id round_of(std::uint64_t one, std::uint64_t other) {
    auto a = wire_up(one);
    auto b = wire_up(other);
    connect(a, b);
    auto first = find(a, search(10s, 2));
    auto second = find(b, search(10s, 2));
    pass(1s);
    EXPECT_TRUE(first.get().ok() && second.get().ok());
    return first.get().ok() ? first.get()->plan.id : round_id{};
  }
};

TEST_F(SameSeed, RoundsOfDifferentPeersHaveDifferentNames) {
  std::set<round_id> rounds;
  for (std::uint64_t pair = 0; pair < 4; ++pair)
    EXPECT_TRUE(rounds.insert(round_of(2 * pair + 1, 2 * pair + 2)).second) << "pair " << pair;
}

TEST_F(SameSeed, RoundsHaveNewNamesAfterARestart) {
  std::set<round_id> rounds;
  for (int process = 0; process < 3; ++process)
    EXPECT_TRUE(rounds.insert(round_of(1, 2)).second) << "process " << process;
}

// -- the declaration ----------------------------------------------------------------------------

// -- failed searches ----------------------------------------------------------------------------

TEST_F(Matchmaker, ALonePeerLearnsThatNobodyDeclared) {
  auto a = start(1);
  auto group = find(a, search(2s));
  pass(2s - 1ms);
  EXPECT_FALSE(group.answered());
  pass(30ms);
  EXPECT_EQ(group.get().error().code, ec::nobody_declared);
  EXPECT_EQ(testing::exported(*a.ctx.metrics,
                              "waggle_matchmaking_rounds_total{outcome=\"nobody_declared\""),
            1.0);
}

TEST_F(Matchmaker, ACancelledSearchSaysSo) {
  auto a = start(1);
  auto group = find(a, search());
  tell(a.maker, cancel_search{});
  EXPECT_EQ(group.get().error().code, ec::cancelled);
  EXPECT_TRUE(find(a, search()).get().error().code == ec::not_ready) << "it can search again";
}

TEST_F(Matchmaker, OneSearchAtATime) {
  auto a = start(1);
  find(a, search());
  EXPECT_EQ(find(a, search()).get().error().code, ec::overloaded);
}

TEST_F(Matchmaker, AGroupBelowTheMinimumOfContributorsDoesNotBegin) {
  matchmaking_config three{.min_contributors = 3, .min_matchmaking_time = 1s};
  auto a = wire_up(1, three);
  auto b = wire_up(2, three);
  connect(a, b);
  auto first = find(a, search(3s));
  auto second = find(b, search(3s));
  pass(3100ms);
  EXPECT_EQ(first.get().error().code, ec::too_few);
  EXPECT_EQ(second.get().error().code, ec::too_few);
}

// -- answering requests -------------------------------------------------------------------------

TEST_F(Matchmaker, RefusesWhoDoesNotFitAndSaysWhy) {
  auto a = start(1);
  auto good = question(a);
  EXPECT_EQ(join(a, good, 5)->code, ec::not_looking);
  find(a, search());
  auto bad = good;
  bad.schema.bytes[0] ^= std::byte{1};
  EXPECT_EQ(join(a, bad, 5)->code, ec::schema_mismatch);
  bad = good;
  bad.group_key = "other.0b";
  EXPECT_EQ(join(a, bad, 5)->code, ec::wrong_group_key);
  bad = good;
  bad.epoch = epoch_id{4};
  EXPECT_EQ(join(a, bad, 5)->code, ec::epoch_mismatch);
  bad = good;
  bad.expiration = wall->now();
  EXPECT_EQ(join(a, bad, 5)->code, ec::bad_expiration);
  EXPECT_EQ(join(a, good, 5)->code, ec::none);
  EXPECT_EQ(join(a, good, 5)->code, ec::duplicate_peer);
  for (const auto* reason : {"not_looking", "schema_mismatch", "wrong_group_key", "epoch_mismatch",
                             "bad_expiration", "duplicate_peer"})
    EXPECT_EQ(testing::exported(*a.ctx.metrics,
                                std::string{"waggle_matchmaking_joins_refused_total{reason=\""}
                                  + reason + "\""),
              1.0)
      << reason;
}

TEST_F(Matchmaker, AClientRefusesToLeadWhateverTheRestOfTheQuestion) {
  matchmaking_config client;
  client.mode = member_mode::client;
  auto a = start(1, client);
  find(a, search());
  EXPECT_EQ(join(a, wire::join_group{}, 5)->code, ec::protocol_violation);
}

TEST_F(Matchmaker, AnswersNoOtherRequests) {
  auto a = start(1);
  auto answer =
    ask<outbound_answer>(a.maker, inbound_call{testing::test_peer(2), wire::dht_ping{}});
  EXPECT_EQ(answer.error().code, ec::protocol_violation);
}

TEST_F(Matchmaker, AFollowerThatIsLostIsNotInTheGroup) {
  auto a = start(1);
  auto good = question(a);
  auto group = find(a, search(10s));
  ASSERT_EQ(join(a, good, 5)->code, ec::none);
  ASSERT_EQ(join(a, good, 6)->code, ec::none);
  ASSERT_EQ(join(a, good, 7)->code, ec::none);
  tell(a.maker, peer_disconnected{testing::test_peer(5).id, {ec::peer_lost, {}}});
  tell(a.maker, inbound_event{testing::test_peer(6), wire::leave_group{"vector"}, {}, nullptr});
  pass(matchmaking_config{}.min_matchmaking_time + 30ms);
  ASSERT_TRUE(group.get());
  ASSERT_EQ(group.get()->plan.members.size(), 2u);
  EXPECT_EQ(group.get()->plan.members[1].peer.id, testing::test_peer(7).id);
  EXPECT_EQ(told<wire::begin_group>(a).size(), 1u);
}

// -- messages of a leader -----------------------------------------------------------------------

class Follower : public Matchmaker {
protected:
  /// We follow peer 2, which is scripted.
  void SetUp() override { follow_with({}); }
  void follow_with(const matchmaking_config& config) {
    plan = {};
    us = start(1, config);
    us.around->peer_says = [](const auto&) { return result<wire::join_reply>{wire::join_reply{}}; };
    tell(us.maker, peer_connected{leader});
    group = find(us, search());
    ASSERT_EQ(us.around->calls.size(), 1u);
    plan.id.bytes.fill(std::byte{1});
    plan.prefix = "vector";
    plan.epoch = epoch_id{3};
    plan.members = {{leader, member_mode::node}, {us.ctx.record, member_mode::node}};
    plan.elements = 100;
    plan.part_elements = matchmaking_config{}.parts.largest;
    plan.shares = {50, 50};
    plan.codecs = search().codecs;
    plan.gathered.resize(2);
  }
  void begin(const round_plan& with, const peer_record& from) {
    tell(us.maker, inbound_event{from, wire::begin_group{with}, {}, nullptr});
  }
  void expect_refused(const round_plan& with, ec why) {
    begin(with, leader);
    EXPECT_FALSE(group.answered());
    EXPECT_EQ(testing::exported(*us.ctx.metrics, "waggle_network_refused_total{reason=\""
                                                   + std::string{to_string(why)} + "\""),
              1.0)
      << to_string(why);
  }

  peer us;
  peer_record leader = testing::test_peer(2);
  round_plan plan;
  pending<group_formed> group;
};

TEST_F(Follower, TakesThePlanOfItsLeader) {
  begin(plan, leader);
  ASSERT_TRUE(group.get());
  EXPECT_EQ(group.get()->plan, plan);
  EXPECT_TRUE(us.around->stored.back().tombstone);
}

TEST_F(Follower, TakesNoPlanFromAnybodyElse) {
  auto stranger = testing::test_peer(3);
  tell(us.maker, peer_connected{stranger});
  auto forged = plan;
  begin(forged, stranger); // names the leader, but is sent by another peer
  EXPECT_FALSE(group.answered());
  forged.members[0].peer = stranger;
  begin(forged, stranger);
  EXPECT_FALSE(group.answered());
  EXPECT_FALSE(told<wire::round_suspect>(us).empty()) << "it need not wait for us";
}

TEST_F(Follower, RefusesAPlanThatClaimsOneHostWhichItCannotSee) {
  plan.one_host = true;
  expect_refused(plan, ec::protocol_violation);
}

TEST_F(Follower, AMadeUpPlanDoesNotMakeItDialStrangers) {
  for (std::uint64_t seed = 10; seed < 20; ++seed) {
    plan.members.push_back({testing::test_peer(seed), member_mode::node});
    plan.shares.push_back(0);
    plan.gathered.emplace_back();
  }
  plan.epoch = epoch_id{4};
  begin(plan, leader);
  for (const auto& msg : us.around->told)
    EXPECT_EQ(msg.to.id, leader.id);
}

TEST_F(Follower, AsksTheLeaderThatItsLeaderNames) {
  wire::disband_group message{"vector", {testing::test_peer(3)}};
  tell(us.maker, inbound_event{leader, message, {}, nullptr});
  ASSERT_EQ(us.around->calls.size(), 2u);
  EXPECT_EQ(us.around->calls[1].to.id, testing::test_peer(3).id);
}

TEST_F(Follower, ADisbandForAnotherPrefixIsNotForIt) {
  wire::disband_group message{"other", {testing::test_peer(3)}};
  tell(us.maker, inbound_event{leader, message, {}, nullptr});
  EXPECT_EQ(us.around->calls.size(), 1u);
}

TEST_F(Follower, APlanThatComesTooLateIsDeclined) {
  tell(us.maker, cancel_search{});
  ASSERT_EQ(group.get().error().code, ec::cancelled);
  begin(plan, leader);
  auto suspects = told<wire::round_suspect>(us);
  ASSERT_EQ(suspects.size(), 1u);
  EXPECT_EQ(suspects[0].round, plan.id);
  EXPECT_EQ(suspects[0].member, 1u);
  EXPECT_EQ(suspects[0].reason, ec::not_looking);
}

TEST_F(Follower, TellsItsLeaderWhenItCancels) {
  tell(us.maker, cancel_search{});
  EXPECT_EQ(told<wire::leave_group>(us).size(), 1u);
}

} // namespace
} // namespace waggle
