#include "runtime/averaging/round_decision.hpp"

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/protocol_member.hpp"

namespace waggle {
namespace {

round_rules rules_for(std::size_t members, std::uint32_t faulty) {
  auto plan = plan_for(members);
  plan.reduce_by.faulty_max = faulty;
  return round_rules{plan};
}

member_set all_in(const takeover_promises& promises) {
  member_set out;
  for (const auto& [member, said] : promises)
    out.insert(member);
  return out;
}

/// With all that promised as participants.
result<round_view> next_view(std::uint32_t number, const takeover_promises& promises,
                             const round_rules& rules) {
  return waggle::next_view(number, promises, all_in(promises), rules);
}

/// Of a member in view 0 of `members` that promises term(1).
takeover_promise unprepared(std::size_t members) {
  return {term(1), true, first_view(plan_for(members)), false, false, {}, {}};
}
takeover_promise prepared(std::size_t members, const digest& result = right) {
  auto out = unprepared(members);
  out.prepared = true;
  out.value = result;
  return out;
}
/// Of a member that has prepared a later view over other contributors, which is all that a liar can
/// make up.
takeover_promise later(std::uint32_t number, member_set contributors,
                       const digest& result = wrong) {
  return {term(1), true, {number, contributors.bits(), contributors.bits(), false, {}}, true, false,
          result,  {}};
}

TEST(RoundDecision, LiarsCountOnlyIfThereAreThreeTimesAsManyOthers) {
  EXPECT_EQ(rules_for(4, 1).faulty, 1u);
  EXPECT_EQ(rules_for(3, 1).faulty, 0u);
  EXPECT_EQ(rules_for(2, 1).faulty, 0u);
  EXPECT_EQ(rules_for(7, 2).faulty, 2u);
  EXPECT_EQ(rules_for(6, 2).faulty, 0u);
  EXPECT_EQ(rules_for(4, 0).faulty, 0u);
  EXPECT_EQ(rules_for(4, 0xffff'ffffU).faulty, 0u) << "does not wrap around";
}

TEST(RoundDecision, AnyTwoQuorumsShareAMemberThatDoesNotLie) {
  for (std::uint32_t f = 1; f <= 2; ++f)
    for (std::size_t n = 3 * f + 1; n <= 8; ++n) {
      auto rules = rules_for(n, f);
      for (std::uint64_t a = 1; a < (1U << n); ++a)
        for (std::uint64_t b = 1; b < (1U << n); ++b)
          if (rules.is_quorum(member_set{a}) && rules.is_quorum(member_set{b})) {
            ASSERT_GT((member_set{a} & member_set{b}).size(), f) << n << ": " << a << ", " << b;
          }
      ASSERT_TRUE(rules.is_quorum(member_set::first(n - f))) << "the others are enough";
    }
}

TEST(RoundDecision, TooFewPromisesDecideNothing) {
  auto next = next_view(term(1), {{0, unprepared(4)}, {1, unprepared(4)}}, rules_for(4, 1));
  EXPECT_EQ(next.error().code, ec::lost_quorum);
}

TEST(RoundDecision, MoreThanMayLieMustDenyThatAResultIsPrepared) {
  takeover_promises said{{0, unprepared(4)}, {1, prepared(4)}, {2, prepared(4)}};
  auto next = next_view(term(1), said, rules_for(4, 1));
  EXPECT_TRUE(next->adopted) << "member 0 may lie";
  EXPECT_EQ(next->result, right);
  EXPECT_EQ(next->contributor_set(), members_of({0, 1, 2, 3}));
  EXPECT_EQ(next->participant_set(), members_of({0, 1, 2}));

  said[1] = unprepared(4);
  next = next_view(term(1), said, rules_for(4, 1));
  EXPECT_FALSE(next->adopted) << "one of members 0 and 1 tells the truth";
  EXPECT_EQ(next->contributor_set(), members_of({0, 1, 2}));
  EXPECT_EQ(next->number, term(1));
}

TEST(RoundDecision, ALiarThatReportsALaterViewIsOutvoted) {
  takeover_promises said;
  for (std::size_t i = 0; i < 4; ++i)
    said[i] = prepared(4);
  said[3] = later(5, members_of({0, 1, 3}));
  EXPECT_EQ(next_view(term(1), said, rules_for(4, 1))->result, right);
}

TEST(RoundDecision, WhatOnlyLiarsMayHoldIsNotAdopted) {
  takeover_promises said{{0, unprepared(4)}, {1, unprepared(4)}, {3, later(5, members_of({1, 3}))}};
  auto next = next_view(term(1), said, rules_for(4, 1));
  ASSERT_FALSE(next) << "two may have committed it with member 2";
  EXPECT_EQ(next.error().code, ec::lost_quorum);
  said[2] = unprepared(4);
  next = next_view(term(1), said, rules_for(4, 1));
  EXPECT_FALSE(next->adopted);
}

TEST(RoundDecision, WhatMostHoldIsAdoptedIfAllHoldSomething) {
  takeover_promises said;
  for (std::size_t i = 0; i < 7; ++i)
    said[i] = prepared(7, i < 2 ? wrong : right);
  auto next = next_view(term(1), said, rules_for(7, 1));
  EXPECT_EQ(next->result, right);
  said[6] = unprepared(7);
  next = next_view(term(1), said, rules_for(7, 1));
  EXPECT_FALSE(next->adopted) << "member 6 could not complete it";
}

TEST(RoundDecision, PromisesAboutAnotherNumberDecideNothing) {
  takeover_promises said{{0, unprepared(4)}, {1, unprepared(4)}, {2, unprepared(4)}};
  EXPECT_TRUE(next_view(term(1), said, rules_for(4, 1)));
  EXPECT_FALSE(next_view(term(5), said, rules_for(4, 1))) << "given to an earlier takeover";
  said[2].view.number = term(1);
  EXPECT_FALSE(next_view(term(1), said, rules_for(4, 1)));
  said[2] = unprepared(4);
  said[2].knows_view = false;
  EXPECT_FALSE(next_view(term(1), said, rules_for(4, 1)));
  said.erase(2);
  said[4] = unprepared(4);
  EXPECT_FALSE(next_view(term(1), said, rules_for(4, 1))) << "there is no member 4";
}

TEST(RoundDecision, WhatAMemberThatIsLeftOutPromisedCounts) {
  takeover_promises said{{0, prepared(4, right)},
                         {1, prepared(4, wrong)},
                         {2, prepared(4, right)},
                         {3, prepared(4, wrong)}};
  auto without = members_of({0, 1, 3});
  auto next = waggle::next_view(term(1), said, without, rules_for(4, 1));
  EXPECT_FALSE(next->adopted) << "one of members 0 and 2 tells the truth";
  EXPECT_EQ(next->contributor_set(), without);
  EXPECT_EQ(next->participant_set(), without);
  EXPECT_FALSE(waggle::next_view(term(1), said, members_of({0, 1}), rules_for(4, 1)));
  said.erase(3);
  EXPECT_FALSE(waggle::next_view(term(1), said, without, rules_for(4, 1))) << "3 did not promise";
}

TEST(RoundDecision, AuxiliariesPromiseButDoNotContribute) {
  auto plan = plan_for(4);
  plan.reduce_by.faulty_max = 1;
  plan.members[2].mode = member_mode::auxiliary;
  plan.min_contributors = 2;
  takeover_promises said;
  for (std::size_t i = 0; i < 3; ++i) {
    said[i] = unprepared(4);
    said[i].view = first_view(plan);
  }
  auto next = next_view(term(1), said, round_rules{plan});
  EXPECT_EQ(next->contributor_set(), members_of({0, 1}));
  EXPECT_EQ(next->participant_set(), members_of({0, 1, 2}));
  plan.min_contributors = 3;
  next = next_view(term(1), said, round_rules{plan});
  EXPECT_EQ(next.error().code, ec::too_few_contributors);
}

TEST(RoundDecision, AStatementCoversAllThatDecides) {
  round_id round;
  round.bytes.fill(std::byte{1});
  auto said = prepared(4);
  auto first = promise_statement(round, said);
  auto differs = [&](auto change) {
    auto other = said;
    change(other);
    return promise_statement(round, other) != first;
  };
  EXPECT_TRUE(differs([](auto& p) { p.promised = term(5); }));
  EXPECT_TRUE(differs([](auto& p) { p.prepared = false; }));
  EXPECT_TRUE(differs([](auto& p) { p.value = wrong; }));
  EXPECT_TRUE(differs([](auto& p) { p.view.number = 1; }));
  EXPECT_TRUE(differs([](auto& p) { p.view.contributors = 7; }));
  EXPECT_TRUE(differs([](auto& p) { p.view.participants = 7; }));
  EXPECT_TRUE(differs([](auto& p) { p.view.adopted = true; }));
  EXPECT_NE(promise_statement(round_id{}, said), first);
}

// -- against any leader --------------------------------------------------------------------------

/// Members that follow the rules, and leaders and liars that do whatever they like with what those
/// sign: any member may be asked for its promise at any time, any honest member may be sent any
/// view that follows from promises, and liars sign anything.
class any_leaders {
public:
  any_leaders(std::uint64_t seed, std::size_t n, std::uint32_t f)
    : random_(seed), n_(n), rules_(rules_for(n, f)), honest_(n - f) {
    for (auto& m : honest_)
      m.view = first_view(plan_for(n));
  }

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps && violation_.empty(); ++i) {
      auto& m = honest_[random_.below(honest_.size())];
      switch (random_.below(6)) {
        case 0:
          ask(m, number_at(random_.below(numbers)));
          break;
        case 1:
        case 2:
        case 3:
          // A result over these contributors; now and then what a reducer sent to some.
          if (m.promised == m.view.number && !m.prepared) {
            m.prepared = true;
            m.value = m.view.adopted ? m.view.result : sum_of(m.view, random_.below(8) == 0);
            reported_[m.view.number][index(m)] = m.value;
          }
          break;
        default:
          propose(m, number_at(random_.below(numbers)));
      }
      look_for_commits();
    }
  }

  [[nodiscard]] const std::string& violation() const { return violation_; }
  [[nodiscard]] bool committed() const { return committed_.has_value(); }
  [[nodiscard]] std::size_t entered() const { return entered_; }

private:
  struct member {
    round_view view;
    std::uint32_t promised = 0;
    bool prepared = false;
    digest value;
    std::map<std::uint32_t, takeover_promise> said; // by number
  };
  static constexpr std::size_t numbers = 4;
  static std::uint32_t number_at(std::size_t i) { return term(static_cast<std::uint32_t>(i) + 1); }
  [[nodiscard]] std::size_t index(const member& m) const {
    return static_cast<std::size_t>(&m - honest_.data());
  }
  static digest sum_of(const round_view& view, bool other) {
    return sha256(std::to_string(view.contributors) + (other ? " bent" : ""));
  }

  void ask(member& m, std::uint32_t number) {
    if (number <= m.promised)
      return;
    m.promised = number;
    auto value = m.view.adopted ? m.view.result : m.prepared ? m.value : digest{};
    m.said[number] = {number, true, m.view, m.prepared, false, value, {}};
  }

  takeover_promise lie(std::uint32_t number) {
    const auto& like = honest_[random_.below(honest_.size())];
    takeover_promise out{number, true, like.view, random_.below(2) == 0, false, {}, {}};
    out.view.number = static_cast<std::uint32_t>(random_.below(number));
    if (random_.below(2) == 0)
      out.view.contributors = 1 + random_.below((1U << n_) - 1);
    if (out.prepared || out.view.adopted)
      out.value = random_.below(2) == 0 ? like.value : sum_of(out.view, false);
    return out;
  }

  void propose(member& m, std::uint32_t number) {
    if (number < m.promised || number <= m.view.number)
      return;
    takeover_promises shown;
    for (std::size_t i = 0; i < n_; ++i) {
      if (i >= honest_.size())
        shown[i] = lie(number);
      else if (auto said = honest_[i].said.find(number); said != honest_[i].said.end())
        shown[i] = said->second;
    }
    while (shown.size() > 1 && random_.below(3) == 0)
      shown.erase(std::next(shown.begin(), static_cast<int>(random_.below(shown.size()))));
    auto participants = all_in(shown);
    if (random_.below(3) == 0)
      participants.erase(random_.below(n_));
    auto next = waggle::next_view(number, shown, participants, rules_);
    if (!next || !next->participant_set().contains(index(m)))
      return;
    m.view = *next;
    m.promised = number;
    m.prepared = false;
    ++entered_;
  }

  /// Liars report whatever the others do, to whom they like.
  void look_for_commits() {
    for (const auto& m : honest_) {
      if (!m.prepared)
        continue;
      bool all = true;
      m.view.participant_set().for_each([&](std::size_t i) {
        auto& reports = reported_[m.view.number];
        all = all && (i >= honest_.size() || (reports.contains(i) && reports[i] == m.value));
      });
      if (!all)
        continue;
      if (committed_ && *committed_ != m.value)
        violation_ = "two members committed different results";
      committed_ = m.value;
    }
  }

  random_source random_;
  const std::size_t n_;
  const round_rules rules_;
  std::vector<member> honest_;
  std::map<std::uint32_t, std::map<std::size_t, digest>> reported_; // by number, then by member
  std::optional<digest> committed_;
  std::size_t entered_ = 0;
  std::string violation_;
};

TEST(RoundDecision, NoLeaderCanHaveTwoResultsCommitted) {
  std::size_t committed = 0;
  std::size_t entered = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    std::uint32_t f = seed % 3 == 0 ? 2 : 1;
    auto n = 3 * f + 1 + seed % 3;
    any_leaders round{seed, n, f};
    round.run(120);
    ASSERT_EQ(round.violation(), "") << "seed " << seed << ", " << n << " members";
    committed += round.committed() ? 1 : 0;
    entered += round.entered();
  }
  EXPECT_GT(committed, 2'000u);
  EXPECT_GT(entered, 10'000u);
}

} // namespace
} // namespace waggle
