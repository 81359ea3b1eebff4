// How a router joins the run, and what it does when peers leave.

#include "runtime/net/refusals.hpp"
#include "tests/actors/dht_router/dht_router_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const endpoint first_address{"first", 7700};
const endpoint second_address{"second", 7700};

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
  EXPECT_THAT(now.bootstrap_failures, ElementsAre(HasSubstr("first:7700: that is another run")));
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

TEST_F(DhtRouter, ASecondProcessWithItsIdentityIsNotItself) {
  world->connect = [](const endpoint&) -> result<peer_record> {
    return failure{ec::duplicate_identity, std::string{net::identity_in_use}};
  };
  tell(router, bootstrap_from{{first_address}});
  pass(5s);
  EXPECT_FALSE(status().bootstrapped);
  EXPECT_THAT(status().bootstrap_failures, ElementsAre(HasSubstr("give each its own data folder")));
}

TEST_F(DhtRouter, DialsTheAddressesOfANameAndResolvesItAgain) {
  auto addresses = std::make_shared<std::vector<endpoint>>();
  auto resolved = std::make_shared<std::vector<endpoint>>();
  dht_config with;
  with.joining.resolve = [addresses, resolved](const endpoint& name, milliseconds,
                                               net::on_resolved done) {
    resolved->push_back(name);
    if (addresses->empty())
      return done(failure{ec::unreachable, "not found"});
    done(*addresses);
  };
  start(with);
  const endpoint number{"10.0.0.3", 7700};
  world->connect = [number](const endpoint& where) -> result<peer_record> {
    if (where.host == "10.0.0.2")
      return test_peer(2);
    return failure{where == number ? ec::unreachable : ec::duplicate_identity, {}};
  };
  tell(router, bootstrap_from{{first_address, number}});
  EXPECT_THAT(*resolved, ElementsAre(first_address));
  EXPECT_THAT(status().bootstrap_failures, SizeIs(2));
  EXPECT_FALSE(status().bootstrapped);
  *addresses = {{"10.0.0.1", 7700}, {"10.0.0.2", 7700}};
  pass(1s);
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

// -- peers that leave ----------------------------------------------------------------------------

TEST_F(DhtRouter, DropsAPeerThatSaysGoodbyeAtOnce) {
  connect(2);
  connect(3);
  ASSERT_EQ(routing_entries(), 2);
  disconnect(2, ec::shutting_down);
  EXPECT_EQ(routing_entries(), 1);
}

TEST_F(DhtRouter, DropsAPeerThatFailsTwiceInARow) {
  connect(2);
  disconnect(2, ec::peer_lost);
  EXPECT_EQ(routing_entries(), 1) << "one failure may be an accident";
  world->answer = [](const call_peer&) { return result<wire::response>{ec::unreachable}; };
  ASSERT_TRUE(ask<found_records>(router, query()));
  EXPECT_EQ(routing_entries(), 0);
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

} // namespace
} // namespace waggle::testing
