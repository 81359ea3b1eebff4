#include "runtime/progress/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using kind = membership::action::kind;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

membership::options groups_of_a_run() {
  membership::options how;
  how.many_groups = true;
  return how;
}
membership::options of_three(milliseconds wait_for_peers) {
  membership::options how;
  how.min_peers = 3;
  how.wait_for_peers = wait_for_peers;
  return how;
}

/// Whose peers need not look for the run before they begin it.
membership::options at_once(membership::options how) {
  how.join_timeout = {};
  how.may_start_alone = true;
  return how;
}

/// Peer 1 and what it sees. Time is in milliseconds.
class a_peer {
public:
  explicit a_peer(membership::options how = {}) : it{seen, at_once(how)} {
    seen.self = id_of(1);
    facts.past = {sha256("run"), {}, {}, 100};
    facts.epoch = epoch_id{5};
    facts.now = steady_time{} + milliseconds{1'000'000};
    it.begin(facts.now);
  }

  swarm_progress::peer& claims(std::uint8_t n, const std::string& branch = "run",
                               std::uint32_t group_size = 2, std::uint64_t epoch = 5) {
    seen.connected.insert(id_of(n));
    auto& peer = seen.progress.peers.emplace_back();
    peer.who.id = id_of(n);
    peer.epoch = epoch_id{epoch};
    peer.claim.past = {sha256(branch), {}, {}, 100};
    peer.claim.group_size = group_size;
    peer.claim.ready = true;
    return peer;
  }
  void after(int ms) { facts.now += milliseconds{ms}; }
  membership::action next() { return it.decide(facts); }
  /// A member of a group with peers 2 to n.
  void join(std::uint8_t n) {
    std::vector<peer_id> members;
    for (std::uint8_t i = 1; i <= n; ++i)
      members.push_back(id_of(i));
    it.asked(facts.client);
    it.entered({}, members, facts.epoch, facts.now);
  }

  run_view seen;
  membership_facts facts;
  membership it;
};

TEST(Membership, EntersTheGroupThatTrains) {
  a_peer p;
  p.claims(2);
  p.claims(3);
  auto next = p.next();
  ASSERT_EQ(next.what, kind::enter);
  EXPECT_EQ(next.choice->through.size(), 2U);
  p.it.asked(false);
  EXPECT_EQ(p.next().what, kind::none) << "it waits for the answer";
  p.it.entered(*next.choice, {id_of(2), id_of(3), id_of(1)}, epoch_id{5}, p.facts.now);
  EXPECT_EQ(p.next().what, kind::none);
  EXPECT_TRUE(p.it.is_member());
}

TEST(Membership, FoundsAGroupIfThereIsNone) {
  a_peer p;
  p.seen.addresses_known = false;
  EXPECT_EQ(p.next().what, kind::found);
  p.it.asked(false);
  p.it.founded({id_of(1)}, epoch_id{5}, p.facts.now);
  EXPECT_FALSE(p.it.provisional());
}

TEST(Membership, FoundsNoneBeforeThePeerThatAnswersAtLastCanReport) {
  a_peer p;
  for (int times = 0; times < 2; ++times) {
    p.seen.connected.clear();
    p.after(14'000);
    EXPECT_EQ(p.next().what, kind::found) << "at once, of nobody";
    p.seen.connected.insert(id_of(2));
    EXPECT_EQ(p.next().what, kind::wait) << "it may train";
    p.after(499);
    EXPECT_EQ(p.next().what, kind::wait);
    p.after(1);
    EXPECT_EQ(p.next().what, kind::found);
  }
}

TEST(Membership, AsksAPeerThatDidNotAnswerLast) {
  a_peer p;
  p.claims(2);
  p.claims(3);
  auto first = p.next().choice->through.front().id;
  p.it.asked(false);
  p.it.refused(ec::timeout, false, &first, p.facts.now);
  EXPECT_EQ(p.next().what, kind::none) << "a pause";
  p.after(200);
  EXPECT_EQ(p.next().choice->through.back().id, first);
  p.it.on_connected(first);
  EXPECT_EQ(p.next().choice->through.front().id, first);
}

TEST(Membership, DoesNotBelieveForAWhileAPeerThatIsInNoGroup) {
  a_peer p;
  p.claims(2);
  p.it.asked(false);
  auto liar = id_of(2);
  p.it.refused(ec::not_ready, false, &liar, p.facts.now);
  p.after(200);
  EXPECT_NE(p.next().what, kind::enter);
  p.after(300);
  EXPECT_EQ(p.next().what, kind::enter);
}

TEST(Membership, PausesLongerIfItWasExcludedAndSaysSo) {
  a_peer p;
  p.claims(2);
  p.it.asked(false);
  auto by = id_of(2);
  p.it.refused(ec::excluded, true, &by, p.facts.now);
  p.after(999);
  EXPECT_TRUE(p.it.pauses(p.facts.now));
  p.after(1);
  EXPECT_FALSE(p.it.pauses(p.facts.now));
}

TEST(Membership, PassesOverAPeerThatShouldBeginAndDoesNot) {
  a_peer p;
  p.claims(2, "run", 0).claim.past.work = 1'000; // it holds the state, and is in no group
  EXPECT_EQ(p.next().what, kind::wait);
  p.after(2'999);
  EXPECT_EQ(p.next().what, kind::wait);
  p.after(1);
  EXPECT_EQ(p.next().what, kind::wait);
  EXPECT_NE(p.next().choice->what, course::wait);
}

TEST(Membership, YieldsToAHistoryThatMoreOthersTrain) {
  a_peer p;
  p.facts.past.branch = sha256("ours");
  p.it.asked(false);
  p.it.founded({id_of(1)}, epoch_id{5}, p.facts.now);
  p.claims(2, "theirs");
  p.claims(3, "theirs");
  auto next = p.next();
  EXPECT_EQ(next.what, kind::enter);
  EXPECT_THAT(next.why, HasSubstr("is held by 2 peers and has more work"));
}

TEST(Membership, LeavesWhenMostMembersHaveGoneOnForTwoSeconds) {
  a_peer p;
  p.join(3);
  p.claims(2, "run", 3, 6);
  p.claims(3, "run", 3, 6);
  EXPECT_EQ(p.next().what, kind::none) << "our result may be on its way";
  p.after(1'999);
  p.facts.round_runs = true;
  EXPECT_EQ(p.next().what, kind::none);
  p.facts.round_runs = false;
  EXPECT_EQ(p.next().what, kind::none) << "a running round begins the patience anew";
  p.after(2'000);
  EXPECT_EQ(p.next().what, kind::leave);
}

TEST(Membership, LeavesAtOnceWhenMostMembersAreTwoEpochsAhead) {
  a_peer p;
  p.join(3);
  p.claims(2, "run", 3, 7);
  EXPECT_EQ(p.next().what, kind::none) << "one of two";
  p.claims(3, "run", 3, 7);
  EXPECT_EQ(p.next().what, kind::leave);
}

TEST(Membership, OfManyGroupsNobodyIsLeftBehind) {
  a_peer p{groups_of_a_run()};
  p.join(3);
  p.claims(2, "run", 3, 7);
  p.claims(3, "run", 3, 7);
  EXPECT_EQ(p.next().what, kind::none);
}

TEST(Membership, EntersAgainWhenOthersDoNotReachItAnyMore) {
  a_peer p;
  p.join(2);
  p.claims(2);
  p.facts.client = true;
  p.facts.round_runs = true;
  EXPECT_EQ(p.next().what, kind::none);
  p.facts.round_runs = false;
  EXPECT_EQ(p.next().what, kind::change_mode);
}

TEST(Membership, ThoseThatOthersReachAgainEnterInDifferentEpochsSoThatMostOfTheGroupStays) {
  for (std::uint8_t size = 2; size <= 9; ++size) {
    std::vector<peer_id> members;
    for (std::uint8_t i = 1; i <= size; ++i)
      members.push_back(id_of(i));
    std::size_t changed = 0;
    for (std::uint64_t epoch = 5; epoch < 9; ++epoch) {
      std::size_t at_once = 0;
      for (const auto& self : members) {
        a_peer p;
        p.seen.self = self;
        p.facts.client = true;
        p.join(size);
        p.facts.client = false;
        p.it.take(members, epoch_id{epoch});
        at_once += p.it.has_other_mode(p.facts) ? 1 : 0;
      }
      EXPECT_LE(2 * at_once, size);
      changed += at_once;
    }
    EXPECT_GE(changed, size) << "within four epochs";
  }
}

TEST(Membership, OneThatOthersReachAgainEntersAtOnceIfMostMembersAreNoClients) {
  const std::vector<peer_id> members{id_of(1), id_of(2), id_of(3), id_of(4), id_of(5)};
  for (std::size_t clients : {1U, 2U, 3U}) {
    std::size_t turns = 0;
    for (std::uint64_t epoch = 5; epoch < 9; ++epoch) {
      a_peer p;
      p.facts.client = true;
      p.join(5);
      p.facts.client = false;
      p.it.take(members, epoch_id{epoch}, clients);
      turns += p.it.has_other_mode(p.facts) ? 1 : 0;
    }
    EXPECT_EQ(turns, clients < 3 ? 4U : 1U) << clients;
  }
}

TEST(Membership, PausedItLeavesAfterTheRoundAndLooksForNoGroup) {
  a_peer p;
  p.claims(2);
  p.join(2);
  p.it.pause();
  p.facts.round_runs = true;
  EXPECT_EQ(p.next().what, kind::none);
  p.facts.round_runs = false;
  auto next = p.next();
  EXPECT_EQ(next.what, kind::leave);
  EXPECT_EQ(next.why, "it is paused");
  p.it.left(p.facts.now);
  p.after(60'000);
  EXPECT_EQ(p.next().what, kind::none);
  p.it.resume(p.facts.now);
  EXPECT_EQ(p.next().what, kind::enter);
}

TEST(Membership, GoesOnProvisionallyWithoutMostOfItsGroup) {
  a_peer p; // with a split_grace of 1.5 s
  p.join(3);
  p.it.lost(false, {id_of(1), id_of(2), id_of(3)}, p.facts);
  p.it.left(p.facts.now);
  EXPECT_EQ(p.next().what, kind::wait);
  p.after(1'500);
  ASSERT_EQ(p.next().what, kind::found);
  p.it.asked(false);
  p.it.founded({id_of(1)}, epoch_id{5}, p.facts.now);
  EXPECT_TRUE(p.it.provisional());
}

TEST(Membership, IsNotProvisionalIfMostCameBackOrIfItWasExcluded) {
  for (bool excluded : {false, true}) {
    a_peer p;
    p.join(3);
    p.it.lost(excluded, {id_of(1), id_of(2), id_of(3)}, p.facts);
    p.it.left(p.facts.now);
    if (!excluded)
      p.seen.connected.insert(id_of(2));
    p.it.asked(false);
    p.it.founded({id_of(1)}, epoch_id{5}, p.facts.now);
    EXPECT_FALSE(p.it.provisional());
  }
}

TEST(Membership, LeavesAGroupThatTheTrainersOfTheHistoryAreNotIn) {
  a_peer p;
  p.claims(2);
  p.claims(3);
  history_choice choice;
  choice.branch = sha256("run");
  EXPECT_FALSE(p.it.misled(choice, {id_of(2), id_of(1)}, epoch_id{5})) << "half of them are";
  EXPECT_TRUE(p.it.misled(choice, {id_of(9), id_of(1)}, epoch_id{5}));
  EXPECT_TRUE(p.it.misled(choice, {id_of(2), id_of(3)}, epoch_id{~std::uint64_t{0}}));
  p.seen.known.on_round({id_of(3)});
  EXPECT_TRUE(p.it.misled(choice, {id_of(2), id_of(1)}, epoch_id{5})) << "of those that we know";
  p.it.asked(false);
  (void)p.it.leave_misleading(id_of(2), p.facts.now);
  EXPECT_EQ(p.it.disbelieved(p.facts.now), 1U);
}

TEST(Membership, BelievesTheEpochsOfMembersAndOfThoseThatItKnows) {
  a_peer p;
  p.join(2);
  p.claims(2, "run", 2, 6);
  p.claims(3, "run", 2, 9);
  EXPECT_FALSE(p.it.observe_epochs(p.facts)) << "three epochs may be news";
  EXPECT_EQ(p.it.epoch_of_run(), epoch_id{6});
  p.claims(4, "run", 2, 10);
  EXPECT_THAT(p.it.observe_epochs(p.facts).value_or(""), HasSubstr("claims epoch 10"));
  EXPECT_FALSE(p.it.observe_epochs(p.facts)) << "once";
  EXPECT_EQ(p.it.disbelieved(p.facts.now), 1U);
  p.seen.known.on_round({id_of(4)});
  EXPECT_FALSE(p.it.observe_epochs(p.facts));
  EXPECT_EQ(p.it.epoch_of_run(), epoch_id{10});
  EXPECT_EQ(p.it.disbelieved(p.facts.now), 0U);
}

TEST(Membership, CountsOnlyMembersOfItsGroupAtItsEpoch) {
  a_peer p;
  p.join(3);
  const auto branch = sha256("run");
  EXPECT_FALSE(p.it.without_pass(branch, epoch_id{5})) << "no other member trains";
  EXPECT_TRUE(p.it.counts(p.claims(2), branch, epoch_id{5}));
  EXPECT_FALSE(p.it.counts(p.claims(3, "run", 3, 4), branch, epoch_id{5}));
  EXPECT_FALSE(p.it.counts(p.claims(4), branch, epoch_id{5})) << "no member";
  EXPECT_EQ(p.it.voters(branch).size(), 2U);
  p.seen.known.on_round({id_of(4)});
  EXPECT_EQ(p.it.voters(branch).size(), 3U) << "in another group, and we know it";
  p.seen.progress.peers.front().samples = 8;
  EXPECT_THAT(*p.it.without_pass(branch, epoch_id{5}), ElementsAre(id_of(3)));
}

TEST(Membership, AsksMembersForTheStateAndThoseFirstThatItKnows) {
  a_peer p;
  p.join(3);
  p.claims(9);
  p.claims(2);
  p.claims(3);
  auto donors = p.it.donors(sha256("run"));
  ASSERT_EQ(donors.size(), 2U);
  EXPECT_EQ(donors.front().id, id_of(2));
  p.seen.known.on_round({id_of(3)});
  EXPECT_EQ(p.it.donors(sha256("run")).front().id, id_of(3));
  p.it.left(p.facts.now);
  EXPECT_EQ(p.it.donors(sha256("run")).size(), 3U);
}

TEST(Membership, AsksForTheStateByPriorityAndNotWhoGivesItToNobody) {
  a_peer p;
  p.claims(2);
  p.claims(3).vitals.share_priority = 5;
  p.claims(4).vitals.share_priority = -1;
  p.claims(5).vitals.share_priority.reset();
  auto order = [&] {
    std::vector<peer_id> out;
    for (const auto& peer : p.it.donors(sha256("run")))
      out.push_back(peer.id);
    return out;
  };
  EXPECT_EQ(order(), (std::vector{id_of(3), id_of(2), id_of(4)}));
  p.seen.known.on_round({id_of(4)});
  EXPECT_EQ(order(), (std::vector{id_of(4), id_of(3), id_of(2)})) << "known ones come first";
}

TEST(Membership, AsksNobodyElseForTheState) {
  a_peer p;
  const auto donors = [&] { return p.it.donors(sha256("run")); };
  p.claims(2).claim.ready = false;
  p.claims(3, "run", 0);
  p.claims(4, "a fork");
  p.claims(5).who.client_mode = true;
  p.seen.connected.erase(id_of(5)); // it cannot be reached
  p.claims(6).claim.auxiliary = true;
  ASSERT_EQ(donors().size(), 1U);
  EXPECT_EQ(donors().front().id, id_of(6)) << "it passes on what it was given, which may be older";
  p.claims(7);
  ASSERT_EQ(donors().size(), 1U);
  EXPECT_EQ(donors().front().id, id_of(7));
}

TEST(Membership, WaitsForTheFirstMembersOnce) {
  auto lacks = [](a_peer& p, bool trains = false) {
    return p.it.lacks(trains, p.facts.past.branch, p.facts.now);
  };
  a_peer p{of_three(milliseconds{5'000})};
  p.claims(2);
  p.join(2);
  EXPECT_EQ(lacks(p), 1U);
  p.after(5'000);
  EXPECT_EQ(lacks(p), 0U);
  p.it.left(p.facts.now);
  p.join(2);
  EXPECT_TRUE(p.it.has_been_complete());
  a_peer late{of_three(milliseconds{0})};
  late.claims(2);
  late.join(2);
  late.after(1'000'000);
  EXPECT_EQ(lacks(late), 1U);
  EXPECT_EQ(lacks(late, true), 0U) << "others began without us";
}

TEST(Membership, BeginsWithMembersThatHoldTheStateAndNotWithNewcomers) {
  a_peer p{of_three(milliseconds{0})};
  auto lacks = [&] { return p.it.lacks(false, p.facts.past.branch, p.facts.now); };
  p.claims(2);
  p.claims(4); // of another group
  p.join(3);
  EXPECT_EQ(lacks(), 1U) << "3 has said nothing yet";
  auto& newcomer = p.claims(3, "a fork"); // what it held before
  EXPECT_EQ(lacks(), 1U);
  newcomer.claim.past = p.facts.past;
  newcomer.claim.ready = false;
  EXPECT_EQ(lacks(), 1U) << "it downloads the state";
  auto waited_for = p.it;
  EXPECT_EQ(waited_for.lacks(false, std::nullopt, p.facts.now), 0U);
  newcomer.claim.ready = true;
  EXPECT_EQ(lacks(), 0U);
}

TEST(Membership, LeavesAGroupWithoutRoundsIfItsLeaderIsGone) {
  for (bool idle : {false, true}) {
    a_peer p;
    p.facts.idle = idle;
    p.claims(2);
    p.it.asked(false);
    p.it.entered({}, {id_of(2), id_of(1)}, p.facts.epoch, p.facts.now);
    p.after(10'000);
    EXPECT_EQ(p.next().what, kind::none);
    p.seen.connected.erase(id_of(2));
    EXPECT_EQ(p.next().what, kind::none) << "it may come back";
    p.after(3'000);
    EXPECT_EQ(p.next().what, idle ? kind::leave : kind::none);
    p.seen.connected.insert(id_of(2));
    EXPECT_EQ(p.next().what, kind::none);
  }
}

TEST(Membership, CountsStrangersAsTrainersOnlyUpToThoseThatItKnows) {
  a_peer p{groups_of_a_run()};
  for (std::uint8_t n = 2; n < 12; ++n)
    p.claims(n);
  EXPECT_EQ(p.it.peers_that_step(sha256("run")), 3U);
  p.seen.known.on_round({id_of(2), id_of(3)});
  EXPECT_EQ(p.it.peers_that_step(sha256("run")), 7U);
}

TEST(Membership, RefusesOtherTransitions) {
  a_peer p;
  EXPECT_DEATH(p.it.founded({}, {}, p.facts.now), "nobody was asked");
  EXPECT_DEATH(p.it.refused(ec::timeout, false, nullptr, p.facts.now), "nobody was asked");
  p.it.asked(false);
  EXPECT_DEATH(p.it.asked(false), "entering one");
}

} // namespace
} // namespace waggle
