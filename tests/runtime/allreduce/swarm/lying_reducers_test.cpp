// One member lies about sums, or about what they are checked against, while all sums are checked.
// However it lies, what members apply is the aggregate of what the others contributed, and the
// members that do not lie have a result.

#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/allreduce/swarm/liar.hpp"

namespace waggle::testing {
namespace {

/// Which sums a reducer bends, for all members alike; it knows of no other sum itself.
enum class bends : std::uint8_t { none, first, all };

class lying_reducer final : public liar {
public:
  lying_reducer(std::size_t who, bends which, speech say)
    : liar(who, std::move(say)), which_(which) {}

  void on_reduced(std::size_t member, const reduced_part& sum) override {
    if (member != who_ || which_ == bends::none)
      return;
    if (!first_)
      first_ = sum.part;
    if (which_ == bends::all || sum.part == *first_)
      sum.out.get()[0] += 8;
  }

private:
  const bends which_;
  std::optional<std::uint32_t> first_;
};

/// Challenges every part, whether it was drawn for it or not, perhaps at all but the one that would
/// have to show it, and never prepares.
class challenges_all : public saboteur {
public:
  challenges_all(std::size_t who, bool spares_owner) : who_(who), spares_owner_(spares_owner) {}

  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload&) override {
    const auto* prepared = std::get_if<wire::round_prepared>(&what);
    if (from != who_ || prepared == nullptr)
      return true;
    part_table parts{swarm.plan()};
    for (std::uint32_t part = 0; part < parts.size(); ++part)
      if (!spares_owner_ || parts[part].default_owner != to)
        swarm.inject(who_, to, wire::round_challenge{swarm.plan().id, prepared->view, part});
    return false;
  }

private:
  const std::size_t who_;
  const bool spares_owner_;
};

struct way {
  const char* name;
  bends sums;
  speech say; // null: see challenges_all
  /// Whoever tells one member alone something else cannot finish the round together with it.
  std::size_t may_cost = 0;
  bool spares_owner = false; // see challenges_all
  [[nodiscard]] std::unique_ptr<saboteur> make(std::size_t who) const {
    if (!say)
      return std::make_unique<challenges_all>(who, spares_owner);
    return std::make_unique<lying_reducer>(who, sums, say);
  }
};

constexpr auto evidence = wire::part_kind::evidence;

bool truth(std::size_t, wire::event&, payload&) {
  return true;
}

const way ways[] = {
  {"WrongSums", bends::all, truth},
  {"OneWrongSum", bends::first, truth},
  // Shows other contributions than it was sent.
  {"ForgedEvidence", bends::all, changing([](std::size_t, wire::event& what, payload& body) {
     if (is_part(what, evidence))
       bend(body);
   })},
  {"NoEvidence", bends::all,
   [](std::size_t, wire::event& what, payload&) { return !is_part(what, evidence); }},
  // Shows every second member nothing, even if it is challenged.
  {"NoEvidenceForSome", bends::all,
   [](std::size_t to, wire::event& what, payload&) {
     return to % 2 == 0 || !is_part(what, evidence);
   }},
  // Shows one contribution of each part less.
  {"PartialEvidence", bends::all,
   [](std::size_t, wire::event& what, payload&) {
     return !is_part(what, evidence) || std::get<wire::part>(what).member != 1;
   }},
  // Shows its checkers what they must refuse, and everybody else what is right.
  {"EvidenceBentForSome", bends::none,
   changing([](std::size_t to, wire::event& what, payload& body) {
     if (to % 2 == 1 && is_part(what, evidence))
       bend(body);
   })},
  // Tells every second member that it contributes something else.
  {"OtherPledges", bends::none, changing([](std::size_t to, wire::event& what, payload& body) {
     if (to % 2 == 1 && std::holds_alternative<wire::round_pledge>(what))
       bend(body);
   }),
   1},
  {"OtherCommitments", bends::none, changing([](std::size_t to, wire::event& what, payload&) {
     if (auto* pledge = std::get_if<wire::round_pledge>(&what); pledge && to % 2 == 1)
       pledge->commitment.bytes[0] ^= std::byte{1};
   }),
   1},
  // Contributes other values to every second reducer than it pledged to all.
  {"BrokenPledges", bends::none, changing([](std::size_t to, wire::event& what, payload& body) {
     if (to % 2 == 1 && is_part(what, wire::part_kind::contribution))
       bend(body);
   }),
   1},
  {"NoPledges", bends::none,
   [](std::size_t, wire::event& what, payload&) {
     return !std::holds_alternative<wire::round_pledge>(what);
   }},
  // Chooses its share when it knows those of the others.
  {"ChosenShares", bends::none, changing([](std::size_t, wire::event& what, payload&) {
     if (auto* share = std::get_if<wire::round_key_share>(&what))
       share->share.bytes[0] ^= std::byte{1};
   })},
  // Says with its share that it heard other pledges.
  {"OtherPledgesHeard", bends::none, changing([](std::size_t, wire::event& what, payload&) {
     if (auto* share = std::get_if<wire::round_key_share>(&what))
       share->pledges.bytes[0] ^= std::byte{1};
   })},
  {"ChallengesAll", bends::none, nullptr},
  {"ChallengesAtAllButTheOwner", bends::none, nullptr, 0, true},
};

class LyingReducers : public ::testing::TestWithParam<way> {};

/// A round without other faults, whose sums this share of is checked.
round_scenario checked_round(std::uint64_t seed, const aggregation& how) {
  auto scene = random_scenario(seed);
  scene.faults.clear();
  scene.offload = true;
  scene.config.offload_elements = 1;
  scene.plan.reduce_by = how;
  scene.net.window_bytes = 32_MiB;
  return scene;
}

std::string violation(std::uint64_t seed, bool leader_lies,
                      void (*changes)(round_scenario&) = nullptr) {
  auto scene = checked_round(seed, {random_scenario(seed).plan.reduce_by.how, 1, 1});
  if (changes != nullptr)
    changes(scene);
  auto& members = scene.plan.members;
  auto who = liar_of(seed, scene, leader_lies);
  std::size_t checkers = 0;
  for (std::size_t i = 0; i < members.size(); ++i)
    checkers += i != who && members[i].mode != member_mode::client ? 1 : 0;
  if (checkers == 0)
    members[who == 1 ? 2 : 1].mode = member_mode::node;
  // Without the liar and the member that it costs, fewer than six are no quorum.
  auto affordable = [may_cost = LyingReducers::GetParam().may_cost,
                     count = members.size()](const round_swarm& swarm) {
    return swarm.violation().find("did nothing wrong") != std::string::npos
           && (swarm.left_out() <= may_cost || (may_cost > 0 && count < 6));
  };
  return violation_by(std::move(scene), who, *LyingReducers::GetParam().make(who), affordable);
}

TEST_P(LyingReducers, AreFoundBeforeAnybodyAppliesASum) {
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed)
    EXPECT_EQ(violation(seed, false), "") << "seed " << seed;
}

/// The leader decides who is left out, so if it lies, members that do not may fail.
TEST_P(LyingReducers, ThatLeadAreFoundToo) {
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed)
    EXPECT_THAT(violation(seed, true),
                ::testing::AnyOf("", ::testing::HasSubstr("did nothing wrong")))
      << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Each, LyingReducers, ::testing::ValuesIn(ways),
                         [](const auto& info) { return info.param.name; });

// -- contributions that are sent back -------------------------------------------------------------

/// All members check all sums then.
void send_back(round_scenario& scene) {
  scene.plan.codecs = {{scene.plan.elements, codec_id::sparse2}};
  scene.plan.reduce_by = {aggregator::mean, 1, 0};
}

TEST_P(LyingReducers, AreFoundWhereContributionsAreSentBack) {
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed)
    EXPECT_EQ(violation(seed, false, send_back), "") << "seed " << seed;
}

/// Counts what is shown because of false challenges.
class counted_challenges final : public challenges_all {
public:
  explicit counted_challenges(std::size_t who) : challenges_all(who, false) {}
  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    if (is_part(what, evidence)) {
      const auto& head = std::get<wire::part>(what);
      ++shown[{head.view, from, to, head.index, head.member}];
    }
    return challenges_all::on_send(swarm, from, to, what, body);
  }
  std::map<std::array<std::size_t, 5>, std::size_t> shown;
};

TEST(FalseChallenges, HaveThePartShownToTwoMembersOnce) {
  std::size_t rounds = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    auto scene = checked_round(seed, {});
    send_back(scene);
    auto who = liar_of(seed, scene, false);
    counted_challenges planted{who};
    EXPECT_EQ(violation_by(scene, who, planted), "") << "seed " << seed;
    rounds += planted.shown.empty() ? 0 : 1;
    for (const auto& [what, times] : planted.shown) {
      auto [view, from, to, part, member] = what;
      EXPECT_EQ(times, 1U) << "seed " << seed << ", part " << part << " to " << to;
      EXPECT_TRUE(from == 0 || to == 0 || to == who) << "seed " << seed << ": shown to " << to;
    }
  }
  EXPECT_GT(rounds, seeds / 2);
}

/// Whom a reducer tells something else than the truth.
enum class told : std::uint8_t { all, every_second, all_but_the_first };

/// How a reducer changes the contributions that it passes on: `one` bytes each.
using forgery = void (*)(std::vector<std::byte>& all, std::size_t one);

struct relay_lie {
  const char* name;
  forgery change;
  told who;
};

void alter_first(std::vector<std::byte>& all, std::size_t) {
  all.front() ^= std::byte{1}; // of the smaller magnitude
}
void alter_last(std::vector<std::byte>& all, std::size_t) {
  all.back() ^= std::byte{1}; // a sign
}
void swap_two(std::vector<std::byte>& all, std::size_t one) {
  if (all.size() >= 2 * one)
    std::swap_ranges(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(one),
                     all.end() - static_cast<std::ptrdiff_t>(one));
}
void repeat_first(std::vector<std::byte>& all, std::size_t one) {
  for (auto at = one; at < all.size(); ++at)
    all[at] = all[at - one];
}
void leave_out(std::vector<std::byte>& all, std::size_t one) {
  all.resize(all.size() - one);
}

const relay_lie relay_lies[] = {
  {"AltersTheFirst", alter_first, told::all},
  {"AltersTheLast", alter_last, told::all},
  {"AltersForSome", alter_last, told::every_second},
  {"AltersForAllButItsSender", alter_first, told::all_but_the_first},
  {"Swaps", swap_two, told::all},
  {"SwapsForSome", swap_two, told::every_second},
  {"Repeats", repeat_first, told::all},
  {"RepeatsForSome", repeat_first, told::every_second},
  {"RepeatsForAllButItsSender", repeat_first, told::all_but_the_first},
  {"LeavesOut", leave_out, told::all},
};

bool is_told(told who, std::size_t to, const wire::part& head) {
  return who == told::all || (who == told::every_second && to % 2 == 0)
         || (who == told::all_but_the_first && to != member_set{head.contributors}.lowest());
}

class LyingRelays : public ::testing::TestWithParam<relay_lie> {};

TEST_P(LyingRelays, NeverHaveAWrongSumApplied) {
  const auto& lie = GetParam();
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    auto scene = checked_round(seed, {});
    send_back(scene);
    auto who = liar_of(seed, scene, false);
    scene.plan.members[who].mode = member_mode::auxiliary; // may contribute what it likes otherwise
    part_table parts{scene.plan};
    liar planted{who, changing([&](std::size_t to, wire::event& what, payload& body) {
                   if (!is_part(what, wire::part_kind::result)
                       || !is_told(lie.who, to, std::get<wire::part>(what)))
                     return;
                   auto index = std::get<wire::part>(what).index;
                   std::vector<std::byte> all(body.view().begin(), body.view().end());
                   lie.change(all, encoded_size(codec_id::sparse2, parts[index].count));
                   body = copy_to_payload(all);
                 })};
    EXPECT_EQ(violation_by(std::move(scene), who, planted), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, LyingRelays, ::testing::ValuesIn(relay_lies),
                         [](const auto& info) { return info.param.name; });

/// Of the wrong parts, as many are found as are checked.
TEST(DrawnChecks, FindAWrongSumAsOftenAsTheyCheckIt) {
  constexpr double share = 0.5;
  std::size_t rounds = 0;
  std::size_t applied = 0;
  for (std::uint64_t seed = 1; seed <= 3 * seeds; ++seed) {
    auto scene = checked_round(seed, {aggregator::median, 1, share});
    auto who = scene.plan.members.size() - 1;
    if (scene.plan.members[who].mode == member_mode::client || scene.plan.shares[who] == 0)
      continue;
    lying_reducer planted{who, bends::first, truth};
    round_swarm swarm{std::move(scene), &planted};
    swarm.let_lie(who);
    swarm.run();
    ++rounds;
    applied += swarm.violation().find("is not the aggregate") != std::string::npos ? 1 : 0;
  }
  // A binomial distribution: four standard deviations.
  auto expected = (1 - share) * static_cast<double>(rounds);
  auto slack = 4 * std::sqrt(static_cast<double>(rounds) * share * (1 - share));
  EXPECT_GT(rounds, seeds);
  EXPECT_NEAR(static_cast<double>(applied), expected, slack);
}

} // namespace
} // namespace waggle::testing
