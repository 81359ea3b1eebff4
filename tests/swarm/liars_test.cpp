// Peers that lie about epochs, histories, states and samples: what they say stops no honest peer,
// and replaces nobody's model, while more than half of those that train together are honest.

#include "runtime/averaging/open_group.hpp"
#include "tests/support/honest_port.hpp"
#include "tests/support/liar.hpp"
#include "tests/support/test_context.hpp"
#include "tests/swarm/in_step.hpp"

namespace waggle::testing {
namespace {

/// Sends nothing, so the other members wait for this one in vain.
class silent_port final : public honest_port {
public:
  using honest_port::honest_port;
  void send(const peer_record&, wire::event, payload) override {}
};

/// Says in each round, before anything else, that it looks for another group.
class leaving_port final : public honest_port {
public:
  leaving_port(std::shared_ptr<round_port> port, std::uint32_t self,
               std::vector<peer_record> others)
    : honest_port(std::move(port)), self_(self), others_(std::move(others)) {}

  void send(const peer_record& to, wire::event what, payload body) override {
    const auto* id = round_of(what);
    if (id != nullptr && !std::exchange(left_, true))
      for (const auto& member : others_)
        port_->send(member, wire::round_suspect{*id, 0, self_, ec::not_looking}, {});
    port_->send(to, std::move(what), std::move(body));
  }

private:
  const std::uint32_t self_;
  const std::vector<peer_record> others_;
  bool left_ = false;
};

class Liars : public InStep {
protected:
  const digest made_up = sha256("made up");

  /// So many made-up identities, connected with all peers.
  std::vector<liar>& invent(std::size_t count) {
    auto honest = sim.living();
    for (std::size_t i = 0; i < count; ++i)
      liars.emplace_back(sim, honest);
    sim.run_for(1s);
    return liars;
  }
  std::vector<index> honest() {
    auto all = sim.living();
    std::erase_if(all, [this](index i) {
      return std::any_of(liars.begin(), liars.end(), [i](const liar& l) { return l.who() == i; });
    });
    return all;
  }
  /// The epochs that pass in `time`, at `who`.
  std::uint64_t epochs_in(std::chrono::nanoseconds time, index who = 0) {
    auto before = status_of(who).epoch.value();
    sim.run_for(time);
    return status_of(who).epoch.value() - before;
  }
  /// No honest peer holds the liars' model or their history, and all are in one group.
  void expect_unharmed(const digest& branch) {
    auto all = honest();
    EXPECT_TRUE(together(all)) << picture(sim);
    for (auto i : all) {
      auto s = status_of(i);
      EXPECT_EQ(s.past.branch, branch) << i;
      EXPECT_NE(s.parameters, poisoned_parameters()) << i;
    }
  }

  double disbelieved(index who) {
    return exported(*sim[who].node.ctx.metrics, "waggle_training_disbelieved_peers");
  }
  /// `who` says in its log, its status and its metrics that it does not believe `liar`.
  void expect_told_about(const liar& liar, index who) {
    auto name = short_name(liar.id());
    EXPECT_NE(text_of(status_of(who).notices).find(name), std::string::npos)
      << text_of(status_of(who).notices);
    EXPECT_GE(lines_with(who, name), 1U);
    EXPECT_GE(disbelieved(who), 1);
  }

  std::vector<liar> liars;
};

TEST_F(Liars, OneRecordOfAFarEpochStopsNobody) {
  sim.keep_log_lines();
  begin(2);
  auto quiet = epochs_in(4s);
  auto branch = status_of(0).past.branch;
  invent(1);
  for (auto epoch : {epoch_id{1'000'000'000}, epoch_id{~0ULL}})
    for (const auto& of : {branch, made_up}) {
      liars[0].claim({.branch = of, .epoch = epoch});
      EXPECT_GE(epochs_in(4s) + 2, quiet);
      expect_unharmed(branch);
      EXPECT_LE(status_of(0).global_epoch.value(), status_of(0).epoch.value() + 1);
      if (of == branch && epoch.value() == 1'000'000'000)
        expect_told_about(liars[0], 0);
    }
}

TEST_F(Liars, WhoClaimsOtherHistoriesByTurnsFillsNoLog) {
  sim.keep_log_lines();
  begin(2);
  invent(3);
  for (int turn = 0; turn < 600; ++turn) {
    auto of = sha256("made up " + std::to_string(turn % 2));
    for (auto& l : liars)
      l.claim({.branch = of, .epoch = epoch_id{5}});
    sim.run_for(100ms);
  }
  EXPECT_GE(lines_with(0, "which is not believed"), 1U);
  EXPECT_LE(lines_with(0, "which is not believed"), 62U) << "60 a minute";
  EXPECT_GE(disbelieved(0), 3);
}

TEST_F(Liars, ThreeRecordsTwoEpochsAheadStopNobody) {
  begin(2);
  auto quiet = epochs_in(4s);
  auto branch = status_of(0).past.branch;
  invent(3);
  for (const auto& of : {branch, made_up}) {
    auto now = status_of(0).epoch.value();
    for (auto& l : liars)
      l.claim({.branch = of, .epoch = epoch_id{now + 2}, .group_size = 3});
    EXPECT_GE(epochs_in(4s) + 2, quiet);
    expect_unharmed(branch);
  }
}

TEST_F(Liars, AModelOfAFarEpochIsLoadedByNobody) {
  begin(3);
  auto quiet = epochs_in(4s);
  auto before = status_of(0);
  auto epoch = epoch_id{1'000'000};
  history theirs{made_up, {}, {}, ~std::uint64_t{0}};
  for (auto& l : invent(5)) {
    l.give(epoch, poisoned_image(theirs, epoch));
    l.admit_at(epoch);
    l.keep_claiming({.branch = made_up, .epoch = epoch, .group_size = 5});
  }
  EXPECT_GE(epochs_in(4s) + 2, quiet);
  expect_unharmed(before.past.branch);
  EXPECT_EQ(status_of(0).state_downloads, before.state_downloads);
}

TEST_F(Liars, AnEpochAtTheEndOfItsRangeIsNotReached) {
  begin(3);
  auto before = status_of(0);
  epoch_id epoch{~0ULL};
  history theirs{before.past.branch, {}, {}, ~std::uint64_t{0}};
  for (auto& l : invent(1)) {
    l.give(epoch, poisoned_image(theirs, epoch));
    l.admit_at(epoch);
    l.keep_claiming({.branch = before.past.branch, .epoch = epoch, .group_size = 4});
  }
  auto joined = add(endless(20), {0, 1, 2, liars[0].who()});
  EXPECT_TRUE(sim.run_until([&] { return together(honest()); }, 10s)) << picture(sim);
  EXPECT_LE(status_of(joined).state_downloads, 3U);
  expect_unharmed(before.past.branch);
  EXPECT_LT(status_of(joined).epoch, epoch_id{10'000});
}

TEST_F(Liars, ANewcomerEntersTheRunsGroupAndNotThatOfALiar) {
  begin(3);
  auto branch = status_of(0).past.branch;
  for (auto& l : invent(2)) {
    l.admit_at(epoch_id{status_of(0).epoch.value() + 3});
    l.keep_claiming({.branch = branch, .epoch = status_of(0).epoch, .group_size = 4});
  }
  for (std::uint64_t n = 0; n < 6; ++n) {
    add(endless(n + 20), {0, 1, 2, liars[0].who(), liars[1].who()});
    EXPECT_TRUE(sim.run_until([&] { return together(honest()); }, 10s)) << n << picture(sim);
  }
  expect_unharmed(branch);
}

TEST_F(Liars, AnOnlyDonorFillsNobodysDisk) {
  begin(1);
  auto branch = status_of(0).past.branch;
  auto epoch = epoch_id{status_of(0).epoch.value() + 1};
  auto& donor = liars.emplace_back(sim, index{0});
  auto image = poisoned_image({branch, {}, {}, 1'000}, epoch);
  image.resize(8_MiB); // of a model of some KiB
  donor.admit_at(epoch);
  donor.give(epoch, std::move(image));
  sim.keep_log_lines();
  auto joined = add(endless(20), {0});
  EXPECT_TRUE(sim.run_until([&] { return disbelieved(joined) >= 1; }, 10s)) << picture(sim);
  EXPECT_GE(lines_with(joined, "the run's has at most"), 1U);
  EXPECT_EQ(donor.chunks(), 0U) << "nothing of it is downloaded";
}

TEST_F(Liars, ANewcomerTakesTheStateThatMostMembersHold) {
  begin(3);
  auto branch = status_of(0).past.branch;
  // One of the members lies: it has lost its model, and gives another one as the run's.
  liars.emplace_back(sim, index{1});
  for (std::uint64_t n = 0; n < 6; ++n) {
    auto epoch = epoch_id{status_of(0).epoch.value() + 1};
    liars[0].give(epoch, poisoned_image({branch, {}, {}, 1'000}, epoch));
    auto joined = add(endless(n + 20), {0, 1, 2});
    bool poisoned = false;
    EXPECT_TRUE(sim.run_until(
      [&] {
        poisoned = poisoned || status_of(joined).parameters == poisoned_parameters();
        return together({0, 2, joined}, 4 + n);
      },
      15s))
      << picture(sim);
    EXPECT_FALSE(poisoned);
  }
}

TEST_F(Liars, ALeaderThatNeverAdmitsCostsANewcomerSomeSeconds) {
  begin(3);
  auto branch = status_of(0).past.branch;
  for (auto& l : invent(3)) {
    l.admit_never();
    l.keep_claiming({.branch = branch, .epoch = status_of(0).epoch, .group_size = 4});
  }
  for (std::uint64_t n = 0; n < 3; ++n) {
    auto joined = add(endless(n + 20), {0, 1, 2, liars[0].who(), liars[1].who(), liars[2].who()});
    EXPECT_TRUE(sim.run_until([&] { return status_of(joined).group_size > 3; }, 25s))
      << n << picture(sim);
  }
}

// A member claims a million samples in each epoch, and contributes few.
TEST_F(Liars, ClaimedSamplesThatAreNotContributedEndNoEpochs) {
  sim.keep_log_lines();
  begin(2);
  auto quiet = epochs_in(10s);
  auto idle = endless(9);
  idle.training->training.step_interval = 5s;
  auto member = add(idle, {0});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
  liars.emplace_back(sim, member);
  liars[0].claim_samples(1'000'000, 1e9);
  sim.run_for(10s); // each false claim costs the liar twice the time of the last one
  expect_told_about(liars[0], 0);
  EXPECT_LE(epochs_in(10s), quiet + quiet / 4);
  EXPECT_GE(status_of(0).effective_batch, 24U);
}

// Without a memory of faults each round would wait for it: 27 times in a minute.
TEST_F(Liars, AMemberThatIsSilentInEachRoundCostsItsGroupTheStallTimeoutAFewTimes) {
  begin(3);
  auto quiet = epochs_in(10s);
  auto branch = status_of(0).past.branch;
  auto before = sim[0].rounds.size();
  sim.decorate_rounds([](std::shared_ptr<round_port> port) -> std::shared_ptr<round_port> {
    return std::make_shared<silent_port>(std::move(port));
  });
  liars.emplace_back(sim, add(endless(9), {0, 1, 2}));
  EXPECT_GE(epochs_in(60s), quiet * 6 * 3 / 4);
  for (auto i : honest())
    EXPECT_EQ(status_of(i).past.branch, branch) << picture(sim);
  std::size_t stalls = 0;
  for (auto i = before; i < sim[0].rounds.size(); ++i)
    for (const auto& fault : sim[0].rounds[i].faults)
      stalls += fault.peer == liars[0].id() ? 1U : 0U;
  EXPECT_GE(stalls, 3U) << "it takes part, and is tried again";
  EXPECT_LE(stalls, 9U);
}

// Each time that it is admitted, it says in its first round that it looks for another group.
TEST_F(Liars, AMemberThatLeavesInEachRoundCostsTheOthersNone) {
  begin(3);
  auto quiet = epochs_in(10s);
  auto branch = status_of(0).past.branch;
  auto before = sim[0].rounds.size();
  std::vector<peer_record> others;
  for (auto i : sim.living())
    others.push_back(sim[i].node.ctx.record);
  auto last = static_cast<std::uint32_t>(others.size()); // newcomers stand behind the others
  sim.decorate_rounds([=](std::shared_ptr<round_port> port) -> std::shared_ptr<round_port> {
    return std::make_shared<leaving_port>(std::move(port), last, others);
  });
  liars.emplace_back(sim, add(endless(9), {0, 1, 2}));
  EXPECT_GE(epochs_in(60s), quiet * 6 * 9 / 10);
  std::size_t departures = 0;
  for (index i : honest()) {
    EXPECT_EQ(status_of(i).past.branch, branch) << picture(sim);
    EXPECT_EQ(status_of(i).state_downloads, i == 0 ? 0U : 1U);
    EXPECT_EQ(status_of(i).samples_dropped, 0U);
    EXPECT_EQ(status_of(i).rounds_failed, 0U);
  }
  for (auto i = before; i < sim[0].rounds.size(); ++i)
    for (const auto& fault : sim[0].rounds[i].faults)
      departures += fault.left ? 1U : 0U;
  EXPECT_GE(departures, 3U) << "it is admitted again";
  EXPECT_LE(departures, 7U);
}

// It is connected, and knows the id of the group's next round.
TEST_F(Liars, AnInvalidPlanTakesNobodyOutOfARound) {
  begin(3);
  auto quiet = epochs_in(10s);
  auto& stranger = invent(1)[0];
  auto before = sim[0].rounds.size();
  auto epoch = status_of(0).epoch.value();
  std::size_t sent = 0;
  for (auto end = sim.seconds() + 10; sim.seconds() < end; sim.run_for(10ms)) {
    const auto& last = sim[0].rounds.back();
    open_group::terms terms{.vectors = {{{64, codec_id::none}}}};
    open_group group{{stranger.peer(), member_mode::node}, terms, {}};
    group.found(epoch_id{0}, {}, last.round);
    ASSERT_TRUE(group.advance(member_set::first(last.contributors.size())));
    wire::next_plan forged;
    forged.plan = group.next();
    forged.plan.prefix = "another vector";
    for (auto i : honest()) {
      forged.plan.members.push_back({sim[i].node.ctx.record, member_mode::node});
      forged.plan.gathered.emplace_back();
      forged.plan.shares.push_back(0);
    }
    ASSERT_TRUE(validate_plan(forged.plan).ok()) << "otherwise its link is closed";
    stranger.send(1, forged);
    ++sent;
  }
  EXPECT_GE(sent, 900U);
  EXPECT_GE((status_of(0).epoch.value() - epoch) + 2, quiet);
  for (auto i = before; i < sim[0].rounds.size(); ++i)
    EXPECT_EQ(sim[0].rounds[i].contributors.size(), 3U);
}

// With as many peers as a round needs, and with one less.
TEST(MinContributors, ARoundOfAGroupThatHasEnoughFailsWithFewer) {
  trainers swarm{11};
  auto& sim = swarm.sim;
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto config = trainers::endless(i + 1);
    config.averaging->matchmaking.min_contributors = 3;
    config.training->training.min_peers = 3;
    swarm.join(config);
  }
  ASSERT_TRUE(sim.run_until([&] { return swarm.together(); }, 10s)) << picture(sim);
  sim.run_for(5s);
  EXPECT_GE(swarm.status_of(0).epoch.value(), 10U);
  for (const auto& round : sim[0].rounds)
    EXPECT_EQ(round.contributors.size(), 3U);
  auto before = sim[0].rounds.size();
  sim.crash(2, false);
  sim.run_for(5s);
  bool failed = false;
  for (auto i = before; i < sim[0].rounds.size(); ++i)
    failed = failed || sim[0].rounds[i].why.code == ec::too_few_contributors;
  EXPECT_TRUE(failed);
  EXPECT_TRUE(swarm.together()) << "the two that are left are a group" << picture(sim);
}

} // namespace
} // namespace waggle::testing
