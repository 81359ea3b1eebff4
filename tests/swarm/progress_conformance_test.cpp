// What hivemind's own test asserts about the progress of
// a swarm whose fastest peer comes and goes, here with whole peers.

#include <numeric>

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct refresh_periods {
  const char* name;
  milliseconds shortest;
  milliseconds without_peers; // that are known
  milliseconds longest;
};

void PrintTo(const refresh_periods& r, std::ostream* out) {
  *out << r.name;
}

struct speed {
  std::uint64_t micro_batch;
  milliseconds step_interval;
  [[nodiscard]] double samples_per_second() const {
    return static_cast<double>(micro_batch) / seconds_of(step_interval);
  }
};

constexpr speed slow_peers[] = {{12, 600ms}, {16, 500ms}, {24, 400ms}};
constexpr speed fast_peer{64, 400ms};
constexpr std::uint64_t epochs = 6;

class ProgressConformance : public ::testing::TestWithParam<refresh_periods>, protected trainers {
protected:
  ProgressConformance() : trainers(29) {}

  node_config peer(const speed& how, bool auxiliary = false) {
    auto config = trainers::endless(sim.size() + 1);
    auto& training = config.training->training;
    training.target_batch_size = config.progress.ledger.target_batch_size = 256;
    training.step_interval = how.step_interval;
    training.min_peers = std::size(slow_peers) + 1; // and the auxiliary
    training.auxiliary = auxiliary;
    config.averaging->averaging.auxiliary = auxiliary;
    if (auxiliary)
      config.averaging->matchmaking.mode = member_mode::auxiliary;
    auto& refresh = config.progress.ledger;
    refresh.refresh_min = GetParam().shortest;
    refresh.refresh_default = GetParam().without_peers;
    refresh.refresh_max = GetParam().longest;
    toy_options toy{.parameters = 64, .micro_batch = how.micro_batch, .data_seed = sim.size() + 1};
    config.training->make_learner = toys(toy);
    return config;
  }
  /// Samples per second of each peer, as peer `i` knows them.
  std::map<peer_id, double> throughputs(index i) {
    auto seen = sim.first_event<swarm_progress, subscribe_progress>(sim[i].node.parts.tracker);
    std::map<peer_id, double> rates;
    for (const auto& p : seen.value_or(swarm_progress{}).peers)
      rates[p.who.id] = p.samples_per_second;
    return rates;
  }
  /// As each peer sees them, whether it trains or not.
  void expect_throughputs_in_order(index fast, index idle) {
    for (index i : sim.living()) {
      SCOPED_TRACE("seen by peer " + std::to_string(i));
      auto rates = throughputs(i);
      ASSERT_EQ(rates.size(), std::size(slow_peers) + 2);
      auto rate_of = [&](index which) { return rates.at(sim[which].self->id()); };
      double before = 0;
      for (index which : {index{0}, index{1}, index{2}, fast}) {
        const auto& how = which == fast ? fast_peer : slow_peers[which];
        EXPECT_GT(rate_of(which), before);
        before = rate_of(which);
        EXPECT_NEAR(before / how.samples_per_second(), 1, 0.2);
      }
      EXPECT_LT(rate_of(idle), 1e-9) << "it has never contributed";
    }
  }
};

TEST_P(ProgressConformance, EpochsAreShorterWhileAFastPeerContributes) {
  for (const auto& how : slow_peers)
    join(peer(how));
  auto idle = add(peer({4, 100ms}, true), {0});
  ASSERT_TRUE(sim.run_until([&] { return status_of(0).steps > 0; }, 10s)) << picture(sim);

  std::vector<double> lengths;
  std::optional<index> fast;
  auto began = sim.seconds();
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    if (epoch == 2)
      fast = add(peer(fast_peer), {0});
    if (epoch == 4)
      expect_throughputs_in_order(*fast, idle);
    if (epoch == 5)
      sim.shut_down(*fast);
    while (status_of(0).epoch.value() <= epoch && sim.seconds() < 60)
      sim.run_for(5ms);
    lengths.push_back(sim.seconds() - began);
    began = sim.seconds();
  }
  EXPECT_EQ(status_of(0).epoch.value(), epochs);
  EXPECT_TRUE(sim.run_until([&] { return together({0, 1, 2}, 4); }, 1s)) << picture(sim);
  for (auto i : sim.living())
    EXPECT_FALSE(throughputs(i).contains(sim[*fast].self->id())) << "it has left";

  auto mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / epochs;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    bool with_fast = epoch >= 2 && epoch < 5;
    EXPECT_GT(lengths[epoch], (with_fast ? 0.5 : 1.05) * mean) << "epoch " << epoch;
    EXPECT_LT(lengths[epoch], (with_fast ? 0.95 : 2.0) * mean) << "epoch " << epoch;
  }
  expect_rounds_kept_the_contract(sim, true);
}

INSTANTIATE_TEST_SUITE_P(RefreshPeriods, ProgressConformance,
                         ::testing::Values(refresh_periods{"Reference", 100ms, 200ms, 500ms},
                                           refresh_periods{"Tenth", 100ms, 100ms, 100ms},
                                           refresh_periods{"Fifth", 200ms, 200ms, 200ms},
                                           refresh_periods{"Half", 500ms, 500ms, 500ms}),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
