// The leader lies. It reports to one member, the victim, that it holds the result, so that the
// victim commits; to the others it reports nothing, says that it has lost the victim, and proposes
// a view without it. It shows them whatever may convince them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/allreduce/swarm/liar.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {
namespace {

/// Member 0, which leads first.
class splitting_leader : public saboteur {
public:
  explicit splitting_leader(std::size_t victim) : victim_(victim) {}

  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload&) override {
    if (from != 0)
      return true;
    if (const auto* prepared = std::get_if<wire::round_prepared>(&what);
        prepared != nullptr && prepared->view == split_view_) {
      has_prepared_ = true;
      split_if_ready(swarm);
      return to == victim_;
    }
    if (auto* proposal = std::get_if<wire::round_propose>(&what); proposal != nullptr && split_) {
      if (to == victim_)
        return false;
      show(swarm, *proposal);
    }
    // Nor does it help anybody to learn what the victim committed.
    return !std::holds_alternative<wire::round_commit>(what);
  }

  bool on_arrival(round_swarm& swarm, std::size_t to, std::size_t from,
                  inbound_event& event) override {
    if (to != 0)
      return true;
    if (const auto* prepared = std::get_if<wire::round_prepared>(&event.what);
        prepared != nullptr && prepared->view == split_view_) {
      reported_.insert(from);
      split_if_ready(swarm);
      return false; // otherwise it would commit, or adopt what they hold
    }
    if (auto* promise = std::get_if<wire::round_promise>(&event.what);
        promise != nullptr && split_ && promise->knows_view) {
      given_[from] = promise_of(*promise);
      // It acts as if nobody had prepared.
      promise->prepared = promise->committed = promise->view.adopted = false;
      promise->view.result = promise->value = {};
      promise->by = signed_by(swarm, from, promise_of(*promise));
    }
    return true;
  }

  [[nodiscard]] bool has_split() const { return split_; }

protected:
  /// Changes what the proposal shows. It shows promises that the leader has changed, and signed as
  /// far as it can: only its own.
  virtual void show(round_swarm& swarm, wire::round_propose& proposal) = 0;

  /// What the others have really signed.
  [[nodiscard]] const takeover_promises& given() const { return given_; }
  [[nodiscard]] std::size_t victim() const { return victim_; }
  /// The view in which it lies: of all members but `absent`.
  void split_in(std::uint32_t view, member_set absent) {
    split_view_ = view;
    absent_ = absent;
  }

  static takeover_promise promise_of(const wire::round_promise& what) {
    return {what.promised, what.knows_view, what.view, what.prepared, false, what.value, what.by};
  }
  static signature signed_by(round_swarm& swarm, std::size_t who, const takeover_promise& what) {
    return fake_signature(swarm.plan().members[who].peer.id,
                          promise_statement(swarm.plan().id, what));
  }
  /// "I have not prepared anything."
  static void deny(round_swarm& swarm, takeover_promise& own) {
    own.prepared = own.view.adopted = false;
    own.view.result = own.value = {};
    own.by = signed_by(swarm, 0, own);
  }

private:
  /// Once the victim has all that it needs to commit.
  void split_if_ready(round_swarm& swarm) {
    auto others = member_set::first(swarm.plan().members.size()) - absent_;
    others.erase(0);
    if (split_ || !has_prepared_ || !reported_.contains(others))
      return;
    split_ = true;
    swarm.inject(victim_, 0,
                 wire::round_suspect{swarm.plan().id, split_view_,
                                     static_cast<std::uint32_t>(victim_), ec::cancelled});
  }

  const std::size_t victim_;
  std::uint32_t split_view_ = 0;
  member_set absent_;
  bool has_prepared_ = false;
  bool split_ = false;
  member_set reported_;
  takeover_promises given_;
};

/// Says that nobody has prepared, with signatures that nobody gave.
class forges_promises final : public splitting_leader {
  using splitting_leader::splitting_leader;
  void show(round_swarm&, wire::round_propose& proposal) override {
    for (auto& [member, promise] : proposal.promises)
      if (member != 0)
        promise.by = {};
  }
};

/// As before there were promises to show.
class shows_nothing final : public splitting_leader {
  using splitting_leader::splitting_leader;
  void show(round_swarm&, wire::round_propose& proposal) override { proposal.promises.clear(); }
};

/// Shows what the others signed, and lies about itself alone.
class denies_its_own_part final : public splitting_leader {
  using splitting_leader::splitting_leader;
  void show(round_swarm& swarm, wire::round_propose& proposal) override {
    for (auto& [member, promise] : proposal.promises)
      if (member != 0)
        promise = given().at(member);
    deny(swarm, proposal.promises.at(0));
  }
};

/// Shows no more promises than it must.
class chooses_promises final : public splitting_leader {
  using splitting_leader::splitting_leader;
  void show(round_swarm& swarm, wire::round_propose& proposal) override {
    round_rules rules{swarm.plan()};
    auto shown = proposal.view.participant_set();
    for (auto& [member, promise] : takeover_promises{proposal.promises}) {
      auto fewer = shown;
      fewer.erase(member);
      if (member == 0 || !rules.is_quorum(fewer)) {
        proposal.promises.at(member) = member == 0 ? promise : given().at(member);
        continue;
      }
      shown = fewer;
      proposal.promises.erase(member);
    }
    proposal.view.participants = shown.bits();
    proposal.view.contributors &= shown.bits();
    deny(swarm, proposal.promises.at(0));
  }
};

/// Another member is lost first, while nobody has prepared; the view in which the leader then lies
/// is the next one. To the others it shows again what they promised before.
class repeats_promises final : public splitting_leader {
public:
  repeats_promises(std::size_t victim, std::size_t lost) : splitting_leader(victim), lost_(lost) {
    split_in(never, {});
  }

  bool on_send(round_swarm& swarm, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    const auto* part = std::get_if<wire::part>(&what);
    if (part != nullptr && part->kind == wire::part_kind::contribution && !lost_one_) {
      lost_one_ = true;
      swarm.inject(
        lost_, 0,
        wire::round_suspect{swarm.plan().id, 0, static_cast<std::uint32_t>(lost_), ec::cancelled});
    }
    // What it reduces comes late, so that nobody prepares the first view.
    if (from == 0 && part != nullptr && part->kind == wire::part_kind::result && part->view == 0)
      return false;
    if (const auto* first = std::get_if<wire::round_propose>(&what);
        from == 0 && first != nullptr && before_.empty()) {
      before_ = first->promises;
      before_.erase(victim());
      member_set absent;
      absent.insert(lost_);
      split_in(first->view.number, absent);
    }
    return splitting_leader::on_send(swarm, from, to, what, body);
  }

private:
  static constexpr auto never = view_number_max;
  void show(round_swarm&, wire::round_propose& proposal) override {
    proposal.promises = before_;
    for (auto& [member, promise] : proposal.promises)
      promise.promised = proposal.view.number;
  }

  const std::size_t lost_;
  bool lost_one_ = false;
  takeover_promises before_;
};

using way_to_split = std::function<std::unique_ptr<splitting_leader>(std::size_t victim)>;
template <class Liar>
way_to_split by() {
  return [](std::size_t victim) { return std::make_unique<Liar>(victim); };
}

struct outcome {
  std::string violation; // with a description
  bool split = false;    // whether the leader could try
};

/// A round without faults in which member 0 lies, and of which the plan says that `faulty_max` may.
outcome run_round(std::uint64_t seed, std::uint32_t faulty_max, const way_to_split& make,
                  std::size_t members_min = 4) {
  auto scene = random_scenario(seed);
  scene.faults.clear();
  send_nothing_back(scene);
  scene.plan.reduce_by = {scene.plan.reduce_by.how, faulty_max};
  if (faulty_max == 0)
    scene.plan.reduce_by.how = aggregator::mean;
  if (seed % 2 == 0)
    scene.config.keyless_bytes_max = 0;
  // The victim must hear all others: clients do not.
  const auto& members = scene.plan.members;
  std::size_t victim = 1;
  while (victim < members.size() && members[victim].mode != member_mode::node)
    ++victim;
  if (victim == members.size() || members.size() < members_min)
    return {};
  auto planted = make(victim);
  round_swarm swarm{std::move(scene), planted.get()};
  swarm.let_lie(0);
  if (members_min > 4)
    swarm.let_lie(swarm.plan().members.size() - 1); // it is left out, without having lied
  swarm.run();
  outcome out{swarm.violation(), planted->has_split()};
  if (!out.violation.empty())
    out.violation += "\n" + swarm.describe();
  return out;
}

/// Shows that this is an attack.
TEST(ALyingLeader, SplitsARoundIfNobodyIsAssumedToLie) {
  std::size_t tried = 0;
  std::size_t mixed = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    auto how = run_round(seed, 0, by<forges_promises>());
    tried += how.split ? 1 : 0;
    mixed += how.violation.starts_with("a mixed round") ? 1 : 0;
  }
  EXPECT_GT(tried, 25u);
  EXPECT_GT(2 * mixed, tried);
}

struct named_way {
  const char* name;
  way_to_split make;
};
class LyingLeaders : public ::testing::TestWithParam<named_way> {};

TEST_P(LyingLeaders, DoNotSplitARound) {
  std::size_t tried = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    auto how = run_round(seed, 1, GetParam().make);
    tried += how.split ? 1 : 0;
    EXPECT_EQ(how.violation, "") << "seed " << seed;
  }
  EXPECT_GT(2 * tried, seeds);
}

INSTANTIATE_TEST_SUITE_P(Each, LyingLeaders,
                         ::testing::Values(named_way{"ThatForgePromises", by<forges_promises>()},
                                           named_way{"ThatShowNothing", by<shows_nothing>()},
                                           named_way{"ThatDenyTheirOwnPart",
                                                     by<denies_its_own_part>()},
                                           named_way{"ThatChoosePromises", by<chooses_promises>()}),
                         [](const auto& info) { return info.param.name; });

/// The leader may also end the round for all: no two members finish with different bytes.
TEST(ALyingLeader, CannotShowPromisesAgain) {
  std::size_t tried = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    auto lost = random_scenario(seed).plan.members.size() - 1;
    auto how = run_round(
      seed, 1, [&](std::size_t victim) { return std::make_unique<repeats_promises>(victim, lost); },
      7);
    tried += how.split ? 1 : 0;
    EXPECT_THAT(how.violation, ::testing::AnyOf("", ::testing::HasSubstr("did nothing wrong")))
      << "seed " << seed;
  }
  EXPECT_GT(3 * tried, seeds);
}

} // namespace
} // namespace waggle::testing
