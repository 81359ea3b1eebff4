// One member lies about sums, or about what they are checked against, while all sums are checked.
// However it lies, what members apply is the aggregate of what the others contributed, and the
// members that do not lie have a result.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

namespace waggle::testing {
namespace {

/// Rounds of each way to lie; more with WAGGLE_LIAR_SEEDS.
std::uint64_t seeds() {
  const char* asked = std::getenv("WAGGLE_LIAR_SEEDS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 150;
}

payload bent(const payload& body) {
  auto bytes = std::make_shared<std::vector<std::byte>>(body.view().begin(), body.view().end());
  if (bytes->empty())
    return body;
  bytes->back() ^= std::byte{1};
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

bool is_part(const wire::event& what, wire::part_kind kind) {
  const auto* part = std::get_if<wire::part>(&what);
  return part != nullptr && part->kind == kind;
}

/// Sends all members the same wrong sum, and knows of no other itself.
class wrong_sums : public saboteur {
public:
  explicit wrong_sums(std::size_t who) : who_(who) {}

  void on_reduced(std::size_t member, const reduced_part& sum) override {
    if (member == who_ && bends(sum.part))
      sum.out.get()[0] += 8;
  }
  bool on_send(round_swarm&, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    return from != who_ || says(to, what, body);
  }

protected:
  virtual bool bends(std::uint32_t) { return true; }
  /// What it sends; false: nothing.
  virtual bool says(std::size_t, wire::event&, payload&) { return true; }
  const std::size_t who_;
};

class one_wrong_sum final : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool bends(std::uint32_t part) override {
    if (!first_)
      first_ = part;
    return part == *first_;
  }
  std::optional<std::uint32_t> first_;
};

/// Shows other contributions than it was sent.
class forged_evidence final : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool says(std::size_t, wire::event& what, payload& body) override {
    if (is_part(what, wire::part_kind::evidence))
      body = bent(body);
    return true;
  }
};

class no_evidence final : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool says(std::size_t, wire::event& what, payload&) override {
    return !is_part(what, wire::part_kind::evidence);
  }
};

/// Shows every second member nothing, even if it is challenged.
class no_evidence_for_some final : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool says(std::size_t to, wire::event& what, payload&) override {
    return to % 2 == 0 || !is_part(what, wire::part_kind::evidence);
  }
};

/// Shows one contribution of each part less.
class partial_evidence final : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool says(std::size_t, wire::event& what, payload&) override {
    return !is_part(what, wire::part_kind::evidence) || std::get<wire::part>(what).member != 1;
  }
};

/// Its sums are right. What it says besides is not.
class honest_sums : public wrong_sums {
  using wrong_sums::wrong_sums;
  bool bends(std::uint32_t) override { return false; }
};

/// Shows its checkers what they must refuse, and everybody else what is right.
class evidence_bent_for_some final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t to, wire::event& what, payload& body) override {
    if (to % 2 == 1 && is_part(what, wire::part_kind::evidence))
      body = bent(body);
    return true;
  }
};

/// Tells every second member that it contributes something else.
class other_pledges final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t to, wire::event& what, payload& body) override {
    if (to % 2 == 1 && std::holds_alternative<wire::round_pledge>(what))
      body = bent(body);
    return true;
  }
};

class other_commitments final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t to, wire::event& what, payload&) override {
    if (auto* pledge = std::get_if<wire::round_pledge>(&what); pledge != nullptr && to % 2 == 1)
      pledge->commitment.bytes[0] ^= std::byte{1};
    return true;
  }
};

/// Contributes other values to every second reducer than it pledged to all.
class broken_pledges final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t to, wire::event& what, payload& body) override {
    if (to % 2 == 1 && is_part(what, wire::part_kind::contribution))
      body = bent(body);
    return true;
  }
};

class no_pledges final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t, wire::event& what, payload&) override {
    return !std::holds_alternative<wire::round_pledge>(what);
  }
};

/// Chooses its share when it knows those of the others.
class chosen_shares final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t, wire::event& what, payload&) override {
    if (auto* share = std::get_if<wire::round_key_share>(&what))
      share->share.bytes[0] ^= std::byte{1};
    return true;
  }
};

/// Says with its share that it heard other pledges.
class other_pledges_heard final : public honest_sums {
  using honest_sums::honest_sums;
  bool says(std::size_t, wire::event& what, payload&) override {
    if (auto* share = std::get_if<wire::round_key_share>(&what))
      share->pledges.bytes[0] ^= std::byte{1};
    return true;
  }
};

/// Challenges every part, whether it was drawn for it or not, and never prepares.
class challenges_all final : public saboteur {
public:
  explicit challenges_all(std::size_t who) : who_(who) {}

  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload&) override {
    const auto* prepared = std::get_if<wire::round_prepared>(&what);
    if (from != who_ || prepared == nullptr)
      return true;
    for (std::uint32_t part = 0; part < part_table{swarm.plan()}.size(); ++part)
      swarm.inject(who_, to, wire::round_challenge{swarm.plan().id, prepared->view, part});
    return false;
  }

private:
  const std::size_t who_;
};

struct way {
  const char* name;
  std::function<std::unique_ptr<saboteur>(std::size_t who)> make;
  /// Whoever tells one member alone something else cannot finish the round together with it.
  std::size_t may_cost = 0;
};

template <class Liar>
way way_of(const char* name, std::size_t may_cost = 0) {
  return {name, [](std::size_t who) { return std::make_unique<Liar>(who); }, may_cost};
}

class LyingReducers : public ::testing::TestWithParam<way> {};

/// The first violation of a round in which `who` lies; nothing is promised to it.
std::string violation(std::uint64_t seed, bool leader_lies, double check_share = 1) {
  auto scene = random_scenario(seed);
  scene.faults.clear();
  scene.offload = true;
  scene.config.offload_elements = 1;
  scene.plan.reduce_by.faulty_max = 1;
  scene.plan.reduce_by.check_share = check_share;
  scene.net.window_bytes = 32_MiB;
  auto members = scene.plan.members.size();
  auto who = leader_lies ? 0 : 1 + seed % (members - 1);
  std::size_t checkers = 0;
  for (std::size_t i = 0; i < members; ++i)
    checkers += i != who && scene.plan.members[i].mode != member_mode::client ? 1 : 0;
  if (checkers == 0)
    scene.plan.members[who == 1 ? 2 : 1].mode = member_mode::node;
  auto planted = LyingReducers::GetParam().make(who);
  round_swarm swarm{std::move(scene), planted.get()};
  if (std::getenv("WAGGLE_LIAR_JOURNAL") != nullptr)
    swarm.keep_journal();
  swarm.let_lie(who);
  swarm.run();
  // Without the liar and the member that it costs, fewer than six are no quorum.
  auto may_cost = LyingReducers::GetParam().may_cost;
  bool affordable = swarm.violation().find("did nothing wrong") != std::string::npos
                    && (swarm.left_out() <= may_cost || (may_cost > 0 && members < 6));
  if (swarm.violation().empty() || affordable)
    return {};
  return "member " + std::to_string(who) + " lies: " + swarm.violation() + "\n" + swarm.describe()
         + "\n" + swarm.journal();
}

TEST_P(LyingReducers, AreFoundBeforeAnybodyAppliesASum) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed)
    EXPECT_EQ(violation(seed, false), "") << "seed " << seed;
}

/// The leader decides who is left out, so if it lies, members that do not may fail.
TEST_P(LyingReducers, ThatLeadAreFoundToo) {
  for (std::uint64_t seed = 1; seed <= seeds() && !HasFailure(); ++seed)
    EXPECT_THAT(violation(seed, true),
                ::testing::AnyOf("", ::testing::HasSubstr("did nothing wrong")))
      << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(
  Each, LyingReducers,
  ::testing::Values(
    way_of<wrong_sums>("WrongSums"), way_of<one_wrong_sum>("OneWrongSum"),
    way_of<forged_evidence>("ForgedEvidence"), way_of<no_evidence>("NoEvidence"),
    way_of<no_evidence_for_some>("NoEvidenceForSome"), way_of<partial_evidence>("PartialEvidence"),
    way_of<evidence_bent_for_some>("EvidenceBentForSome"), way_of<other_pledges>("OtherPledges", 1),
    way_of<other_commitments>("OtherCommitments", 1), way_of<broken_pledges>("BrokenPledges", 1),
    way_of<no_pledges>("NoPledges"), way_of<chosen_shares>("ChosenShares"),
    way_of<other_pledges_heard>("OtherPledgesHeard"), way_of<challenges_all>("ChallengesAll")),
  [](const auto& info) { return info.param.name; });

/// Of the wrong parts, as many are found as are checked.
TEST(DrawnChecks, FindAWrongSumAsOftenAsTheyCheckIt) {
  constexpr double share = 0.5;
  std::size_t rounds = 0;
  std::size_t applied = 0;
  for (std::uint64_t seed = 1; seed <= 3 * seeds(); ++seed) {
    auto scene = random_scenario(seed);
    auto who = scene.plan.members.size() - 1;
    if (scene.plan.members[who].mode == member_mode::client || scene.plan.shares[who] == 0)
      continue;
    scene.faults.clear();
    scene.offload = true;
    scene.config.offload_elements = 1;
    scene.plan.reduce_by = {aggregator::median, 1, share};
    scene.net.window_bytes = 32_MiB;
    one_wrong_sum planted{who};
    round_swarm swarm{std::move(scene), &planted};
    swarm.let_lie(who);
    swarm.run();
    ++rounds;
    applied += swarm.violation().find("is not the aggregate") != std::string::npos ? 1 : 0;
  }
  // A binomial distribution: four standard deviations.
  auto expected = (1 - share) * static_cast<double>(rounds);
  auto slack = 4 * std::sqrt(static_cast<double>(rounds) * share * (1 - share));
  EXPECT_GT(rounds, seeds());
  EXPECT_NEAR(static_cast<double>(applied), expected, slack);
}

} // namespace
} // namespace waggle::testing
