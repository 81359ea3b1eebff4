// What a router answers, believes, stores and finds.

#include "tests/actors/dht_router/dht_router_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// -- answering other peers -----------------------------------------------------------------------

TEST_F(DhtRouter, TellsItsTimeAndLearnsWhoAsked) {
  auto pong = asked_by_peer<wire::dht_pong>(wire::dht_ping{});
  EXPECT_EQ(pong.now, wall->now());
  EXPECT_EQ(routing_entries(), 1);
}

TEST_F(DhtRouter, KeepsWhatIsGenuineAndGivesItBackWithWhomItKnows) {
  auto entry = open_record("hello");
  auto key = record_key("test", entry.kind, entry.name);
  EXPECT_THAT(asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}}).outcomes,
              ElementsAre(ec::none));
  link(3, "", true);
  auto found = asked_by_peer<wire::dht_found>(wire::dht_find{{key, dht_id{}}, false});
  ASSERT_THAT(found.answers, SizeIs(2));
  EXPECT_THAT(found.answers[0].records, ElementsAre(entry));
  EXPECT_THAT(found.answers[1].records, IsEmpty());
  ASSERT_THAT(found.answers[0].nearest, SizeIs(1)) << "the answer omits the asker itself";
  EXPECT_EQ(found.answers[0].nearest[0].id, test_peer(3).id);
  auto nodes = asked_by_peer<wire::dht_found>(wire::dht_find{{key}, true});
  EXPECT_THAT(nodes.answers.at(0).records, IsEmpty());
}

TEST_F(DhtRouter, LeavesOutWhatTheAskerHas) {
  auto entry = open_record("hello");
  auto key = record_key("test", entry.kind, entry.name);
  asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}});
  auto records = [&](std::vector<std::uint64_t> known) {
    return asked_by_peer<wire::dht_found>(wire::dht_find{{key}, false, std::move(known)})
      .answers.at(0)
      .records;
  };
  EXPECT_THAT(records({1, 2}), SizeIs(1));
  EXPECT_THAT(records({1, record_tag("test", entry)}), IsEmpty());
  EXPECT_NE(record_tag("test", entry), record_tag("test", open_record("hello", 2)));
}

TEST_F(DhtRouter, SaysWhatItHasAndKeepsThatUntilItExpires) {
  auto stored = std::make_shared<std::vector<record>>();
  auto asked = std::make_shared<std::vector<std::uint64_t>>();
  world->answer = [=](const call_peer& call) -> result<wire::response> {
    const auto* find = std::get_if<wire::dht_find>(&call.what);
    if (find == nullptr || find->nodes_only)
      return polite(call);
    *asked = find->known;
    wire::dht_found found{{{*stored, {}}}};
    std::erase_if(found.answers[0].records, [&](const record& each) {
      return std::ranges::count(find->known, record_tag("test", each)) > 0;
    });
    return wire::response{found};
  };
  connect(2);
  auto values = [&] {
    std::vector<std::string> out;
    for (const auto& each : ask<found_records>(router, query())->records)
      out.push_back(each.value);
    return out;
  };
  auto first = open_record("first");
  stored->push_back(first);
  EXPECT_THAT(values(), ElementsAre("first"));
  EXPECT_THAT(*asked, IsEmpty());
  EXPECT_THAT(values(), ElementsAre("first"));
  EXPECT_THAT(*asked, ElementsAre(record_tag("test", first)));
  stored->front() = open_record("second", 2);
  EXPECT_THAT(values(), ElementsAre("second"));
  for (std::size_t i = 0; i < wire::records_per_message_max; ++i)
    stored->emplace_back(first).subkey = std::to_string(i);
  EXPECT_THAT(values(), SizeIs(wire::records_per_message_max + 1));
  EXPECT_THAT(values(), SizeIs(wire::records_per_message_max + 1));
  EXPECT_THAT(*asked, IsEmpty()) << "so many are not kept";
  pass(std::chrono::ceil<milliseconds>(first.expiration - wall->now()));
  stored->clear();
  EXPECT_THAT(values(), IsEmpty());
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
  EXPECT_EQ(records(), 2);
}

TEST_F(DhtRouter, RecordsOfApplicationsAreStoredByServicesOnly) {
  open_records = false;
  start();
  auto outcomes =
    asked_by_peer<wire::dht_stored>(
      wire::dht_store{{open_record("anybody's"), application_record(2), owned_record(2)}})
      .outcomes;
  EXPECT_THAT(outcomes, ElementsAre(ec::not_owner, ec::not_owner, ec::none));
  EXPECT_EQ(records(), 1);
  EXPECT_FALSE(dht_config{}.open_records);
}

TEST_F(DhtRouter, TakesAnApplicationsRecordFromAnyPeerAndReplacesItByItsOwnersOnly) {
  start();
  auto stored = [&](const record& entry) {
    return asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}}).outcomes;
  };
  auto first = application_record(7);
  EXPECT_THAT(stored(first), ElementsAre(ec::none)) << "peer 2 passes it on";
  auto forged = application_record(7, 2);
  forged.value = "forged";
  EXPECT_THAT(stored(forged), ElementsAre(ec::bad_signature));
  forged.by = application_record(8, 2).by;
  EXPECT_THAT(stored(forged), ElementsAre(ec::bad_signature));
  auto others = application_record(8, 2);
  others.subkey = first.subkey;
  EXPECT_THAT(stored(others), ElementsAre(ec::not_owner));
  EXPECT_THAT(stored(application_record(7, 2)), ElementsAre(ec::none));
  EXPECT_THAT(stored(first), ElementsAre(ec::stale_record));
  EXPECT_EQ(records(), 1);
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
  EXPECT_LT(records(), 20);
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

TEST_F(DhtRouter, AnAnswerStaysWithinTheLimitsOfAMessage) {
  for (int i = 0; i < 8; ++i) {
    auto entry = open_record(std::string(60'000, 'x'));
    entry.subkey = std::to_string(i);
    asked_by_peer<wire::dht_stored>(wire::dht_store{{entry}});
  }
  EXPECT_EQ(records(), 8);
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
  EXPECT_EQ(routing_entries(), 0);
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
  pass(999ms);
  EXPECT_FALSE(found.answered() || stored.answered());
  pass(1ms);
  ASSERT_TRUE(found.answered() && stored.answered());
  ASSERT_TRUE(found.get());
  EXPECT_THAT(found.get()->records, SizeIs(1)) << "our own copy";
  ASSERT_TRUE(stored.get());
  EXPECT_EQ(stored.get()->accepted, 0U);
}

TEST_F(DhtRouter, ASearchThatRunsAnswersASecondOneForTheSameKey) {
  connect(2);
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("hello")}));
  auto asked = world->calls.size();
  world->hangs = true;
  auto question = query();
  question.timeout = 1s;
  auto first = ask_later<found_records>(router, question);
  pass(500ms);
  question.timeout = 2s;
  auto second = ask_later<found_records>(router, question);
  EXPECT_EQ(world->calls.size(), asked + 1) << "peer 2 is asked once for both";
  pass(500ms);
  ASSERT_TRUE(first.answered()) << "each has a deadline of its own";
  EXPECT_FALSE(second.answered());
  world->hangs = false;
  ASSERT_TRUE(ask<store_report>(router, store_record{open_record("again", 2)}));
  auto third = ask<found_records>(router, question);
  ASSERT_THAT(third->records, SizeIs(1));
  EXPECT_EQ(third->records[0].value, "again") << "it began after a store and searches itself";
  EXPECT_FALSE(second.answered());
  pass(1'500ms);
  ASSERT_TRUE(second.answered());
  ASSERT_TRUE(second.get());
  EXPECT_THAT(second.get()->records, SizeIs(1));
}

TEST_F(DhtRouter, AsksASilentPeerAgainAfterATimeThatDoubles) {
  auto asked = std::make_shared<std::size_t>(0);
  world->answer = [asked](const call_peer& call) -> result<wire::response> {
    const auto* find = std::get_if<wire::dht_find>(&call.what);
    if (call.to.id == test_peer(3).id) {
      *asked += find != nullptr ? 1 : 0;
      return failure{ec::unreachable, {}};
    }
    if (find != nullptr) // it names peer 3 for ever
      return wire::response{wire::dht_found{{{{}, {test_peer(3)}}}}};
    return polite(call);
  };
  connect(2);
  auto look = [&] {
    EXPECT_TRUE(ask<found_records>(router, query()));
    return std::exchange(*asked, 0);
  };
  pass(61s); // the silence of the lookup of our own id is over
  *asked = 0;
  for (auto silent : {5s, 10s, 20s}) {
    ASSERT_EQ(look(), 1U) << silent.count();
    pass(silent - 1ms);
    EXPECT_EQ(look(), 0U) << silent.count();
    pass(1ms);
  }
  connect(3); // a sign of life
  EXPECT_GE(look(), 1U);
}

TEST_F(DhtRouter, RefusesMoreSearchesThanItsLimit) {
  dht_config with;
  with.searches_max = 2;
  start(with);
  world->hangs = true;
  connect(2); // triggers a lookup of our own id
  auto second = ask_later<found_records>(router, query());
  auto other = query();
  other.name = "another key";
  auto third = ask_later<found_records>(router, other);
  EXPECT_FALSE(second.answered());
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third.get().error().code, ec::overloaded);
  EXPECT_EQ(ask<store_report>(router, store_record{open_record("hello")}).error().code,
            ec::overloaded);
}

} // namespace
} // namespace waggle::testing
