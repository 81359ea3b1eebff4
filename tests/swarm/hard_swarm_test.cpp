// Everything that can happen to a swarm, in random order: joins, deaths, splits, sleeping peers,
// slow links, old checkpoints, false claims about epochs. After the trouble ends, all peers are
// soon in step.
//
// WAGGLE_HARD_SEEDS=FROM:COUNT runs other seeds than the default ones, and prints how long each
// took.

#include <cstdio>
#include <cstdlib>

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

class hard_swarm : trainers {
public:
  hard_swarm(std::uint64_t seed, net::sim_network::options weather)
    : trainers(seed, weather), random_(seed) {}

  /// Returns the virtual seconds from the end of all trouble until all peers are in step and stay
  /// it for 4 s; negative: never.
  double run() {
    begin();
    auto events = 5 + random_.below(6);
    for (std::uint64_t i = 0; i < events; ++i) {
      happen();
      watch(milliseconds{random_.below(5'000)});
    }
    sim.network().heal();
    auto quiet = sim.seconds();
    auto since = quiet; // all peers are in step since then
    while (sim.seconds() < since + 4 && sim.seconds() < quiet + 64) {
      watch(100ms);
      if (!honest_together())
        since = sim.seconds();
    }
    auto took = sim.seconds() >= since + 4 ? since - quiet : -1;
    EXPECT_GE(took, 0) << "final state:" << picture(sim);
    expect_rounds_kept_the_contract(sim);
    for (auto i : honest())
      expect_samples_accounted(status_of(i));
    return took;
  }

private:
  void begin() {
    auto size = 2 + random_.below(4);
    for (std::uint64_t i = 0; i < size; ++i) {
      start(i == 0 ? std::vector<index>{} : std::vector<index>{0});
      watch(milliseconds{random_.below(500)});
    }
    watch(2s + milliseconds{random_.below(2'000)});
  }

  /// Newcomers know the addresses of all peers: a peer whose only known address belongs to a peer
  /// that dies would correctly be alone.
  index start(const std::vector<index>& through, std::shared_ptr<memory_disk> files = nullptr) {
    if (!files)
      files = std::make_shared<memory_disk>();
    auto config = with_checkpoints(++started_, files);
    auto who = add(config, through);
    disks_[who] = files;
    return who;
  }
  std::vector<index> honest() {
    auto all = sim.living();
    std::erase_if(all, [this](index i) { return liars_.contains(i); });
    return all;
  }
  static std::shared_ptr<memory_disk> copy_of(memory_disk& from) {
    auto to = std::make_shared<memory_disk>();
    std::filesystem::path folder = "/data";
    if (auto names = from.list(folder))
      for (const auto& name : *names)
        if (auto content = from.read(folder / name, 1_MiB)) {
          EXPECT_TRUE(to->write(folder / name, {as_byte_span(*content)}));
        }
    return to;
  }
  bool honest_together() { return together(honest()); }
  index anyone() {
    auto all = honest();
    return all[random_.below(all.size())];
  }

  void happen() {
    auto many = honest().size();
    switch (random_.below(8)) {
      case 0:
        if (many < 8)
          start(honest());
        return;
      case 1:
        if (many > 2)
          sim.crash(anyone(), random_.below(2) == 0);
        return;
      case 2: { // killed, and started again from its checkpoint
        auto who = anyone();
        auto files = disks_[who];
        if (many < 2)
          return;
        sim.crash(who, random_.below(2) == 0);
        watch(milliseconds{random_.below(3'000)});
        start(honest(), files);
        return;
      }
      case 3: { // a peer sleeps
        sim.network().partition({anyone()});
        watch(1s + milliseconds{random_.below(10'000)});
        sim.network().heal();
        return;
      }
      case 4: { // a split
        std::set<net::sim_network::node_index> side;
        for (auto i : sim.living())
          if (random_.below(2) == 0)
            side.insert(i);
        sim.network().partition(side);
        watch(1s + milliseconds{random_.below(15'000)});
        sim.network().heal();
        return;
      }
      case 5: { // a peer with an old data folder
        auto who = anyone();
        if (many < 3)
          return;
        auto old = copy_of(*disks_[who]);
        watch(milliseconds{random_.below(8'000)});
        if (many < 8)
          start(honest(), old);
        return;
      }
      case 6: { // a peer with false claims
        if (liars_.size() < 2) {
          auto config = endless(++started_);
          config.training.reset();
          config.averaging.reset();
          liars_.insert(sim.start(config, {anyone()}));
          watch(1s);
        }
        if (liars_.empty())
          return;
        auto branch = random_.below(2) == 0 ? status_of(anyone()).past.branch : sha256("made up");
        lie(*liars_.begin(), branch, epoch_id{random_.below(2) == 0 ? 1'000'000U : ~0ULL});
        return;
      }
      default: // all restart at once
        if (many > 3)
          return;
        auto all = honest();
        for (auto i : all)
          sim.crash(i, false);
        index first = 0;
        for (std::size_t k = 0; k < all.size(); ++k) {
          auto who =
            start(k == 0 ? std::vector<index>{} : std::vector<index>{first}, disks_[all[k]]);
          first = k == 0 ? who : first;
        }
        return;
    }
  }

  /// Advances the time and checks: two peers at one epoch of one history hold the same parameters.
  void watch(std::chrono::nanoseconds time) {
    constexpr std::chrono::nanoseconds look = 250ms;
    for (; time.count() > 0; time -= std::min(time, look)) {
      sim.run_for(std::min(time, look));
      for (auto i : honest()) {
        auto s = status_of(i);
        if (s.parameters.is_zero() || s.past.branch.is_zero())
          continue;
        auto [known, first] = seen_.try_emplace({s.past.branch, s.epoch}, s.parameters);
        EXPECT_EQ(known->second, s.parameters)
          << "peer " << i << " at epoch " << s.epoch.value() << " of " << short_name(s.past.branch)
          << picture(sim);
      }
    }
  }

  random_source random_;
  std::uint64_t started_ = 0;
  std::map<index, std::shared_ptr<memory_disk>> disks_;
  std::set<index> liars_;
  std::map<std::pair<digest, epoch_id>, digest> seen_;
};

double run(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  net::sim_network::options weather{.loss = seed % 3 == 0 ? 0.01 : 0};
  if (seed % 4 == 1)
    weather.bytes_per_second = 20e3; // a state takes a large part of an epoch
  auto took = hard_swarm{seed, weather}.run();
  EXPECT_GE(took, 0) << "not in step after a minute";
  return took;
}

class HardSwarms : public ::testing::TestWithParam<int> {};

TEST_P(HardSwarms, EndInOneHistoryWithAllPeersInStep) {
  if (const char* chosen = std::getenv("WAGGLE_HARD_SEEDS")) {
    unsigned long from = 0;
    unsigned long count = 0;
    ASSERT_EQ(std::sscanf(chosen, "%lu:%lu", &from, &count), 2) << "must be FROM:COUNT";
    for (auto seed = from + static_cast<unsigned long>(GetParam()); seed < from + count;
         seed += 4) {
      auto took = run(seed);
      std::printf("seed %lu: in step after %.1f s%s\n", seed, took, HasFailure() ? " FAILED" : "");
    }
    return;
  }
  for (int i = 0; i < 6 && !HasFailure(); ++i)
    run(static_cast<std::uint64_t>(GetParam() * 6 + i + 1));
}

// A peer that claims to train the history of two peers outside of any group, which together with it
// would outweigh the two that train: it admits nobody.
TEST(HardSwarm, PeersThatALiarClaimsToTrainWithEnterTheGroupThatExists) {
  EXPECT_LT(run(669), 15);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HardSwarms, ::testing::Range(0, 4));

} // namespace
} // namespace waggle::testing
