// Peers that average two vectors at the same time, each with its own group, which the prefix tells
// apart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/simulation.hpp"

namespace waggle::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr std::size_t peers = 4;

node_config::averaging_parts averaging_of(const std::string& prefix) {
  node_config::averaging_parts parts;
  parts.matchmaking.prefix = prefix;
  parts.matchmaking.min_matchmaking_time = 1500ms;
  parts.matchmaking.request_timeout = 1s;
  return parts;
}

/// The outcome of a step of each peer; filled while the simulation runs.
struct steps {
  std::vector<std::optional<round_report>> ended;

  [[nodiscard]] bool all() const {
    return std::all_of(ended.begin(), ended.end(), [](const auto& r) { return r.has_value(); });
  }
};

/// Why the peer is refused before it starts.
std::string refusal(simulation& sim, const node_config& config) {
  auto started = start_node(sim.system(), config, node_dependencies{});
  EXPECT_FALSE(started);
  if (started)
    return {};
  EXPECT_EQ(started.error().code, ec::bad_config);
  return started.error().detail;
}

TEST(TwoAveragers, OfOnePeerAverageAtTheSameTimeWithGroupsOfTheirOwn) {
  auto found = std::make_shared<steps>();
  found->ended.resize(2 * peers);
  simulation sim{7};
  for (std::size_t i = 0; i < peers; ++i) {
    node_config config{.run_id = "sim",
                       .averaging = averaging_of("gradients"),
                       .further_averaging = {averaging_of("states")}};
    sim.start(config, i == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{0});
  }
  sim.run_for(2s);
  auto average = [&](const averager_actor& averager, std::size_t elements, float value,
                     std::size_t slot) {
    average_vector question{.values = std::make_shared<const float_vector>(elements, value),
                            .deadline = 30s,
                            .expected_peers = peers};
    sim.later<round_report>(averager, question,
                            [found, slot](const round_report& r) { found->ended[slot] = r; });
  };
  for (std::size_t i = 0; i < peers; ++i) {
    const auto& parts = sim[i].node.parts;
    average(parts.averager, 1'000, static_cast<float>(i), i);
    average(parts.further.at(0).averager, 70, static_cast<float>(10 * i), peers + i);
  }
  ASSERT_TRUE(sim.run_until([&] { return found->all(); }, 40s));
  for (std::size_t slot = 0; slot < 2 * peers; ++slot) {
    const auto& report = *found->ended[slot];
    bool first = slot < peers;
    EXPECT_EQ(report.outcome, round_outcome::complete) << slot;
    EXPECT_EQ(report.contributors.size(), peers) << slot;
    EXPECT_EQ(report.round, found->ended[first ? 0 : peers]->round);
    ASSERT_TRUE(report.values);
    ASSERT_EQ(report.values->size(), first ? 1'000U : 70U);
    EXPECT_THAT(*report.values, Each(FloatEq(first ? 1.5F : 15.0F)));
  }
  EXPECT_NE(found->ended[0]->round, found->ended[peers]->round);
}

TEST(TwoAveragers, OfOnePeerNeedPrefixesOfTheirOwn) {
  simulation sim{7};
  node_config plain{.run_id = "sim"};
  auto other = sim.start(plain, {});
  node_config config{.averaging = averaging_of("gradients"),
                     .further_averaging = {averaging_of("gradients")}};
  EXPECT_THAT(refusal(sim, config), HasSubstr("'gradients'"));
  EXPECT_TRUE(sim[other].alive);
}

TEST(TwoAveragers, AreNotStartedWithAConfigurationThatOneOfThemCannotUse) {
  simulation sim{7};
  node_config good{.averaging = averaging_of("gradients"),
                   .further_averaging = {averaging_of("states")}};
  auto config = good;
  config.averaging->averaging.round.stall_timeout = 0ms;
  EXPECT_THAT(refusal(sim, config), HasSubstr("stall_timeout"));
  config = good;
  config.further_averaging[0].matchmaking.min_matchmaking_time = -1ms;
  EXPECT_THAT(refusal(sim, config), HasSubstr("min_matchmaking_time"));
  config = good;
  config.further_averaging[0].averaging.auxiliary = true;
  EXPECT_THAT(refusal(sim, config), HasSubstr("auxiliary"));
  config = good;
  config.averaging.reset();
  EXPECT_THAT(refusal(sim, config), HasSubstr("a first one"));
}

} // namespace
} // namespace waggle::testing
