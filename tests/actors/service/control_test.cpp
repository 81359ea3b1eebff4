// waggle/control.hpp, on real sockets.

#include "waggle/control.hpp"

#include <future>

#include <caf/all.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/service/running_node.hpp"
#include "waggle/averager.hpp"
#include "waggle/node.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

class Control : public ::testing::Test {
protected:
  node start(std::vector<std::string> peers = {}) {
    node_options o{.run = "birds",
                   .initial_peers = std::move(peers),
                   .listen = {"127.0.0.1:0"},
                   .averagers = {{.name = "rates", .matchmaking_time = 2s}}};
    o.around.system = &system;
    o.log_level = "error";
    auto made = node::start(o);
    EXPECT_TRUE(made);
    EXPECT_TRUE(made->wait_until_ready(10s));
    return std::move(*made);
  }
  static void average(node& peer) {
    std::vector<float> values(10, 1);
    EXPECT_TRUE(
      averager::of(peer, "rates")->average(values, {.timeout = 20s, .expected_peers = 2}));
  }
  template <class Command>
  result<peer_state> ask(const control_actor& peer, Command what) {
    result<peer_state> out = failure{ec::internal, "no answer"};
    caf::scoped_actor self{system};
    self->request(peer, 10s, std::move(what))
      .receive([&](const peer_state& now) { out = now; },
               [&](const caf::error& why) {
                 out = failure{ec::internal, system.render(why)};
               });
    return out;
  }

  caf::actor_system_config config;
  caf::actor_system system{config};
};

TEST_F(Control, APausedPeerContributesToNoRoundAndStaysConnected) {
  auto ann = start();
  auto control = control_of(ann);
  EXPECT_EQ(ask(*control, get_peer_state{})->phase, "serving");
  EXPECT_EQ(ask(*control, get_peer_state{})->waiting_for, "");
  auto rates = *averager::of(ann, "rates");
  std::vector<float> values(10, 1);
  EXPECT_EQ(ask(*control, pause_peer{})->phase, "paused");
  EXPECT_EQ(rates.average(values).error().code, ec::not_ready);
  auto bob = start({ann.address()}); // joins through it
  EXPECT_EQ(ask(*control, get_peer_state{})->phase, "paused");

  EXPECT_EQ(ask(*control, resume_peer{})->phase, "serving");
  auto other = std::async(std::launch::async, [&bob] {
    std::vector<float> own(10, 3);
    return averager::of(bob, "rates")->average(own, {.timeout = 20s, .expected_peers = 2});
  });
  EXPECT_TRUE(rates.average(values, {.timeout = 20s, .expected_peers = 2}));
  EXPECT_TRUE(other.get());
  EXPECT_EQ(values[0], 2);
}

TEST_F(Control, WhoWatchesGetsTypedEventsUntilThePeerLeaves) {
  auto ann = start();
  auto control = control_of(ann);
  std::promise<peer_id> joined;
  std::promise<std::string> averaged;
  std::promise<std::string> stopped;
  std::promise<void> ended;
  // Each counts once.
  auto listener = system.spawn([&](event_listener_actor::pointer self) {
    self->monitor(*control);
    self->set_down_handler([&ended, self](const caf::down_msg&) {
      ended.set_value();
      self->quit();
    });
    return event_listener_actor::behavior_type{[&](const peer_event& event) {
      EXPECT_EQ(event.missed, 0U);
      EXPECT_GT(event.at.time_since_epoch().count(), 0);
      if (const auto* one = std::get_if<watch::peer_joined>(&event.what))
        joined.set_value(one->other);
      if (const auto* round = std::get_if<watch::round_ended>(&event.what))
        averaged.set_value(round->outcome);
      if (const auto* last = std::get_if<watch::stopping>(&event.what))
        stopped.set_value(last->reason);
    }};
  });
  caf::anon_send(*control, watch_peer{listener});
  caf::anon_send(*control, watch_peer{listener}); // changes nothing
  EXPECT_TRUE(ask(*control, get_peer_state{}));   // so that it has them now
  auto bob = start({ann.address()});
  EXPECT_EQ(joined.get_future().get(), bob.id());
  auto other = std::async(std::launch::async, average, std::ref(bob));
  average(ann);
  other.get();
  EXPECT_EQ(averaged.get_future().get(), "complete");
  auto left = ask(*control, leave_run{"it is evening"});
  EXPECT_EQ(left->phase, "stopped");
  EXPECT_THAT(stopped.get_future().get(), HasSubstr("it is evening"));
  ended.get_future().wait();
  EXPECT_EQ(control_of(ann).error().code, ec::shutting_down);
  EXPECT_TRUE(ann.leave()) << "it has left already";
}

TEST_F(Control, AListenerThatIsTooSlowMissesEventsAndIsTold) {
  auto ann = start();
  auto control = *control_of(ann);
  std::promise<void> go;
  auto until = go.get_future().share();
  std::promise<std::uint64_t> told;
  auto slow = system.spawn<caf::detached>(
    [until, &told](event_listener_actor::pointer) -> event_listener_actor::behavior_type {
      return {[until, &told, said = false](const peer_event& event) mutable {
        until.wait();
        if (event.missed > 0 && !std::exchange(said, true))
          told.set_value(event.missed);
      }};
    });
  caf::anon_send(control, watch_peer{slow});
  EXPECT_TRUE(ask(control, get_peer_state{}));
  auto note = [&] { ann.running()->node.ctx.note(watch::remark{}); };
  for (int i = 0; i < 300; ++i)
    note();
  EXPECT_TRUE(ask(control, get_peer_state{})); // so that it has passed them on
  go.set_value();
  auto missed = told.get_future();
  while (missed.wait_for(0s) != std::future_status::ready) {
    note();
    EXPECT_TRUE(ask(control, get_peer_state{}));
  }
  EXPECT_GE(missed.get(), 300U - 256U);
}

} // namespace
} // namespace waggle
