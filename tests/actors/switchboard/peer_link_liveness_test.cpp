// When a link counts as lost, when it is closed, and what ends with it.

#include "tests/actors/switchboard/peer_link_fixture.hpp"

namespace waggle::testing {
namespace {

TEST_F(PeerLink, AnswersAPing) {
  arrive(wire::ping{99});
  auto pongs = wire_end->sent_of<wire::pong>();
  ASSERT_EQ(pongs.size(), 1U);
  EXPECT_EQ(pongs[0].nonce, 99U);
}

TEST_F(PeerLink, PingsAndClosesWhenThePeerStaysSilent) {
  pass(1s);
  EXPECT_EQ(wire_end->sent_of<wire::ping>().size(), 1U);
  pass(1'500ms);
  EXPECT_FALSE(wire_end->closed) << "two and a half ping intervals are not enough";
  pass(500ms);
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::timeout);
}

TEST_F(PeerLink, GivesAPeerUpSoonAfterItsLastAnswer) {
  for (int i = 0; i < 30; ++i) {
    pass(1s);
    arrive(wire::pong{12345});
  }
  pass(2'500ms);
  EXPECT_FALSE(wire_end->closed);
  pass(500ms);
  EXPECT_TRUE(wire_end->closed) << "a host that died is detected within three ping intervals";
}

TEST_F(PeerLink, StaysOpenAsLongAsThePeerSaysAnything) {
  for (int i = 0; i < 20; ++i) {
    pass(2s);
    arrive(wire::pong{12345}); // answers no ping of ours, but is a sign of life
  }
  EXPECT_FALSE(wire_end->closed);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_network_rtt_seconds_count"), 0);
}

TEST_F(PeerLink, TakesBytesOfAFrameThatIsUnderWayForLife) {
  for (int i = 0; i < 20; ++i) {
    pass(1s);
    ++wire_end->read;
  }
  EXPECT_FALSE(wire_end->closed);
  pass(4s);
  EXPECT_TRUE(wire_end->closed);
}

TEST(LinkConfig, RefusesASilenceTimeoutThatIsNoLongerThanThePingInterval) {
  EXPECT_TRUE(check_link_config({}));
  link_config config;
  config.silence_timeout = config.ping_interval;
  EXPECT_EQ(check_link_config(config).error().code, ec::bad_config);
}

TEST_F(PeerLink, MeasuresTheRoundTripOfItsPings) {
  pass(1s);
  auto ping = wire_end->sent_of<wire::ping>().at(0);
  pass(250ms);
  arrive(wire::pong{ping.nonce});
  arrive(wire::pong{ping.nonce}); // once is enough
  EXPECT_EQ(exported(*ctx.metrics, "waggle_network_rtt_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(exported(*ctx.metrics, "waggle_network_rtt_seconds_sum"), 0.25);
}

TEST_F(PeerLink, ClosesOnBytesThatAreNoMessageAndReturnsTheirBody) {
  wire_end->arrive_raw("\xff\xff\xff", some_bytes(10));
  settle();
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::malformed);
  EXPECT_EQ(wire_end->granted, 10U);
  EXPECT_EQ(refused("malformed"), 1);
}

TEST_F(PeerLink, ClosesWhenThePeerDoesNotTakeWhatWeSend) {
  wire_end->full = true;
  tell(link, notify_over_link{wire::leave_group{"p"}, {}});
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::overloaded);
}

TEST_F(PeerLink, AGoodbyeIsTheReasonOfTheEnd) {
  arrive(wire::event{wire::goodbye{}});
  end_link({ec::peer_lost, "the connection was closed"});
  ASSERT_EQ(downs->size(), 1U);
  EXPECT_EQ((*downs)[0].why.code, ec::shutting_down);
}

TEST_F(PeerLink, AConnectionThatIsNotWantedStaysWhileItIsUsed) {
  auto unwanted = [this] { tell(link, close_link{{ec::none, "one is enough"}, true}); };
  auto live = [this](milliseconds time) {
    for (milliseconds t = 0ms; t < time && !wire_end->closed; t += 500ms) {
      arrive(wire::ping{1});
      answer_pings();
      pass(500ms);
    }
  };
  auto asked = call(60s);
  unwanted();
  live(2 * config.unused_for);
  ASSERT_FALSE(wire_end->closed) << "we wait for an answer";
  arrive(wire::answer{last_call_id(), wire::dht_pong{}});
  EXPECT_TRUE(asked.get());

  book(service_topic::dht).silent = true;
  arrive(wire::call{1, 60'000, wire::dht_ping{}});
  live(2 * config.unused_for);
  ASSERT_FALSE(wire_end->closed) << "the peer waits for an answer";
  tell(book(service_topic::dht).service, answer_kept_calls{});

  wire_end->busy = true;
  live(2 * config.unused_for);
  ASSERT_FALSE(wire_end->closed) << "a body is in transfer";
  wire_end->busy = false;

  live(config.unused_for - 1s);
  arrive(wire::event{wire::leave_group{"p"}});
  live(config.unused_for - 1s);
  ASSERT_FALSE(wire_end->closed) << "the peer does not know yet that we use another connection";
  live(3s);
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->detail, "one is enough");
}

TEST_F(PeerLink, AWordAboutARoundIsUse) {
  tell(link, close_link{{ec::none, {}}, true});
  for (auto t = 0ms; t < 2 * config.unused_for; t += 500ms) {
    arrive(wire::event{wire::round_prepared{}});
    answer_pings();
    pass(500ms);
  }
  EXPECT_FALSE(wire_end->closed);
  end_link({ec::peer_lost, {}});
}

// Bytes in the kernel's buffer were written, but have not arrived yet.
TEST_F(PeerLink, NothingIsCutOffBehindABodyThatIsStillOnItsWay) {
  tell(link, close_link{{ec::none, {}}, true});
  for (auto t = 0ms; t < 2 * config.unused_for; t += 500ms) {
    arrive(wire::ping{1}); // the peer is alive; our bytes have not reached it
    pass(500ms);
  }
  ASSERT_FALSE(wire_end->closed);
  for (auto t = 0ms; t < 3s; t += 500ms) {
    answer_pings();
    pass(500ms);
  }
  EXPECT_TRUE(wire_end->closed);
}

TEST_F(PeerLink, AConnectionThatIsWantedAgainStays) {
  tell(link, close_link{{ec::none, {}}, true});
  tell(link, keep_link{});
  for (auto t = 0ms; t < 2 * config.unused_for; t += 500ms) {
    arrive(wire::ping{1});
    answer_pings();
    pass(500ms);
  }
  EXPECT_FALSE(wire_end->closed);
}

TEST_F(PeerLink, ACancelledCallIsNoUse) {
  book(service_topic::dht).silent = true;
  arrive(wire::call{1, 60'000, wire::dht_ping{}});
  arrive(wire::cancel{1});
  tell(link, close_link{{ec::none, {}}, true});
  for (auto t = 0ms; t < config.unused_for + 2s; t += 500ms) {
    arrive(wire::ping{1});
    answer_pings();
    pass(500ms);
  }
  EXPECT_TRUE(wire_end->closed);
}

TEST_F(PeerLink, ClosesAtOnceWhenTold) {
  auto asked = call();
  tell(link, close_link{{ec::shutting_down, {}}, false});
  ASSERT_TRUE(wire_end->closed);
}

TEST_F(PeerLink, TakesItsConnectionAlongWhenItsOwnerDies) {
  caf::anon_send_exit(owner, caf::exit_reason::kill);
  settle();
  EXPECT_FALSE(alive(link));
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::shutting_down);
}

} // namespace
} // namespace waggle::testing
