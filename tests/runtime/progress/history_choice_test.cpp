#include "runtime/progress/history_choice.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

peer_id id_of(std::uint8_t n) {
  peer_id id;
  id.bytes[0] = std::byte{n};
  return id;
}

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
  auto far = choose_history(view_of(1, "a", 10, true), {peer(2, "b", 11, 1)});
  EXPECT_EQ(far.what, course::enter);
  EXPECT_EQ(choose_history(view_of(2, "b", 11, true), {peer(1, "a", 10, 1)}).what, course::stay);
  // Equal work: both choose the smaller name.
  auto a = choose_history(view_of(1, "a", 10, true), {peer(2, "b", 10, 1)});
  auto b = choose_history(view_of(2, "b", 10, true), {peer(1, "a", 10, 1)});
  EXPECT_NE(a.what, b.what);
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

} // namespace
} // namespace waggle
