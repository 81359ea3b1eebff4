// Peers whose machines are taken away: what a notice of it saves, in whole swarms.

#include <gmock/gmock.h>

#include "runtime/training/notice_period.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr milliseconds within = 25s;

struct noticed_swarm : trainers {
  explicit noticed_swarm(const mode& how, std::uint64_t seed = 17) : trainers(seed), how_(how) {}

  node_config configured(std::uint64_t data_seed) {
    auto config = with_mode(how_, data_seed, 0, passing());
    config.training->training.leave = notices_.emplace_back(std::make_shared<leave_notice>());
    return config;
  }
  index join(std::uint64_t data_seed, void (*set)(training_config&) = nullptr) {
    auto config = configured(data_seed);
    if (set != nullptr)
      set(config.training->training);
    return trainers::join(std::move(config));
  }
  /// Without a folder: with the identity of `as` or its own, and with --instead-of that peer or
  /// without.
  index come_back(index as, bool same, bool instead_of = true) {
    auto config = configured(as + 1);
    if (instead_of)
      config.training->training.instead_of = sim[as].self->id();
    return sim.start(std::move(config), {0}, nullptr, {}, same ? std::optional{as} : std::nullopt);
  }
  /// The rest of the first line with these words that `who` has logged.
  [[nodiscard]] std::string after(index who, const std::string& words) {
    for (const auto& line : *sim[who].lines)
      if (auto at = line.find(words); at != std::string::npos)
        return line.substr(line.find(": ", at) + 2);
    return {};
  }
  void give_notice(index to) { EXPECT_TRUE(notices_[to]->give(within)); }
  bool leaves(index i) { return status_of(i).phase == trainer_phase::finished; }
  /// Its samples are in updates, and it is in no group any more.
  void expect_nothing_lost(index i) {
    auto s = status_of(i);
    EXPECT_EQ(s.samples_pending(), 0U);
    EXPECT_EQ(s.samples_offered, s.samples_used + s.samples_dropped);
    EXPECT_EQ(s.group_size, 0U);
    expect_samples_accounted(s);
  }
  [[nodiscard]] bool reached(const std::vector<index>& whom, std::uint64_t epoch) {
    return std::ranges::all_of(whom, [&](index i) { return status_of(i).epoch.value() >= epoch; });
  }

private:
  /// Passes that last, where a notice may come in the middle of one.
  std::function<void()> passing() {
    if (!in_buckets(how_))
      return {};
    return [this] {
      if (std::exchange(inside_, true))
        return;
      sim.run_for(5ms);
      inside_ = false;
    };
  }

  const mode how_;
  std::vector<std::shared_ptr<leave_notice>> notices_;
  bool inside_ = false;
};

const mode& mode_called(std::string_view name) {
  return *std::ranges::find_if(modes, [&](const mode& m) { return m.name == name; });
}

class Notices : public ::testing::TestWithParam<mode> {};

TEST_P(Notices, AtAnyMomentCostNoSample) {
  for (auto moment : {0ms, 70ms, 160ms, 310ms}) {
    SCOPED_TRACE(moment.count());
    noticed_swarm swarm{GetParam(), 17 + static_cast<std::uint64_t>(moment.count())};
    for (std::uint64_t n = 1; n <= 4; ++n)
      swarm.join(n);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    swarm.sim.run_for(3s + moment);
    auto dropped = swarm.status_of(1).samples_dropped;
    swarm.give_notice(1);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(1); }, within)) << picture(swarm.sim);
    swarm.expect_nothing_lost(1);
    EXPECT_EQ(swarm.status_of(1).samples_dropped, dropped);
    swarm.sim.shut_down(1);
    auto epoch = swarm.status_of(0).epoch.value();
    EXPECT_TRUE(swarm.sim.run_until(
      [&] {
        return swarm.together() && swarm.reached({0, 2, 3}, epoch + 3);
      },
      20s))
      << picture(swarm.sim);
    expect_rounds_kept_the_contract(swarm.sim);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Notices, ::testing::ValuesIn(modes),
                         [](const auto& info) { return std::string{info.param.name}; });

TEST(Notice, OfTwoAtOnceCostsNoSample) {
  for (const auto* name : {"Collaborative", "DataParallel", "Diloco"}) {
    SCOPED_TRACE(name);
    noticed_swarm swarm{mode_called(name)};
    for (std::uint64_t n = 1; n <= 4; ++n)
      swarm.join(n);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    swarm.sim.run_for(3s);
    for (index i : {0U, 2U}) // the one that began the run, too
      swarm.give_notice(i);
    for (index i : {0U, 2U}) {
      EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(i); }, within));
      swarm.expect_nothing_lost(i);
      swarm.sim.shut_down(i);
    }
    EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
  }
}

TEST(Notice, OfAllAtOnceLetsNobodyWaitForSamplesThatNobodyAdds) {
  for (const auto* name : {"Collaborative", "DataParallel", "Diloco", "LocalUpdates"}) {
    SCOPED_TRACE(name);
    noticed_swarm swarm{mode_called(name)};
    for (std::uint64_t n = 1; n <= 3; ++n)
      swarm.join(n);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    swarm.sim.run_for(3s);
    for (index i : swarm.sim.living())
      swarm.give_notice(i);
    EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.all_finished(); }, 3s))
      << picture(swarm.sim);
    for (index i : swarm.sim.living())
      expect_samples_accounted(swarm.status_of(i));
  }
}

TEST(Notice, OfTheLastPeerKeepsWhatNobodyCanFinish) {
  noticed_swarm swarm{mode_called("Collaborative")};
  swarm.join(1, [](training_config& c) { c.target_batch_size = 100'000; });
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.status_of(0).steps > 10; }, 10s));
  swarm.give_notice(0);
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(0); }, 2s)) << "nobody adds anything";
  auto s = swarm.status_of(0);
  EXPECT_EQ(s.samples_pending(), s.steps * 4);
  EXPECT_EQ(s.samples_dropped, 0U);
  expect_samples_accounted(s);
}

TEST(Notice, InAWaitForPeersEndsItAtOnce) {
  noticed_swarm swarm{mode_called("Collaborative")};
  auto wants_three = [](training_config& c) { c.min_peers = 3; };
  swarm.join(1, wants_three);
  swarm.join(2, wants_three);
  swarm.sim.run_for(8s);
  ASSERT_EQ(swarm.status_of(0).steps, 0U);
  swarm.give_notice(0);
  EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(0); }, 500ms));
}

TEST(Notice, OfTheOnlyDonorWaitsUntilTheNewcomerHasTheState) {
  noticed_swarm swarm{mode_called("Collaborative")};
  swarm.join(1);
  swarm.sim.run_for(5s);
  auto newcomer = swarm.join(2);
  auto knows = [&] { return swarm.status_of(0).peers_behind > 0; };
  ASSERT_TRUE(swarm.sim.run_until(knows, 10s));
  auto epoch = swarm.status_of(0).epoch.value();
  swarm.give_notice(0);
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(0); }, within));
  swarm.sim.shut_down(0);
  EXPECT_TRUE(
    swarm.sim.run_until([&] { return swarm.status_of(newcomer).epoch.value() >= epoch + 2; }, 20s))
    << picture(swarm.sim);
  EXPECT_GE(swarm.status_of(newcomer).state_downloads, 1U);
}

/// A residual of several rounds, of a peer whose folder is gone.
TEST(Notice, LeavesWhatOnlyThatPeerHadWithANeighbourForWhoeverComesBack) {
  struct kind {
    bool same, instead_of;
  };
  for (auto [same, instead_of] : {kind{true, true}, kind{false, true}, kind{true, false}}) {
    SCOPED_TRACE(::testing::Message{} << same << instead_of);
    noticed_swarm swarm{mode_called("DilocoSparse")};
    swarm.sim.keep_log_lines();
    for (std::uint64_t n = 1; n <= 4; ++n)
      swarm.join(n);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    swarm.sim.run_for(5s);
    swarm.give_notice(1);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(1); }, within)) << picture(swarm.sim);
    swarm.expect_nothing_lost(1);
    auto left = swarm.after(1, "what only this peer has is with peer");
    EXPECT_THAT(left,
                ::testing::MatchesRegex("the errors of its codecs \\(64 values, norm 0?[.0-9]+\\) "
                                        "and its place in the data"));
    swarm.sim.shut_down(1);
    swarm.sim.run_for(10s);

    auto back = swarm.come_back(1, same, instead_of);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.status_of(back).steps > 0; }, 20s));
    EXPECT_EQ(swarm.after(back, "goes on with what peer"), left) << "before its first pass";
    EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    swarm.sim.run_for(3s);
    auto another = swarm.come_back(1, false);
    ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.status_of(another).steps > 0; }, 20s));
    EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.together(); }, 20s)) << picture(swarm.sim);
    EXPECT_EQ(swarm.after(another, "goes on with what peer"), "") << "it was given already";
    EXPECT_EQ(swarm.lines_with(another, "nothing of what peer"), 1U);
    if (same) {
      swarm.sim.crash(back, false);
      swarm.sim.run_for(10s);
      auto again = swarm.come_back(1, true);
      ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.status_of(again).steps > 0; }, 20s));
      EXPECT_EQ(swarm.after(again, "goes on with what peer"), "") << "it is outdated";
    }
    for (index i : swarm.sim.living())
      expect_samples_accounted(swarm.status_of(i));
    expect_rounds_kept_the_contract(swarm.sim);
  }
}

/// Its rounds are a hundred seconds apart.
mode far(const char* name, void (*set)(training_config&)) {
  return {.name = name, .set = set, .equal_parameters = true};
}

TEST(Notice, MakesARoundDueThatIsTooFarAwayAndOnlyOneAMinute) {
  noticed_swarm swarm{far("Diloco", [](training_config& c) { local(c, "diloco:steps=1000"); })};
  for (std::uint64_t n = 1; n <= 4; ++n)
    swarm.join(n);
  auto all = std::vector<index>{0, 1, 2, 3};
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.reached(all, 2); }, 500s))
    << picture(swarm.sim);
  swarm.sim.run_for(30s);
  auto epoch = swarm.status_of(0).epoch.value();
  swarm.give_notice(1);
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(1); }, 1s)) << picture(swarm.sim);
  swarm.expect_nothing_lost(1);
  swarm.sim.shut_down(1);
  EXPECT_EQ(swarm.status_of(0).epoch.value(), epoch + 1);

  swarm.sim.run_for(10s);
  swarm.give_notice(2);
  EXPECT_FALSE(swarm.sim.run_until([&] { return swarm.leaves(2); }, 22s));
  EXPECT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(2); }, 2s));
  EXPECT_GT(swarm.status_of(2).samples_pending(), 0U) << "a minute has not passed";
  EXPECT_EQ(swarm.status_of(0).epoch.value(), epoch + 1);
  swarm.sim.shut_down(2);

  swarm.sim.run_for(30s);
  swarm.give_notice(3);
  ASSERT_TRUE(swarm.sim.run_until([&] { return swarm.leaves(3); }, 1s)) << picture(swarm.sim);
  swarm.expect_nothing_lost(3);
  expect_rounds_kept_the_contract(swarm.sim);
}

} // namespace
} // namespace waggle::testing
