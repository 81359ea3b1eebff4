#include "runtime/metrics/metric_families.hpp"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::Not;

/// Peers of one process, with one registry.
struct MetricFamilies : testing::Test {
  [[nodiscard]] std::unique_ptr<metric_families> peer(const std::string& name,
                                                      const std::string& run = "run-1") const {
    return std::make_unique<metric_families>(registry, run, name);
  }
  /// All series in the registry of the metrics with this name.
  [[nodiscard]] std::vector<prometheus::ClientMetric> series(const std::string& name) const {
    for (auto& family : registry->Collect())
      if (family.name == name)
        return family.metric;
    return {};
  }
  [[nodiscard]] std::size_t all_series() const {
    std::size_t sum = 0;
    for (const auto& family : registry->Collect())
      sum += family.metric.size();
    return sum;
  }

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
};

TEST_F(MetricFamilies, OfSeveralRunsShareARegistry) {
  auto ann = peer("ann", "run-1");
  auto bob = peer("bob", "run-2");
  ann->count_peer_join();
  EXPECT_THAT(ann->text(), HasSubstr("waggle_peer_joins_total{peer=\"ann\",run=\"run-1\"} 1\n"));
  EXPECT_THAT(bob->text(), HasSubstr("waggle_peer_joins_total{peer=\"bob\",run=\"run-2\"} 0\n"));
}

TEST_F(MetricFamilies, OfPeersOfOneRunCountApart) {
  auto ann = peer("ann");
  auto bob = peer("bob");
  ann->set_drift(4);
  bob->set_drift(2);
  ann->set_drift(6);
  EXPECT_THAT(ann->text(), HasSubstr("waggle_training_drift{peer=\"ann\",run=\"run-1\"} 6\n"));
  EXPECT_THAT(bob->text(), HasSubstr("waggle_training_drift{peer=\"bob\",run=\"run-1\"} 2\n"));
}

TEST_F(MetricFamilies, OfAPeerThatLeavesGoWithIt) {
  auto ann = peer("ann");
  auto alone = all_series();
  auto bob = peer("bob");
  bob->count_dial_error(ec::overloaded); // a series that did not exist at the start
  EXPECT_GT(all_series(), 2 * alone);
  bob->withdraw();
  EXPECT_EQ(all_series(), alone);
  bob->count_dial_error(ec::overloaded);
  bob->set_loss_scale(2);
  EXPECT_EQ(all_series(), alone) << "it has left";
  ann->count_peer_join();
  EXPECT_EQ(series("waggle_peer_joins_total").at(0).counter.value, 1);
  ann.reset();
  EXPECT_EQ(all_series(), 0U);
}

TEST_F(MetricFamilies, AreRemovedWhileOtherThreadsCount) {
  auto ann = peer("ann");
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> counted{0};
  std::thread counts{[&] {
    for (; !stop; ++counted) {
      ann->count_refused_input(ec::malformed);
      ann->observe_rtt(0.1);
      ann->count_dial_error(ec::overloaded); // at first, makes a series
    }
  }};
  while (counted < 1000)
    std::this_thread::yield();
  ann->withdraw();
  auto before = counted.load();
  while (counted < before + 1000)
    std::this_thread::yield();
  stop = true;
  counts.join();
  EXPECT_EQ(all_series(), 0U);
}

/// A peer whose page had the series of others would make them count twice.
TEST_F(MetricFamilies, OnAPeersPageAreItsOwnAndThoseOfTheApplication) {
  auto ann = peer("ann");
  auto bob = peer("bob");
  auto other_run = peer("ann", "run-2");
  prometheus::BuildGauge().Name("shop_orders").Register(*registry).Add({{"peer", "x"}}).Set(3);
  auto page = ann->text();
  EXPECT_THAT(page, HasSubstr("peer=\"ann\""));
  EXPECT_THAT(page, Not(HasSubstr("peer=\"bob\"")));
  EXPECT_THAT(page, Not(HasSubstr("run-2")));
  EXPECT_THAT(page, HasSubstr("shop_orders{peer=\"x\"} 3\n"));
}

TEST_F(MetricFamilies, OfTwoPeersWithOneNameAreRefused) {
  auto ann = peer("ann");
  EXPECT_THROW(peer("ann"), std::runtime_error);
  ann->count_peer_join();
  EXPECT_EQ(series("waggle_peer_joins_total").at(0).counter.value, 1) << "the first is unharmed";
  ann->withdraw();
  EXPECT_NO_THROW(peer("ann"));
}

TEST_F(MetricFamilies, OfAnErrorThatIsNotExpectedAreOther) {
  auto ann = peer("ann");
  ann->count_dial_error(ec::wrong_sum);
  ann->count_dial_error(ec::group_full);
  ann->count_dial_error(ec::overloaded);
  ann->count_http_request("/metrics", 599, 0.1);
  auto page = ann->text();
  EXPECT_THAT(page,
              HasSubstr("dial_errors_total{peer=\"ann\",reason=\"other\",run=\"run-1\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("reason=\"overloaded\",run=\"run-1\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("{code=\"other\",peer=\"ann\",route=\"/metrics\",run=\"run-1\"} 1\n"));
}

/// All use the same places of a table.
TEST_F(MetricFamilies, WithSeveralLabelsCountEachCombinationApart) {
  auto ann = peer("ann");
  ann->count_network_bytes(false, false, 1);
  ann->count_network_bytes(false, true, 2);
  ann->count_shared_bytes(false, 4);
  ann->count_network_bytes(true, false, 8);
  ann->count_network_bytes(true, true, 16);
  ann->count_shared_bytes(true, 32);
  auto page = ann->text();
  int value = 1;
  for (const std::string direction : {"in", "out"})
    for (const std::string plane : {"control", "data", "shared"}) {
      EXPECT_THAT(page,
                  HasSubstr("bytes_total{direction=\"" + direction + "\",peer=\"ann\",plane=\""
                            + plane + "\",run=\"run-1\"} " + std::to_string(value) + "\n"));
      value *= 2;
    }
}

/// The time until something failed is not how long it takes.
TEST_F(MetricFamilies, ObserveTheTimesOfWhatSucceeded) {
  auto ann = peer("ann");
  auto observed = [&](const std::string& name) {
    std::uint64_t sum = 0;
    for (const auto& one : series(name))
      sum += one.histogram.sample_count;
    return sum;
  };
  ann->count_matchmaking(ec::too_few, 0, 0);
  ann->count_round("params", "failed", 0, 0, 0);
  ann->count_state_not_loaded("failed");
  ann->count_checkpoint_failed();
  for (const std::string metric :
       {"waggle_matchmaking_duration_seconds", "waggle_averaging_round_duration_seconds",
        "waggle_state_download_duration_seconds", "waggle_checkpoint_duration_seconds"})
    EXPECT_EQ(observed(metric), 0U) << metric;
  ann->count_matchmaking(ec::none, 1, 2);
  ann->count_round("params", "shrunk", 1, 2, 0);
  ann->count_state_loaded(true, 1);
  ann->count_checkpoint_saved(1, 1e9);
  for (const std::string metric :
       {"waggle_matchmaking_duration_seconds", "waggle_averaging_round_duration_seconds",
        "waggle_state_download_duration_seconds", "waggle_checkpoint_duration_seconds"})
    EXPECT_EQ(observed(metric), 1U) << metric;
}

/// A rate needs a value before the first one is counted.
TEST_F(MetricFamilies, HaveEachOutcomeOfADownloadAndOfAShownRoundFromTheStart) {
  auto ann = peer("ann");
  ann->show_rounds("params");
  auto page = ann->text();
  for (const std::string outcome : {"complete", "resumed", "failed", "refused", "hash_mismatch"})
    EXPECT_THAT(page, HasSubstr("waggle_state_downloads_total{outcome=\"" + outcome + "\""));
  for (const std::string outcome : {"complete", "shrunk", "failed"})
    EXPECT_THAT(
      page, HasSubstr("waggle_averaging_rounds_total{kind=\"params\",outcome=\"" + outcome + "\""));
  EXPECT_THAT(page, HasSubstr("waggle_averaging_round_duration_seconds_count{kind=\"params\""));
  EXPECT_THAT(page, Not(HasSubstr("kind=\"gradients\""))) << "this peer averages none";
}

} // namespace
} // namespace waggle
