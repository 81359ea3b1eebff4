#include "actors/node/node_supervisor.hpp"

#include <set>

#include <gmock/gmock.h>

#include "runtime/crypto/run_secret.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/hosted_link.hpp"
#include "tests/support/ids.hpp"

namespace waggle::testing {
namespace {

/// What the supervisor has asked of the actors that end with it, in order, and when.
struct shutdown_log {
  std::vector<std::string> asked;
  bool trainer_answers = true;
  bool trainer_ends = true;
  bool links_end = true;
  std::vector<caf::response_promise> open_links;
};
using log_of_shutdown = std::shared_ptr<shutdown_log>;

class idle_transport : public net::transport {
public:
  explicit idle_transport(log_of_shutdown log) : log_(std::move(log)) {}
  result<std::vector<endpoint>> listen(const std::vector<endpoint>& where, net::on_link) override {
    return where;
  }
  void dial(const net::dial_target&, milliseconds, net::on_dialled) override {}
  void announce(peer_record) override {}
  void stop() override { log_->asked.emplace_back("transport"); }

private:
  log_of_shutdown log_;
};

class deaf_transport final : public idle_transport {
public:
  using idle_transport::idle_transport;
  result<std::vector<endpoint>> listen(const std::vector<endpoint>&, net::on_link) override {
    return failure{ec::bad_config, "the port is taken"};
  }
};

trainer_actor::behavior_type fake_trainer(trainer_actor::pointer self, log_of_shutdown log) {
  if (!log->trainer_ends) // as one that computes
    self->set_exit_handler([](const caf::exit_msg&) {});
  return {
    [](start_training) {},
    [](pause_training) { return training_status{}; },
    [](resume_training) { return training_status{}; },
    [self, log](stop_training) -> caf::result<training_status> {
      log->asked.emplace_back("trainer");
      auto promise = self->make_response_promise<training_status>();
      if (log->trainer_answers) {
        training_status last;
        last.epoch = epoch_id{7};
        promise.deliver(last);
      }
      return promise;
    },
    [](get_training_status) { return training_status{}; },
    [](const get_state_snapshot&) -> caf::result<state_snapshot> { return to_caf(ec::not_ready); },
    [](const swarm_progress&) {},
    [](const group_view&) {},
    [](const round_called&) {},
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
    [](const dht_status&) {},
  };
}

wired_progress_tracker_actor::behavior_type fake_tracker(wired_progress_tracker_actor::pointer,
                                                         log_of_shutdown log) {
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
    [](const inbound_event&) {},
    [](const report_progress&) {},
    [log](announce_departure) { log->asked.emplace_back("tracker"); },
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
    [](const subscribe_progress&) {},
  };
}

wired_switchboard_actor::behavior_type fake_switchboard(wired_switchboard_actor::pointer self,
                                                        log_of_shutdown log) {
  return {
    [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
    [](const notify_peer&) {},
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
    [](const serve&) {},
    [](const listen_links&) {},
    [](const link_arrived&) {},
    [self, log](hang_up) -> caf::result<caf::unit_t> {
      log->asked.emplace_back("switchboard");
      if (log->links_end)
        return caf::unit;
      auto promise = self->make_response_promise<caf::unit_t>();
      log->open_links.push_back(promise);
      return promise;
    },
    [](members_changed) {},
  };
}

class NodeSupervisor : public actor_test {
protected:
  void start(milliseconds stop_training_timeout) {
    node_config config{.stop_training_timeout = stop_training_timeout,
                       .goodbye_time = goodbye_time};
    ctx.links->set(test_peer(2).id, std::make_shared<hosted_link>(test_peer(2), "", false));
    parts.trainer = spawn(fake_trainer, log);
    parts.tracker = spawn(fake_tracker, log);
    parts.switchboard = spawn(fake_switchboard, log);
    node = spawn<node_supervisor>(ctx, config, parts, std::make_shared<idle_transport>(log),
                                  std::make_shared<status_board>(ctx.metrics),
                                  [](const auto&) { return averaging_actors{}; });
  }
  pending<training_status> stop() { return ask_later<training_status>(node, shut_down{"test"}); }
  void expect_all_ended() {
    EXPECT_FALSE(alive(node));
    EXPECT_FALSE(alive(parts.trainer));
    EXPECT_FALSE(alive(parts.tracker));
    EXPECT_FALSE(alive(parts.switchboard));
  }

  static constexpr milliseconds goodbye_time = 300ms;
  log_of_shutdown log = std::make_shared<shutdown_log>();
  node_context ctx = test_context(1, wall);
  node_parts parts;
  node_actor node;
};

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST_F(NodeSupervisor, EndsOnceItsTrainerHasStoppedAndTheGoodbyesAreSent) {
  log->links_end = false;
  start(30s);
  auto ended = stop();
  EXPECT_THAT(log->asked, ElementsAre("trainer", "tracker"));
  pass(goodbye_time);
  EXPECT_THAT(log->asked, ElementsAre("trainer", "tracker", "switchboard"));
  pass(goodbye_time - 1ms);
  EXPECT_FALSE(ended.answered());
  pass(1ms);
  ASSERT_TRUE(ended.get());
  EXPECT_EQ(ended.get()->epoch, epoch_id{7}) << "the last status of the trainer";
  EXPECT_EQ(log->asked.back(), "transport");
  expect_all_ended();
}

TEST_F(NodeSupervisor, EndsOnceItsLinksHaveEnded) {
  start(30s);
  auto ended = stop();
  pass(goodbye_time - 1ms);
  EXPECT_THAT(log->asked, ElementsAre("trainer", "tracker"));
  pass(1ms);
  EXPECT_TRUE(ended.get());
}

TEST_F(NodeSupervisor, EndsAtOnceIfNobodyIsThereToBeTold) {
  start(30s);
  ctx.links->erase(test_peer(2).id);
  auto ended = stop();
  EXPECT_THAT(log->asked, UnorderedElementsAre("trainer", "tracker", "switchboard", "transport"));
  EXPECT_TRUE(ended.get());
  expect_all_ended();
}

TEST_F(NodeSupervisor, ATrainerThatDoesNotStopDelaysTheEndNoLongerThanAllowed) {
  log->trainer_answers = false;
  log->links_end = false;
  for (milliseconds limit : {2s, 10s}) { // --shutdown-timeout
    log->asked.clear();
    start(limit);
    auto ended = stop();
    pass(limit - 1ms);
    EXPECT_THAT(log->asked, ElementsAre("trainer")) << "nobody is told before it has stopped";
    pass(1ms);
    EXPECT_THAT(log->asked, ElementsAre("trainer", "tracker"));
    pass(2 * goodbye_time - 1ms);
    EXPECT_FALSE(ended.answered());
    pass(1ms);
    EXPECT_TRUE(ended.get());
    EXPECT_THAT(log->asked, ElementsAre("trainer", "tracker", "switchboard", "transport"));
    expect_all_ended();
  }
}

TEST_F(NodeSupervisor, AnswersOnceItsActorsHaveEndedOrASecondLater) {
  log->trainer_ends = false;
  for (bool ends : {true, false}) {
    start(30s);
    auto ended = stop();
    pass(goodbye_time);
    EXPECT_EQ(log->asked.back(), "transport");
    EXPECT_FALSE(alive(parts.tracker));
    EXPECT_FALSE(ended.answered());
    if (ends)
      caf::anon_send_exit(caf::actor_cast<caf::actor>(parts.trainer), caf::exit_reason::kill);
    pass(ends ? 1ms : 999ms);
    EXPECT_EQ(ended.answered(), ends);
    pass(1ms);
    EXPECT_TRUE(ended.get());
    EXPECT_FALSE(alive(node));
    caf::anon_send_exit(caf::actor_cast<caf::actor>(parts.trainer), caf::exit_reason::kill);
    pass(1ms);
  }
}

TEST_F(NodeSupervisor, WithdrawsTheMetricsOfItsPeerBeforeItAnswers) {
  start(30s);
  EXPECT_FALSE(ctx.metrics->registry()->Collect().empty());
  auto ended = stop();
  pass(goodbye_time);
  ASSERT_TRUE(ended.get());
  EXPECT_TRUE(ctx.metrics->registry()->Collect().empty());
}

/// Peers in one process that share a registry.
class StartNode : public actor_test {
protected:
  result<started_node> start(std::uint64_t seed, const std::string& run) {
    node_config config{.run_id = run, .listen = {{"127.0.0.1", 7700}}};
    node_dependencies with;
    with.self = identity::from_seed(seed);
    with.wall = wall;
    with.verifier = make_plain_verifier();
    with.registry = registry;
    with.log = silent_log();
    with.detach_workers = false;
    with.make_transport = [this](const transport_request&) -> std::shared_ptr<net::transport> {
      if (deaf)
        return std::make_shared<deaf_transport>(log);
      return std::make_shared<idle_transport>(log);
    };
    auto started = start_node(sys, config, with);
    if (started) {
      keep(started->node);
      for (const auto& part : everybody(started->parts))
        keep(caf::actor_cast<caf::actor>(part));
    }
    settle();
    return started;
  }
  void stop(const started_node& peer) {
    auto ended = ask_later<training_status>(peer.node, shut_down{"test"});
    pass(1s);
    EXPECT_TRUE(ended.get());
  }
  /// The values of a label in the registry.
  [[nodiscard]] std::set<std::string> values_of(const std::string& label) const {
    std::set<std::string> found;
    for (const auto& family : registry->Collect())
      for (const auto& series : family.metric)
        for (const auto& pair : series.label)
          if (pair.name == label)
            found.insert(pair.value);
    return found;
  }

  log_of_shutdown log = std::make_shared<shutdown_log>();
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  bool deaf = false;
};

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST_F(StartNode, PeersShareARegistryAndTakeTheirSeriesWithThem) {
  auto ann = start(1, "birds");
  auto bob = start(2, "birds");
  auto eve = start(3, "bees");
  ASSERT_TRUE(ann && bob && eve);
  auto name = [](std::uint64_t seed) { return short_name(identity::from_seed(seed)->id()); };
  EXPECT_THAT(values_of("run"), UnorderedElementsAre(run_tag("birds"), run_tag("bees")));
  EXPECT_THAT(values_of("peer"), UnorderedElementsAre(name(1), name(2), name(3)));
  stop(*ann);
  EXPECT_THAT(values_of("peer"), UnorderedElementsAre(name(2), name(3)));
  stop(*eve);
  EXPECT_THAT(values_of("run"), UnorderedElementsAre(run_tag("birds")));
  stop(*bob);
  EXPECT_THAT(values_of("peer"), IsEmpty());
}

TEST_F(StartNode, TheSameIdentityTwiceInARunIsRefusedUntilTheFirstHasEnded) {
  auto first = start(1, "birds");
  auto second = start(1, "birds");
  EXPECT_EQ(second.error().code, ec::bad_config);
  EXPECT_THAT(second.error().detail, ::testing::HasSubstr("no running peer has its identity"));
  stop(*first);
  auto third = start(1, "birds");
  stop(*third);
}

TEST_F(StartNode, RoundsOfAServiceAreShownAlsoAfterTheExporterWasStartedAgain) {
  auto peer = start(1, "ann's run");
  caf::anon_send_exit(caf::actor_cast<caf::actor>(peer->parts.exporter), caf::exit_reason::kill);
  pass(1s);
  round_ended event;
  event.report.outcome = round_outcome::complete;
  event.report.round.bytes[0] = std::byte{9};
  event.report.kind = "rates";
  tell(peer->parts.reports, event);
  EXPECT_THAT(peer->board->answer({"GET", "/api/v1/rounds"}).body, ::testing::HasSubstr("rates"));
  stop(*peer);
}

TEST_F(StartNode, APeerThatCannotListenLeavesNoSeries) {
  deaf = true;
  EXPECT_FALSE(start(1, "birds"));
  EXPECT_THAT(values_of("peer"), IsEmpty());
  deaf = false;
  auto again = start(1, "birds");
  stop(*again);
}

} // namespace
} // namespace waggle::testing
