#include "runtime/averaging/open_group.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "runtime/averaging/round_decision.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

constexpr std::uint64_t elements = 1'000;
const digest branch = sha256("branch");

open_group::terms terms() {
  open_group::terms t{
    .prefix = "gradients", .schema = sha256("schema"), .vectors = {{{elements, codec_id::none}}}};
  t.partition.parts = {64, false};
  return t;
}

/// Members of one swarm, each with its own group object. The test decides which members receive the
/// leader's plans.
struct OpenGroup : ::testing::Test {
  OpenGroup() {
    auto plan = plan_for(8);
    for (const auto& m : plan.members)
      all.emplace_back(m, terms(), member_bandwidth{});
    for (const auto& m : plan.members)
      records.push_back(m);
  }

  open_group::applicant applicant(std::size_t i) const {
    return {records[i], sha256("schema"), branch, {}};
  }
  static round_id seed() {
    round_id id;
    id.bytes.fill(std::byte{5});
    return id;
  }

  /// All get these terms, and are in no group.
  void set_terms(const open_group::terms& how) {
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = open_group{records[i], how, {}};
  }
  /// A round of `stayed` ends at these members.
  void end_round(std::initializer_list<std::size_t> members, member_set stayed) {
    for (auto i : members)
      EXPECT_TRUE(all[i].advance(stayed)) << i;
  }
  struct change {
    round_id replaced;
    round_plan plan;
  };
  /// The leader admits `newcomer`; the others do not know the plan yet.
  change admit(std::size_t newcomer) {
    EXPECT_EQ(all[0].apply(applicant(newcomer)), ec::none);
    auto replaced = all[0].next().id;
    auto plan = all[0].admit();
    EXPECT_TRUE(plan);
    return {replaced, plan.value_or(round_plan{})};
  }

  /// The first founds the group; the others are admitted one after another.
  void form(std::size_t size) {
    all[0].found(epoch_id{3}, branch, seed());
    for (std::size_t i = 1; i < size; ++i)
      let_in(i, i);
  }
  void let_in(std::size_t newcomer, std::size_t members_before) {
    auto [replaced, plan] = admit(newcomer);
    for (std::size_t i = 1; i < members_before; ++i)
      ASSERT_TRUE(all[i].on_plan(records[0].peer.id, replaced, plan).ok());
    ASSERT_TRUE(all[newcomer].enter(records[0].peer.id, plan, branch).ok());
  }
  void expect_same_plan(std::initializer_list<std::size_t> members) {
    const auto& first = all[*members.begin()].next();
    EXPECT_TRUE(validate_plan(first).ok()) << to_string(validate_plan(first).error());
    EXPECT_EQ(std::accumulate(first.shares.begin(), first.shares.end(), std::uint64_t{0}),
              first.elements);
    for (auto i : members) {
      ASSERT_TRUE(all[i].is_member()) << i;
      EXPECT_EQ(all[i].next(), first) << i;
    }
  }

  static round_id seed_of(std::uint64_t number) {
    auto id = seed();
    id.bytes[0] = static_cast<std::byte>(number);
    id.bytes[1] = static_cast<std::byte>(number >> 8U);
    return id;
  }
  std::size_t position_of(const std::vector<std::size_t>& in, const peer_id& who) const {
    for (auto i : in)
      if (records[i].peer.id == who)
        return i;
    return records.size();
  }

  std::vector<open_group> all;
  std::vector<round_member> records;
};

TEST_F(OpenGroup, AGroupOfOneLetsOthersInOneAfterAnother) {
  form(4);
  expect_same_plan({0, 1, 2, 3});
  EXPECT_EQ(all[0].next().members.size(), 4U);
  EXPECT_TRUE(all[0].leads());
  EXPECT_FALSE(all[3].leads());
  EXPECT_EQ(all[3].next().epoch, epoch_id{3});
}

TEST_F(OpenGroup, ARoundEndsInTheSameNextPlanForAll) {
  form(4);
  auto before = all[0].next().id;
  end_round({0, 1, 2, 3}, member_set::first(4));
  expect_same_plan({0, 1, 2, 3});
  EXPECT_EQ(all[0].next().epoch, epoch_id{4});
  EXPECT_NE(all[0].next().id, before);
}

TEST_F(OpenGroup, AGroupThatMatchmakingFormedGoesOnAndAdmitsOthers) {
  form(3);
  auto plan = all[0].next();
  plan.id = seed_of(9);
  plan.gathered = {"a text", std::string{newcomer_mark}, ""};
  for (std::size_t i = 0; i < 3; ++i) {
    auto agreed = terms().partition;
    if (i == 0)
      agreed.bandwidths.resize(3);
    all[i].adopt(plan, agreed);
    EXPECT_EQ(all[i].next().id, plan.id);
    EXPECT_TRUE(all[i].advance(member_set::first(3)));
  }
  expect_same_plan({0, 1, 2});
  auto newcomer = applicant(3);
  EXPECT_EQ(all[0].apply(newcomer), ec::wrong_run) << "the group has no history";
  newcomer.branch = {};
  ASSERT_EQ(all[0].apply(newcomer), ec::none);
  auto replaced = all[0].next().id;
  auto next = all[0].admit();
  ASSERT_TRUE(next);
  for (std::size_t i : {1, 2})
    ASSERT_TRUE(all[i].on_plan(records[0].peer.id, replaced, *next).ok());
  ASSERT_TRUE(all[3].enter(records[0].peer.id, *next, {}).ok());
  expect_same_plan({0, 1, 2, 3});
  all[3].advance(members_of({3})); // no majority
  EXPECT_TRUE(all[3].branch().is_zero());
}

TEST_F(OpenGroup, SurvivorsGoOnWithoutLostMembers) {
  form(4);
  end_round({0, 1, 3}, members_of({0, 1, 3}));
  expect_same_plan({0, 1, 3});
  EXPECT_EQ(all[0].next().members.size(), 3U);
  EXPECT_FALSE(all[0].contains(records[2].peer.id));
}

TEST_F(OpenGroup, ALostMemberStaysLostUntilItHasEnteredAgain) {
  form(3);
  all[0].lost(records[5].peer.id);
  EXPECT_FALSE(all[0].is_lost(records[5].peer.id)) << "it is no member";
  all[0].lost(records[2].peer.id);
  EXPECT_TRUE(all[0].is_lost(records[2].peer.id));
  EXPECT_TRUE(all[0].advance(member_set{0b111}));
  EXPECT_TRUE(all[0].is_lost(records[2].peer.id));
  ASSERT_EQ(all[0].apply(applicant(2)), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_FALSE(all[0].is_lost(records[2].peer.id));
  all[0].lost(records[2].peer.id);
  EXPECT_TRUE(all[0].advance(member_set{0b011}));
  EXPECT_FALSE(all[0].is_lost(records[2].peer.id)) << "it is no member any more";
  all[0].lost(records[1].peer.id);
  all[0].found(epoch_id{9}, branch, seed());
  EXPECT_FALSE(all[0].is_lost(records[1].peer.id)) << "of another group";
}

TEST_F(OpenGroup, WithoutItsLeaderTheNextMemberLeads) {
  form(3);
  end_round({0, 1, 2}, member_set::first(3));
  end_round({1, 2}, members_of({1, 2}));
  expect_same_plan({1, 2});
  EXPECT_TRUE(all[1].leads());
  EXPECT_EQ(all[2].apply(applicant(5)), ec::not_a_leader);
  EXPECT_EQ(all[1].apply(applicant(5)), ec::none);
}

TEST_F(OpenGroup, AClientNeverLeadsAndNeverReduces) {
  auto client = records[1];
  client.mode = member_mode::client;
  open_group joins{client, terms(), {}};
  all[0].found(epoch_id{0}, branch, seed());
  ASSERT_EQ(all[0].apply({client, sha256("schema"), branch, {}}), ec::none);
  auto plan = all[0].admit();
  ASSERT_TRUE(plan);
  ASSERT_TRUE(joins.enter(records[0].peer.id, *plan, branch).ok());
  EXPECT_EQ(plan->shares[1], 0U);
  EXPECT_TRUE(joins.advance(members_of({1}))) << "alone it needs no other member";
  EXPECT_EQ(joins.next().members.size(), 1U);
  EXPECT_EQ(joins.next().shares[0], elements);
}

TEST_F(OpenGroup, AMemberThatNobodyReachesBecomesAClientWhereItIsAloneOrEntersAgain) {
  form(2);
  auto client = records[0];
  client.mode = member_mode::client;
  all[0].become(client);
  EXPECT_EQ(all[0].next().members[0].mode, member_mode::node) << "the others hold this plan, too";
  all[0].found(epoch_id{3}, branch, seed());
  all[0].become(client);
  EXPECT_EQ(all[0].next().members[0].mode, member_mode::client);
  all[1].leave();
  ASSERT_EQ(all[0].apply(applicant(1)), ec::none);
  auto plan = all[0].admit();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->members[0].peer.id, records[1].peer.id) << "it can be reached, so it leads";
  EXPECT_EQ(plan->members[1].mode, member_mode::client);
  EXPECT_TRUE(all[1].enter(records[0].peer.id, *plan, branch).ok());
}

/// A single client as group 1, and an auxiliary that knows nothing of the vector as group 0.
struct OpenGroupOfClients : OpenGroup {
  OpenGroupOfClients() {
    records[0].mode = member_mode::auxiliary;
    for (std::size_t i : {1U, 2U})
      records[i].mode = member_mode::client;
    for (std::size_t i = 0; i < 3; ++i)
      all[i] = open_group{records[i], terms(), {}};
    all[1].found(epoch_id{3}, branch, seed());
  }
  round_plan let_auxiliary_in() {
    EXPECT_EQ(all[1].apply({records[0], digest{}, branch, {}}), ec::none);
    auto plan = all[1].admit();
    EXPECT_TRUE(plan);
    EXPECT_TRUE(all[0].enter(records[1].peer.id, *plan, branch).ok());
    return *plan;
  }
};

TEST_F(OpenGroupOfClients, AloneAClientGoesOn) {
  EXPECT_TRUE(all[1].advance(member_set::first(1)));
  EXPECT_TRUE(all[1].is_member());
  EXPECT_EQ(all[1].next().epoch, epoch_id{4});
}

TEST_F(OpenGroupOfClients, AnAuxiliaryEntersWithoutASchemaAndLeads) {
  let_auxiliary_in();
  expect_same_plan({0, 1});
  EXPECT_TRUE(all[0].leads());
  EXPECT_FALSE(all[1].leads());
  EXPECT_EQ(all[0].next().shares[0], elements);
  EXPECT_EQ(all[1].apply(applicant(2)), ec::not_a_leader);
  let_in(2, 2);
  expect_same_plan({0, 1, 2});
}

TEST_F(OpenGroupOfClients, AnAuxiliaryThatLeadsHasToSeeForItselfWhetherAllAreOnOneHost) {
  ASSERT_TRUE(all[1].on_one_host(true)) << "alone, it is";
  EXPECT_FALSE(let_auxiliary_in().one_host);
}

TEST_F(OpenGroupOfClients, OnlyAnAuxiliaryMayComeWithoutASchema) {
  EXPECT_EQ(all[1].apply({records[2], digest{}, branch, {}}), ec::schema_mismatch);
  EXPECT_EQ(all[1].apply({records[3], digest{}, branch, {}}), ec::schema_mismatch);
  EXPECT_EQ(all[1].apply({records[0], sha256("another"), branch, {}}), ec::schema_mismatch);
}

TEST_F(OpenGroupOfClients, AClientCannotLetAnotherOneIn) {
  ASSERT_EQ(all[1].apply(applicant(2)), ec::none);
  EXPECT_FALSE(all[1].admit()) << "no member would reduce";
  EXPECT_EQ(all[1].next().members.size(), 1U);
}

TEST_F(OpenGroupOfClients, WithoutTheAuxiliaryTheGroupHasEnded) {
  let_auxiliary_in();
  let_in(2, 2);
  EXPECT_FALSE(all[1].advance(members_of({1, 2})));
  EXPECT_FALSE(all[1].is_member());
}

TEST_F(OpenGroupOfClients, NoClientIsGivenTheLead) {
  let_auxiliary_in();
  EXPECT_FALSE(all[0].hand_lead_to(records[1].peer.id));
  EXPECT_TRUE(all[0].leads());
}

TEST_F(OpenGroupOfClients, AClientThatDoesNotLeadCannotChangeThePlan) {
  let_auxiliary_in();
  let_in(2, 2);
  auto plan = all[0].next();
  plan.id = seed_of(99);
  auto taken = all[1].on_plan(records[2].peer.id, all[1].next().id, plan);
  EXPECT_FALSE(taken.ok());
  EXPECT_FALSE(all[3].enter(records[0].peer.id, plan, branch).ok())
    << "it is not one of the members";
}

TEST_F(OpenGroup, RefusesApplicantsWithAReason) {
  EXPECT_EQ(all[0].apply(applicant(1)), ec::not_ready);
  auto small = terms();
  small.members_max = 2;
  open_group group{records[0], small, {}};
  group.found(epoch_id{0}, branch, seed());
  auto foreign = applicant(1);
  foreign.schema = sha256("another model");
  EXPECT_EQ(group.apply(foreign), ec::schema_mismatch);
  EXPECT_EQ(group.apply(applicant(1)), ec::none);
  EXPECT_EQ(group.apply(applicant(1)), ec::none)
    << "a repeated application does not count as another peer";
  EXPECT_EQ(group.apply(applicant(2)), ec::group_full);
  group.withdraw(records[1].peer.id);
  EXPECT_EQ(group.apply(applicant(2)), ec::none);
}

TEST_F(OpenGroup, ARestartedMemberIsAdmittedAgainOnce) {
  form(3);
  let_in(2, 3);
  expect_same_plan({0, 1, 2});
  EXPECT_EQ(all[0].next().members.size(), 3U);
  EXPECT_EQ(all[0].next().gathered[2], newcomer_mark);
}

TEST_F(OpenGroup, APlanForALaterMomentWaitsForIt) {
  form(3);
  // The leader has ended a round that member 1 has not ended: its next plan arrives too early.
  EXPECT_TRUE(all[0].advance(member_set::first(3)));
  auto [replaced, plan] = admit(3);
  auto early = all[1].on_plan(records[0].peer.id, replaced, plan);
  EXPECT_FALSE(*early);
  EXPECT_EQ(all[1].next().members.size(), 3U);
  EXPECT_TRUE(all[1].advance(member_set::first(3)));
  expect_same_plan({0, 1});
  EXPECT_EQ(all[1].next().members.size(), 4U);
}

TEST_F(OpenGroup, PlansThatFollowEachOtherEarlyAreAllAdopted) {
  form(3);
  EXPECT_TRUE(all[0].advance(member_set::first(3)));
  for (std::size_t newcomer : {3U, 4U, 5U}) {
    auto [replaced, plan] = admit(newcomer);
    ASSERT_TRUE(all[1].on_plan(records[0].peer.id, replaced, plan).ok());
  }
  EXPECT_TRUE(all[1].advance(member_set::first(3)));
  expect_same_plan({0, 1});
  EXPECT_EQ(all[1].next().members.size(), 6U);
}

// The leader's call may be faster than its plan, also to whoever it admits.
TEST_F(OpenGroup, ACallIsKeptUntilItsPlanArrives) {
  form(2);
  auto [replaced, plan] = admit(2);
  for (std::size_t i : {1U, 2U})
    EXPECT_FALSE(all[i].on_call(records[0].peer.id, plan.id)) << i;
  ASSERT_TRUE(all[1].on_plan(records[0].peer.id, replaced, plan).ok());
  all[2].use(records[2], terms(), {}); // an auxiliary's terms come with the plan
  ASSERT_TRUE(all[2].enter(records[0].peer.id, plan, branch).ok());
  EXPECT_TRUE(all[1].is_called());
  EXPECT_TRUE(all[2].is_called());
}

TEST_F(OpenGroup, ACallOfAStrangerIsNotHeeded) {
  form(2);
  EXPECT_TRUE(all[1].on_call(records[0].peer.id, all[1].next().id));
  EXPECT_FALSE(all[1].on_call(records[5].peer.id, seed_of(9)));
  EXPECT_TRUE(all[1].is_called());
}

/// An early plan, as it arrives at member 1.
struct EarlyPlan : OpenGroup {
  EarlyPlan() {
    form(3);
    EXPECT_TRUE(all[0].advance(member_set::first(3)));
    EXPECT_EQ(all[0].apply(applicant(3)), ec::none);
    replaced = all[0].next().id;
    plan = *all[0].admit();
    EXPECT_TRUE(all[1].on_plan(records[0].peer.id, replaced, plan).ok());
  }
  /// A plan that `who` leads, with us in it.
  round_plan led_by(std::size_t who) const {
    auto made = all[1].next();
    auto known = waggle::position_of(records[who].peer.id, made);
    if (known == made.members.size()) {
      made.members.insert(made.members.begin(), records[who]);
      made.gathered.insert(made.gathered.begin(), std::string{});
      made.shares.insert(made.shares.begin(), 0);
    } else {
      std::swap(made.members[0], made.members[known]);
      std::swap(made.shares[0], made.shares[known]);
    }
    made.id = seed_of(77);
    return made;
  }
  void expect_plan_taken() {
    EXPECT_TRUE(all[1].advance(member_set::first(3)));
    expect_same_plan({0, 1});
    EXPECT_EQ(all[1].next().members.size(), 4U);
  }

  round_id replaced;
  round_plan plan;
};

TEST_F(EarlyPlan, IsNotPushedOutByAPeerThatIsNoMember) {
  auto taken = all[1].on_plan(records[5].peer.id, seed_of(9), led_by(5));
  EXPECT_FALSE(taken.ok());
  expect_plan_taken();
}

TEST_F(EarlyPlan, IsNotPushedOutByAnotherMember) {
  for (std::uint64_t n = 0; n < 100; ++n)
    EXPECT_TRUE(all[1].on_plan(records[2].peer.id, seed_of(100 + n), led_by(2)).ok());
  expect_plan_taken();
}

TEST_F(OpenGroup, TheIdOfAPlanIsAHashOfAllOfIt) {
  form(3);
  auto [replaced, plan] = admit(3);
  EXPECT_EQ(plan.id, id_of_change(replaced, plan));
  EXPECT_NE(plan.id, id_of_change(seed_of(9), plan));
  const std::vector<std::function<void(round_plan&)>> changes{
    [](round_plan& p) { p.prefix += "x"; },
    [](round_plan& p) { p.epoch = p.epoch.next(); },
    [](round_plan& p) { std::swap(p.members[1], p.members[2]); },
    [](round_plan& p) { p.members[1].mode = member_mode::client; },
    [](round_plan& p) { p.members.pop_back(); },
    [](round_plan& p) { ++p.elements; },
    [](round_plan& p) { ++p.part_elements; },
    [](round_plan& p) { p.codecs[0].codec = codec_id::float16; },
    [](round_plan& p) {
      p.codecs.push_back({1, codec_id::none});
    },
    [](round_plan& p) { p.reduce_by.how = aggregator::median; },
    [](round_plan& p) { p.reduce_by.faulty_max = 1; },
    [](round_plan& p) { p.reduce_by.check_share = 0.5; },
    [](round_plan& p) { ++p.shares[0]; },
    [](round_plan& p) { ++p.min_contributors; },
    [](round_plan& p) { p.one_host = true; },
    [](round_plan& p) { p.gathered[3].clear(); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    auto other = plan;
    changes[i](other);
    EXPECT_NE(id_of_change(replaced, other), plan.id) << i;
  }
}

TEST_F(OpenGroup, ARoundNeedsAsManyContributorsAsWereAgreedOnceTheGroupHasThem) {
  auto three = terms();
  three.min_contributors = 3;
  set_terms(three);
  auto needed = [&] { return fewest_contributors(all[0].next()); };
  form(1);
  EXPECT_EQ(needed(), 1U) << "alone";
  let_in(1, 1);
  EXPECT_EQ(needed(), 1U) << "a newcomer may be silent";
  let_in(2, 2);
  end_round({0, 1, 2}, member_set::first(3));
  expect_same_plan({0, 1, 2});
  EXPECT_EQ(needed(), 3U);
  let_in(3, 3);
  EXPECT_EQ(needed(), 3U);
  end_round({0, 1, 2, 3}, member_set::first(4));
  EXPECT_EQ(needed(), 3U) << "one of the four may be lost";
  end_round({0, 1}, members_of({0, 1}));
  expect_same_plan({0, 1});
  EXPECT_EQ(needed(), 2U);
  let_in(4, 2);
  end_round({0, 1, 4}, member_set::first(3));
  EXPECT_EQ(needed(), 3U) << "and again, once others have come";
}

TEST_F(OpenGroup, AnAuxiliaryIsNoContributor) {
  auto plan = plan_for(3);
  plan.members[0].mode = member_mode::auxiliary;
  plan.min_contributors = 3;
  EXPECT_EQ(fewest_contributors(plan), 2U);
}

TEST_F(OpenGroup, APlanWithAnotherNumberOfContributorsIsRefused) {
  form(2);
  auto [replaced, plan] = admit(2);
  plan.min_contributors = 2;
  plan.id = id_of_change(replaced, plan);
  EXPECT_EQ(all[1].on_plan(records[0].peer.id, replaced, plan).error().code, ec::schema_mismatch);
}

/// Three members that have finished a round, and places for five more.
struct Admission : OpenGroup {
  Admission() {
    form(3);
    end_round({0, 1, 2}, member_set::first(3));
  }
  ec apply(std::uint64_t number, const std::string& host) {
    auto who = applicant(3);
    who.member.peer.key.bytes[0] = static_cast<std::byte>(100 + number);
    who.member.peer.id = peer_id_of(who.member.peer.key);
    who.host = host;
    hosts[who.member.peer.id] = host;
    return all[0].apply(who);
  }
  std::size_t members_of_host(const std::string& host) {
    const auto& in = all[0].next().members;
    return static_cast<std::size_t>(std::count_if(in.begin(), in.end(), [&](const auto& m) {
      auto known = hosts.find(m.peer.id);
      return known != hosts.end() && known->second == host;
    }));
  }

  std::map<peer_id, std::string> hosts;
};

TEST_F(Admission, TheMembersRemainAQuorumWithoutTheNewcomers) {
  for (std::uint64_t n = 0; n < 30; ++n)
    EXPECT_EQ(apply(n, "a"), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 6U);
  EXPECT_TRUE(is_quorum(member_set::first(3), 6));
  EXPECT_FALSE(all[0].admit()) << "the others wait for a round";
  ASSERT_TRUE(all[0].advance(member_set::first(3))); // all were silent
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 6U);
  ASSERT_TRUE(all[0].advance(member_set::first(6))); // all contributed
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 12U);
}

// Peers that come back after the end of the run, and only want its last state.
TEST_F(Admission, NobodyWaitsForARoundThatDoesNotFollow) {
  auto of_run = terms();
  of_run.end = epoch_id{5};
  all[0] = open_group{records[0], of_run, {}};
  form(3);
  ASSERT_TRUE(all[0].advance(member_set::first(3)));
  for (std::uint64_t n = 0; n < 5; ++n)
    EXPECT_EQ(apply(n, "a"), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 6U) << "of epoch 4, the last round";
  ASSERT_TRUE(all[0].advance(member_set::first(3)));
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 5U) << "all";
  for (std::uint64_t n = 5; n < 10; ++n)
    EXPECT_EQ(apply(n, "a"), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().members.size(), 10U) << "more newcomers than members";
}

TEST_F(Admission, HostsTakeTurns) {
  for (std::uint64_t n = 0; n < 20; ++n)
    EXPECT_EQ(apply(n, "many"), ec::none);
  EXPECT_EQ(apply(20, "one"), ec::none);
  EXPECT_EQ(apply(21, "other"), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(members_of_host("many"), 1U);
  EXPECT_EQ(members_of_host("one"), 1U);
  EXPECT_EQ(members_of_host("other"), 1U);
}

TEST_F(Admission, AHostThatTakesAllPlacesGivesWayToOthers) {
  std::uint64_t n = 0;
  for (; n < 61; ++n)
    ASSERT_EQ(apply(n, "many"), ec::none);
  EXPECT_EQ(apply(n++, "many"), ec::group_full);
  EXPECT_EQ(apply(n++, "one"), ec::none);
  EXPECT_EQ(apply(n++, "many"), ec::group_full);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(members_of_host("one"), 1U);
}

TEST_F(OpenGroup, RefusesPlansThatNoLeaderWouldMake) {
  form(3);
  auto replaced = all[0].next().id;
  ASSERT_EQ(all[0].apply(applicant(3)), ec::none);
  auto good = *all[0].admit();
  auto refused = [&](const peer_id& from, const round_plan& plan) {
    auto outcome = all[1].on_plan(from, replaced, plan);
    return !outcome.ok();
  };
  EXPECT_TRUE(refused(records[2].peer.id, good)) << "not the leader";
  auto other_leader = good;
  std::swap(other_leader.members[0], other_leader.members[2]);
  EXPECT_TRUE(refused(records[2].peer.id, other_leader)) << "a member makes itself the leader";
  auto without = good;
  without.members.erase(without.members.begin() + 2);
  without.shares[0] += without.shares[2];
  without.shares.erase(without.shares.begin() + 2);
  without.gathered.pop_back();
  EXPECT_TRUE(refused(records[0].peer.id, without)) << "only a round leaves members out";
  auto later = good;
  later.epoch = later.epoch.next();
  EXPECT_TRUE(refused(records[0].peer.id, later)) << "another epoch";
  auto other_vector = good;
  other_vector.prefix = "statistics";
  EXPECT_TRUE(refused(records[0].peer.id, other_vector));
  EXPECT_TRUE(*all[1].on_plan(records[0].peer.id, replaced, good));
}

TEST_F(OpenGroup, NewcomersDoNotMakeAMajority) {
  form(3);
  end_round({0, 1, 2}, member_set::first(3));
  for (std::size_t i : {3U, 4U, 5U}) // three newcomers and three members
    ASSERT_EQ(all[0].apply(applicant(i)), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_TRUE(keeps_majority(all[0].next(), members_of({0, 1})));
  EXPECT_FALSE(keeps_majority(all[0].next(), members_of({0, 3, 4, 5})));
}

TEST(GroupMajority, NewcomersAreNotLeftWithARoundWithoutTheMembersThatHoldTheState) {
  auto plan = plan_for(5);
  for (std::size_t i : {2U, 3U, 4U})
    plan.gathered[i] = newcomer_mark;
  auto all = member_set::first(5);
  EXPECT_TRUE(leaves_it_to_newcomers(plan, all, 0));
  EXPECT_TRUE(leaves_it_to_newcomers(plan, all, 1));
  EXPECT_FALSE(leaves_it_to_newcomers(plan, all, 4)) << "a newcomer itself";
  EXPECT_FALSE(leaves_it_to_newcomers(plan, members_of({0, 3}), 0)) << "they can decide nothing";
  plan.gathered[2].clear();
  plan.gathered[3] = returned_mark;
  EXPECT_FALSE(leaves_it_to_newcomers(plan, all, 0)) << "as many others hold it";
  plan.gathered[3].clear();
  EXPECT_FALSE(leaves_it_to_newcomers(plan, all, 0));
}

TEST(GroupMajority, AnAuxiliaryDoesNotStandInForTheHolder) {
  auto plan = plan_for(4);
  plan.members[0].mode = member_mode::auxiliary;
  plan.members[1].mode = member_mode::client;
  plan.gathered[2] = plan.gathered[3] = newcomer_mark;
  auto all = member_set::first(4);
  EXPECT_TRUE(leaves_it_to_newcomers(plan, all, 1));
  EXPECT_FALSE(leaves_it_to_newcomers(plan, all, 0));
}

// A member that enters again may have decided the epoch with others before.
TEST_F(OpenGroup, AMemberThatCameAgainIsMissedByTheMajorityAndDoesNotMakeOne) {
  form(3);
  end_round({0, 1, 2}, member_set::first(3));
  auto before = all[0].branch();
  ASSERT_EQ(all[0].apply(applicant(1)), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().gathered[1], returned_mark);
  EXPECT_FALSE(keeps_majority(all[0].next(), members_of({0, 1})));
  EXPECT_TRUE(keeps_majority(all[0].next(), members_of({0, 1, 2})));
  EXPECT_TRUE(all[0].advance(members_of({0, 1})));
  EXPECT_NE(all[0].branch(), before);
}

TEST_F(OpenGroup, ANewcomerThatAsksAgainIsStillOne) {
  form(1);
  ASSERT_EQ(all[0].apply(applicant(1)), ec::none);
  ASSERT_TRUE(all[0].admit());
  ASSERT_EQ(all[0].apply(applicant(1)), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().gathered[1], newcomer_mark);
}

TEST_F(OpenGroup, AnApplicantOfAnotherHistoryIsRefused) {
  form(2);
  auto other = applicant(4);
  other.branch = sha256("another branch");
  EXPECT_EQ(all[0].apply(other), ec::wrong_run);
}

TEST_F(OpenGroup, AMinorityGoesOnUnderTheSameNewNameOnAllItsMembers) {
  form(5);
  end_round({0, 1, 2, 3, 4}, member_set::first(5));
  auto round = all[0].next().id;
  end_round({3, 4}, members_of({3, 4}));
  end_round({0, 1, 2}, members_of({0, 1, 2}));
  EXPECT_EQ(all[0].branch(), branch);
  EXPECT_EQ(all[3].branch(), forked(branch, round));
  EXPECT_EQ(all[4].branch(), all[3].branch());
}

TEST_F(OpenGroup, WorkIsRepartitionedWhenABandwidthChanges) {
  form(3);
  for (std::size_t i : {0U, 1U})
    ASSERT_FALSE(all[0].on_bandwidth(records[i].peer.id, 4e6)) << "equal ones change nothing";
  auto plan = all[0].on_bandwidth(records[2].peer.id, 1e6);
  ASSERT_TRUE(plan);
  EXPECT_GT(plan->shares[0], plan->shares[2]);
  EXPECT_FALSE(all[1].on_bandwidth(records[0].peer.id, 1e6)) << "only the leader partitions";
}

TEST_F(OpenGroup, WhoLeavesSoonReducesOnlyWhereNobodyElseCan) {
  form(3);
  end_round({0, 1, 2}, member_set::first(3));
  auto leaves = [&](std::size_t i) { return all[0].on_bandwidth(records[i].peer.id, 0.0); };
  EXPECT_EQ(successor_in(all[0].next()), records[1].peer.id);
  auto replaced = all[0].next().id;
  auto plan = leaves(1);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->shares[1], 0U);
  EXPECT_GT(plan->shares[0], 0U);
  ASSERT_TRUE(*all[2].on_plan(records[0].peer.id, replaced, *plan));
  EXPECT_FALSE(leaves(1)) << "as before";
  EXPECT_EQ(successor_in(*plan), records[2].peer.id);
  ASSERT_TRUE(leaves(0));
  EXPECT_EQ(all[0].next().shares, (std::vector<std::uint64_t>{0, 0, elements}));
  ASSERT_TRUE(leaves(2)) << "all do";
  EXPECT_EQ(all[0].next().shares, (std::vector<std::uint64_t>{elements, 0, 0}));
  EXPECT_EQ(successor_in(all[0].next()), std::nullopt);
  ASSERT_EQ(all[0].apply(applicant(3)), ec::none);
  ASSERT_TRUE(all[0].admit());
  EXPECT_EQ(all[0].next().shares, (std::vector<std::uint64_t>{0, 0, 0, elements}));
}

TEST_F(OpenGroup, ItsLeaderSaysWhetherAllAreOnOneHostAndAnotherOneHasToLookItself) {
  form(3);
  EXPECT_FALSE(all[0].on_one_host(false)) << "as before";
  EXPECT_FALSE(all[1].on_one_host(true)) << "only the leader says it";
  auto replaced = all[0].next().id;
  auto plan = all[0].on_one_host(true);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->id, id_of_change(replaced, *plan));
  for (std::size_t i : {1U, 2U})
    ASSERT_TRUE(all[i].on_plan(records[0].peer.id, replaced, *plan).ok());
  for (auto& group : {&all[0], &all[1], &all[2]})
    ASSERT_TRUE(group->advance(member_set::first(3)));
  expect_same_plan({0, 1, 2});
  EXPECT_TRUE(all[1].next().one_host);
  end_round({1, 2}, members_of({1, 2}));
  EXPECT_FALSE(all[1].next().one_host);
}

TEST_F(OpenGroup, AMemberThatReachesMoreTakesTheLead) {
  form(3);
  EXPECT_FALSE(all[0].hand_lead_to(records[0].peer.id)) << "it has it";
  EXPECT_FALSE(all[0].hand_lead_to(records[5].peer.id)) << "no member";
  EXPECT_FALSE(all[1].hand_lead_to(records[1].peer.id)) << "only the leader gives it";
  EXPECT_FALSE(all[0].hand_lead_to(records[1].peer.id)) << "it has not completed a round yet";
  end_round({0, 1, 2}, member_set::first(3));
  auto first = all[0].next();
  ASSERT_TRUE(all[0].hand_lead_to(records[1].peer.id));
  auto second = all[0].next();
  EXPECT_EQ(second.id, id_of_change(first.id, second));
  ASSERT_TRUE(*all[1].on_plan(records[0].peer.id, first.id, second));
  EXPECT_TRUE(all[1].leads());
  // The new leader is faster at the third member than the old one.
  ASSERT_EQ(all[1].apply(applicant(3)), ec::none);
  auto third = all[1].admit();
  ASSERT_TRUE(third);
  ASSERT_FALSE(*all[2].on_plan(records[1].peer.id, second.id, *third));
  ASSERT_TRUE(*all[2].on_plan(records[0].peer.id, first.id, second));
  ASSERT_TRUE(*all[0].on_plan(records[1].peer.id, second.id, *third));
  ASSERT_TRUE(all[3].enter(records[1].peer.id, *third, branch).ok());
  expect_same_plan({0, 1, 2, 3});
  EXPECT_EQ(all[2].next().members.size(), 4U);
}

TEST_F(OpenGroup, WhoNeverReducesHasNoShareUnderAnotherLeaderEither) {
  form(2);
  auto idle = applicant(2);
  idle.bandwidth = {0.0, true};
  ASSERT_EQ(all[0].apply(idle), ec::none);
  auto replaced = all[0].next().id;
  auto plan = all[0].admit();
  ASSERT_TRUE(plan);
  ASSERT_TRUE(*all[1].on_plan(records[0].peer.id, replaced, *plan));
  ASSERT_EQ(plan->shares[2], 0U);
  end_round({0, 1}, members_of({0, 1, 2}));
  ASSERT_TRUE(all[1].advance(members_of({1, 2}))); // its leader is lost
  auto next = applicant(3);
  next.branch = all[1].branch();
  ASSERT_EQ(all[1].apply(next), ec::none);
  plan = all[1].admit();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->members[1].peer.id, records[2].peer.id);
  EXPECT_EQ(plan->shares[1], 0U);
  EXPECT_GT(plan->shares[2], 0U);
}

TEST_F(OpenGroup, NobodyIsAdmittedInTheNameOfAnotherLeader) {
  form(2);
  ASSERT_EQ(all[0].apply(applicant(3)), ec::none);
  auto plan = all[0].admit();
  ASSERT_TRUE(plan);
  EXPECT_EQ(all[3].enter(records[1].peer.id, *plan, branch).error().code, ec::protocol_violation);
  EXPECT_TRUE(all[3].enter(records[0].peer.id, *plan, branch).ok());
}

TEST_F(OpenGroup, SeveralChangesAreOneToTheMembers) {
  form(3);
  ASSERT_EQ(all[0].apply(applicant(3)), ec::none);
  auto replaced = all[0].next().id;
  ASSERT_TRUE(all[0].admit());
  ASSERT_TRUE(all[0].on_one_host(true));
  EXPECT_NE(all[0].next().id, id_of_change(replaced, all[0].next()));
  all[0].seal(replaced);
  EXPECT_EQ(all[0].next().id, id_of_change(replaced, all[0].next()));
}

/// A group whose epochs have two rounds, the second of a longer vector.
struct OpenGroupOfTwoRounds : OpenGroup {
  static constexpr std::uint64_t longer = 3'000;

  OpenGroupOfTwoRounds() {
    auto two = terms();
    two.vectors.push_back({{longer, codec_id::float16}});
    two.all_each_epoch = true;
    set_terms(two);
  }
};

TEST_F(OpenGroupOfTwoRounds, BothRoundsOfAnEpochHaveTheirVector) {
  form(3);
  auto first = all[0].next();
  EXPECT_EQ(first.elements, elements);
  EXPECT_FALSE(all[0].ends_epoch());
  end_round({0, 1, 2}, member_set::first(3));
  auto second = all[0].next();
  EXPECT_EQ(all[2].next(), second);
  EXPECT_TRUE(all[0].ends_epoch());
  EXPECT_EQ(second.epoch, first.epoch);
  EXPECT_NE(second.id, first.id);
  EXPECT_EQ(second.elements, longer);
  EXPECT_EQ(second.codecs.front().codec, codec_id::float16);
  EXPECT_TRUE(validate_plan(second).ok());
  for (std::size_t i : {0U, 1U, 2U}) {
    EXPECT_NEAR(static_cast<double>(second.shares[i]) / static_cast<double>(longer),
                static_cast<double>(first.shares[i]) / static_cast<double>(elements), 0.002);
    ASSERT_TRUE(all[i].advance(member_set::first(3)));
  }
  expect_same_plan({0, 1, 2}); // of `elements` values
  EXPECT_EQ(all[0].next().epoch, first.epoch.next());
  EXPECT_EQ(all[0].next().codecs, first.codecs);
}

// The two vectors alternate; a share that lost a value each time would end with one reducer.
TEST_F(OpenGroupOfTwoRounds, SharesDoNotDriftOverManyEpochs) {
  auto two = terms();
  two.vectors.push_back({{701, codec_id::none}}); // no multiple of the first
  two.all_each_epoch = true;
  set_terms(two);
  form(3);
  for (std::size_t i : {0U, 1U})
    (void)all[0].on_bandwidth(records[i].peer.id, 4e6);
  auto plan = all[0].on_bandwidth(records[2].peer.id, 1e6);
  ASSERT_TRUE(plan);
  auto shares = all[0].next().shares;
  ASSERT_NE(shares[0], shares[2]);
  auto epoch = [&] {
    return all[0].advance(member_set::first(3)) && all[0].advance(member_set::first(3));
  };
  ASSERT_TRUE(epoch());
  auto first = all[0].next().shares;
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(static_cast<double>(first[i]), static_cast<double>(shares[i]), 1);
  for (int n = 1; n < 10'000; ++n)
    ASSERT_TRUE(epoch());
  EXPECT_EQ(all[0].next().shares, first);
}

TEST_F(OpenGroupOfTwoRounds, WhoeverIsLostInTheFirstIsNotExpectedInTheSecond) {
  form(3);
  end_round({0, 2}, members_of({0, 2}));
  EXPECT_EQ(all[0].next(), all[2].next());
  EXPECT_EQ(all[0].next().members.size(), 2U);
  EXPECT_EQ(all[0].next().elements, longer);
  EXPECT_TRUE(validate_plan(all[0].next()).ok());
  ASSERT_TRUE(all[2].advance(members_of({1}))); // alone
  EXPECT_EQ(all[2].next().shares, (std::vector<std::uint64_t>{elements}));
}

TEST_F(OpenGroupOfTwoRounds, NobodyEntersBetweenTheRoundsOfAnEpoch) {
  form(2);
  end_round({0, 1}, member_set::first(2));
  ASSERT_EQ(all[0].apply(applicant(2)), ec::none);
  auto second = all[0].next();
  EXPECT_FALSE(all[0].admit());
  EXPECT_FALSE(all[0].on_bandwidth(records[1].peer.id, 1.0));
  EXPECT_EQ(all[0].next(), second);
  auto changed = second;
  changed.id = seed_of(9);
  changed.codecs = {{elements, codec_id::none}};
  changed.elements = elements;
  changed.shares = {elements, 0};
  EXPECT_EQ(all[1].on_plan(records[0].peer.id, second.id, changed).error().code,
            ec::protocol_violation);
  end_round({0, 1}, member_set::first(2));
  EXPECT_TRUE(all[0].admit()) << "it enters with the next epoch";
}

TEST_F(OpenGroupOfTwoRounds, APlanForTheNextEpochWaitsForIt) {
  form(2);
  for (int round = 0; round < 2; ++round)
    ASSERT_TRUE(all[0].advance(member_set::first(2)));
  auto [replaced, plan] = admit(2);
  for (int round = 0; round < 2; ++round) {
    auto early = all[1].on_plan(records[0].peer.id, replaced, plan);
    EXPECT_FALSE(*early);
    ASSERT_TRUE(all[1].advance(member_set::first(2)));
  }
  EXPECT_EQ(all[1].next(), all[0].next());
  EXPECT_EQ(all[1].next().members.size(), 3U);
}

TEST_F(OpenGroupOfTwoRounds, AGroupThatWasLeftBeginsWithTheFirstRound) {
  form(2);
  ASSERT_TRUE(all[0].advance(member_set::first(2)));
  all[0].leave();
  all[0].found(epoch_id{3}, branch, seed_of(8));
  EXPECT_FALSE(all[0].ends_epoch());
  EXPECT_EQ(all[0].next().elements, elements);
}

/// A group whose epochs average one of three vectors, in turn.
struct OpenGroupOfVectorsInTurn : OpenGroup {
  static constexpr std::uint64_t lengths[] = {elements, 3'000, 7};

  OpenGroupOfVectorsInTurn() {
    auto in_turn = terms();
    for (auto length : {lengths[1], lengths[2]})
      in_turn.vectors.push_back({{length, codec_id::float16}});
    set_terms(in_turn);
  }
};

TEST_F(OpenGroupOfVectorsInTurn, TheEpochSaysWhichOneIsNext) {
  form(3); // at epoch 0
  std::uint64_t before[] = {0, elements, elements + 3'000};
  for (std::uint64_t epoch = all[0].next().epoch.value(), last = epoch + 7; epoch < last; ++epoch) {
    const auto& plan = all[0].next();
    EXPECT_EQ(plan.epoch.value(), epoch);
    EXPECT_EQ(plan.elements, lengths[epoch % 3]);
    EXPECT_EQ(elements_of(plan.codecs), plan.elements);
    EXPECT_TRUE(validate_plan(plan).ok());
    EXPECT_TRUE(all[0].ends_epoch());
    EXPECT_EQ(all[0].residual().begin, before[epoch % 3]);
    EXPECT_EQ(all[0].residual().of, elements + 3'007);
    expect_same_plan({0, 1, 2});
    end_round({0, 1, 2}, member_set::first(3));
  }
}

TEST_F(OpenGroupOfVectorsInTurn, WhoeverEntersGetsThePlanOfItsEpoch) {
  form(2);
  end_round({0, 1}, member_set::first(2));
  auto [replaced, plan] = admit(2);
  EXPECT_EQ(plan.elements, 3'000U);
  EXPECT_TRUE(*all[1].on_plan(records[0].peer.id, replaced, plan));
  ASSERT_TRUE(all[2].enter(records[0].peer.id, plan, branch).ok());
  expect_same_plan({0, 1, 2});
  auto other = plan;
  other.epoch = plan.epoch.next();
  EXPECT_EQ(all[1].on_plan(records[0].peer.id, plan.id, other).error().code, ec::schema_mismatch)
    << "the vector of another epoch";
}

/// After any order of losses and entries, all members of a round have the same plan.
TEST_F(OpenGroup, MembersAgreeWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_source random{seed};
    auto& swarm = all;
    if (seed == 100
        || seed == 200) // from here on with two rounds an epoch, then with vectors in turn
      for (std::size_t i = 0; i < all.size(); ++i) {
        auto two = terms();
        two.vectors.push_back({{3'000, codec_id::none}});
        two.all_each_epoch = seed == 100;
        all[i] = open_group{records[i], two, {}};
      }
    for (auto& g : swarm)
      g.leave();
    std::vector<std::size_t> in{0};
    swarm[0].found(epoch_id{0}, branch, seed_of(seed));
    for (int round = 0; round < 30; ++round) {
      auto leader = position_of(in, swarm[in[0]].next().members.front().peer.id);
      bool may_enter = !swarm[leader].shared().all_each_epoch || !swarm[leader].ends_epoch();
      if (may_enter && random.below(2) == 0 && in.size() < swarm.size()) {
        std::size_t who = 0;
        while (std::find(in.begin(), in.end(), who) != in.end())
          ++who;
        auto asks = applicant(who);
        asks.branch = swarm[leader].branch();
        ASSERT_EQ(swarm[leader].apply(asks), ec::none);
        auto replaced = swarm[leader].next().id;
        auto plan = swarm[leader].admit();
        ASSERT_TRUE(plan);
        for (auto i : in)
          if (i != leader) {
            auto taken = swarm[i].on_plan(records[leader].peer.id, replaced, *plan);
            ASSERT_TRUE(taken.ok() && *taken);
          }
        ASSERT_TRUE(swarm[who].enter(records[leader].peer.id, *plan, swarm[leader].branch()).ok());
        in.push_back(who);
      }
      if (may_enter && seed % 2 == 0 && random.below(4) == 0) {
        const auto& heir = records[in[random.below(in.size())]].peer.id;
        auto replaced = swarm[leader].next().id;
        if (swarm[leader].hand_lead_to(heir))
          for (auto i : in)
            if (i != leader) {
              ASSERT_TRUE(
                *swarm[i].on_plan(records[leader].peer.id, replaced, swarm[leader].next()));
            }
      }
      member_set stayed;
      std::vector<std::size_t> left;
      const auto members = swarm[in[0]].next().members;
      for (std::size_t k = 0; k < members.size(); ++k)
        if (random.below(4) != 0)
          stayed.insert(k);
      if (stayed.empty())
        stayed.insert(0);
      for (std::size_t k = 0; k < members.size(); ++k) {
        auto i = position_of(in, members[k].peer.id);
        if (stayed.contains(k)) {
          ASSERT_TRUE(swarm[i].advance(stayed));
          left.push_back(i);
        } else {
          swarm[i].leave();
        }
      }
      in = left;
      for (auto i : in) {
        ASSERT_EQ(swarm[i].next(), swarm[in[0]].next());
        ASSERT_EQ(swarm[i].branch(), swarm[in[0]].branch());
        ASSERT_TRUE(validate_plan(swarm[i].next()).ok());
      }
    }
  }
}

} // namespace
} // namespace waggle
