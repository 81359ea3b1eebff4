// One router among peers that the test scripts.

#include "actors/dht_router.hpp"

#include <functional>

#include <gmock/gmock.h>

#include "tests/support/actor_test.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The answers of a peer that knows no other peers and stores every record.
result<wire::response> polite(const call_peer& asked) {
  if (const auto* find = std::get_if<wire::dht_find>(&asked.what))
    return wire::response{wire::dht_found{std::vector<wire::dht_found::answer>(find->keys.size())}};
  if (const auto* store = std::get_if<wire::dht_store>(&asked.what))
    return wire::response{wire::dht_stored{std::vector<ec>(store->records.size())}};
  return wire::response{wire::dht_pong{}};
}

struct surroundings {
  std::function<result<wire::response>(const call_peer&)> answer = polite;
  std::function<result<peer_record>(const endpoint&)> connect = [](const endpoint& where) {
    return result<peer_record>{failure{ec::unreachable, to_string(where) + ": refused"}};
  };
  bool hangs = false; // calls are never answered
  endpoint hangs_at;  // dials to it are never answered
  std::vector<caf::typed_response_promise<peer_connected>> hanging_dials;
  std::vector<caf::typed_response_promise<peer_answer>> hanging;
  std::vector<call_peer> calls;
  std::vector<steady_time> dials;
  link_listener_actor listener; // notified of dialled peers before the dialler is
};

switchboard_actor::behavior_type scripted_switchboard(switchboard_actor::pointer self,
                                                      std::shared_ptr<surroundings> world) {
  return {
    [self, world](const call_peer& msg) -> caf::result<peer_answer> {
      world->calls.push_back(msg);
      if (world->hangs) {
        world->hanging.push_back(self->make_response_promise<peer_answer>());
        return world->hanging.back();
      }
      auto answer = world->answer(msg);
      if (!answer)
        return to_caf(answer.error());
      return peer_answer{msg.to.id, *answer, {}};
    },
    [](const notify_peer&) {},
    [self, world](const connect_address& msg) -> caf::result<peer_connected> {
      world->dials.push_back(self->clock().now());
      if (msg.where == world->hangs_at) {
        world->hanging_dials.push_back(self->make_response_promise<peer_connected>());
        return world->hanging_dials.back();
      }
      auto peer = world->connect(msg.where);
      if (!peer)
        return to_caf(peer.error());
      if (world->listener)
        self->send(world->listener, peer_connected{*peer});
      return peer_connected{*peer};
    },
    [](get_connected_peers) { return connected_peers{}; },
  };
}

class DhtRouter : public actor_test {
protected:
  void start(dht_config with = {}) {
    config = with;
    config.open_records = open_records;
    router = spawn<dht_router>(ctx, config, spawn(scripted_switchboard, world));
  }
  void SetUp() override { start(); }

  void connect(std::uint64_t seed) { tell(router, peer_connected{test_peer(seed)}); }
  void disconnect(std::uint64_t seed, ec why) {
    tell(router, peer_disconnected{test_peer(seed).id, {why, {}}});
  }
  dht_status status() {
    auto got = ask<dht_status>(router, get_dht_status{});
    return got ? *got : dht_status{};
  }

  record open_record(std::string value, std::uint64_t sequence = 1,
                     std::chrono::nanoseconds life = 60s) const {
    record entry;
    entry.name = "greeting";
    entry.subkey = "en";
    entry.value = std::move(value);
    entry.sequence = sequence;
    entry.expiration = wall->now() + life;
    return entry;
  }
  /// The record of the peer with the identity of `seed`.
  record owned_record(std::uint64_t seed, std::string_view run = "test") const {
    auto entry = open_record("mine");
    entry.kind = record_kind::progress;
    sign_record(run, *identity::from_seed(seed), entry);
    return entry;
  }
  find_records query(record_kind kind = record_kind::open) const {
    find_records out;
    out.kind = kind;
    out.name = "greeting";
    return out;
  }

  /// The answer to an unknown peer's request.
  template <class Answer>
  Answer asked_by_peer(wire::request what, std::uint64_t seed = 2) {
    auto got = ask<outbound_answer>(router, inbound_call{test_peer(seed), std::move(what)});
    if (!got) {
      ADD_FAILURE() << to_string(got.error());
      return {};
    }
    return std::get<Answer>(got->what);
  }
  double rejected(const std::string& reason) const {
    return exported(*ctx.metrics, "waggle_dht_records_rejected_total{reason=\"" + reason + "\"");
  }

  bool open_records = true;
  std::shared_ptr<surroundings> world = std::make_shared<surroundings>();
  node_context ctx = test_context(1, wall);
  dht_config config;
  wired_dht_router_actor router;
};

// -- answering other peers -----------------------------------------------------------------------

TEST_F(DhtRouter, TellsItsTimeAndLearnsWhoAsked) {
  auto pong = asked_by_peer<wire::dht_pong>(wire::dht_ping{});
  EXPECT_EQ(pong.now, wall->now());
  EXPECT_EQ(status().routing_entries, 1U);
}

TEST_F(DhtRouter, KeepsWhatIsGenuineAndGivesItBackWithWhomItKnows) {
  auto entry = open_record("hello");
  auto key = record_key("test", entry.kind, entry.name);
  EXPECT_THAT(asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}}).outcomes,
              ElementsAre(ec::none));
  asked_by_peer<wire::dht_pong>(wire::dht_ping{}, 3);
  auto found = asked_by_peer<wire::dht_found>(wire::dht_find{{key, dht_id{}}, false});
  ASSERT_THAT(found.answers, SizeIs(2));
  EXPECT_THAT(found.answers[0].records, ElementsAre(entry));
  EXPECT_THAT(found.answers[1].records, IsEmpty());
  ASSERT_THAT(found.answers[0].nearest, SizeIs(1)) << "the answer omits the asker itself";
  EXPECT_EQ(found.answers[0].nearest[0].id, test_peer(3).id);
  auto nodes = asked_by_peer<wire::dht_found>(wire::dht_find{{key}, true});
  EXPECT_THAT(nodes.answers.at(0).records, IsEmpty());
}

TEST_F(DhtRouter, RefusesForgedExpiredAndStaleRecordsOneByOne) {
  auto forged = owned_record(5);
  forged.value = "not mine";
  auto stolen = owned_record(5);
  stolen.subkey = std::string{test_peer(6).id.raw()};
  auto other_run = owned_record(5, "another run");
  auto expired = open_record("late", 1, -1s);
  auto eternal = open_record("for ever", 1, std::chrono::hours{24 * 365});
  auto fresh = open_record("new", 2);
  auto stale = open_record("old", 1);
  auto stored = asked_by_peer<wire::dht_stored>(
    wire::dht_store{{forged, stolen, other_run, expired, eternal, fresh, stale, owned_record(5)}},
    5);
  EXPECT_THAT(stored.outcomes,
              ElementsAre(ec::bad_signature, ec::not_owner, ec::bad_signature, ec::bad_expiry,
                          ec::bad_expiry, ec::none, ec::stale_record, ec::none));
  EXPECT_EQ(rejected("bad_signature"), 2);
  EXPECT_EQ(rejected("not_owner"), 1);
  EXPECT_EQ(rejected("bad_expiry"), 2);
  EXPECT_EQ(rejected("stale_record"), 1);
  EXPECT_EQ(status().records, 2U);
}

TEST_F(DhtRouter, UnsignedRecordsExistInTestsOnly) {
  open_records = false;
  start();
  auto outcomes =
    asked_by_peer<wire::dht_stored>(wire::dht_store{{open_record("anybody's"), owned_record(2)}})
      .outcomes;
  EXPECT_THAT(outcomes, ElementsAre(ec::not_owner, ec::none));
  EXPECT_EQ(status().records, 1U);
  EXPECT_FALSE(dht_config{}.open_records);
}

TEST_F(DhtRouter, TakesRecordsFromTheirOwnersOnly) {
  auto store = [&](std::uint64_t from) {
    return asked_by_peer<wire::dht_stored>(wire::dht_store{{owned_record(5)}}, from).outcomes;
  };
  EXPECT_THAT(store(2), ElementsAre(ec::not_owner));
  EXPECT_THAT(store(5), ElementsAre(ec::none));
  EXPECT_EQ(rejected("not_owner"), 1);
}

TEST_F(DhtRouter, AFloodOfStrangersLeavesTheRecordsOfMembers) {
  dht_config with;
  with.store.stranger_bytes_max = 4 * sizeof(record) + 4'000;
  start(with);
  auto member = test_peer(5);
  auto plan = plan_for(2);
  plan.members[1].peer = member;
  begin_round(ctx, plan);
  auto store = [&](std::uint64_t from) {
    return asked_by_peer<wire::dht_stored>(wire::dht_store{{owned_record(from)}}, from).outcomes[0];
  };
  EXPECT_EQ(store(5), ec::none);
  for (std::uint64_t stranger = 100; stranger < 150; ++stranger)
    (void)store(stranger);
  EXPECT_LT(status().records, 20U);
  auto key = record_key("test", record_kind::progress, "greeting");
  auto found = asked_by_peer<wire::dht_found>(wire::dht_find{{key}, false});
  ASSERT_FALSE(found.answers.at(0).records.empty());
  EXPECT_EQ(found.answers[0].records[0].subkey, member.id.raw()) << "and before all others";
}

TEST_F(DhtRouter, RefusesAStrangersRecordForWhichManyOthersAreNearer) {
  dht_config with;
  with.nearer_max = 2;
  start(with);
  auto key = record_key("test", record_kind::progress, "greeting");
  std::vector<std::uint64_t> nearer;
  std::uint64_t far = 0;
  for (std::uint64_t seed = 10; nearer.size() < 2 || far == 0; ++seed) {
    bool is_nearer = distance(key, test_peer(seed).id) < distance(key, ctx.record.id);
    if (is_nearer && nearer.size() < 2)
      nearer.push_back(seed);
    else if (!is_nearer)
      far = seed;
  }
  auto store = [&] {
    return asked_by_peer<wire::dht_stored>(wire::dht_store{{owned_record(far)}}, far).outcomes[0];
  };
  connect(nearer[0]);
  EXPECT_EQ(store(), ec::none);
  connect(nearer[1]);
  EXPECT_EQ(store(), ec::not_found);
}

TEST_F(DhtRouter, ForgetsRecordsWhenTheyExpire) {
  asked_by_peer<wire::dht_stored>(wire::dht_store{{open_record("hello", 1, 15s)}});
  pass(14s);
  auto key = record_key("test", record_kind::open, "greeting");
  auto find = [&] { return asked_by_peer<wire::dht_found>(wire::dht_find{{key}, false}); };
  EXPECT_THAT(find().answers.at(0).records, SizeIs(1));
  pass(1s);
  EXPECT_THAT(find().answers.at(0).records, IsEmpty());
  pass(10s);
  EXPECT_EQ(status().records, 0U);
}

TEST_F(DhtRouter, AnAnswerStaysWithinTheLimitsOfAMessage) {
  for (int i = 0; i < 8; ++i) {
    auto entry = open_record(std::string(60'000, 'x'));
    entry.subkey = std::to_string(i);
    asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}});
  }
  EXPECT_EQ(status().records, 8U);
  auto key = record_key("test", record_kind::open, "greeting");
  auto found = asked_by_peer<wire::dht_found>(wire::dht_find{{key, key}, false});
  std::size_t bytes = 0;
  for (const auto& answer : found.answers)
    for (const auto& entry : answer.records)
      bytes += entry.value.size();
  EXPECT_GT(bytes, 0U);
  EXPECT_LT(bytes, wire::header_bytes_max);
}

TEST_F(DhtRouter, RefusesWhatIsNotForTheDht) {
  auto got = ask<outbound_answer>(router, inbound_call{test_peer(2), wire::open_state{}});
  EXPECT_EQ(got.error().code, ec::protocol_violation);
}

TEST_F(DhtRouter, DoesNotRouteThroughClients) {
  auto client = test_peer(2);
  client.client_mode = true;
  tell(router, peer_connected{client});
  EXPECT_FALSE(world->calls.empty()) << "the reply still matters for the clock";
  EXPECT_EQ(status().routing_entries, 0U);
}

// -- Byzantine peers ----------------------------------------------------------------------------

TEST_F(DhtRouter, ReadsOnlyGenuineRecordsFromAPeerThatLies) {
  auto genuine = owned_record(5);
  auto forged = owned_record(6);
  forged.value = "not mine";
  auto elsewhere = owned_record(7);
  elsewhere.name = "farewell";
  sign_record("test", *identity::from_seed(7), elsewhere);
  auto other_kind = open_record("unsigned");
  auto expired = owned_record(8);
  expired.expiration = wall->now();
  sign_record("test", *identity::from_seed(8), expired);
  world->answer = [=](const call_peer& asked) -> result<wire::response> {
    if (std::holds_alternative<wire::dht_ping>(asked.what))
      return wire::response{wire::dht_pong{}};
    return wire::response{
      wire::dht_found{{{{forged, genuine, elsewhere, other_kind, expired}, {}}}}};
  };
  connect(2);
  auto found = ask<found_records>(router, query(record_kind::progress));
  ASSERT_TRUE(found);
  EXPECT_THAT(found->records, ElementsAre(genuine));
  EXPECT_EQ(rejected("bad_signature"), 1);
  EXPECT_EQ(rejected("protocol_violation"), 2);
  EXPECT_EQ(rejected("bad_expiry"), 1);
}

TEST_F(DhtRouter, APeerThatAnswersNonsenseCountsAsOneThatFailed) {
  world->answer = [](const call_peer& asked) -> result<wire::response> {
    if (std::holds_alternative<wire::dht_store>(asked.what))
      return wire::response{wire::dht_stored{{ec::none, ec::none}}};
    return wire::response{wire::dht_pong{}};
  };
  connect(2);
  auto found = ask<found_records>(router, query());
  ASSERT_TRUE(found);
  EXPECT_THAT(found->records, IsEmpty());
  EXPECT_GT(exported(*ctx.metrics, "waggle_dht_requests_total{direction=\"out\",op=\"find\","
                                   "outcome=\"protocol_violation\""),
            0);
}

// 600 years overflow a duration.
TEST_F(DhtRouter, ToleratesAnyTimeThatAPeerClaims) {
  auto seen = std::make_shared<std::vector<swarm_clock::duration>>();
  ctx.clock_compared = [seen](const peer_id&, swarm_clock::duration offset) {
    seen->push_back(offset);
  };
  start();
  for (auto claimed : {swarm_time::min(), swarm_time::max()}) {
    world->answer = [claimed](const call_peer&) {
      return result<wire::response>{wire::dht_pong{claimed}};
    };
    connect(2);
    EXPECT_TRUE(alive(router));
  }
  ASSERT_FALSE(seen->empty());
  EXPECT_GT(seconds_of(*std::max_element(seen->begin(), seen->end())), 7e9);
}

// -- storing and finding -------------------------------------------------------------------------

TEST_F(DhtRouter, AloneItIsTheReplica) {
  auto report = ask<store_report>(router, store_record{open_record("hello")});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->accepted, 1U);
  auto found = ask<found_records>(router, query());
  ASSERT_TRUE(found);
  ASSERT_THAT(found->records, SizeIs(1));
  EXPECT_EQ(found->records[0].value, "hello");
}

TEST_F(DhtRouter, DoesNotSendOutWhatOthersWouldRefuse) {
  connect(2);
  auto forged = owned_record(1);
  forged.value = "changed after signing";
  EXPECT_EQ(ask<store_report>(router, store_record{forged}).error().code, ec::bad_signature);
  EXPECT_EQ(ask<store_report>(router, store_record{open_record("late", 1, -1s)}).error().code,
            ec::bad_expiry);
  for (const auto& call : world->calls)
    EXPECT_FALSE(std::holds_alternative<wire::dht_store>(call.what));
}

TEST_F(DhtRouter, ATombstoneHidesWhatWasThere) {
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("hello", 1)}));
  auto gone = open_record("", 2);
  gone.tombstone = true;
  ASSERT_TRUE(ask<store_report>(router, store_record{gone}));
  auto found = ask<found_records>(router, query());
  ASSERT_TRUE(found);
  EXPECT_THAT(found->records, IsEmpty());
}

TEST_F(DhtRouter, AStoreTellsWhoRefusedAndWhoDidNotAnswer) {
  world->answer = [&](const call_peer& asked) -> result<wire::response> {
    if (!std::holds_alternative<wire::dht_store>(asked.what))
      return polite(asked);
    if (asked.to.id == test_peer(2).id)
      return wire::response{wire::dht_stored{{ec::stale_record}}};
    if (asked.to.id == test_peer(3).id)
      return ec::peer_lost;
    return wire::response{wire::dht_stored{{ec::none}}};
  };
  for (std::uint64_t seed : {2, 3, 4})
    connect(seed);
  auto report = ask<store_report>(router, store_record{open_record("hello")});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->accepted, 2U) << "peer 4 and this one";
  EXPECT_EQ(report->rejected, 1U);
  EXPECT_EQ(report->last_rejection, ec::stale_record);
  EXPECT_EQ(report->failed, 1U);
}

TEST_F(DhtRouter, ASearchEndsAtItsDeadlineWithWhatItHas) {
  connect(2);
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("hello")}));
  world->hangs = true;
  auto question = query();
  question.timeout = 1s;
  auto found = ask_later<found_records>(router, question);
  auto stored = ask_later<store_report>(router, store_record{open_record("again", 2), 1s});
  auto located = ask_later<found_peer>(router, find_peer{test_peer(9).id, 1s});
  pass(999ms);
  EXPECT_FALSE(found.answered() || stored.answered() || located.answered());
  pass(1ms);
  ASSERT_TRUE(found.answered() && stored.answered() && located.answered());
  ASSERT_TRUE(found.get());
  EXPECT_THAT(found.get()->records, SizeIs(1)) << "our own copy";
  ASSERT_TRUE(stored.get());
  EXPECT_EQ(stored.get()->accepted, 0U);
  EXPECT_EQ(located.get().error().code, ec::not_found);
}

TEST_F(DhtRouter, RefusesMoreSearchesThanItsLimit) {
  dht_config with;
  with.searches_max = 2;
  start(with);
  world->hangs = true;
  connect(2); // triggers a lookup of our own id
  auto second = ask_later<found_records>(router, query());
  auto third = ask_later<found_records>(router, query());
  EXPECT_FALSE(second.answered());
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third.get().error().code, ec::overloaded);
  EXPECT_EQ(ask<store_report>(router, store_record{open_record("hello")}).error().code,
            ec::overloaded);
}

// -- bootstrap -----------------------------------------------------------------------------------

const endpoint first_address{"first", 7700};
const endpoint second_address{"second", 7700};

TEST_F(DhtRouter, TriesToJoinAgainWithGrowingPausesAndSaysWhy) {
  auto began = sched.clock().now();
  tell(router, bootstrap_from{{first_address}});
  EXPECT_THAT(status().bootstrap_failures, ElementsAre("first:7700: unreachable: refused"));
  EXPECT_FALSE(status().bootstrapped);
  EXPECT_TRUE(status().addresses_known);
  pass(10s);
  ASSERT_GE(world->dials.size(), 5U);
  EXPECT_EQ(world->dials.front(), began);
  auto pause = 0.25;
  for (std::size_t i = 1; i < world->dials.size(); ++i, pause = std::min(2 * pause, 1.0)) {
    auto seconds = seconds_of(world->dials[i] - world->dials[i - 1]);
    EXPECT_GE(seconds, 0.74 * pause) << "attempt " << i;
    EXPECT_LE(seconds, 1.26 * pause) << "attempt " << i;
  }
}

TEST_F(DhtRouter, AnAddressThatHangsDelaysNoOther) {
  world->hangs_at = first_address;
  tell(router, bootstrap_from{{first_address, second_address}});
  pass(3s);
  EXPECT_GE(world->dials.size(), 5U) << "one that hangs, and another repeatedly";
  world->connect = [](const endpoint&) -> result<peer_record> { return test_peer(2); };
  pass(3s);
  EXPECT_TRUE(status().bootstrapped);
}

TEST_F(DhtRouter, JoinsThroughWhoeverAnswers) {
  world->connect = [](const endpoint& where) -> result<peer_record> {
    if (where == second_address)
      return test_peer(2);
    return failure{ec::wrong_run, "that is another run"};
  };
  world->listener = caf::actor_cast<link_listener_actor>(router);
  tell(router, bootstrap_from{{first_address, second_address}});
  auto now = status();
  EXPECT_TRUE(now.bootstrapped);
  EXPECT_EQ(now.initial_peers, 2U);
  EXPECT_THAT(now.bootstrap_failures, ElementsAre(HasSubstr("first:7700: wrong_run")));
  bool looked_up_itself = false;
  for (const auto& call : world->calls)
    if (const auto* find = std::get_if<wire::dht_find>(&call.what))
      looked_up_itself = looked_up_itself || find->keys.at(0) == dht_id_of(ctx.record.id);
  EXPECT_TRUE(looked_up_itself) << "so that peers near it know it";
}

TEST_F(DhtRouter, ForgetsTheFailureOfAnAddressThatAnswersAtLast) {
  tell(router, bootstrap_from{{first_address}});
  ASSERT_THAT(status().bootstrap_failures, SizeIs(1));
  world->connect = [](const endpoint&) -> result<peer_record> { return test_peer(2); };
  pass(2s);
  EXPECT_THAT(status().bootstrap_failures, IsEmpty());
  EXPECT_TRUE(status().bootstrapped);
}

TEST_F(DhtRouter, ItsOwnAddressIsNobodyToWaitFor) {
  world->connect = [](const endpoint&) -> result<peer_record> { return ec::duplicate_identity; };
  tell(router, bootstrap_from{{first_address}});
  EXPECT_TRUE(status().bootstrapped);
  EXPECT_FALSE(status().addresses_known);
  EXPECT_THAT(status().bootstrap_failures, IsEmpty());
  pass(std::chrono::minutes{5});
  EXPECT_EQ(world->dials.size(), 1U);
}

TEST_F(DhtRouter, NobodyToJoinMeansThatTheRunBeginsHere) {
  EXPECT_FALSE(status().bootstrapped);
  tell(router, bootstrap_from{});
  EXPECT_TRUE(status().bootstrapped);
  EXPECT_FALSE(status().addresses_known);
}

TEST_F(DhtRouter, TriesPeersKnownFromEarlierBesideItsInitialPeers) {
  world->connect = [](const endpoint& where) -> result<peer_record> {
    if (where == test_peer(3).addresses.front())
      return test_peer(3);
    return failure{ec::unreachable, "refused"};
  };
  tell(router, bootstrap_from{{first_address}, {{test_peer(3).id, test_peer(3).addresses}}});
  EXPECT_THAT(world->dials, SizeIs(2));
  EXPECT_TRUE(status().bootstrapped);
  EXPECT_THAT(status().bootstrap_failures, SizeIs(1));
}

TEST_F(DhtRouter, TellsListenersWhetherItHasJoinedWhenThatChanges) {
  auto heard = std::make_shared<std::vector<dht_status>>();
  auto listener = spawn([heard](dht_listener_actor::pointer) -> dht_listener_actor::behavior_type {
    return {[heard](const dht_status& msg) { heard->push_back(msg); }};
  });
  tell(router, bootstrap_from{{first_address}});
  tell(router, subscribe_dht_status{listener});
  ASSERT_THAT(*heard, SizeIs(1));
  EXPECT_FALSE(heard->back().bootstrapped);
  EXPECT_TRUE(heard->back().addresses_known);
  EXPECT_THAT(heard->back().bootstrap_failures, SizeIs(1));
  pass(2s);
  EXPECT_THAT(*heard, SizeIs(1)) << "it fails with the same reason as before";
  connect(2);
  ASSERT_THAT(*heard, SizeIs(2));
  EXPECT_TRUE(heard->back().bootstrapped);
  connect(3);
  disconnect(3, ec::peer_lost);
  EXPECT_THAT(*heard, SizeIs(2));
}

// Pauses grow as they did before the first peer was found, and do not add up.
TEST_F(DhtRouter, LeftAloneAgainItDoesNotDialMoreAndMore) {
  world->connect = [](const endpoint&) -> result<peer_record> { return test_peer(2); };
  tell(router, bootstrap_from{{first_address}});
  connect(2);
  pass(std::chrono::minutes{1});
  EXPECT_EQ(world->dials.size(), 1U) << "it is connected";
  world->connect = [](const endpoint&) -> result<peer_record> { return ec::unreachable; };
  disconnect(2, ec::shutting_down);
  pass(std::chrono::minutes{40});
  world->dials.clear();
  pass(std::chrono::minutes{20});
  EXPECT_GE(world->dials.size(), 15U);
  EXPECT_LE(world->dials.size(), 27U) << "once a minute";
}

// -- peers that leave ----------------------------------------------------------------------------

TEST_F(DhtRouter, DropsAPeerThatSaysGoodbyeAtOnce) {
  connect(2);
  connect(3);
  ASSERT_EQ(status().routing_entries, 2U);
  disconnect(2, ec::shutting_down);
  EXPECT_EQ(status().routing_entries, 1U);
  EXPECT_EQ(ask_later<found_peer>(router, find_peer{test_peer(2).id, 1s}).get().error().code,
            ec::not_found);
}

TEST_F(DhtRouter, DropsAPeerThatFailsTwiceInARow) {
  connect(2);
  disconnect(2, ec::peer_lost);
  EXPECT_EQ(status().routing_entries, 1U) << "one failure may be an accident";
  world->answer = [](const call_peer&) { return result<wire::response>{ec::unreachable}; };
  ASSERT_TRUE(ask<found_records>(router, query()));
  EXPECT_EQ(status().routing_entries, 0U);
}

TEST_F(DhtRouter, TriesLostPeersAgainAtOnceButNotThoseThatSaidGoodbye) {
  connect(2);
  disconnect(2, ec::shutting_down);
  pass(30s);
  EXPECT_THAT(world->dials, IsEmpty());
  connect(3);
  pass(30s);
  auto lost = sched.clock().now();
  disconnect(3, ec::peer_lost);
  pass(30s);
  ASSERT_GE(world->dials.size(), 8U);
  EXPECT_LE(seconds_of(world->dials.front() - lost), 0.25);
  EXPECT_LE(world->dials.size(), 40U);
  connect(3); // it has returned
  world->dials.clear();
  pass(30s);
  EXPECT_THAT(world->dials, IsEmpty());
}

// -- records stored before any other peer is known -----------------------------------------------

/// The values that the peer was asked to store, in order.
std::vector<std::string> stored_at_peers(const surroundings& world) {
  std::vector<std::string> out;
  for (const auto& call : world.calls)
    if (const auto* put = std::get_if<wire::dht_store>(&call.what))
      for (const auto& entry : put->records)
        out.push_back(entry.value);
  return out;
}

TEST_F(DhtRouter, StoresAgainWhatItStoredBeforeItKnewAnybody) {
  tell(router, bootstrap_from{{first_address}});
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("first", 1)}));
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("second", 2)}));
  auto other = open_record("other");
  other.subkey = "fr";
  ASSERT_TRUE(ask<store_report>(router, store_record{other}));
  EXPECT_THAT(world->calls, IsEmpty());
  connect(2);
  EXPECT_THAT(stored_at_peers(*world), ::testing::UnorderedElementsAre("second", "other"));
  connect(3);
  EXPECT_THAT(stored_at_peers(*world), SizeIs(2)) << "once is enough";
}

TEST_F(DhtRouter, DoesNotStoreAgainWhatHasExpiredOrWasKept) {
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("brief", 1, 5s)}));
  pass(6s);
  connect(2);
  EXPECT_THAT(stored_at_peers(*world), IsEmpty());
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("kept", 2)}));
  disconnect(2, ec::shutting_down);
  connect(3);
  EXPECT_THAT(stored_at_peers(*world), ElementsAre("kept"));
}

TEST_F(DhtRouter, FindsPeersThatItKnowsWithoutAskingAnybody) {
  connect(2);
  world->calls.clear();
  auto found = ask<found_peer>(router, find_peer{test_peer(2).id});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->peer.addresses, test_peer(2).addresses);
  EXPECT_THAT(world->calls, IsEmpty());
}

} // namespace
} // namespace waggle::testing
