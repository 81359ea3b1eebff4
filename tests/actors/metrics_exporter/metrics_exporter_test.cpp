#include "actors/watch/metrics_exporter.hpp"

#include <cmath>
#include <limits>
#include <sstream>

#include <caf/scheduler/test_coordinator.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include "runtime/crypto/run_secret.hpp"
#include "runtime/status/status_documents.hpp"

namespace waggle {
namespace {

using json = nlohmann::json;

struct virtual_time : caf::actor_system_config {
  virtual_time() { set("scheduler.policy", caf::atom("testing")); }
};

struct MetricsExporter : testing::Test {
  MetricsExporter() {
    ctx.run_id = "run";
    ctx.self = identity::from_seed(1);
    ctx.record = {ctx.self->id(), ctx.self->key(), {{"127.0.0.1", 7}}, false};
    ctx.wall = std::make_shared<system_wall_clock>();
    ctx.verifier = make_plain_verifier();
    ctx.metrics = std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(),
                                                    "run-1a2b3c4d", "ann");
    ctx.log =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
    ctx.events = std::make_shared<event_ring>("ab");
    board = std::make_shared<status_board>(ctx.metrics, ctx.events);
    exporter = system.spawn<metrics_exporter>(ctx, board, false);
    pass(0ms);
  }
  ~MetricsExporter() override {
    caf::anon_send_exit(exporter, caf::exit_reason::user_shutdown);
    scheduler.run();
  }

  void pass(milliseconds time) {
    scheduler.run();
    scheduler.advance_time(time);
    scheduler.run();
  }
  template <class Event>
  void tell(Event event) {
    caf::anon_send(exporter, std::move(event));
    scheduler.run();
  }
  net::http_response get(const std::string& target, const std::string& method = "GET") const {
    return board->answer({method, target});
  }
  json status() const { return json::parse(get("/api/v1/status").body); }

  [[nodiscard]] peer_id member_of_rounds(std::uint8_t n) const {
    return n == 0 ? ctx.self->id() : identity::from_seed(n)->id();
  }
  /// Reports of so many rounds of four members, one each half second. Member 2 starts late.
  void rounds(int count, milliseconds late, bool contributes = true) {
    for (int i = 0; i < count; ++i) {
      auto marks = std::make_shared<round_marks>();
      marks->members.resize(4);
      for (std::uint8_t n = 0; n < 4; ++n) {
        auto its = n == 2 ? late : 0ms;
        auto& member = marks->members[n];
        member.peer = member_of_rounds(n);
        member.reduces = true;
        member.contributions = {1ms + its, 20ms + its};
        member.results = {26ms + late, 40ms + late};
      }
      round_ended event;
      event.report.outcome = round_outcome::complete;
      event.report.round.bytes[0] = std::byte{9};
      event.report.allreduce_seconds = 0.04 + seconds_of(late);
      for (const auto& member : marks->members)
        if (contributes || member.peer != ctx.record.id)
          event.report.contributors.push_back(member.peer);
      event.report.marks = std::move(marks);
      tell(event);
      pass(500ms);
    }
  }
  /// The first event that names a slow peer; null: none does.
  [[nodiscard]] json slow() const {
    for (const auto& line : ctx.events->after(0, 1_MiB).lines)
      if (auto event = json::parse(*line); event["type"] == "slow")
        return event;
    return nullptr;
  }

  static training_status training() {
    training_status s;
    s.phase = trainer_phase::training;
    s.epoch = epoch_id{4};
    s.loss = 2.5;
    s.first_loss = 4;
    s.eval_loss = 2;
    s.eval_accuracy = 0.5;
    s.eval_epoch = epoch_id{3};
    s.samples_used = 1024;
    s.samples_dropped = 16;
    s.target_batch_size = 256;
    return s;
  }

  node_context ctx;
  std::shared_ptr<status_board> board;
  virtual_time config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& scheduler =
    dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  wired_metrics_exporter_actor exporter;
};

TEST_F(MetricsExporter, ShowsAPeerWithoutAModelAsNode) {
  auto doc = status();
  EXPECT_EQ(doc["phase"], "node");
  EXPECT_EQ(doc["run"], "run");
  EXPECT_EQ(doc["run_tag"], "run-1a2b3c4d") << "as in the metrics";
  EXPECT_EQ(doc["peer"], to_string(ctx.self->id()));
  for (const auto* unknown : {"loss", "epoch", "global_epoch", "steps", "histories", "provisional",
                              "differing_peers", "group_size", "work", "samples_per_second"})
    EXPECT_TRUE(doc[unknown].is_null()) << unknown;
  EXPECT_TRUE(doc["samples"]["used"].is_null());
  EXPECT_EQ(doc["rounds"]["complete"], 0) << "in which it may reduce";
}

TEST_F(MetricsExporter, AHelperAccusesNobody) {
  rounds(40, 300ms, false);
  EXPECT_TRUE(slow().is_null());
  rounds(40, 300ms);
  EXPECT_FALSE(slow().is_null());
}

TEST_F(MetricsExporter, ShowsWhatPeersReportOfTheirTimeMachineAndSettings) {
  swarm_progress run;
  auto& peer = run.peers.emplace_back();
  peer.who.id = member_of_rounds(2);
  peer.vitals.shares.set(0, 0.75);
  peer.vitals.shares.set(peer_shares::first_of_machine, 0.5);
  peer.vitals.settings = "version=0.1.0\nthreads=1\nno value\n";
  auto& helper = run.peers.emplace_back();
  helper.who.id = member_of_rounds(3);
  helper.claim.auxiliary = true;
  tell(run);
  pass(1s);
  auto peers = json::parse(get("/api/v1/peers").body)["peers"];
  EXPECT_EQ(peers[0]["time"], (json{{"pass", 0.75}}));
  EXPECT_EQ(peers[0]["machine"], (json{{"memory", 0.5}}));
  EXPECT_EQ(peers[0]["settings"], (json{{"version", "0.1.0"}, {"threads", "1"}}));
  EXPECT_FALSE(peers[1].contains("time"));
  EXPECT_EQ(peers[0]["epoch"], 0);
  EXPECT_TRUE(peers[1]["epoch"].is_null()) << "it has none";
}

TEST_F(MetricsExporter, ShowsTheMachineWhereItIsKnown) {
  EXPECT_TRUE(status()["machine"]["memory"].is_null());
  caf::anon_send_exit(exporter, caf::exit_reason::user_shutdown);
  ctx.machine = std::make_shared<machine_watch>([] { return machine_use{0.25, {}, 1.5, {}, {}}; });
  exporter = system.spawn<metrics_exporter>(ctx, board, false);
  pass(1s);
  EXPECT_EQ(status()["machine"]["memory"], 0.25);
  EXPECT_EQ(status()["machine"]["load"], 1.5);
  EXPECT_TRUE(status()["machine"]["disk"].is_null());
}

TEST_F(MetricsExporter, TheLineOfARoundHasTheCourseOfTheEpoch) {
  round_ended event;
  event.report.round.bytes[0] = std::byte{9};
  event.spans = "-300.5p280.0r20.5";
  tell(event);
  EXPECT_EQ(json::parse(get("/api/v1/rounds").body)["rounds"][0]["spans"], event.spans);
}

TEST_F(MetricsExporter, ALongListOfPeersIsWrittenLessOften) {
  auto listed = [&] { return json::parse(get("/api/v1/peers").body)["peers"].size(); };
  auto see = [&](std::size_t peers) {
    swarm_progress run;
    for (std::size_t i = 0; i < peers; ++i)
      run.peers.emplace_back().who.id.bytes[0] = std::byte(1 + i % 200);
    tell(std::move(run));
  };
  see(2);
  pass(100ms);
  EXPECT_EQ(listed(), 2U);
  see(1'000);
  pass(100ms);
  EXPECT_EQ(listed(), 1'000U);
  see(3);
  pass(100ms);
  pass(100ms);
  EXPECT_EQ(listed(), 1'000U) << "half a second for a thousand";
  for (int i = 0; i < 4; ++i)
    pass(100ms);
  EXPECT_EQ(listed(), 3U);
}

TEST_F(MetricsExporter, ANodeWithoutInitialPeersIsReadyAtOnce) {
  EXPECT_EQ(get("/readyz").status, 503U) << "no dht_status was received yet";
  dht_status status;
  status.bootstrapped = true;
  tell(status);
  EXPECT_EQ(get("/readyz").status, 200U);
  status.bootstrapped = false;
  status.addresses_known = true; // peers known from an earlier run, none of which answers
  tell(status);
  EXPECT_EQ(get("/readyz").status, 200U);
}

TEST_F(MetricsExporter, ANodeSaysForHowManyClientsItReduces) {
  EXPECT_TRUE(status()["reduces_for_clients"].is_null()) << "it never reduces for clients";
  dht_status joined;
  joined.bootstrapped = true;
  tell(joined);
  tell(helper_status{});
  EXPECT_EQ(get("/readyz").body, "ready\n");
  tell(helper_status{2, 3, epoch_id{7}, {}});
  EXPECT_EQ(get("/readyz").status, 200U);
  EXPECT_EQ(get("/readyz").body, "ready: reduces for 2 clients\n");
  EXPECT_EQ(status()["reduces_for_clients"], 2);
  EXPECT_EQ(status()["group_size"], 3);
}

TEST_F(MetricsExporter, ANodeWhoseInitialPeersDoNotAnswerIsNotReadyAndSaysWhy) {
  dht_status status;
  status.addresses_known = true;
  status.initial_peers = 2;
  status.bootstrap_failures = {"first:7700: unreachable: refused"};
  tell(status);
  EXPECT_EQ(get("/readyz").status, 503U);
  EXPECT_EQ(get("/readyz").body, "not ready: waiting for the first of 2 initial peers to answer\n");
  status.bootstrap_failures.emplace_back("second:7700: timeout: no link within 5000 ms");
  tell(status);
  EXPECT_EQ(get("/readyz").status, 503U);
  EXPECT_EQ(get("/readyz").body,
            "not ready: none of the initial peers answers: first:7700: "
            "unreachable: refused; second:7700: timeout: no link within 5000 ms\n");
  EXPECT_EQ(get("/healthz").status, 200U);
  status.bootstrapped = true;
  tell(status);
  EXPECT_EQ(get("/readyz").status, 200U);
}

TEST_F(MetricsExporter, OneThatWasStartedAgainTellsWhatIsNewAndNothingElse) {
  peer_record stays{identity::from_seed(2)->id(), identity::from_seed(2)->key(), {}, false};
  peer_record leaves{identity::from_seed(3)->id(), identity::from_seed(3)->key(), {}, false};
  tell(peer_connected{stays});
  tell(peer_connected{leaves});
  ctx.metrics->count_refused_input(ec::malformed);
  tell(training());
  pass(2s);
  auto before = ctx.events->last();
  caf::anon_send_exit(exporter, caf::exit_reason::kill);
  scheduler.run();
  exporter = system.spawn<metrics_exporter>(ctx, board, true);
  tell(peer_connected{stays}); // the switchboard names the links that there are
  tell(training());
  for (int i = 0; i < 20; ++i)
    pass(100ms);
  auto news = ctx.events->after(before, 1_MiB).lines;
  ASSERT_EQ(news.size(), 1U);
  auto left = json::parse(*news[0]);
  EXPECT_EQ(left["type"], "peer_left");
  EXPECT_EQ(left["other"], to_string(leaves.id));
}

TEST_F(MetricsExporter, APeerWithATrainerStartsAtEpochZeroWithoutValues) {
  caf::anon_send_exit(exporter, caf::exit_reason::user_shutdown);
  exporter = system.spawn<metrics_exporter>(ctx, board, true);
  pass(0ms);
  auto doc = status();
  EXPECT_EQ(doc["phase"], "starting");
  EXPECT_EQ(doc["epoch"], 0);
  EXPECT_EQ(doc["samples"], (json{{"used", 0}, {"dropped", 0}, {"offered", 0}, {"pending", 0}}));
  for (const char* name : {"loss", "first_loss", "learning_rate", "samples_per_second",
                           "compute_samples_per_second", "target_batch_size", "parameters"})
    EXPECT_TRUE(doc[name].is_null()) << name;
  EXPECT_EQ(get("/readyz").status, 503U);
}

TEST_F(MetricsExporter, ValuesThatThereAreNotYetAreNull) {
  auto report = training();
  report.loss = report.first_loss = std::numeric_limits<double>::quiet_NaN();
  report.samples_used = 0;
  report.steps = 3; // no update yet, so no rate was used
  tell(report);
  pass(1s);
  EXPECT_TRUE(status()["learning_rate"].is_null());
  EXPECT_TRUE(status()["compute_samples_per_second"].is_null());
  report.learning_rate = 0.003;
  report.loss = 0;
  tell(report);
  pass(1s);
  EXPECT_EQ(status()["learning_rate"], 0.003);
  EXPECT_EQ(status()["loss"], 0) << "0 is a valid loss after a pass";
  report.learning_rate = 0;
  report.samples_used = 256;
  tell(report);
  pass(1s);
  EXPECT_EQ(status()["learning_rate"], 0) << "a schedule may begin or end at 0";
}

TEST_F(MetricsExporter, TellsUsedSamplesByWallTimeFromTheSpeedOfPasses) {
  auto report = training();
  report.steps = 10;
  report.samples_per_second = 14;
  report.compute_samples_per_second = 5000;
  tell(report);
  swarm_progress run;
  run.peers.resize(2);
  run.peers[0].who = {identity::from_seed(2)->id(), identity::from_seed(2)->key(), {}, false};
  run.peers[0].samples_per_second = 77;
  run.peers[0].claim.auxiliary = true;
  run.peers[1].who = ctx.record;
  run.peers[1].samples_per_second = 4000;
  run.peers[1].vitals.samples_per_second = 14;
  tell(run);
  pass(1s);
  EXPECT_EQ(status()["samples_per_second"], 14);
  EXPECT_EQ(status()["compute_samples_per_second"], 5000);
  auto peers = json::parse(get("/api/v1/peers").body)["peers"];
  EXPECT_EQ(peers[1]["samples_per_second"], status()["samples_per_second"]);
  EXPECT_EQ(peers[1]["compute_samples_per_second"], 4000);
  EXPECT_TRUE(peers[0]["samples_per_second"].is_null()) << "not known";
  EXPECT_EQ(peers[0]["role"], "node");
  EXPECT_EQ(peers[1]["role"], "trainer");
}

TEST_F(MetricsExporter, CountsBytesOnTheWireAndThroughMemoryApart) {
  board->count_bytes(false, 10);
  board->count_bytes(true, 20);
  board->count_shared_bytes(30);
  board->count_shared_bytes(5);
  pass(1s);
  EXPECT_EQ(status()["bytes"], (json{{"in", 10}, {"out", 20}, {"shared", 35}}));
}

TEST_F(MetricsExporter, ShowsWhatTheTrainerReports) {
  tell(training());
  auto doc = status();
  EXPECT_EQ(doc["phase"], "training");
  EXPECT_EQ(doc["epoch"], 4);
  EXPECT_EQ(doc["loss"], 2.5);
  EXPECT_EQ(doc["first_loss"], 4);
  EXPECT_EQ(doc["eval_accuracy"], 0.5);
  EXPECT_EQ(doc["eval_epoch"], 3);
  EXPECT_TRUE(doc["seconds_left"].is_null());
  EXPECT_EQ(doc["samples"],
            (json{{"used", 1024}, {"dropped", 16}, {"offered", 0}, {"pending", 0}}));
}

TEST_F(MetricsExporter, ShowsALossThatIsNotANumberAsNull) {
  auto report = training();
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.first_loss = std::numeric_limits<double>::infinity();
  tell(report);
  EXPECT_TRUE(status()["loss"].is_null());
  EXPECT_TRUE(status()["first_loss"].is_null());
}

TEST_F(MetricsExporter, IsReadyOnlyInSync) {
  auto report = training();
  report.phase = trainer_phase::syncing;
  tell(report);
  auto answer = get("/readyz");
  EXPECT_EQ(answer.status, 503U);
  EXPECT_NE(answer.body.find("syncing"), std::string::npos);
  EXPECT_EQ(get("/healthz").status, 200U);
  report.phase = trainer_phase::averaging;
  tell(report);
  EXPECT_EQ(get("/readyz").status, 200U);
}

TEST_F(MetricsExporter, ShowsRoundsByOutcomeAndLeavesCountingThemInMetricsToTheAverager) {
  for (auto outcome : {round_outcome::complete, round_outcome::complete, round_outcome::failed}) {
    round_ended event;
    event.report.outcome = outcome;
    tell(event);
  }
  pass(1s);
  EXPECT_EQ(status()["rounds"], (json{{"complete", 2}, {"shrunk", 0}, {"failed", 1}}));
  EXPECT_EQ(get("/metrics").body.find("waggle_averaging_rounds_total"), std::string::npos);
}

TEST_F(MetricsExporter, ListsPeersAndWhoIsConnected) {
  auto ann = identity::from_seed(2);
  swarm_progress run{.global_epoch = epoch_id{9}, .num_peers = 1};
  run.peers.resize(1);
  run.peers[0].who = {ann->id(), ann->key(), {{"10.0.0.2", 7700}}, false};
  run.peers[0].samples = 128;
  tell(run);
  tell(peer_connected{run.peers[0].who});
  pass(1s);
  auto peers = json::parse(get("/api/v1/peers").body)["peers"];
  ASSERT_EQ(peers.size(), 1U);
  EXPECT_EQ(peers[0]["id"], to_string(ann->id()));
  EXPECT_EQ(peers[0]["addresses"], json::array({"10.0.0.2:7700"}));
  EXPECT_EQ(peers[0]["samples_toward_epoch"], 128);
  EXPECT_EQ(peers[0]["connected"], true);
  EXPECT_EQ(peers[0]["self"], false);
  EXPECT_EQ(status()["global_epoch"], 9);
  tell(peer_disconnected{ann->id(), {}});
  pass(1s);
  EXPECT_EQ(json::parse(get("/api/v1/peers").body)["peers"][0]["connected"], false);
}

TEST_F(MetricsExporter, APeerThatIsGoneIsListedWithItsReason) {
  auto ann = identity::from_seed(2);
  tell(peer_connected{{ann->id(), ann->key(), {{"10.0.0.2", 7700}}, false}});
  tell(peer_disconnected{ann->id(), {ec::timeout, "silent"}});
  pass(100ms);
  auto left = json::parse(get("/api/v1/peers").body)["left"];
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0]["peer"], to_string(ann->id()));
  EXPECT_EQ(left[0]["reason"], "timeout: silent");
  EXPECT_EQ(left[0]["code"], "timeout");
  std::vector<std::string> types;
  for (const auto& line : ctx.events->after(0, 1_MiB).lines)
    types.push_back(json::parse(*line)["type"]);
  EXPECT_EQ(types, (std::vector<std::string>{"start", "peer_joined", "peer_left"}));
  tell(peer_connected{{ann->id(), ann->key(), {}, false}});
  pass(100ms);
  EXPECT_TRUE(json::parse(get("/api/v1/peers").body)["left"].empty()) << "it is back";
}

TEST_F(MetricsExporter, ARoundBecomesAnEventWithItsMarksAndAPage) {
  auto marks = std::make_shared<round_marks>();
  marks->began = scheduler.clock().now();
  marks->members.resize(2);
  marks->members[0].peer = ctx.self->id();
  marks->members[1].peer = identity::from_seed(2)->id();
  marks->members[1].contributions = {2ms, 30ms};
  round_ended event;
  event.report.outcome = round_outcome::complete;
  event.report.round.bytes[0] = std::byte{9};
  event.report.kind = "gradients";
  event.report.allreduce_seconds = 0.05;
  event.report.agreement_seconds = 0.005;
  event.report.marks = marks;
  tell(event);
  auto rounds = json::parse(get("/api/v1/rounds").body)["rounds"];
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0]["kind"], "gradients");
  EXPECT_EQ(rounds[0]["members"][1]["last_ms"], 30);
  EXPECT_EQ(rounds[0]["members"][0]["self"], true);
  auto metrics = get("/metrics").body;
  auto phase = [&](const std::string& name) {
    std::istringstream lines{metrics}; // the labels of a series are in no order
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("waggle_averaging_phase_seconds_total{")
          && line.find("phase=\"" + name + "\"") != std::string::npos)
        return std::stod(line.substr(line.find("} ") + 2));
    return -1.0;
  };
  EXPECT_NEAR(phase("contributions"), 0.03, 1e-9);
  EXPECT_NEAR(phase("results"), 0.015, 1e-9);
  EXPECT_NEAR(phase("agreement"), 0.005, 1e-9);
}

/// Who is slow is judged by the rounds before its start, too: it takes 24.
TEST_F(MetricsExporter, OneThatWasStartedAgainStillKnowsTheRoundsBefore) {
  rounds(23, 300ms);
  EXPECT_TRUE(slow().is_null());
  caf::anon_send_exit(exporter, caf::exit_reason::kill);
  scheduler.run();
  exporter = system.spawn<metrics_exporter>(ctx, board, true);
  rounds(1, 300ms);
  ASSERT_FALSE(slow().is_null());
  EXPECT_EQ(slow()["other"], to_string(member_of_rounds(2)));
}

TEST_F(MetricsExporter, NamesAMemberWithLongPassesByWhatMembersReport) {
  auto report = [this](std::uint64_t target) {
    swarm_progress progress;
    for (std::uint8_t n = 0; n < 4; ++n) {
      auto& peer = progress.peers.emplace_back();
      peer.who.id = member_of_rounds(n);
      peer.claim.target_batch_size = target;
      peer.samples_per_second = 80; // of larger passes, the same
      peer.vitals.pass_seconds = n == 2 ? 1 : 0.1;
    }
    for (std::uint8_t n = 100; n < 120; ++n) { // strangers
      auto& peer = progress.peers.emplace_back();
      peer.who.id = member_of_rounds(n);
      peer.vitals.pass_seconds = 1;
    }
    tell(progress);
    rounds(8, 0ms);
  };
  report(256);
  ASSERT_TRUE(slow().is_null()) << "an epoch has so many samples, whoever computes them";
  report(0);
  ASSERT_FALSE(slow().is_null());
  EXPECT_EQ(slow()["other"], to_string(member_of_rounds(2)));
  EXPECT_EQ(slow()["cause"], "passes");
  EXPECT_EQ(slow()["text"], "it reports passes of 1.0 s, the others of 100 ms");
}

TEST_F(MetricsExporter, AStreamShowsTheRunsTagToStrangersAndNothingToOtherOrigins) {
  net::http_request request{"GET", "/api/v1/events"};
  auto local = board->answer(request).stream(steady_time{});
  EXPECT_NE(local.find("\"run\":\"run\""), std::string::npos) << local;
  request.local = false;
  auto strangers = board->answer(request).stream(steady_time{});
  EXPECT_EQ(strangers.find("\"run\":\"run\""), std::string::npos) << strangers;
  EXPECT_NE(strangers.find("\"run\":\"run-1a2b3c4d\""), std::string::npos) << strangers;
  request.cross_origin = true;
  auto refused = board->answer(request);
  EXPECT_EQ(refused.status, 403U);
  EXPECT_FALSE(refused.stream);
  EXPECT_EQ(get("/api/v1/events", "POST").status, 405U);
  EXPECT_FALSE(get("/api/v1/events", "HEAD").stream);
}

TEST_F(MetricsExporter, KeepsTheUptimeOfVirtualTime) {
  for (int i = 0; i < 20; ++i)
    pass(500ms);
  EXPECT_NEAR(status()["uptime_seconds"].get<double>(), 10, 0.6);
}

TEST_F(MetricsExporter, RefusesOtherPagesAndMethodsAndNamesTheRoutes) {
  auto missing = get("/nothing");
  EXPECT_EQ(missing.status, 404U);
  EXPECT_EQ(json::parse(missing.body)["routes"].size(), 9U);
  EXPECT_EQ(get("/metrics", "POST").status, 405U);
  EXPECT_TRUE(json::parse(get("/metrics", "POST").body).contains("error"));
  EXPECT_EQ(get("\"").status, 404U);
  EXPECT_EQ(get("").status, 404U);
  EXPECT_EQ(get("/metrics?x=1").status, 200U);
}

/// Whoever knows the run's name may join, so it is not told to every machine that can reach the
/// port. Metrics name a run as everybody may see it, also to this machine: one Prometheus may
/// scrape one peer over loopback and the others by their addresses.
TEST(StatusBoard, TheRunsNameIsShownToThisMachineOnlyAndNeverInMetrics) {
  const std::string name = "a \"secret\" run";
  auto tag = run_tag(name);
  auto metrics =
    std::make_shared<metric_families>(std::make_shared<prometheus::Registry>(), tag, "ann");
  status_board board{metrics};
  peer_facts facts{.run_id = name, .run_tag = tag};
  board.show(peer_view{{}, facts}, {});
  auto get = [&](const std::string& page, bool local) {
    return board.answer({"GET", page, "", local}).body;
  };
  EXPECT_EQ(json::parse(get("/api/v1/status", true))["run"], name);
  EXPECT_EQ(json::parse(get("/api/v1/status", false))["run"], tag);
  for (bool local : {true, false}) {
    EXPECT_EQ(json::parse(get("/api/v1/status", local))["run_tag"], tag);
    auto text = get("/metrics", local);
    EXPECT_NE(text.find(",run=\"" + tag + "\"}"), std::string::npos) << text;
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
  }
  for (const auto* page : {"/healthz", "/readyz", "/api/v1/status", "/api/v1/peers", "/x"})
    EXPECT_EQ(get(page, false).find("secret"), std::string::npos) << page;
}

} // namespace
} // namespace waggle
