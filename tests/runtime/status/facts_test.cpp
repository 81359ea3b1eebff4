#include "runtime/status/facts.hpp"

#include <limits>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/metrics/metric_families.hpp"

namespace waggle {
namespace {

using testing::HasSubstr, testing::Not;

struct shown_facts {
  metric_families metrics{std::make_shared<prometheus::Registry>(), "r", "p"};
  fact_gauges gauges{metrics};
  peer_picture picture;
  peer_facts own;

  std::string text() {
    gauges.show({picture, own});
    return metrics.text();
  }
  static std::string line(const std::string& metric, const std::string& value) {
    return "\n" + metric + "{peer=\"p\",run=\"r\"} " + value + "\n";
  }
};

TEST(Facts, AMetricHasTheValueOfTheStatus) {
  shown_facts it;
  auto& t = it.picture.training.emplace();
  t.epoch = epoch_id{7};
  t.steps = 1;
  t.loss = 2.5;
  t.eval_accuracy = 0.25;
  t.learning_rate = 0.125;
  t.rate_reductions = 3;
  t.mean_age = 2;
  t.strategy =
    strategy_phase{.name = "cycling", .epoch = 5, .epochs = 12, .skips = 4, .wait = 1, .loss = 1.5};
  t.provisional = true;
  auto text = it.text();
  auto status = nlohmann::json::parse(status_document({it.picture, it.own}));
  for (const auto& [path, metric, value] :
       {std::tuple{"epoch", "waggle_training_epoch", "7"},
        {"loss", "waggle_training_loss", "2.5"},
        {"eval_accuracy", "waggle_training_eval_accuracy_ratio", "0.25"},
        {"learning_rate", "waggle_training_learning_rate", "0.125"},
        {"learning_rate_reductions", "waggle_training_learning_rate_reductions", "3"}}) {
    EXPECT_THAT(text, HasSubstr(shown_facts::line(metric, value)));
    EXPECT_EQ(status[path].dump(), value);
  }
  EXPECT_EQ(status["strategy"].dump(),
            R"({"best_loss":null,"epoch":5,"epochs":12,"loss":1.5,"phase":"cycling","skips":4,)"
            R"("wait":1})");
  EXPECT_THAT(text, HasSubstr(shown_facts::line("waggle_training_strategy_skips", "4")));
  EXPECT_THAT(text, HasSubstr(shown_facts::line("waggle_training_mean_age_passes", "2")));
  EXPECT_THAT(text, HasSubstr("phase=\"cycling\",run=\"r\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("phase=\"warm-up\",run=\"r\"} 0\n"));
  EXPECT_EQ(status["provisional"], true);
  EXPECT_THAT(text, HasSubstr(shown_facts::line("waggle_training_provisional", "1")));
  EXPECT_THAT(text, Not(HasSubstr("waggle_training_eval_loss"))) << "not known";
  t.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(it.text(), HasSubstr(shown_facts::line("waggle_training_loss", "2.5")));
}

TEST(Facts, EachLinkSaysWhatItIs) {
  shown_facts it;
  for (auto [who, shared, encrypted, exposed, link] :
       {std::tuple{1, true, false, false, "shared memory"},
        {2, false, true, false, "tls"},
        {3, false, false, false, "tcp"},
        {4, false, false, true, "plain tcp"}}) {
    peer_id peer;
    peer.bytes.fill(static_cast<std::byte>(who));
    swarm_progress::peer known;
    known.who.id = peer;
    it.picture.run.peers = {known};
    it.picture.links = {
      {peer, {.shares_memory = shared, .encrypted = encrypted, .exposed = exposed}}};
    EXPECT_THAT(peers_document(it.picture, {}),
                HasSubstr("\"link\":\"" + std::string{link} + "\""));
    EXPECT_THAT(it.text(), HasSubstr(shown_facts::line("waggle_network_plain_connections",
                                                       exposed ? "1" : "0")));
  }
}

TEST(Facts, ThePeerOfAGroupNamesItsRanksAndWhichOneIsSlow) {
  shown_facts it;
  auto ranks = [&] {
    return nlohmann::json::parse(status_document({it.picture, it.own}))["ranks"];
  };
  EXPECT_TRUE(ranks()["count"].is_null());
  EXPECT_TRUE(ranks()["each"].is_null());
  it.own.ranks = {{"cuda:0", 0.1, 0.5}, {"cuda:1", 0.19, 0.5}};
  EXPECT_EQ(ranks()["count"], 2);
  EXPECT_EQ(ranks()["devices"], "cuda:0, cuda:1");
  EXPECT_TRUE(ranks()["slowest"].is_null()) << "18 %";
  it.own.ranks[1].seconds = 0.3;
  EXPECT_EQ(ranks()["slowest"], 1);
  EXPECT_EQ(ranks()["each"][1].dump(),
            R"({"device":"cuda:1","pass_seconds":0.5,"rank":1,"seconds":0.3})");
  it.own.ranks = {{"cpu", 0.4, 0.5}, {"cpu", 0.1, 0.5}, {"cpu", 0.1, 0.5}};
  EXPECT_EQ(ranks()["slowest"], 0);
  EXPECT_EQ(ranks()["devices"], "cpu");
}

TEST(Facts, APeerWithoutAModelExportsNothingOfTraining) {
  shown_facts it;
  it.own.bandwidth = 8;
  auto text = it.text();
  EXPECT_THAT(text, HasSubstr(shown_facts::line("waggle_bandwidth_bytes_per_second", "8")));
  std::size_t of_training = 0;
  for (const auto& each : facts()) {
    std::string metric = each.metric == nullptr ? "" : each.metric;
    if (!metric.starts_with("waggle_training_"))
      continue;
    ++of_training;
    EXPECT_THAT(text, Not(HasSubstr("\n" + metric + "{"))) << metric;
  }
  EXPECT_GT(of_training, 10U);
}

TEST(Facts, EachHasAPathOfItsOwnAndAMetricSaysWhatItIs) {
  std::set<std::string> paths;
  for (const auto& each : facts()) {
    EXPECT_TRUE(paths.insert(each.path).second) << each.path;
    EXPECT_TRUE(each.metric == nullptr || *each.help != '\0') << each.path;
  }
}

} // namespace
} // namespace waggle
