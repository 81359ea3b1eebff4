#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/averaging/fault_memory.hpp"
#include "runtime/averaging/guards.hpp"
#include "runtime/metrics/metric_families.hpp"
#include "runtime/status/facts.hpp"
#include "runtime/status/symptoms.hpp"
#include "runtime/training/run_health.hpp"
#include "runtime/training/time_account.hpp"

namespace waggle {
namespace {

using names = std::set<std::string>;

namespace fs = std::filesystem;

const fs::path root{WAGGLE_SOURCE_DIR};

std::string text_of(const fs::path& file) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

std::string content(const std::string& file) {
  return text_of(root / "dashboards" / file);
}

/// The text of all code in a folder, without that in the folder `except`.
std::string code_under(const fs::path& folder, const fs::path& except = {}) {
  std::string all;
  for (fs::recursive_directory_iterator entry{folder}, end; entry != end; ++entry)
    if (entry->path() == except)
      entry.disable_recursion_pending();
    else if (entry->path().extension() == ".cpp" || entry->path().extension() == ".hpp")
      all += text_of(entry->path());
  return all;
}

names matches(const std::string& text, const std::string& pattern) {
  names found;
  std::regex expression{pattern};
  for (std::sregex_iterator i{text.begin(), text.end(), expression}, end; i != end; ++i)
    found.insert((*i)[1].str());
  return found;
}

/// The metrics that appear in a text of queries, with the suffixes of histograms removed.
names named_in(const std::string& text) {
  names found;
  for (auto name : matches(text, "\\b((?:waggle|process)_[a-z_]*[a-z])\\b")) {
    for (const auto* suffix : {"_bucket", "_sum", "_count"})
      if (name.ends_with(suffix))
        name.resize(name.size() - std::string_view{suffix}.size());
    found.insert(name);
  }
  return found;
}

/// Counts all that a peer can count, with each value that its labels can have.
void count_everything(metric_families& all) {
  for (std::size_t i = 0; i <= ec_max; ++i) {
    auto code = static_cast<ec>(i);
    all.count_dht_rejected(code);
    all.count_matchmaking(code, 1, 2);
    all.count_join_refused(code);
    all.count_peer_fault(code);
    all.count_shared_memory(code);
    all.count_dial_error(code);
    all.count_refused_input(code);
    all.count_peer_departure(code);
    for (auto op : {"ping", "find", "store"})
      all.count_dht_request(std::string_view{op}, code);
    for (bool outbound : {false, true})
      all.connection_closed(outbound, code);
  }
  for (auto op : {"ping", "find", "store"}) {
    all.count_dht_request_answered(std::string_view{op});
    all.observe_dht_request(std::string_view{op}, 1);
  }
  for (auto op : {"get", "put"})
    all.observe_dht_lookup(std::string_view{op}, 1, 1);
  for (std::string_view kind : {"gradients", "params", "progress", "vector"}) {
    all.show_rounds(kind);
    all.count_round(kind, "shrunk", 1, 1, 1);
    all.set_excluded_peers(kind, 1);
  }
  for (auto fault : {fault_kind::silent, fault_kind::wrong, fault_kind::left, fault_kind::slow})
    all.count_exclusion(to_string(fault));
  for (bool each : {false, true}) {
    all.count_check(each);
    all.connection_opened(each);
    all.count_shared_bytes(each, 1);
    all.count_network_bytes(each, each, 1);
    all.count_network_bytes(each, !each, 1);
    all.count_state_loaded(each, 1);
  }
  for (auto outcome : {"failed", "refused", "hash_mismatch"})
    all.count_state_not_loaded(std::string_view{outcome});
  for (auto found : {"equal", "differing", "minority"})
    all.count_state_hash_check(std::string_view{found});
  for (auto outcome : {"used", "dropped"})
    all.count_samples(std::string_view{outcome}, 1);
  for (auto why : {"left_out", "history_lost", "not_finite", "behind", "stopped"})
    all.count_discarded(std::string_view{why}, 1);
  for (auto phase : {"forward_backward", "optimizer", "state_copy"})
    all.observe_step(std::string_view{phase}, 1);
  for (auto where : {"loss", "gradient", "parameters"})
    all.count_nonfinite(std::string_view{where});
  for (auto what : activities)
    all.count_training_time(what, 1);
  for (auto rule : run_health::rules)
    all.set_run_health(rule, true);
  for (auto actor : {"metrics-exporter", "state-donor"})
    all.count_actor_restart(std::string_view{actor});
  for (auto route : {"/metrics", "/healthz?x", "/readyz", "/api/v1/peers", "/sd", "/", "/made-up"})
    for (int code = 100; code < 600; ++code)
      all.count_http_request(route, code, 1);
  all.count_checkpoint_failed();
  all.count_checkpoint_saved(1, 1e9);
  all.count_link_hold();
  all.count_local_fallback();
  all.count_loss_scale_overflow();
  all.count_part();
  all.count_peer_join();
  all.count_round_phase("search", 1);
  all.count_round_phase("contributions", 1);
  all.count_round_phase("results", 1);
  all.count_round_phase("agreement", 1);
  all.count_state_bytes("in", 1);
  all.count_state_bytes("out", 1);
  all.observe_rtt(1);
  all.set_batch_progress(1);
  all.set_config_info("1", "2", "collaborative");
  all.set_connections(1, 1);
  all.set_dht(1, 1, 1);
  all.set_disbelieved_peers(1);
  all.set_drift(1);
  all.set_eval_duration(1);
  all.set_loss_scale(1);
  all.set_peer_state("training");
  all.set_peers(1, 1, 1);
  all.set_sent_values_ratio(1);
  all.set_share_ratio(1);
  all.set_state_download_progress(1);
  all.set_gradient_norm(2);
  all.set_unreachable(true);
  all.set_updates_waiting(1);
}

/// A trainer of which everything is known.
void show_all_facts(fact_gauges& gauges) {
  peer_picture picture;
  auto& t = picture.training.emplace();
  t.steps = 1;
  t.loss = t.first_loss = t.eval_loss = t.eval_accuracy = t.learning_rate = t.first_round_seconds =
    1;
  t.rate_reductions = t.effective_batch = 1;
  t.mean_age = 1;
  t.strategy = strategy_phase{.name = "cycling", .loss = 1, .best_loss = 1};
  peer_facts own{.bandwidth = 1};
  own.machine.memory = own.machine.disk = 1;
  gauges.show({picture, own});
}

metric_families& families() {
  static metric_families all{std::make_shared<prometheus::Registry>(), "test", "ann"};
  static fact_gauges gauges{all};
  static bool counted = (count_everything(all), show_all_facts(gauges), true);
  static_cast<void>(counted);
  return all;
}

/// The code that declares metrics.
std::string declarations() {
  return code_under(root / "runtime" / "metrics")
         + text_of(root / "runtime" / "status" / "facts.cpp");
}

/// All that count: functions, and metrics that are called themselves.
names methods() {
  auto code = code_under(root / "runtime" / "metrics");
  auto found = matches(code, "\\bvoid ((?:count|set|observe|connection)_\\w+)\\(");
  found.merge(matches(code, "\\b((?:count|set|observe)_\\w+)\\{"));
  EXPECT_GT(found.size(), 40U);
  return found;
}

/// Of a /metrics page.
int series_of(const metric_families& all) {
  std::istringstream text{all.text()};
  int series = 0;
  for (std::string line; std::getline(text, line);)
    series += !line.empty() && line.front() != '#' ? 1 : 0;
  return series;
}

names exported() {
  names all;
  for (const auto& family : families().registry()->Collect())
    all.insert(family.name);
  for (const auto& name : matches(families().text(), "# TYPE (process_[a-z_]+) "))
    all.insert(name);
  return all;
}

std::vector<nlohmann::json> panels() {
  std::vector<nlohmann::json> found;
  for (const auto* file : {"swarm.json", "peer.json"}) {
    auto board = nlohmann::json::parse(content(file));
    for (const auto& panel : board["panels"])
      if (panel["type"] != "row")
        found.push_back(panel);
  }
  return found;
}

std::string panel_queries() {
  std::string queries;
  for (const auto& panel : panels())
    for (const auto& target : panel["targets"])
      queries += target["expr"].get<std::string>() + "\n";
  return queries;
}

TEST(Dashboards, NameOnlyMetricsThatArePartOfEveryPeer) {
  auto named = named_in(panel_queries());
  ASSERT_GT(named.size(), 30U);
  for (const auto& name : named)
    EXPECT_THAT(exported(), testing::Contains(name)) << "in a panel";
}

TEST(Dashboards, EveryMetricIsInAPanelOrAnAlert) {
  auto declared = matches(declarations(), "\"(waggle_[a-z_]*[a-z])\"");
  ASSERT_GT(declared.size(), 60U);
  auto read = named_in(panel_queries() + content("alerts.yml"));
  for (const auto& name : declared)
    EXPECT_THAT(read, testing::Contains(name)) << "nobody reads it: show it, or delete it";
}

TEST(Dashboards, AlertsNameOnlyMetricsThatArePartOfEveryPeer) {
  auto named = named_in(content("alerts.yml"));
  ASSERT_GT(named.size(), 10U);
  for (const auto& name : named)
    EXPECT_THAT(exported(), testing::Contains(name)) << "in dashboards/alerts.yml";
}

TEST(Dashboards, EveryPanelHasATitleAUnitAndAQuestion) {
  for (const auto& panel : panels()) {
    auto title = panel["title"].get<std::string>();
    EXPECT_NE(title, "New panel");
    EXPECT_FALSE(panel["fieldConfig"]["defaults"].value("unit", "").empty()) << title;
    EXPECT_NE(panel.value("description", "").find('?'), std::string::npos) << title;
    for (const auto& target : panel["targets"])
      EXPECT_TRUE(target["expr"].get<std::string>().find("$instance") != std::string::npos
                  || title == "Alerts firing")
        << title;
  }
}

/// Grafana finds a panel by its number, in links and when one is shown alone.
TEST(Dashboards, NoTwoPanelsHaveOneNumber) {
  for (const auto* file : {"swarm.json", "peer.json"}) {
    auto board = nlohmann::json::parse(content(file));
    std::set<int> numbers;
    for (const auto& panel : board["panels"])
      EXPECT_TRUE(numbers.insert(panel["id"].get<int>()).second) << file << ": " << panel["title"];
    EXPECT_GT(numbers.size(), 10U) << file;
  }
}

/// From the run to a peer of it, and back; a link to a board or a variable that is gone opens an
/// empty one.
TEST(Dashboards, LinkToEachOtherWithVariablesThatTheOtherHas) {
  std::map<std::string, names> variables; // of each board
  for (const auto* file : {"swarm.json", "peer.json"}) {
    auto board = nlohmann::json::parse(content(file));
    for (const auto& variable : board["templating"]["list"])
      variables[board["uid"]].insert(variable["name"].get<std::string>());
  }
  names reached;
  for (const auto* file : {"swarm.json", "peer.json"})
    for (const auto& link : matches(content(file), "\"(/d/[^\"]+)\"")) {
      auto board = *matches(link, "^/d/([a-z-]+)").begin();
      reached.insert(board);
      for (const auto& name : matches(link, "var-([a-z]+)="))
        EXPECT_THAT(variables[board], testing::Contains(name)) << link;
    }
  EXPECT_EQ(reached, (names{"waggle-peer", "waggle-swarm"}));
  auto swarm = nlohmann::json::parse(content("swarm.json"));
  for (const auto& panel : swarm["panels"])
    if (panel["type"] == "timeseries"
        && panel.dump().find("\"{{instance}}\"") != std::string::npos) {
      EXPECT_THAT(panel.dump(), testing::HasSubstr("var-instance=${__field.labels.instance}"))
        << panel["title"] << " has a line per peer: each leads to its board";
    }
}

/// The runbook writes names of panels in italics.
TEST(Dashboards, TheRunbookNamesPanelsThatExist) {
  auto readme = content("README.md");
  std::replace(readme.begin(), readme.end(), '\n', ' ');
  auto named = matches(readme.substr(readme.find("## Runbook")), "\\*([A-Z][^*]+)\\*");
  ASSERT_GT(named.size(), 5U);
  names titles;
  for (const auto& panel : panels())
    titles.insert(panel["title"].get<std::string>());
  for (const auto& name : named)
    EXPECT_THAT(titles, testing::Contains(name));
}

/// What to do is said in one way by the program and by the runbook.
TEST(Dashboards, TheRunbookHasTheCureOfEverySymptomOfItsAlert) {
  auto readme = content("README.md");
  std::erase(readme, '`');
  std::replace(readme.begin(), readme.end(), '\n', ' ');
  auto alerts = matches(content("alerts.yml"), "- alert: ([A-Za-z]+)");
  std::size_t found = 0;
  for (const auto& each : symptoms()) {
    if (each.alert.empty())
      continue;
    std::string alert{each.alert};
    EXPECT_THAT(alerts, testing::Contains(alert)) << each.matter;
    auto begin = readme.find("### " + alert + " ");
    ASSERT_NE(begin, std::string::npos) << alert;
    auto paragraph = readme.substr(begin, readme.find("##", begin + 4) - begin);
    EXPECT_THAT(paragraph, testing::HasSubstr(std::string{each.cure.substr(1)})) << each.matter;
    ++found;
  }
  EXPECT_GT(found, 15U);
}

TEST(Dashboards, EveryAlertHasARunbookParagraph) {
  auto readme = content("README.md");
  auto alerts = matches(content("alerts.yml"), "- alert: ([A-Za-z]+)");
  ASSERT_FALSE(alerts.empty());
  for (const auto& alert : alerts)
    EXPECT_NE(readme.find("\n### " + alert + "\n"), std::string::npos) << alert;
}

/// The sum over all values that labels can have, also those that only odd requests, refused peers
/// and broken links bring. Most of them appear when they are counted first.
TEST(Metrics, OfAPeerAreAsManySeriesAsTheReadmeSaysAtMost) {
  auto said = matches(content("README.md"), "at most (\\d+)\\s+series");
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(series_of(families()), std::stoi(*said.begin()));
  metric_families fresh{std::make_shared<prometheus::Registry>(), "test", "ann"};
  fresh.show_rounds("gradients");
  EXPECT_LE(series_of(fresh), 400);
  auto here = text_of(root / "tests" / "dashboards" / "names_test.cpp");
  for (const auto& method : methods())
    EXPECT_NE(here.find("all." + method + "("), std::string::npos) << method << " is not counted";
}

TEST(Metrics, AreAllSetSomewhere) {
  auto metrics = root / "runtime" / "metrics";
  auto code = code_under(root / "runtime", metrics) + code_under(root / "actors")
              + code_under(root / "trainer");
  auto called = matches(code, "\\bmetrics_?(?:->|\\.)(\\w+)\\(");
  for (const auto& method : methods())
    EXPECT_THAT(called, testing::Contains(method)) << "delete it, or call it";
}

/// A counter that does not exist before it counts has no increase when it appears, so an alert on
/// its increase would miss the first time.
void expect_from_the_start(const std::string& metric, const names& reasons) {
  metric_families fresh{std::make_shared<prometheus::Registry>(), "test", "ann"};
  auto counted = matches(fresh.text(), metric + "\\{[^}]*reason=\"(\\w+)\"");
  for (const auto& reason : reasons)
    EXPECT_THAT(counted, testing::Contains(reason)) << metric << " lacks it at the start";
}

/// In the rule of an alert.
names reasons_of(const std::string& alert, const std::string& metric) {
  auto rule = content("alerts.yml");
  rule = rule.substr(rule.find("- alert: " + alert));
  rule = rule.substr(0, rule.find("labels:"));
  auto listed = matches(rule, metric + "\\{reason=~\"([a-z_|]+)\"");
  return listed.size() == 1 ? matches(*listed.begin(), "([a-z_]+)") : names{};
}

TEST(Dashboards, TheAlertOnInvalidInputListsEveryReasonForWhichValuesAreRefused) {
  for (const std::string metric :
       {"waggle_averaging_peer_faults_total", "waggle_network_refused_total"}) {
    auto reasons = reasons_of("WaggleMaliciousInput", metric);
    for (auto fault : value_faults)
      EXPECT_THAT(reasons, testing::Contains(std::string{to_string(fault)})) << metric;
    expect_from_the_start(metric, reasons);
  }
}

TEST(Dashboards, TheAlertOnRefusedJoinersSeesTheFirstOne) {
  const std::string metric = "waggle_network_refused_total";
  auto reasons = reasons_of("WaggleJoinsRefused", metric);
  EXPECT_THAT(reasons,
              testing::UnorderedElementsAre("wrong_run", "agreement_mismatch", "not_a_member"));
  expect_from_the_start(metric, reasons);
}

/// Words from the headers of the metrics that are series from the start; error codes are not among
/// them, because they are counted where they arise.
TEST(Metrics, OnlyHaveSeriesThatSomethingCounts) {
  auto metrics = root / "runtime" / "metrics";
  auto headers = code_under(metrics);
  names values;
  for (const auto& list : matches(headers, "<\\s*(?:\\d+,\\s*)?\"\\w+\",([^<>]*)>"))
    for (const auto& value : matches(list, "\"([a-z_]+)\""))
      values.insert(value);
  ASSERT_GT(values.size(), 30U);
  auto code = code_under(root / "runtime", metrics) + code_under(root / "actors")
              + code_under(root / "trainer");
  for (const auto& value : values) {
    auto quoted = '"' + value + '"';
    // A method of the metric may pass it itself.
    bool counted =
      code.find(quoted) != std::string::npos || headers.find(quoted) != headers.rfind(quoted);
    EXPECT_TRUE(counted) << value << ": delete it, or count it";
  }
}

TEST(Metrics, HaveASeriesForEachHealthRuleFromTheStart) {
  metric_families healthy{std::make_shared<prometheus::Registry>(), "test", "ann"};
  auto text = healthy.text();
  auto readme = content("README.md");
  auto series = matches(text, "waggle_run_health\\{[^}]*rule=\"(\\w+)\"");
  EXPECT_EQ(series, names(run_health::rules.begin(), run_health::rules.end())) << text;
  for (const auto& rule : series)
    EXPECT_NE(readme.find("| `" + rule + "` |"), std::string::npos) << rule;
}

TEST(Metrics, CountRequestsForUnknownPagesUnderOneName) {
  metric_families all{std::make_shared<prometheus::Registry>(), "test", "ann"};
  for (int i = 0; i < 100; ++i)
    all.count_http_request("/made-up-" + std::to_string(i), 404, 0.001);
  auto text = all.text();
  EXPECT_EQ(text.find("made-up"), std::string::npos);
  EXPECT_NE(text.find("route=\"other\""), std::string::npos);
}

TEST(Metrics, HaveExactlyOnePeerState) {
  metric_families all{std::make_shared<prometheus::Registry>(), "test", "ann"};
  all.set_peer_state("averaging");
  double sum = 0;
  for (const auto& family : all.registry()->Collect())
    if (family.name == "waggle_peer_state")
      for (const auto& metric : family.metric)
        sum += metric.gauge.value;
  EXPECT_EQ(sum, 1.0);
}

} // namespace
} // namespace waggle
