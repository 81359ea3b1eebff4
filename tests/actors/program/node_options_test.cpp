// Every option of a peer arrives where it has its effect.

#include "actors/program/node_options.hpp"

#include <gtest/gtest.h>

#include "tests/support/options_with.hpp"

namespace waggle {
namespace {

using testing::options_with;

TEST(NodeOptions, OfThePeerArrive) {
  auto c = node_config_from(options_with({{"run-id", "birds"},
                                          {"listen", "10.0.0.1:7701"},
                                          {"announce", "192.0.2.7:7702"},
                                          {"initial-peers", "192.0.2.1:1,192.0.2.2:2"},
                                          {"seed", "77"},
                                          {"shutdown-timeout", "42s"}}),
                            "some/folder");
  EXPECT_EQ(c.run_id, "birds");
  EXPECT_EQ(c.listen, (std::vector<endpoint>{{"10.0.0.1", 7701}}));
  EXPECT_EQ(c.announce, (std::vector<endpoint>{{"192.0.2.7", 7702}}));
  EXPECT_EQ(c.initial_peers, (std::vector<endpoint>{{"192.0.2.1", 1}, {"192.0.2.2", 2}}));
  EXPECT_EQ(c.addresses.file, "some/folder/known_peers");
  EXPECT_EQ(c.seed, 77U);
  EXPECT_EQ(c.stop_training_timeout, 42s);
  EXPECT_FALSE(c.client_mode);
}

TEST(NodeOptions, AClientAnswersItsOwnHostOnly) {
  auto c = node_config_from(options_with({{"client-mode", "true"}}), ".");
  EXPECT_TRUE(c.client_mode);
  EXPECT_EQ(c.listen, (std::vector<endpoint>{{"127.0.0.1", 0}}));
  c = node_config_from(options_with({{"client-mode", "true"}, {"listen", "0.0.0.0:7705"}}), ".");
  EXPECT_EQ(c.listen, (std::vector<endpoint>{{"127.0.0.1", 7705}}));
}

TEST(NodeOptions, AddressesOfLoopbackAreDialledIfThePeerIsThere) {
  endpoint neighbour{"127.0.0.1", 9};
  auto there = node_config_from(options_with({{"listen", "127.0.0.1:7700"}}), ".");
  auto guest = node_config_from(options_with({{"initial-peers", "127.0.0.1:1"}}), ".");
  auto announced = node_config_from(options_with({{"announce", "127.0.0.1:7700"}}), ".");
  auto elsewhere = node_config_from(options_with({{"listen", "10.0.0.1:7700"}}), ".");
  auto dials = [&](const node_config& c) {
    return c.switchboard.announced_addresses->permits(neighbour);
  };
  EXPECT_TRUE(dials(there));
  EXPECT_TRUE(dials(guest));
  EXPECT_TRUE(dials(announced));
  EXPECT_FALSE(dials(elsewhere));
}

TEST(NodeOptions, OfTheTrackerArrive) {
  auto c = node_config_from(options_with({{"target-batch-size", "1234"},
                                          {"expected-drift-peers", "7"},
                                          {"expected-drift-rate", "0.75"},
                                          {"min-refresh-period", "11ms"},
                                          {"max-refresh-period", "22s"},
                                          {"default-refresh-period", "33s"},
                                          {"report-expiration", "44s"},
                                          {"performance-ema-alpha", "0.55"}}),
                            ".");
  const auto& ledger = c.progress.ledger;
  EXPECT_EQ(ledger.target_batch_size, 1234U);
  EXPECT_EQ(ledger.expected_drift_peers, 7);
  EXPECT_EQ(ledger.expected_drift_rate, 0.75);
  EXPECT_EQ(ledger.refresh_min, 11ms);
  EXPECT_EQ(ledger.refresh_max, 22s);
  EXPECT_EQ(ledger.refresh_default, 33s);
  EXPECT_EQ(c.progress.report_ttl, 44s);
  EXPECT_EQ(c.progress.performance_ema_alpha, 0.55);
}

TEST(NodeOptions, OfTheAveragerArrive) {
  auto schema = *digest::from_raw(std::string(32, '9'));
  auto c = averaging_from(options_with({{"codec", "float16"},
                                        {"aggregator", "trimmed_mean"},
                                        {"faulty-max", "2"},
                                        {"check-sums", "0.25"},
                                        {"bandwidth", "5000"},
                                        {"min-vector-size", "66"},
                                        {"group-bits", "0110"},
                                        {"part-size", "8192"},
                                        {"min-contributors", "3"},
                                        {"min-group-size", "4"},
                                        {"target-group-size", "9"},
                                        {"matchmaking-time", "8s"},
                                        {"averaging-timeout", "70s"},
                                        {"allreduce-timeout", "20s"},
                                        {"request-timeout", "900ms"},
                                        {"stall-timeout", "6s"},
                                        {"error-feedback", "true"},
                                        {"reduce-threads", "5"}}),
                          "name", "gradients", schema);
  const auto& m = c.matchmaking;
  EXPECT_EQ(m.prefix, "name");
  EXPECT_EQ(m.schema, schema);
  EXPECT_EQ(m.mode, member_mode::node);
  EXPECT_EQ(m.reduce_by.how, aggregator::trimmed_mean);
  EXPECT_EQ(m.reduce_by.faulty_max, 2U);
  EXPECT_EQ(m.reduce_by.check_share, 0.25);
  EXPECT_EQ(m.bandwidth, 5000);
  EXPECT_EQ(m.min_vector_size, 66U);
  EXPECT_FALSE(m.elastic_bits);
  EXPECT_EQ(m.initial_group_bits, "0110");
  EXPECT_EQ(m.parts, (part_size{2048, false}));
  EXPECT_EQ(m.min_contributors, 3U);
  EXPECT_EQ(m.min_group_size, 4U);
  EXPECT_EQ(m.target_group_size, 9U);
  EXPECT_EQ(m.min_matchmaking_time, 8s);
  EXPECT_EQ(m.request_timeout, 900ms);
  const auto& a = c.averaging;
  EXPECT_EQ(a.kind, "gradients");
  EXPECT_EQ(to_string(a.codec), "float16");
  EXPECT_FALSE(a.measures_bandwidth);
  EXPECT_EQ(a.error_feedback, 1);
  EXPECT_FALSE(a.auxiliary);
  EXPECT_EQ(a.part_workers, 5U);
  EXPECT_EQ(a.round.stall_timeout, 6s);
  EXPECT_EQ(a.round.deadline, 20s);
}

TEST(NodeOptions, OfTheAveragerHaveDefaultsThatDependOnEachOther) {
  auto plain = averaging_from({}, "p", "vector", {});
  EXPECT_EQ(plain.averaging.round.deadline, run_options{}.averaging_timeout);
  EXPECT_TRUE(plain.averaging.measures_bandwidth);
  EXPECT_FALSE(plain.matchmaking.bandwidth.has_value());
  EXPECT_EQ(plain.matchmaking.parts, part_size{});
  EXPECT_EQ(plain.matchmaking.reduce_by.check_share, 0)
    << "without --faulty-max nothing is checked";
  auto grown = averaging_from(options_with({{"group-bits", "auto"}}), "p", "vector", {});
  EXPECT_TRUE(grown.matchmaking.elastic_bits);
  EXPECT_EQ(grown.matchmaking.initial_group_bits, "");
}

TEST(NodeOptions, OfRolesArrive) {
  auto client = averaging_from(options_with({{"client-mode", "true"}}), "p", "vector", {});
  EXPECT_EQ(client.matchmaking.mode, member_mode::client);
  EXPECT_FALSE(client.averaging.auxiliary);
  auto auxiliary = averaging_from(options_with({{"auxiliary", "true"}}), "p", "vector", {});
  EXPECT_EQ(auxiliary.matchmaking.mode, member_mode::auxiliary);
  EXPECT_TRUE(auxiliary.averaging.auxiliary);
  auto helper =
    helping_from(options_with({{"reduce-elements-max", "1000"}, {"averaging-timeout", "71s"}}));
  EXPECT_EQ(helper.averaging.matchmaking.mode, member_mode::auxiliary);
  EXPECT_TRUE(helper.averaging.averaging.auxiliary);
  EXPECT_EQ(helper.averaging.averaging.elements_max, 1000U);
  EXPECT_EQ(helper.help.round_timeout, 71s);
}

TEST(NodeOptions, APeerMayTakeAsLongToStopAsItsLastCheckpoint) {
  EXPECT_EQ(shutdown_limit(node_config_from({}, ".")), 5s);
  EXPECT_GT(shutdown_limit(node_config_from(options_with({{"shutdown-timeout", "2m"}}), ".")),
            2min);
}

} // namespace
} // namespace waggle
