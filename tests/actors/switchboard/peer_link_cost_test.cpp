// What a peer may cost: bytes, memory and work of members and of strangers.

#include "tests/actors/switchboard/peer_link_fixture.hpp"

namespace waggle::testing {
namespace {

TEST_F(PeerLink, IsNotReadWhileItsMessagesWaitForAnActor) {
  auto header = wire::encode(wire::event{wire::leave_group{std::string(60, 'p')}});
  for (int i = 0; i < 10; ++i)
    wire_end->arrive_raw(header);
  EXPECT_TRUE(wire_end->held);
  EXPECT_FALSE(wire_end->closed);
  settle();
  EXPECT_EQ(book(service_topic::matchmaking).events.size(), 10U) << "and none was lost";
  EXPECT_TRUE(wire_end->held) << "the service has them still";
  book(service_topic::matchmaking).events.clear();
  EXPECT_FALSE(wire_end->held);
  EXPECT_GT(exported(*ctx.metrics, "waggle_network_link_holds_total"), 0);
}

TEST_F(PeerLink, ClosesAfterAFewBadSignaturesAndPassesNoneOn) {
  auto genuine = progress_of(2, ctx);
  auto forged = genuine;
  forged.value = "other";
  arrive(wire::event{wire::progress_push{genuine}});
  arrive(wire::event{wire::progress_push{forged}});
  arrive(wire::call{1, 1'000, wire::dht_store{{genuine, forged}}});
  EXPECT_FALSE(wire_end->closed);
  EXPECT_EQ(wire_end->sent_of<wire::refusal>().at(0).why.code, ec::bad_signature);
  arrive(wire::event{wire::progress_push{forged}});
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::bad_signature);
  EXPECT_EQ(book(service_topic::progress).events.size(), 1U);
  EXPECT_TRUE(book(service_topic::dht).calls.empty());
  EXPECT_EQ(refused("bad_signature"), 3);
}

TEST_F(PeerLink, AStrangerIsReadLaterIfItCausesTooMuchWorkAMemberIsNot) {
  ctx.strangers =
    std::make_shared<net::stranger_budget>(net::stranger_budget::limits{net::work{0}, 64_MiB});
  config.budget.work_per_second = 20 * net::cost::frame;
  auto flood = [this](std::uint64_t seed) {
    auto end = std::make_shared<scripted_link>(test_peer(seed));
    auto made = spawn<peer_link>(ctx, config, end, seed, owner, service_table{});
    auto header = wire::encode(wire::ping{1});
    for (int i = 0; i < 40; ++i) {
      end->arrive_raw(header);
      settle();
    }
    return end;
  };
  auto stranger = flood(8);
  EXPECT_TRUE(stranger->held);
  auto pings = stranger->sent_of<wire::ping>().size();
  pass(config.ping_interval);
  EXPECT_GT(stranger->sent_of<wire::ping>().size(), pings) << "our sign of life, without pongs";
  pass(config.ping_interval);
  EXPECT_FALSE(stranger->held) << "it is read again";
  EXPECT_FALSE(stranger->closed) << "its silence was our doing";
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(9);
  begin_round(ctx, plan);
  EXPECT_FALSE(flood(9)->held);
}

TEST_F(PeerLink, FramesOfAStrangerThatAreNotMessagesCostItWorkAMembersDoNot) {
  ctx.strangers =
    std::make_shared<net::stranger_budget>(net::stranger_budget::limits{net::work{0}, 64_MiB});
  config.budget.work_per_second = net::work{10'000};
  auto connect = [this](std::uint64_t seed) {
    auto end = std::make_shared<scripted_link>(test_peer(seed));
    spawn<peer_link>(ctx, config, end, seed, owner, service_table{});
    return end;
  };
  auto stranger = connect(8);
  stranger->arrive_overhead(1'000); // a gigabyte in slices of the usual size
  EXPECT_FALSE(stranger->held);
  stranger->arrive_overhead(20'000);
  EXPECT_TRUE(stranger->held);
  pass(config.ping_interval);
  EXPECT_TRUE(stranger->held) << "it owes more than a second's work";
  pass(config.ping_interval);
  EXPECT_FALSE(stranger->held) << "it is read again";
  EXPECT_FALSE(stranger->closed);
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(9);
  begin_round(ctx, plan);
  auto member = connect(9);
  member->arrive_overhead(1'000'000);
  EXPECT_FALSE(member->held);
}

TEST_F(PeerLink, AStrangerThatNeverExtendsItsWindowIsGivenUp) {
  book(service_topic::state).answer = outbound_answer{wire::state_chunk{0}, some_bytes(256_KiB)};
  std::uint64_t id = 0;
  auto ask = [&] { arrive(wire::call{++id, 1'000, wire::get_state_chunk{}}); };
  auto wait = [this](milliseconds time, const std::function<void()>& meanwhile = {}) {
    for (auto waited = 0ms; waited < time; waited += config.ping_interval) {
      answer_pings(); // it reads everything else
      if (meanwhile)
        meanwhile();
      pass(config.ping_interval);
    }
  };
  ask();
  wire_end->unsent_bodies = 256_KiB;
  auto almost = config.silence_timeout - config.ping_interval;
  wait(almost);
  EXPECT_FALSE(wire_end->closed);
  wait(2 * config.silence_timeout, [this] { wire_end->written += 16_KiB; });
  EXPECT_FALSE(wire_end->closed) << "a body is being written, slowly";
  wait(2 * config.silence_timeout, ask);
  EXPECT_FALSE(wire_end->closed) << "pieces leave the queue as quickly as new ones are added";
  wire_end->unsent_bodies = 0;
  wait(2 * config.silence_timeout);
  EXPECT_FALSE(wire_end->closed) << "nothing waits for it";
  ask();
  wire_end->unsent_bodies = 256_KiB;
  wait(config.silence_timeout + config.ping_interval);
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::overloaded);
}

TEST_F(PeerLink, AMemberMayTakePiecesOfAStateLate) {
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(2);
  begin_round(ctx, plan);
  wire_end->unsent_bodies = 256_KiB;
  for (auto waited = 0ms; waited < 2 * config.silence_timeout; waited += config.ping_interval) {
    pass(config.ping_interval);
    answer_pings();
  }
  EXPECT_FALSE(wire_end->closed);
}

TEST_F(PeerLink, AStrangerThatDoesNotReadGetsNoAnswersAndIsGivenUp) {
  auto ask = [this](std::uint64_t id) { arrive(wire::call{id, 1'000, wire::dht_ping{}}); };
  ask(1);
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 1U);
  wire_end->unsent = config.budget.unread_bytes_max + 1;
  ask(2);
  ask(3);
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 1U);
  EXPECT_EQ(wire_end->sent_of<wire::refusal>().at(0).why.code, ec::overloaded);
  EXPECT_TRUE(wire_end->held);
  auto wait = [this](milliseconds time) {
    for (auto waited = 0ms; waited < time; waited += config.ping_interval) {
      ++wire_end->read;   // it is alive
      ++wire_end->unsent; // our pings
      pass(config.ping_interval);
    }
  };
  auto almost = config.silence_timeout - config.ping_interval;
  wait(almost);
  wire_end->unsent = 1'000;
  wait(config.ping_interval);
  EXPECT_FALSE(wire_end->held) << "it has read something";
  wait(almost);
  EXPECT_FALSE(wire_end->closed);
  wait(config.ping_interval);
  ASSERT_TRUE(wire_end->closed);
  EXPECT_EQ(wire_end->closed->code, ec::overloaded);
}

TEST_F(PeerLink, AMemberMayReadItsAnswersLate) {
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(2);
  begin_round(ctx, plan);
  wire_end->unsent = 1_MiB;
  for (std::uint64_t id = 1; id < 3; ++id)
    arrive(wire::call{id, 1'000, wire::dht_ping{}});
  for (auto waited = 0ms; waited < 2 * config.silence_timeout; waited += config.ping_interval) {
    pass(config.ping_interval);
    answer_pings();
  }
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 2U);
  EXPECT_FALSE(wire_end->held);
  EXPECT_FALSE(wire_end->closed);
}

TEST_F(PeerLink, PartsOfAnExpectedRoundDoNotTakeTheMemoryOfStrangers) {
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(2);
  plan.elements = 1U << 20U;
  wire::part part{.round = plan.id, .count = 1'000, .weight = 1};
  auto body = wire_end->announce(wire::event{part}, 4'000);
  EXPECT_EQ(ctx.strangers->bodies.now(), 4'000U) << "nobody has announced this round";
  arrive(wire::event{part}, {std::move(body), 4'000});
  ctx.rounds->expect(plan);
  body = wire_end->announce(wire::event{part}, 4'000);
  EXPECT_EQ(ctx.strangers->bodies.now(), 4'000U);
}

// A round keeps the parts that have arrived until the others arrive: if those waited for the memory
// that these take, all members would wait for ever.
TEST_F(PeerLink, PartsThatWaitForTheMemoryOfStrangersAreReadWhenTheirRoundBegins) {
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(2);
  wire::part part{.round = plan.id, .count = 3U << 20U, .weight = 1};
  auto first = wire_end->announce(wire::event{part}, 12_MiB);
  arrive(wire::event{part}, {first, 12_MiB});
  auto second = wire_end->announce(wire::event{part}, 12_MiB);
  EXPECT_TRUE(wire_end->held);
  begin_round(ctx, plan);
  EXPECT_FALSE(wire_end->held);
  arrive(wire::event{part}, {std::move(second), 12_MiB});
  EXPECT_EQ(ctx.strangers->bodies.now(), 0U) << "the peer is a member now";
}

TEST_F(PeerLink, ALongHeaderThatWaitsForTheMemoryOfStrangersIsReadWhenItsPeerBecomesAMember) {
  ASSERT_TRUE(ctx.strangers->bodies.take(net::stranger_budget::limits{}.body_bytes_max));
  auto header = wire_end->announce_header(200_KiB);
  EXPECT_TRUE(wire_end->held);
  auto plan = plan_for(3);
  plan.members[1].peer = test_peer(3);
  plan.members[2].peer = test_peer(4);
  begin_round(ctx, plan);
  EXPECT_TRUE(wire_end->held) << "others have become members";
  plan = plan_for(2);
  plan.id.bytes[0] = std::byte{77};
  plan.members[1].peer = test_peer(2);
  begin_round(ctx, plan);
  EXPECT_FALSE(wire_end->held);
}

// Otherwise strangers that hold the memory for bodies would keep newcomers from downloading: to a
// newcomer, every donor is a stranger.
TEST_F(PeerLink, PiecesOfAStateThatWeAskedForAreReadHoweverFullTheStrangersMemory) {
  ASSERT_TRUE(ctx.strangers->bodies.take(net::stranger_budget::limits{}.body_bytes_max));
  auto asked = ask_later<peer_answer>(link, call_over_link{wire::get_state_chunk{}, 3s});
  wire::answer answer{last_call_id(), wire::state_chunk{0}};
  auto body = wire_end->announce(answer, 256_KiB);
  EXPECT_FALSE(wire_end->held);
  arrive(answer, {std::move(body), 256_KiB});
  EXPECT_TRUE(asked.get());
  body = wire_end->announce(answer, 256_KiB);
  EXPECT_TRUE(wire_end->held) << "nobody asked for this one";
}

TEST_F(PeerLink, PiecesOfAStateThatThePeerDoesNotReadAreNotPiledUp) {
  book(service_topic::state).answer = outbound_answer{wire::state_chunk{0}, some_bytes(256_KiB)};
  auto ask = [this](std::uint64_t id) { arrive(wire::call{id, 1'000, wire::get_state_chunk{}}); };
  ask(1);
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 1U);
  wire_end->unsent_bodies = config.budget.unread_bodies_max;
  ask(2);
  EXPECT_EQ(wire_end->sent_of<wire::answer>().size(), 1U);
  EXPECT_EQ(wire_end->sent_of<wire::refusal>().at(0).why.code, ec::overloaded);
  EXPECT_FALSE(wire_end->held) << "what it grants for what it has read must be read";
}

TEST_F(PeerLink, SoManyPiecesOfAStateAreNotReadAtOnce) {
  auto& donor = book(service_topic::state);
  donor.silent = true; // it would read them all before the first one is sent
  service_table services;
  services.set({service_topic::state, donor.service});
  config.inbound_calls_max = 256;
  auto end = std::make_shared<scripted_link>(test_peer(8));
  spawn<peer_link>(ctx, config, end, std::uint64_t{43}, owner, services);
  for (std::uint64_t id = 1; id <= 200; ++id) {
    end->arrive(wire::call{id, 1'000, wire::get_state_chunk{}});
    settle();
  }
  auto pieces = net::stranger_budget::limits{}.unread_bodies_max / 256_KiB;
  EXPECT_EQ(donor.calls.size(), pieces + 1);
  EXPECT_EQ(end->sent_of<wire::refusal>().size(), 200 - donor.calls.size());
  pass(2s); // the requests expire
  end->arrive(wire::call{201, 1'000, wire::get_state_chunk{}});
  settle();
  EXPECT_EQ(donor.calls.size(), pieces + 2);
}

} // namespace
} // namespace waggle::testing
