#include "actors/service/state_publisher.hpp"

#include <gtest/gtest.h>

#include "tests/support/actor_test.hpp"

namespace waggle::testing {
namespace {

struct StatePublisher : actor_test {
  StatePublisher() {
    started_node peer;
    peer.ctx = test_context(1, wall);
    peer.node = node = spawn([](wired_node_actor::pointer) -> wired_node_actor::behavior_type {
      return {
        [](const shut_down&) { return training_status{}; },
        [](const add_averager&) { return averaging_actors{}; },
        [](const end_averager&) { return caf::unit; },
      };
    });
    peer.parts.switchboard =
      spawn([this](wired_switchboard_actor::pointer) -> wired_switchboard_actor::behavior_type {
        return {
          [](const call_peer&) -> caf::result<peer_answer> { return to_caf(ec::unreachable); },
          [](const notify_peer&) {},
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
          [this](const serve& msg) {
            EXPECT_EQ(msg.topic, service_topic::state);
            donors.push_back(caf::actor_cast<caf::actor>(msg.service));
          },
          [](const listen_links&) {},
          [](const link_arrived&) {},
          [](hang_up) { return caf::unit; },
          [](members_changed) {},
        };
      });
    publisher = spawn<state_publisher>(peer);
  }
  ~StatePublisher() override { end_actors(); }

  void kill(const caf::actor& who) {
    caf::anon_send_exit(who, caf::exit_reason::kill);
    settle();
  }

  wired_node_actor node;
  std::vector<caf::actor> donors; // that the switchboard was told of
  state_publisher_actor publisher;
};

TEST_F(StatePublisher, StartsItsDonorAgain) {
  ASSERT_EQ(donors.size(), 1U);
  for (std::size_t died = 1; died <= 3; ++died) {
    kill(donors.back());
    pass(1s);
    ASSERT_EQ(donors.size(), died + 1);
    EXPECT_TRUE(alive(donors.back()));
  }
}

TEST_F(StatePublisher, EndsWithItsNodeAndItsDonorWithIt) {
  kill(caf::actor_cast<caf::actor>(node));
  EXPECT_FALSE(alive(publisher));
  EXPECT_FALSE(alive(donors.back()));
  EXPECT_EQ(donors.size(), 1U);
}

} // namespace
} // namespace waggle::testing
