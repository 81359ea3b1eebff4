#include "actors/links/switchboard.hpp"

#include "tests/actors/switchboard/switchboard_fixture.hpp"
#include "tests/runtime/allreduce/recorder.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// -- dialling ------------------------------------------------------------------------------------

TEST_F(Switchboard, DialsAPeerThatIsAskedAndKeepsTheLink) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto dht = serve_at(bob, service_topic::dht);
  auto answer = ask_peer(ann, bob);
  EXPECT_EQ(answer->from, bob.id());
  EXPECT_EQ(dht->calls.at(0).from.id, ann.id());
  EXPECT_EQ(dht->calls.at(0).from.addresses, ann.ctx.record.addresses);
  ASSERT_TRUE(ask_peer(ann, bob));
  EXPECT_EQ(connections(ann), 1U);
  EXPECT_EQ(connected(bob), std::vector{ann.id()});
}

TEST_F(Switchboard, TriesAllAddressesInTurn) {
  auto& ann = add_peer(1);
  auto& eve = add_peer(3);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  auto record = bob.ctx.record;
  auto right = record.addresses.front();
  record.addresses = {nowhere, eve.ctx.record.addresses.front(), right};
  auto answer = ask_for<peer_answer>(10s, ann.board, ping(record));
  EXPECT_EQ(answer->from, bob.id());
  EXPECT_EQ(connected(eve), std::vector<peer_id>{}) << "another peer has that address";
}

TEST_F(Switchboard, TriesTheNextAddressSoonIfOneIsSilent) {
  auto& ann = add_peer(1);
  auto& silent = add_peer(3);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({silent.node});
  auto record = bob.ctx.record;
  record.addresses = {silent.ctx.record.addresses.front(), bob.ctx.record.addresses.front()};
  auto answer = ask_for<peer_answer>(500ms, ann.board, ping(record));
  EXPECT_EQ(answer->from, bob.id());
}

TEST_F(Switchboard, FailsWithTheReasonOfTheLastAddress) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& other_run = add_peer(3, {}, "another run");
  auto& eve = add_peer(4);
  network.crash(bob.node);
  auto record = bob.ctx.record;
  auto closed = record.addresses.front();
  const std::pair<endpoint, ec> cases[] = {
    {closed, ec::unreachable},
    {nowhere, ec::unreachable},
    {other_run.ctx.record.addresses.front(), ec::wrong_run},
    {eve.ctx.record.addresses.front(), ec::bad_signature},
    {ann.ctx.record.addresses.front(), ec::duplicate_identity},
  };
  for (const auto& [last, expected] : cases) {
    record.addresses = {nowhere, last};
    auto answer = ask_for<peer_answer>(10s, ann.board, ping(record));
    EXPECT_EQ(answer.error().code, expected) << to_string(answer.error());
    EXPECT_THAT(answer.error().detail, HasSubstr(to_string(last)));
  }
}

TEST_F(Switchboard, CannotReachAPeerWithoutAnAddress) {
  auto& ann = add_peer(1);
  auto nobody = test_peer(2);
  nobody.addresses.clear();
  auto answer = ask<peer_answer>(ann.board, ping(nobody));
  EXPECT_EQ(answer.error().code, ec::unreachable);
  tell(ann.board, leave(nobody, "dropped"));
  EXPECT_EQ(ask<peer_answer>(ann.board, ping(test_peer(2), 0ms)).error().code, ec::timeout);
}

TEST_F(Switchboard, ARoundGoesOnAtOnceWithoutAMemberThatNoAddressReaches) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  network.crash(bob.node);
  auto plan = plan_for(3);
  std::size_t next = 0;
  for (const auto* who : {&ann, &bob, &eve})
    plan.members[next++].peer = who->ctx.record;
  auto port = std::make_shared<recorder>(ann.id());
  auto round = std::make_shared<round_engine>(
    round_request{plan, 0, std::make_shared<const float_vector>(30, 1.F), 1}, round_config{},
    round_memory{vector_pool::make(2), buffer_pool::make(0)}, port,
    [this] { return network.now(); });
  ann.ctx.rounds->begin(round, {});
  auto proposals = [&] {
    return std::ranges::count_if(std::exchange(port->sent, {}), [](const auto& message) {
      return std::holds_alternative<wire::round_propose>(message.what);
    });
  };
  wire::round_prepared word;
  word.round = plan.id;
  auto client = bob.ctx.record;
  client.addresses.clear();
  tell(ann.board, notify_peer{client, word, {}});
  tell(ann.board, notify_peer{bob.ctx.record, wire::bandwidth_report{plan.id, 1}, {}});
  run_for(1s);
  EXPECT_EQ(proposals(), 0) << "a client dials us, and no round needs a bandwidth";
  tell(ann.board, notify_peer{bob.ctx.record, word, {}});
  run_for(1s);
  EXPECT_GT(proposals(), 0);
}

TEST_F(Switchboard, EverythingThatWaitsForOneDialGoesOverItsLinkInOrder) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto dht = serve_at(bob, service_topic::dht);
  auto groups = serve_at(bob, service_topic::matchmaking);
  std::vector<pending<peer_answer>> asked;
  for (int i = 0; i < 10; ++i) {
    asked.push_back(ask_later<peer_answer>(ann.board, ping(bob.ctx.record)));
    tell(ann.board, leave(bob.ctx.record, std::to_string(i)));
  }
  run_for(1s);
  for (const auto& each : asked)
    EXPECT_TRUE(each.get());
  ASSERT_EQ(groups->events.size(), 10U);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(std::get<wire::leave_group>(groups->events[i].what).prefix, std::to_string(i));
  EXPECT_EQ(connections(ann), 1U);
}

TEST_F(Switchboard, RefusesWhatIsTooMuchToWait) {
  switchboard_config config{.waiting_max = 2};
  auto& ann = add_peer(1, config);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  auto first = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  auto second = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  auto third = ask_later<peer_answer>(ann.board, ping(bob.ctx.record));
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third.get().error().code, ec::overloaded);
  run_for(1s);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

// Each caller has its own timeout.
TEST_F(Switchboard, EachCallThatWaitsForADialHasItsOwnDeadline) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({ann.node});
  auto patient = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 4s));
  auto hasty = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 500ms));
  run_for(499ms);
  EXPECT_FALSE(hasty.answered());
  run_for(1ms);
  ASSERT_TRUE(hasty.answered());
  EXPECT_EQ(hasty.get().error().code, ec::timeout);
  EXPECT_FALSE(patient.answered());
  run_for(4s);
  ASSERT_TRUE(patient.answered());
  EXPECT_EQ(patient.get().error().code, ec::timeout);
}

TEST_F(Switchboard, ACallThatJoinsAnImpatientDialStillGetsItsTime) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  const peer* silent[] = {&add_peer(3), &add_peer(4), &add_peer(5)};
  network.partition({silent[0]->node, silent[1]->node, silent[2]->node});
  auto record = bob.ctx.record;
  for (const auto* each : silent) // 250 ms for each, so the last address is dialled after 750 ms
    record.addresses.insert(record.addresses.begin(), each->ctx.record.addresses.front());
  auto hasty = ask_later<peer_answer>(ann.board, ping(record, 500ms));
  auto patient = ask_later<peer_answer>(ann.board, ping(record, 4s));
  run_for(3s);
  EXPECT_EQ(hasty.get().error().code, ec::timeout);
  EXPECT_TRUE(patient.get()) << "the last address was not tried";
}

TEST_F(Switchboard, UsesTheConnectionThatThePeerMakesWhileWeDial) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht);
  network.partition({bob.node});
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 4s));
  run_for(10ms);
  network.heal(); // our dial is lost nevertheless
  ASSERT_TRUE(
    ask_for<peer_connected>(1s, bob.board, connect_address{ann.ctx.record.addresses.front(), 1s}));
  run_for(200ms);
  ASSERT_TRUE(asked.answered()) << "it waits for its own dial";
  EXPECT_TRUE(asked.get());
}

// -- bootstrap dials -----------------------------------------------------------------------------

TEST_F(Switchboard, TellsWhoLivesAtAnAddress) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto up =
    ask_for<peer_connected>(1s, ann.board, connect_address{bob.ctx.record.addresses.front(), 1s});
  EXPECT_EQ(up->peer.id, bob.id());
  EXPECT_EQ(connected(ann), std::vector{bob.id()});
}

TEST_F(Switchboard, TellsWhyNobodyIsReachedAtAnAddress) {
  auto& ann = add_peer(1);
  auto& other_run = add_peer(2, {}, "another run");
  const std::pair<endpoint, ec> cases[] = {
    {nowhere, ec::unreachable},
    {other_run.ctx.record.addresses.front(), ec::wrong_run},
    {ann.ctx.record.addresses.front(), ec::duplicate_identity},
  };
  for (const auto& [where, expected] : cases) {
    auto up = ask_for<peer_connected>(1s, ann.board, connect_address{where, 1s});
    EXPECT_EQ(up.error().code, expected);
    EXPECT_THAT(up.error().detail, HasSubstr(to_string(where)));
  }
  network.partition({ann.node});
  auto slow = ask_later<peer_connected>(
    ann.board, connect_address{other_run.ctx.record.addresses.front(), 800ms});
  run_for(799ms);
  EXPECT_FALSE(slow.answered());
  run_for(2ms);
  EXPECT_EQ(slow.get().error().code, ec::timeout);
}

// -- routing -------------------------------------------------------------------------------------

TEST_F(Switchboard, RoutesByTopicAlsoToServicesThatComeLater) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  EXPECT_EQ(ask_peer(ann, bob).error().code, ec::not_ready) << "no service is registered yet";
  auto dht = serve_at(bob, service_topic::dht);
  auto state = serve_at(bob, service_topic::state);
  ASSERT_TRUE(ask_peer(ann, bob));
  ASSERT_TRUE(ask_for<peer_answer>(1s, ann.board, call_peer{bob.ctx.record, wire::open_state{}}));
  EXPECT_EQ(dht->calls.size(), 1U);
  EXPECT_EQ(state->calls.size(), 1U);
  wire::join_group join;
  join.self = ann.ctx.record;
  auto unserved = ask_for<peer_answer>(1s, ann.board, call_peer{bob.ctx.record, join});
  EXPECT_EQ(unserved.error().code, ec::not_ready);
}

TEST_F(Switchboard, PassesARefusalAndItsReasonOn) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->answer = failure{ec::rate_limited, "slowly"};
  EXPECT_EQ(ask_peer(ann, bob).error(), (failure{ec::rate_limited, "slowly"}));
}

TEST_F(Switchboard, ACallToAServiceThatNeverAnswersEndsAtItsDeadline) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->silent = true;
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 2s));
  run_for(1'900ms);
  EXPECT_FALSE(asked.answered());
  run_for(200ms);
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::timeout);
}

// -- listeners -----------------------------------------------------------------------------------

TEST_F(Switchboard, TellsListenersOnceWhoCameAndWhoWentAndWhy) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  auto& joe = add_peer(4);
  auto heard = listen_at(ann);
  for (auto* other : {&bob, &eve, &joe})
    ASSERT_TRUE(ask_for<peer_connected>(1s, other->board,
                                        connect_address{ann.ctx.record.addresses.front(), 1s}));
  auto late = listen_at(ann);
  EXPECT_EQ(heard->connected.size(), 3U);
  EXPECT_EQ(late->connected.size(), 3U) << "it is notified of connected peers";
  network.crash(bob.node);
  network.crash(eve.node, true);
  tell(joe.board, hang_up{});
  run_for(10s);
  for (const auto& book : {heard, late}) {
    ASSERT_EQ(book->disconnected.size(), 3U);
    std::map<peer_id, ec> reasons;
    for (const auto& gone : book->disconnected)
      reasons[gone.peer] = gone.why.code;
    EXPECT_EQ(reasons[bob.id()], ec::peer_lost);
    EXPECT_EQ(reasons[eve.id()], ec::timeout);
    EXPECT_EQ(reasons[joe.id()], ec::shutting_down);
  }
  EXPECT_EQ(connected(ann), std::vector<peer_id>{});
  EXPECT_EQ(connections(ann), 0U);
}

TEST_F(Switchboard, HearsOfAPeerAgainWhenItComesBack) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto heard = listen_at(ann);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  network.reset_links(ann.node, bob.node);
  run_for(1s);
  EXPECT_EQ(heard->disconnected.size(), 1U);
  ASSERT_TRUE(ask_peer(ann, bob));
  EXPECT_EQ(heard->connected.size(), 2U);
}

TEST_F(Switchboard, OpenCallsEndWhenThePeerIsLost) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  serve_at(bob, service_topic::dht)->silent = true;
  auto asked = ask_later<peer_answer>(ann.board, ping(bob.ctx.record, 10s));
  run_for(500ms);
  network.crash(bob.node);
  run_for(500ms);
  ASSERT_TRUE(asked.answered());
  EXPECT_EQ(asked.get().error().code, ec::peer_lost);
}

// -- shutdown ------------------------------------------------------------------------------------

TEST_F(Switchboard, AfterHangingUpItNeitherDialsNorAccepts) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto& eve = add_peer(3);
  serve_at(ann, service_topic::dht);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  auto under_way = ask_later<peer_answer>(ann.board, ping(eve.ctx.record));
  tell(ann.board, hang_up{});
  run_for(1s);
  ASSERT_TRUE(under_way.answered());
  EXPECT_EQ(under_way.get().error().code, ec::shutting_down);
  EXPECT_EQ(connected(ann), std::vector<peer_id>{});
  EXPECT_EQ(connected(bob), std::vector<peer_id>{});
  EXPECT_EQ(connected(eve), std::vector<peer_id>{});
  EXPECT_EQ(ask_peer(ann, bob).error().code, ec::unreachable);
  EXPECT_EQ(ask<peer_connected>(ann.board, connect_address{bob.ctx.record.addresses.front(), 1s})
              .error()
              .code,
            ec::shutting_down);
  auto heard = listen_at(bob);
  EXPECT_FALSE(ask_peer(bob, ann));
  ASSERT_EQ(heard->disconnected.size(), 1U) << "it was linked for a moment";
  EXPECT_EQ(heard->disconnected[0].why.code, ec::shutting_down) << "and did not lose it";
}

TEST_F(Switchboard, TakesItsLinksAlongWhenItEnds) {
  auto& ann = add_peer(1);
  auto& bob = add_peer(2);
  auto heard = listen_at(bob);
  serve_at(bob, service_topic::dht);
  ASSERT_TRUE(ask_peer(ann, bob));
  caf::anon_send_exit(ann.board, caf::exit_reason::user_shutdown);
  run_for(1s);
  EXPECT_FALSE(alive(ann.board));
  ASSERT_EQ(heard->disconnected.size(), 1U);
  EXPECT_EQ(connected(bob), std::vector<peer_id>{});
}

} // namespace
} // namespace waggle::testing
