// Calls and events over one link, in both directions.

#include "tests/actors/switchboard/peer_link_fixture.hpp"

namespace waggle::testing {
namespace {

// -- our calls -----------------------------------------------------------------------------------

TEST_F(PeerLink, GivesEachCallItsOwnAnswerWhateverTheirOrder) {
  auto first = call();
  auto second = call();
  auto calls = wire_end->sent_of<wire::call>();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].deadline_ms, 3'000U);
  arrive(wire::answer{calls[1].id, wire::dht_pong{swarm_time{2s}}});
  arrive(wire::answer{calls[0].id, wire::dht_pong{swarm_time{1s}}});
  ASSERT_TRUE(first.get() && second.get());
  EXPECT_EQ(first.get()->from, test_peer(2).id);
  EXPECT_EQ(std::get<wire::dht_pong>(first.get()->what).now, swarm_time{1s});
  EXPECT_EQ(std::get<wire::dht_pong>(second.get()->what).now, swarm_time{2s});
}

TEST_F(PeerLink, EndsACallAtItsDeadlineAndTellsThePeer) {
  auto asked = call(2s);
  pass(1'999ms);
  EXPECT_FALSE(asked.answered());
  pass(1ms);
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::timeout);
  auto cancels = wire_end->sent_of<wire::cancel>();
  ASSERT_EQ(cancels.size(), 1U);
  EXPECT_EQ(cancels[0].id, last_call_id());
}

TEST_F(PeerLink, ReturnsTheBytesOfAnAnswerThatComesTooLate) {
  call(1s);
  auto id = last_call_id();
  pass(2s);
  arrive(wire::answer{id, wire::state_chunk{0}}, some_bytes(100));
  EXPECT_EQ(wire_end->granted, 100U);
  EXPECT_FALSE(wire_end->closed);
}

TEST_F(PeerLink, HandsTheBytesOfAnAnswerOn) {
  auto asked = call();
  arrive(wire::answer{last_call_id(), wire::state_chunk{3}}, some_bytes(100));
  ASSERT_TRUE(asked.get());
  EXPECT_EQ(asked.get()->body.size, 100U);
  EXPECT_EQ(wire_end->granted, 100U);
}

TEST_F(PeerLink, ARefusalKeepsItsReason) {
  auto asked = call();
  arrive(wire::refusal{last_call_id(), {ec::group_full, "eight are enough"}});
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error(), (failure{ec::group_full, "eight are enough"}));
}

TEST_F(PeerLink, IgnoresAnswersThatNobodyAskedFor) {
  arrive(wire::answer{77, wire::dht_pong{}});
  arrive(wire::refusal{78, {ec::internal, {}}});
  EXPECT_FALSE(wire_end->closed);
  EXPECT_TRUE(alive(link));
}

TEST_F(PeerLink, AllOpenCallsEndWithTheLinkAndItsReason) {
  auto first = call();
  auto second = call();
  end_link({ec::peer_lost, "reset"});
  for (const auto& asked : {first, second}) {
    ASSERT_TRUE(asked.answered());
    EXPECT_EQ(asked.get().error().code, ec::peer_lost);
  }
  ASSERT_EQ(downs->size(), 1U);
  EXPECT_EQ((*downs)[0].peer, test_peer(2).id);
  EXPECT_EQ((*downs)[0].link, 42U);
  EXPECT_EQ((*downs)[0].why.code, ec::peer_lost);
  EXPECT_FALSE(alive(link));
}

// -- the peer's calls ----------------------------------------------------------------------------

TEST_F(PeerLink, AsksTheServiceOfTheTopicAndAnswersUnderTheSameId) {
  wire::join_group join;
  join.self = test_peer(2);
  const std::pair<wire::request, service_topic> requests[] = {
    {wire::dht_ping{}, service_topic::dht},
    {wire::dht_find{{dht_id{}}, false}, service_topic::dht},
    {wire::dht_store{}, service_topic::dht},
    {join, service_topic::matchmaking},
    {wire::open_state{}, service_topic::state},
    {wire::get_state_chunk{}, service_topic::state},
  };
  std::uint64_t id = 100;
  std::map<service_topic, std::size_t> expected;
  for (const auto& [request, topic] : requests) {
    arrive(wire::call{++id, 1'000, request});
    auto answers = wire_end->sent_of<wire::answer>();
    ASSERT_EQ(answers.size(), id - 100);
    EXPECT_EQ(answers.back().id, id);
    EXPECT_EQ(book(topic).calls.size(), ++expected[topic]);
    EXPECT_EQ(book(topic).calls.back().from.id, test_peer(2).id);
    EXPECT_EQ(book(topic).calls.back().what.index(), request.index());
  }
}

TEST_F(PeerLink, SendsEventsToTheServiceOfTheTopic) {
  arrive(wire::event{wire::leave_group{"p"}});
  ASSERT_EQ(book(service_topic::matchmaking).events.size(), 1U);
  EXPECT_EQ(book(service_topic::matchmaking).events[0].from.id, test_peer(2).id);
  arrive(wire::event{wire::progress_push{progress_of(2, ctx)}});
  EXPECT_EQ(book(service_topic::progress).events.size(), 1U);
}

TEST_F(PeerLink, AsksTheMatchmakerOfThePrefix) {
  auto other = std::make_shared<received_by_service>();
  tell(link, serve{service_topic::matchmaking, spawn(recording_service, other), "states"});
  wire::join_group join;
  join.self = test_peer(2);
  for (const auto* prefix : {"states", "gradients", "unknown"}) {
    join.prefix = prefix;
    arrive(wire::call{std::uint64_t{1} + wire_end->sent_of<wire::answer>().size(), 1'000, join});
    arrive(wire::event{wire::leave_group{prefix}});
    arrive(wire::event{wire::disband_group{prefix, {}}});
    wire::begin_group begin{.plan = plan_for(2)};
    begin.plan.prefix = prefix;
    arrive(wire::event{begin});
  }
  EXPECT_EQ(other->calls.size(), 1U);
  EXPECT_EQ(other->events.size(), 3U);
  EXPECT_EQ(book(service_topic::matchmaking).calls.size(), 2U);
  EXPECT_EQ(book(service_topic::matchmaking).events.size(), 6U);
}

// They bypass the actor: the I/O thread passes them on directly.
TEST_F(PeerLink, PartsOfARoundNeitherWaitForServicesNorCountAsBacklog) {
  wire::part part;
  part.round.bytes[0] = std::byte{1};
  part.count = 25;
  auto header = wire::encode(wire::event{part});
  for (std::size_t bytes = 0; bytes <= config.budget.waiting_bytes_max; bytes += header.size())
    wire_end->arrive_raw(header, some_bytes(100));
  EXPECT_FALSE(wire_end->closed);
  settle();
  EXPECT_TRUE(book(service_topic::averaging).events.empty());
  EXPECT_EQ(wire_end->granted, 0U) << "they wait for their round to begin";
  ctx.rounds->forget_old(sched.clock().now() + 60s);
  EXPECT_GT(wire_end->granted, 0U) << "they were dropped";
}

TEST_F(PeerLink, LeavesNothingBehindWhenItEnds) {
  auto end = std::make_shared<scripted_link>(test_peer(8));
  // Not by `spawn`: the fixture remembers such actors.
  auto other = sys.spawn<peer_link>(ctx, config, end, std::uint64_t{43}, owner, service_table{});
  settle();
  auto left = caf::actor_cast<caf::weak_actor_ptr>(other);
  other = nullptr;
  end->end({ec::peer_lost, {}});
  pass(2 * config.ping_interval); // the check that was planned
  EXPECT_EQ(left.get()->strong_refs.load(), 0U);
  EXPECT_EQ(left.get()->weak_refs.load(), 1U) << "only this test remembers it: its memory is freed";
}

TEST_F(PeerLink, RefusesWhatNobodyServes) {
  for (std::size_t topic = 0; topic < service_topics; ++topic)
    tell(link, serve{static_cast<service_topic>(topic), {}});
  arrive(wire::call{1, 1'000, wire::open_state{}});
  auto refusals = wire_end->sent_of<wire::refusal>();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].id, 1U);
  EXPECT_EQ(refusals[0].why.code, ec::not_ready);
  arrive(wire::event{wire::leave_group{"p"}});
  EXPECT_FALSE(wire_end->closed);
}

TEST_F(PeerLink, PassesAServicesRefusalOnWithinTheLimitOfTheWire) {
  book(service_topic::dht).answer = failure{ec::rate_limited, std::string(5'000, 'x')};
  arrive(wire::call{1, 1'000, wire::dht_ping{}});
  auto refusals = wire_end->sent_of<wire::refusal>();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].why.code, ec::rate_limited);
  EXPECT_EQ(refusals[0].why.detail, std::string(wire::detail_bytes_max, 'x'));
}

TEST_F(PeerLink, RefusesForAServiceThatDoesNotAnswerWithinTheAskersDeadline) {
  book(service_topic::dht).silent = true;
  arrive(wire::call{1, 300, wire::dht_ping{}});
  pass(299ms);
  EXPECT_TRUE(wire_end->sent_of<wire::refusal>().empty());
  pass(1ms);
  auto refusals = wire_end->sent_of<wire::refusal>();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].why.code, ec::timeout);
}

TEST_F(PeerLink, CutsAnEndlessDeadlineToItsOwnLimit) {
  book(service_topic::dht).silent = true;
  arrive(wire::call{1, 4'000'000'000U, wire::dht_ping{}});
  for (int second = 0; second < 61 && wire_end->sent_of<wire::refusal>().empty(); ++second) {
    pass(1s);
    arrive(wire::pong{0}); // the peer is alive all the time
  }
  EXPECT_EQ(wire_end->sent_of<wire::refusal>().size(), 1U);
}

TEST_F(PeerLink, RefusesMoreOpenCallsThanItsLimit) {
  book(service_topic::dht).silent = true;
  for (std::uint64_t id = 1; id <= 5; ++id)
    arrive(wire::call{id, 1'000, wire::dht_ping{}});
  auto refusals = wire_end->sent_of<wire::refusal>();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].id, 5U);
  EXPECT_EQ(refusals[0].why.code, ec::overloaded);
  EXPECT_EQ(book(service_topic::dht).calls.size(), 4U);
}

TEST_F(PeerLink, CancelledCallsCountUntilTheServiceIsDoneWithThem) {
  auto& dht = book(service_topic::dht);
  dht.silent = true;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    arrive(wire::call{id, 1'000, wire::dht_ping{}});
    arrive(wire::cancel{id});
  }
  EXPECT_EQ(dht.calls.size(), 4U) << "cancelling evaded the limit";
  auto refusals = wire_end->sent_of<wire::refusal>();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_EQ(refusals[0].why.code, ec::overloaded);
  // An answer to a cancelled call is not sent, and frees its slot.
  tell(dht.service, answer_kept_calls{});
  EXPECT_TRUE(wire_end->sent_of<wire::answer>().empty());
  dht.silent = false;
  arrive(wire::call{6, 1'000, wire::dht_ping{}});
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 1U);
}

TEST_F(PeerLink, ClosesOnACallIdThatIsStillInUse) {
  book(service_topic::dht).silent = true;
  arrive(wire::call{1, 1'000, wire::dht_ping{}});
  arrive(wire::cancel{1});
  EXPECT_FALSE(wire_end->closed);
  arrive(wire::call{1, 1'000, wire::dht_ping{}});
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::protocol_violation);
  EXPECT_EQ(refused("protocol_violation"), 1);
}

} // namespace
} // namespace waggle::testing
