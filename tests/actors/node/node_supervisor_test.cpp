#include "actors/node_supervisor.hpp"

#include <gmock/gmock.h>

#include "tests/support/actor_test.hpp"

namespace waggle::testing {
namespace {

/// What the supervisor has asked of the actors that end with it, in order, and when.
struct shutdown_log {
  std::vector<std::string> asked;
  bool trainer_answers = true;
};
using log_of_shutdown = std::shared_ptr<shutdown_log>;

class idle_transport final : public net::transport {
public:
  explicit idle_transport(log_of_shutdown log) : log_(std::move(log)) {}
  result<endpoint> listen(const endpoint& where, net::on_link) override { return where; }
  result<endpoint> serve_http(const endpoint& where) override { return where; }
  void dial(const endpoint&, const peer_id&, milliseconds, net::on_dialled) override {}
  void announce(peer_record) override {}
  void stop() override { log_->asked.emplace_back("transport"); }

private:
  log_of_shutdown log_;
};

trainer_actor::behavior_type fake_trainer(trainer_actor::pointer self, log_of_shutdown log) {
  return {
    [](start_training) {},
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
    [](get_swarm_progress) { return swarm_progress{}; },
    [log](announce_departure) { log->asked.emplace_back("tracker"); },
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
    [](const subscribe_progress&) {},
  };
}

wired_switchboard_actor::behavior_type fake_switchboard(wired_switchboard_actor::pointer,
                                                        log_of_shutdown log) {
  return {
    [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
    [](const notify_peer&) {},
    [](const connect_address&) -> caf::result<peer_connected> { return to_caf(ec::unreachable); },
    [](get_connected_peers) { return connected_peers{}; },
    [](const serve&) {},
    [](const listen_links&) {},
    [](const link_arrived&) {},
    [log](hang_up) { log->asked.emplace_back("switchboard"); },
  };
}

class NodeSupervisor : public actor_test {
protected:
  void start(milliseconds stop_training_timeout) {
    node_config config;
    config.stop_training_timeout = stop_training_timeout;
    config.goodbye_time = goodbye_time;
    parts.trainer = spawn(fake_trainer, log);
    parts.tracker = spawn(fake_tracker, log);
    parts.switchboard = spawn(fake_switchboard, log);
    node = spawn<node_supervisor>(ctx, config, parts, std::make_shared<idle_transport>(log),
                                  std::make_shared<status_board>(ctx.metrics, "test"));
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

TEST_F(NodeSupervisor, EndsOnceItsTrainerHasStoppedAndTheGoodbyesAreSent) {
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

TEST_F(NodeSupervisor, ATrainerThatDoesNotStopDelaysTheEndNoLongerThanAllowed) {
  log->trainer_answers = false;
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

} // namespace
} // namespace waggle::testing
