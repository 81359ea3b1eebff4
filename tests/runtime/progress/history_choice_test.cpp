#include "runtime/progress/history_choice.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

digest branch(const std::string& name) {
  return sha256(name);
}

swarm_progress::peer peer(std::uint8_t n, const std::string& past, std::uint64_t work,
                          std::uint32_t group_size, bool ready = true) {
  swarm_progress::peer p;
  p.who.id = id_of(n);
  p.claim.past = {past.empty() ? digest{} : branch(past), {}, {}, work};
  p.claim.group_size = group_size;
  p.claim.ready = ready;
  return p;
}

history_view view_of(std::uint8_t n, const std::string& past, std::uint64_t work, bool in_group) {
  return {id_of(n), {past.empty() ? digest{} : branch(past), {}, {}, work}, in_group, true};
}

swarm_progress::peer auxiliary(std::uint8_t n, const std::string& past, std::uint32_t group_size) {
  auto p = peer(n, past, 0, group_size);
  p.claim.auxiliary = true;
  return p;
}

TEST(HistoryChoice, AnAuxiliaryOutsideFoundsNothing) {
  auto choice = choose_history(view_of(2, "", 0, false), {auxiliary(1, "", 0)});
  EXPECT_EQ(choice.what, course::found) << "no peer waits for it to begin";
}

TEST(HistoryChoice, AClientAloneComesToWhereAnAuxiliaryReduces) {
  auto own = view_of(1, "mine", 99, true);
  own.may_lead = false;
  own.alone = true;
  EXPECT_EQ(choose_history(own, {auxiliary(2, "", 0)}).what, course::stay);
  auto choice = choose_history(own, {auxiliary(2, "theirs", 2)});
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_EQ(choice.branch, branch("theirs"));
  own.alone = false;
  EXPECT_EQ(choose_history(own, {auxiliary(2, "theirs", 2)}).what, course::stay);
  own.in_group = false; // it has just lost its group
  EXPECT_EQ(choose_history(own, {auxiliary(2, "theirs", 2)}).what, course::enter);
}

TEST(HistoryChoice, AMemberStaysWithoutAReasonToLeave) {
  EXPECT_EQ(choose_history(view_of(1, "a", 10, true), {}).what, course::stay);
  EXPECT_EQ(choose_history(view_of(1, "a", 10, true), {peer(2, "a", 90, 2)}).what, course::stay);
}

TEST(HistoryChoice, OneSupporterNeverOutweighsTwo) {
  // A peer with an old data folder of the same run, far ahead, and two peers that train.
  auto choice =
    choose_history(view_of(1, "live", 62, true), {peer(2, "live", 62, 2), peer(3, "old", 144, 1)});
  EXPECT_EQ(choice.what, course::stay);
  choice =
    choose_history(view_of(3, "old", 144, true), {peer(1, "live", 62, 2), peer(2, "live", 62, 2)});
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_EQ(choice.branch, branch("live"));
  EXPECT_EQ(choice.supporters, 2U);
}

TEST(HistoryChoice, AmongEquallyManyTheOneWithMoreWorkIsTheRuns) {
  EXPECT_EQ(choose_history(view_of(1, "a", 10, true), {peer(2, "b", 11, 1)}).what, course::enter);
  EXPECT_EQ(choose_history(view_of(2, "b", 11, true), {peer(1, "a", 10, 1)}).what, course::stay);
  // Equal work: both choose the smaller name.
  auto a = choose_history(view_of(1, "a", 10, true), {peer(2, "b", 10, 1)});
  EXPECT_NE(a.what, choose_history(view_of(2, "b", 10, true), {peer(1, "a", 10, 1)}).what);
}

TEST(HistoryChoice, ANewcomerEntersThroughThoseThatHoldTheState) {
  auto choice = choose_history(view_of(9, "", 0, false),
                               {peer(1, "a", 5, 3, false), peer(2, "a", 5, 3), peer(4, "", 0, 0)});
  EXPECT_EQ(choice.what, course::enter);
  ASSERT_EQ(choice.through.size(), 2U);
  EXPECT_EQ(choice.through[0].id, id_of(2));
}

TEST(HistoryChoice, OfThoseThatComeBackTheOneWithTheMostWorkBegins) {
  std::vector<swarm_progress::peer> others{peer(1, "a", 228, 0), peer(2, "a", 241, 0)};
  EXPECT_EQ(choose_history(view_of(3, "a", 246, false), others).what, course::found);
  others[0] = peer(3, "a", 246, 0);
  auto choice = choose_history(view_of(1, "a", 228, false), others);
  EXPECT_EQ(choice.what, course::wait);
  EXPECT_EQ(choice.awaited, id_of(3));
}

TEST(HistoryChoice, OfNewPeersTheSmallestIdBegins) {
  EXPECT_EQ(choose_history(view_of(1, "", 0, false), {peer(2, "", 0, 0)}).what, course::found);
  EXPECT_EQ(choose_history(view_of(2, "", 0, false), {peer(1, "", 0, 0)}).what, course::wait);
}

TEST(HistoryChoice, AClientWaitsForAPeerThatCanBeReached) {
  auto client = view_of(1, "", 0, false);
  client.may_lead = false;
  auto choice = choose_history(client, {peer(2, "", 0, 0)});
  EXPECT_EQ(choice.what, course::wait);
  EXPECT_EQ(choice.awaited, id_of(2));
}

// -- evidence -------------------------------------------------------------------------------------

evidence knowing(const std::vector<std::uint8_t>& peers) {
  evidence known;
  for (auto n : peers)
    known.on_round({id_of(n)});
  return known;
}

TEST(HistoryChoice, ManyUnknownPeersDoNotOutweighThoseWithWhichWeCompletedRounds) {
  auto known = knowing({2});
  auto own = view_of(1, "live", 60, true);
  own.known = &known;
  std::vector<swarm_progress::peer> others{peer(2, "live", 60, 2)};
  for (std::uint8_t n = 10; n < 60; ++n)
    others.push_back(peer(n, "made up", ~std::uint64_t{0}, 64));
  auto choice = choose_history(own, others);
  EXPECT_EQ(choice.what, course::stay);
  EXPECT_FALSE(choice.without_evidence);
  ASSERT_TRUE(choice.doubted);
  EXPECT_EQ(choice.doubted->branch, branch("made up"));
  EXPECT_EQ(choice.doubted->supporters, 50U);
  EXPECT_EQ(choice.doubted->known, 0U);
  EXPECT_EQ(choice.doubted->first, id_of(10));
  own.known = nullptr;
  EXPECT_EQ(choose_history(own, others).what, course::enter) << "the rule without evidence";
}

TEST(HistoryChoice, OneKnownPeerThatLiesBringsNoMadeUpOnesWithIt) {
  auto known = knowing({2, 3});
  auto own = view_of(1, "live", 60, true);
  own.known = &known;
  std::vector<swarm_progress::peer> others{peer(2, "live", 60, 3), peer(3, "made up", 999, 64)};
  for (std::uint8_t n = 10; n < 60; ++n)
    others.push_back(peer(n, "made up", 999, 64));
  EXPECT_EQ(choose_history(own, others).what, course::stay);
  own.in_group = false; // also when it has just lost its group
  EXPECT_EQ(choose_history(own, others).branch, branch("live"));
}

TEST(HistoryChoice, MostOfThoseThatWeKnowAreFollowed) {
  auto known = knowing({2, 3, 4});
  auto own = view_of(1, "a", 60, true);
  own.known = &known;
  auto choice =
    choose_history(own, {peer(2, "b", 50, 3), peer(3, "b", 50, 3), peer(4, "a", 60, 2)});
  EXPECT_EQ(choice.what, course::stay) << "as many, with less work";
  choice = choose_history(own, {peer(2, "b", 50, 3), peer(3, "b", 50, 3), peer(4, "b", 50, 3)});
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_FALSE(choice.doubted);
}

TEST(HistoryChoice, AmongEquallyManyKnownOnesNewcomersDecide) {
  auto known = knowing({2, 3, 4});
  auto own = view_of(1, "a", 90, true);
  own.known = &known;
  auto choice = choose_history(
    own, {peer(2, "a", 90, 2), peer(3, "b", 50, 3), peer(4, "b", 50, 3), peer(7, "b", 50, 3)});
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_EQ(choice.branch, branch("b"));
}

TEST(HistoryChoice, WhoseKnownPeersAreAllGoneGoesByWhatIsClaimed) {
  auto known = knowing({2, 3});
  auto own = view_of(1, "a", 90, true);
  own.known = &known;
  auto choice = choose_history(own, {peer(2, "a", 90, 0), peer(8, "b", 5, 2), peer(9, "b", 5, 2)});
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_TRUE(choice.without_evidence);
  EXPECT_EQ(choice.histories, 2U);
}

TEST(HistoryChoice, WeEnterThroughThoseThatWeKnow) {
  auto known = knowing({5});
  auto own = view_of(1, "", 0, false);
  own.known = &known;
  auto choice =
    choose_history(own, {peer(2, "a", 5, 3), peer(3, "a", 5, 3), peer(5, "a", 5, 3, false)});
  ASSERT_EQ(choice.through.size(), 3U);
  EXPECT_EQ(choice.through[0].id, id_of(5));
}

TEST(HistoryChoice, AProvisionalHistoryGivesWayToTheOneThatItWasForkedFrom) {
  // 1 was cut off from 2 and 3, and went on; 7, 8 and 9 have entered its group since.
  auto known = knowing({2, 3, 7, 8, 9});
  auto own = view_of(1, "fork", 500, true);
  own.past.parent = branch("run");
  own.known = &known;
  std::vector<swarm_progress::peer> others{peer(2, "run", 90, 2), peer(3, "run", 90, 2),
                                           peer(7, "fork", 500, 4), peer(8, "fork", 500, 4),
                                           peer(9, "fork", 500, 4)};
  EXPECT_EQ(choose_history(own, others).what, course::stay);
  own.provisional = true;
  EXPECT_EQ(choose_history(own, others).branch, branch("run"));
  // Made-up supporters of the old history are not enough.
  auto strangers = knowing({7, 8, 9});
  own.known = &strangers;
  EXPECT_EQ(choose_history(own, others).what, course::stay);
  // Nor is one peer that claims to have stayed.
  own.known = &known;
  others.erase(others.begin());
  EXPECT_EQ(choose_history(own, others).what, course::stay);
}

TEST(HistoryChoice, ForksThatOthersCallProvisionalAreNoReasonToLeaveTheRun) {
  auto known = knowing({2, 3, 4});
  auto own = view_of(1, "run", 10, true);
  own.known = &known;
  auto forked_off = [](std::uint8_t n) {
    auto p = peer(n, "fork", 900, 2);
    p.claim.provisional = true;
    p.claim.past.parent = branch("run");
    return p;
  };
  std::vector<swarm_progress::peer> others{peer(2, "run", 10, 2), forked_off(3), forked_off(4)};
  EXPECT_EQ(choose_history(own, others).what, course::stay);
}

/// A group of 1 to 5, which 1 led, fell apart; 1 is in one piece with 2.
class PiecesOfAGroup : public ::testing::Test {
protected:
  PiecesOfAGroup() : own(view_of(1, "one", 50, true)) {
    own.past = piece("one");
    own.provisional = true;
    own.known = &known;
    own.former = &former;
    others = {in_piece(2, "one"), in_piece(3, "two"), in_piece(4, "two"), in_piece(5, "two")};
  }
  static history piece(const std::string& name, std::uint64_t forked_at = 7) {
    return {branch(name), branch("run"), epoch_id{forked_at}, 50};
  }
  static swarm_progress::peer in_piece(std::uint8_t n, const std::string& name) {
    auto p = peer(n, name, 50, 3);
    p.claim.past = piece(name);
    p.claim.provisional = true;
    return p;
  }

  evidence known = knowing({2, 3}); // 4 and 5 we know from the plan only
  former_group former{
    branch("run"), epoch_id{7}, {id_of(1), id_of(2), id_of(3), id_of(4), id_of(5)}};
  history_view own;
  std::vector<swarm_progress::peer> others;
};

TEST_F(PiecesOfAGroup, TheOneGoesOnThatMostOfItsMembersTrain) {
  auto choice = choose_history(own, others);
  EXPECT_EQ(choice.what, course::enter);
  EXPECT_EQ(choice.branch, branch("two"));
  EXPECT_TRUE(choice.provisional);
  EXPECT_EQ(choice.parent, branch("run"));
  EXPECT_EQ(choice.forked_at, epoch_id{7});
  own.former = nullptr;
  EXPECT_EQ(choose_history(own, others).what, course::stay) << "the rule without the former group";
}

TEST_F(PiecesOfAGroup, WhoHasJustEnteredOneStaysInIt) {
  // We come from `one` and download the state: we do not know what `two` was forked from.
  own.past = {branch("two"), {}, {}, 50};
  known = knowing({2, 3, 7, 8});
  others = {in_piece(2, "one"), in_piece(7, "one"), in_piece(8, "one"),
            in_piece(3, "two"), in_piece(4, "two"), in_piece(5, "two")};
  EXPECT_EQ(choose_history(own, others).what, course::stay);
}

TEST_F(PiecesOfAGroup, NewcomersOfEitherSideDoNotCount) {
  known = knowing({2, 3, 7});
  others.push_back(in_piece(7, "one"));
  EXPECT_EQ(choose_history(own, others).branch, branch("two"));
  others = {in_piece(2, "one"), in_piece(3, "two"), in_piece(8, "two"), in_piece(9, "two")};
  EXPECT_EQ(choose_history(own, others).what, course::stay);
}

TEST_F(PiecesOfAGroup, OfEquallyManyThoseWithItsLeaderDecideHoweverManySupportersAreClaimed) {
  others.pop_back();
  others.push_back(in_piece(8, "two"));
  others.push_back(in_piece(9, "two"));
  EXPECT_EQ(choose_history(own, others).what, course::stay);
  auto theirs = view_of(3, "two", 50, true);
  theirs.past = piece("two");
  theirs.provisional = true;
  auto met = knowing({1, 2, 4, 8, 9});
  theirs.known = &met;
  theirs.former = &former;
  auto seen = std::vector{in_piece(1, "one"), in_piece(2, "one"), in_piece(4, "two"),
                          in_piece(8, "two"), in_piece(9, "two")};
  EXPECT_EQ(choose_history(theirs, seen).branch, branch("one"));
}

TEST_F(PiecesOfAGroup, SomeMayHaveEndedOneMoreEpochTogether) {
  own.past = piece("one", 8);
  EXPECT_EQ(choose_history(own, others).branch, branch("two"));
  former.epoch = epoch_id{8};
  EXPECT_EQ(choose_history(own, others).branch, branch("two"));
  former.epoch = epoch_id{9};
  EXPECT_EQ(choose_history(own, others).what, course::stay);
}

TEST_F(PiecesOfAGroup, TheMadeUpPiecesOfStrangersAreNotBelieved) {
  known = knowing({2});
  EXPECT_EQ(choose_history(own, others).what, course::stay) << "we have met none of them";
  known = knowing({2, 3});
  others = {in_piece(2, "one"), in_piece(3, "two"), in_piece(11, "two"), in_piece(12, "two")};
  EXPECT_EQ(choose_history(own, others).what, course::stay) << "they were in no plan";
}

TEST_F(PiecesOfAGroup, LiarsInAPieceDoNotChangeWhatItWasForkedFrom) {
  known = knowing({2, 3, 4, 5, 7, 8});
  others.push_back(in_piece(7, "one"));
  others.push_back(in_piece(8, "one"));
  others[3].claim.past.parent = branch("made up");
  others[3].claim.provisional = false;
  for (std::uint8_t n = 20; n < 30; ++n) { // strangers
    others.push_back(in_piece(n, "two"));
    others.back().claim.past.parent = branch("made up");
    others.back().claim.provisional = false;
  }
  EXPECT_EQ(choose_history(own, others).branch, branch("two"));
}

// Peers that apply the rule to outdated views, in any order: they converge to one history and keep
// it.
struct world {
  struct member {
    std::string past;
    std::uint64_t work = 0;
    bool in_group = false;
    std::map<std::size_t, swarm_progress::peer> view;
  };

  explicit world(std::uint64_t seed) : random(seed) {
    auto count = 2 + random.below(5);
    for (std::size_t i = 0; i < count; ++i) {
      member m;
      m.in_group = random.below(3) != 0;
      m.work = random.below(4) * 10;
      if (m.in_group || m.work > 0)
        m.past = std::string(1, static_cast<char>('a' + random.below(3)));
      if (m.past.empty())
        m.in_group = false;
      members.push_back(m);
    }
  }

  swarm_progress::peer claim(std::size_t i) const {
    const auto& m = members[i];
    return peer(static_cast<std::uint8_t>(i + 1), m.past, m.work,
                m.in_group ? static_cast<std::uint32_t>(1) : 0);
  }
  void tell(std::size_t from, std::size_t to) { members[to].view[from] = claim(from); }

  /// Returns true if anything but the work changed.
  bool act(std::size_t i) {
    auto& m = members[i];
    std::vector<swarm_progress::peer> others;
    for (const auto& [j, p] : m.view)
      others.push_back(p);
    auto own = view_of(static_cast<std::uint8_t>(i + 1), m.past, m.work, m.in_group);
    auto choice = choose_history(own, others);
    switch (choice.what) {
      case course::stay:
        m.work += 1;
        return false;
      case course::wait:
        return false;
      case course::found:
        m.past += std::to_string(++names);
        m.in_group = true;
        return true;
      case course::enter: {
        // A peer that is asked admits it if it is still in that group.
        for (std::size_t j = 0; j < members.size(); ++j)
          if (j != i && members[j].in_group && branch(members[j].past) == choice.branch) {
            m.past = members[j].past;
            m.work = members[j].work;
            m.in_group = true;
            return true;
          }
        m.in_group = false; // the group has no members any more
        return true;
      }
    }
    return false;
  }

  random_source random;
  std::vector<member> members;
  int names = 0;
};

TEST(HistoryChoice, ConnectedPeersConvergeToOneHistoryAndKeepIt) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    world w{seed};
    auto n = w.members.size();
    int changes = 0;
    for (int step = 0; step < 400; ++step) {
      auto i = w.random.below(n);
      if (w.random.below(3) == 0)
        changes += w.act(i) ? 1 : 0;
      else if (auto j = w.random.below(n); j != i)
        w.tell(i, j);
    }
    // From now on, every peer receives the reports of all others between two decisions.
    for (int round = 0; round < 12; ++round)
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j)
          if (j != i)
            w.tell(j, i);
        w.act(i);
      }
    std::set<std::string> lines;
    for (const auto& m : w.members) {
      EXPECT_TRUE(m.in_group) << "seed " << seed;
      lines.insert(m.past);
    }
    ASSERT_EQ(lines.size(), 1U) << "seed " << seed;
    EXPECT_LT(changes, 100) << "seed " << seed; // no peer switches back and forth
  }
}

// A group whose members know each other splits in two. Newcomers enter on both sides, and are known
// there only. Once all are connected again, they converge to one history.
TEST(HistoryChoice, SplitsThatNewcomersHaveEnteredHeal) {
  struct member {
    history past;
    bool provisional = false;
    evidence known;
  };
  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    random_source random{seed};
    auto before = 2 + random.below(5);
    auto all = before + random.below(5);
    auto cut = random.below(before + 1); // the first ones are on one side
    bool first_keeps = 2 * cut >= before;
    history run{branch("run"), {}, {}, 10 + random.below(90)};
    history fork{branch("fork"), run.branch, epoch_id{1}, 10 + random.below(90)};
    std::vector<member> members(all);
    std::vector<bool> first_side(all);
    for (std::size_t i = 0; i < all; ++i)
      first_side[i] = i < before ? i < cut : (cut > 0 && (cut == before || random.below(2) == 0));
    for (std::size_t i = 0; i < all; ++i) {
      members[i].provisional = first_side[i] != first_keeps;
      members[i].past = members[i].provisional ? fork : run;
      for (std::size_t j = 0; j < all; ++j)
        if (first_side[i] == first_side[j] || (i < before && j < before))
          members[i].known.on_round({id_of(static_cast<std::uint8_t>(j + 1))});
    }
    auto in_group = [&](std::size_t i) {
      return static_cast<std::uint32_t>(
        std::count_if(members.begin(), members.end(),
                      [&](const member& m) { return m.past.branch == members[i].past.branch; }));
    };
    auto claims_but = [&](std::size_t self) {
      std::vector<swarm_progress::peer> out;
      for (std::size_t i = 0; i < all; ++i) {
        auto p = peer(static_cast<std::uint8_t>(i + 1), "", 0, in_group(i));
        p.claim.past = members[i].past;
        p.claim.provisional = members[i].provisional;
        if (i != self)
          out.push_back(p);
      }
      return out;
    };
    auto converged = [&] {
      return std::all_of(members.begin(), members.end(),
                         [&](const member& m) { return m.past.branch == members[0].past.branch; });
    };
    int turns = 0;
    for (; turns < 400 && !converged(); ++turns) {
      auto i = random.below(all);
      auto& m = members[i];
      auto own = view_of(static_cast<std::uint8_t>(i + 1), "", 0, true);
      own.past = m.past;
      own.provisional = m.provisional;
      own.known = &m.known;
      auto choice = choose_history(own, claims_but(i));
      if (choice.what != course::enter)
        continue;
      m.past = choice.branch == run.branch ? run : fork;
      m.provisional = choice.provisional;
      for (std::size_t j = 0; j < all; ++j) // the next round
        if (members[j].past.branch == m.past.branch) {
          m.known.on_round({id_of(static_cast<std::uint8_t>(j + 1))});
          members[j].known.on_round({id_of(static_cast<std::uint8_t>(i + 1))});
        }
    }
    ASSERT_TRUE(converged()) << "seed " << seed << ": " << before << " members, " << all - before
                             << " newcomers, cut at " << cut;
  }
}

// A group falls apart, and no piece is most of it. Newcomers enter the pieces one after another.
// Once all are connected again, they converge to one history, also if the rounds in which newcomers
// become known take longer than that, and while those that have entered download the state.
TEST(HistoryChoice, PiecesOfAGroupThatNewcomersHaveEnteredBecomeOneAgain) {
  struct member {
    std::size_t piece = 0;
    evidence known;
    former_group former;
    int downloads = 0; // so many more turns
  };
  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    random_source random{seed};
    auto pieces = 2 + random.below(2);
    auto before = pieces + random.below(5); // members of the group, which had met
    auto all = before + random.below(6);    // and newcomers
    auto id = [](std::size_t i) { return id_of(static_cast<std::uint8_t>(i + 1)); };
    std::vector<history> of_piece;
    for (std::size_t i = 0; i < pieces; ++i)
      of_piece.push_back({branch("piece " + std::to_string(i + seed)), branch("run"),
                          epoch_id{3 + random.below(2)}, 10 + random.below(90)});
    std::vector<member> members(all);
    for (std::size_t i = 0; i < all; ++i) {
      auto& m = members[i];
      m.piece = i < pieces ? i : random.below(pieces);
      m.former = {branch("run"), epoch_id{3}, {}};
      for (std::size_t j = 0; j < (i < before ? before : i + 1); ++j)
        if (i < before || members[j].piece == m.piece) // newcomers: whom they found there
          m.former.members.push_back(id(j));
    }
    auto meet = [&](std::size_t i, std::size_t j) {
      members[i].known.on_round({id(j)});
      members[j].known.on_round({id(i)});
    };
    for (std::size_t i = 0; i < all; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (i < before || members[i].piece == members[j].piece)
          meet(i, j);
    auto converged = [&] {
      return std::all_of(members.begin(), members.end(),
                         [&](const member& m) { return m.piece == members[0].piece; });
    };
    int moves = 0;
    for (int turns = 0; turns < 2'000 && !converged(); ++turns) {
      auto i = random.below(all);
      auto& m = members[i];
      auto past_of = [&](const member& who) {
        auto past = of_piece[who.piece];
        if (who.downloads > 0) {
          past.parent = {};
          past.forked_at = {};
        }
        return past;
      };
      auto own = view_of(static_cast<std::uint8_t>(i + 1), "", 0, true);
      own.past = past_of(m);
      own.provisional = true;
      own.known = &m.known;
      own.former = &m.former;
      std::vector<swarm_progress::peer> others;
      for (std::size_t j = 0; j < all; ++j) {
        auto p = peer(static_cast<std::uint8_t>(j + 1), "", 0, 1, members[j].downloads == 0);
        p.claim.past = past_of(members[j]);
        p.claim.provisional = true;
        if (j != i)
          others.push_back(p);
      }
      m.downloads = std::max(0, m.downloads - 1);
      auto choice = choose_history(own, others);
      if (choice.what == course::enter) {
        m.piece = static_cast<std::size_t>(
          std::find_if(of_piece.begin(), of_piece.end(),
                       [&](const history& piece) { return piece.branch == choice.branch; })
          - of_piece.begin());
        m.downloads = static_cast<int>(random.below(4));
        ++moves;
      } else if (random.below(4) == 0) { // a round of its piece
        for (std::size_t j = 0; j < all; ++j)
          if (j != i && members[j].piece == m.piece)
            meet(i, j);
      }
    }
    ASSERT_TRUE(converged()) << "seed " << seed << ": " << pieces << " pieces, " << before
                             << " members, " << all - before << " newcomers";
    EXPECT_LE(moves, 3 * static_cast<int>(all)) << "seed " << seed << ": they go to and fro";
  }
}

} // namespace
} // namespace waggle
