#include "actors/peer_link.hpp"

#include <gmock/gmock.h>

#include "runtime/wire/convert.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/network_test.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {
namespace {

/// A connection with the test at its other end.
class scripted_link final : public net::link {
public:
  explicit scripted_link(peer_record remote) : remote_(std::move(remote)) {}

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] bool outbound() const override { return true; }
  void start(net::link_events events) override { events_ = std::move(events); }
  bool send(net::frame f) override {
    if (full)
      return false;
    auto message = wire::decode(f.header, f.body.size);
    EXPECT_TRUE(message) << "we sent a message that the peer would refuse";
    if (message)
      sent.push_back(*message);
    return true;
  }
  void grant(std::size_t bytes) override { granted += bytes; }
  [[nodiscard]] std::uint64_t reads() const override { return read; }
  [[nodiscard]] std::uint64_t body_bytes_written() const override { return written; }
  [[nodiscard]] std::size_t unsent_bytes() const override { return unsent; }
  [[nodiscard]] std::size_t unsent_background_bytes() const override { return unsent_bodies; }
  [[nodiscard]] bool idle() const override { return !busy; }
  void hold(bool on) override { held = on; }
  void close(failure why) override {
    if (!closed)
      closed = std::move(why);
  }

  void arrive(const wire::message& what, payload body = {}) {
    events_.on_frame({wire::encode(what), std::move(body)});
  }
  void arrive_raw(std::string header, payload body = {}) {
    events_.on_frame({std::move(header), std::move(body)});
  }
  std::shared_ptr<std::byte> announce(const wire::message& what, std::size_t bytes) {
    return events_.body_memory(wire::encode(what), bytes);
  }
  std::shared_ptr<void> announce_header(std::size_t bytes) { return events_.long_header(bytes); }
  /// So many frames arrive that are not messages.
  void arrive_overhead(std::size_t frames) { events_.on_overhead(frames, 0); }
  void end(failure why) {
    auto events = std::exchange(events_, {}); // they may own this object
    events.on_close(std::move(why));
  }

  /// All messages of one kind that were sent over the link.
  template <class Message>
  std::vector<Message> sent_of() const {
    std::vector<Message> out;
    for (const auto& message : sent)
      if (const auto* one = std::get_if<Message>(&message))
        out.push_back(*one);
    return out;
  }

  bool full = false;
  bool busy = false;
  bool held = false;
  std::vector<wire::message> sent;
  std::size_t granted = 0;
  std::uint64_t read = 0;
  std::uint64_t written = 0; // of bodies
  std::size_t unsent = 0;
  std::size_t unsent_bodies = 0;
  std::optional<failure> closed;

private:
  peer_record remote_;
  net::link_events events_;
};

link_owner_actor::behavior_type recording_owner(link_owner_actor::pointer,
                                                std::shared_ptr<std::vector<link_down>> downs) {
  return {[downs](const link_down& msg) { downs->push_back(msg); }};
}

payload some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size, std::byte{7});
  return copy_to_payload(bytes);
}

record progress_of(std::uint64_t seed, const node_context& ctx) {
  record entry;
  entry.kind = record_kind::progress;
  entry.name = "progress";
  entry.value = "v";
  entry.expiration = ctx.wall->now() + 10s;
  sign_record(ctx.run_id, *identity::from_seed(seed), entry);
  return entry;
}

class PeerLink : public actor_test {
protected:
  void SetUp() override {
    config.inbound_calls_max = 4;
    config.budget.waiting_bytes_max = 1_KiB;
    service_table services;
    for (std::size_t topic = 0; topic < service_topics; ++topic) {
      books.push_back(std::make_shared<received_by_service>());
      services.by_topic[topic] = spawn(recording_service, books.back());
    }
    owner = spawn(recording_owner, downs);
    link = spawn<peer_link>(ctx, config, wire_end, std::uint64_t{42}, owner, services);
  }

  received_by_service& book(service_topic topic) { return *books[static_cast<std::size_t>(topic)]; }

  pending<peer_answer> call(milliseconds timeout = 3s) {
    return ask_later<peer_answer>(link, call_over_link{wire::dht_ping{}, timeout});
  }
  void arrive(const wire::message& what, payload body = {}) {
    wire_end->arrive(what, std::move(body));
    settle();
  }
  void answer_pings() {
    if (auto pings = wire_end->sent_of<wire::ping>(); !pings.empty())
      arrive(wire::pong{pings.back().nonce});
  }
  void end_link(failure why) {
    wire_end->end(std::move(why));
    settle();
  }
  std::uint64_t last_call_id() const { return wire_end->sent_of<wire::call>().back().id; }
  double refused(const std::string& reason) const {
    return exported(*ctx.metrics, "waggle_network_refused_total{reason=\"" + reason + "\"");
  }

  node_context ctx = test_context(1, wall);
  link_config config;
  std::shared_ptr<scripted_link> wire_end = std::make_shared<scripted_link>(test_peer(2));
  std::vector<std::shared_ptr<received_by_service>> books;
  std::shared_ptr<std::vector<link_down>> downs = std::make_shared<std::vector<link_down>>();
  link_owner_actor owner;
  wired_peer_link_actor link;
};

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
    wire::begin_group begin;
    begin.plan = plan_for(2);
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
  wire::part part;
  part.round = plan.id;
  part.count = 1'000;
  part.weight = 1;
  auto body = wire_end->announce(wire::event{part}, 4'000);
  EXPECT_EQ(ctx.strangers->body_bytes(), 4'000U) << "nobody has announced this round";
  arrive(wire::event{part}, {std::move(body), 4'000});
  ctx.rounds->expect(plan);
  body = wire_end->announce(wire::event{part}, 4'000);
  EXPECT_EQ(ctx.strangers->body_bytes(), 4'000U);
}

// A round keeps the parts that have arrived until the others arrive: if those waited for the memory
// that these take, all members would wait for ever.
TEST_F(PeerLink, PartsThatWaitForTheMemoryOfStrangersAreReadWhenTheirRoundBegins) {
  auto plan = plan_for(2);
  plan.members[1].peer = test_peer(2);
  wire::part part;
  part.round = plan.id;
  part.count = 3U << 20U;
  part.weight = 1;
  auto first = wire_end->announce(wire::event{part}, 12_MiB);
  arrive(wire::event{part}, {first, 12_MiB});
  auto second = wire_end->announce(wire::event{part}, 12_MiB);
  EXPECT_TRUE(wire_end->held);
  begin_round(ctx, plan);
  EXPECT_FALSE(wire_end->held);
  arrive(wire::event{part}, {std::move(second), 12_MiB});
  EXPECT_EQ(ctx.strangers->body_bytes(), 0U) << "the peer is a member now";
}

TEST_F(PeerLink, ALongHeaderThatWaitsForTheMemoryOfStrangersIsReadWhenItsPeerBecomesAMember) {
  ASSERT_TRUE(ctx.strangers->take_body(net::stranger_budget::limits{}.body_bytes_max));
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
  ASSERT_TRUE(ctx.strangers->take_body(net::stranger_budget::limits{}.body_bytes_max));
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
  services.by_topic[static_cast<std::size_t>(service_topic::state)] = donor.service;
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

// -- liveness ------------------------------------------------------------------------------------

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

TEST_F(PeerLink, WaitsLongerForAPeerWhoseAnswersComeInFitsAndStarts) {
  for (int i = 0; i < 20; ++i) {
    pass(i % 2 == 0 ? 500ms : 2s);
    arrive(wire::pong{12345});
  }
  pass(4s);
  EXPECT_FALSE(wire_end->closed);
  pass(1'100ms);
  EXPECT_TRUE(wire_end->closed) << "but no longer than the silence timeout";
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
  auto refused = check_link_config(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::bad_config);
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
