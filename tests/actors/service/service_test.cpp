// The classes of include/waggle/ for services, on real sockets and in waggle::simulation.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include <caf/all.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <stdlib.h>

#include "runtime/crypto/member_list.hpp"
#include "runtime/crypto/swarm_key.hpp"
#include "tests/support/scratch_folder.hpp"
#include "waggle/averager.hpp"
#include "waggle/control.hpp"
#include "waggle/dht.hpp"
#include "waggle/node.hpp"
#include "waggle/simulation.hpp"
#include "waggle/state.hpp"

namespace waggle {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// The actor system, registry and log of a service.
struct service {
  // Before the system: its actors may log until it has ended.
  std::mutex mutex;
  std::vector<std::string> lines;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  caf::actor_system_config config;
  caf::actor_system system{config};
  environment around{&system, registry, [this](log_level, std::string_view text) {
                       std::lock_guard guard{mutex};
                       lines.emplace_back(text);
                     }};

  node_options options(std::vector<std::string> peers = {}) {
    return {.run = "birds",
            .initial_peers = std::move(peers),
            .listen = {"127.0.0.1:0"},
            .averagers = {{.name = "rates", .matchmaking_time = 2s}},
            .around = around};
  }
  [[nodiscard]] std::size_t series() const {
    std::size_t all = 0;
    for (const auto& family : registry->Collect())
      all += family.metric.size();
    return all;
  }
};

std::string refusal(const node_options& o) {
  auto started = node::start(o);
  return started ? "none" : started.error().detail;
}

TEST(Service, APeerOfAServiceUsesItsSystemRegistryAndLogUntilItLeaves) {
  service mine;
  auto before = mine.system.registry().running();
  auto ann = node::start(mine.options());
  EXPECT_GT(mine.system.registry().running(), before);
  EXPECT_TRUE(ann->wait_until_ready(10s));
  EXPECT_GT(mine.series(), 100U);
  auto rates = averager::of(*ann, "rates");
  dht table{*ann};
  ASSERT_TRUE(table.put("members", "ann", "here", 1min));
  auto found = table.get("members");
  EXPECT_EQ(*found, (std::map<std::string, std::string>{{"ann", "here"}}));

  EXPECT_TRUE(ann->leave());
  EXPECT_TRUE(ann->leave()) << "a second time changes nothing";
  EXPECT_EQ(mine.series(), 0U);
  std::vector<float> values(8, 1);
  EXPECT_EQ(rates->average(values, {.timeout = 1s}).error().code, ec::shutting_down);
  EXPECT_EQ(table.get("members").error().code, ec::shutting_down);
  EXPECT_EQ(ann->wait_until_ready(1s).error().code, ec::shutting_down);
}

// It has an actor system of its own.
TEST(Service, APeerIsMadeAskedAndDestroyedByDifferentThreads) {
  auto here = std::filesystem::current_path();
  testing::scratch_folder scratch;
  const auto& folder = scratch.path();
  std::filesystem::current_path(folder);
  node_options o{.listen = {"127.0.0.1:0"}, .data_dir = "peer", .log_level = "error"};
  auto ann = node::start(o);
  std::filesystem::current_path(here);
  EXPECT_TRUE(std::filesystem::exists(folder / "peer" / "identity.pem"));
  EXPECT_TRUE(ann->wait_until_ready(10s));
  ASSERT_TRUE(dht{*ann}.put("members", "ann", "here", 1min));
  const std::string text(100, 'x');
  ASSERT_TRUE(shared_state::of(*ann, "state")->donate(1, std::as_bytes(std::span{text})));
  ASSERT_TRUE(control_of(*ann));
  std::promise<void> ended;
  std::thread thread{[&, mine = std::move(*ann)]() mutable {
    { auto destroyed = std::move(mine); }
    ended.set_value();
  }};
  if (ended.get_future().wait_for(60s) != std::future_status::ready) {
    std::fputs("it waits for the thread that made it\n", stderr);
    std::_Exit(1);
  }
  thread.join();
}

TEST(Service, WithoutALogOfItsOwnItsLinesAreThoseOfTheProgram) {
  ::testing::internal::CaptureStderr();
  node_options o{.listen = {"127.0.0.1:0"}};
  { auto ann = node::start(o); }
  std::istringstream lines{::testing::internal::GetCapturedStderr()};
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line, ::testing::MatchesRegex("[0-9:]{8}\\.[0-9]{3} (info   |warning) .+"));
  EXPECT_GT(count, 0);
}

TEST(Service, APeerThatHasNotLeftInTimeIsWaitedForByTheNextCall) {
  service mine;
  auto ann = node::start(mine.options());
  {
    service others;
    auto bob = node::start(others.options({ann->address()}));
    ASSERT_TRUE(bob->wait_until_ready(10s)); // so there is somebody to whom to say goodbye
    EXPECT_EQ(ann->leave(1ms).error().code, ec::timeout) << "goodbyes take longer";
  }
  EXPECT_TRUE(ann->leave());
  EXPECT_EQ(mine.series(), 0U);
  EXPECT_TRUE(ann->leave());
}

TEST(Service, MistakesOfTheCallerAreRefusedWithTheNameOfTheOption) {
  service mine;
  auto wrong = [&](auto change) {
    auto o = mine.options();
    change(o);
    return refusal(o);
  };
  EXPECT_THAT(wrong([](node_options& o) { o.listen = {"nowhere"}; }),
              HasSubstr("node_options::listen"));
  EXPECT_THAT(wrong([](node_options& o) { o.initial_peers = {":"}; }),
              HasSubstr("node_options::initial_peers"));
  EXPECT_THAT(wrong([](node_options& o) { o.run = ""; }), HasSubstr("node_options::run"));
  EXPECT_THAT(wrong([](node_options& o) { o.log_level = "loud"; }),
              HasSubstr("node_options::log_level"));
  EXPECT_THAT(wrong([](node_options& o) { o.averagers = {{.name = "a.b"}}; }), HasSubstr("'a.b'"));
  EXPECT_THAT(wrong([](node_options& o) {
                o.averagers = {{.name = "a"}, {.name = "a"}};
              }),
              HasSubstr("two have the name 'a'"));
  EXPECT_THAT(wrong([](node_options& o) { o.averagers = {{.name = "a", .target_group_size = 1}}; }),
              HasSubstr("group"));
  EXPECT_EQ(mine.series(), 0U);

  auto ann = node::start(mine.options());
  EXPECT_THAT(averager::of(*ann, "weights").error().detail, HasSubstr("'weights'"));
  auto rates = averager::of(*ann, "rates");
  EXPECT_EQ(rates->average({}).error().code, ec::wrong_shape);
  std::vector<float> values{1, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(rates->average(values).error().code, ec::non_finite);
  values[1] = 1;
  EXPECT_EQ(rates->average(values, {.weight = -1}).error().code, ec::bad_weight);
  for (auto wrong_time : {0ms, -1ms, std::chrono::milliseconds::max()})
    EXPECT_THAT(rates->average(values, {.timeout = wrong_time}).error().detail,
                HasSubstr("average_options::timeout"));
  EXPECT_TRUE(ann->wait_until_ready(std::chrono::milliseconds::max()));
  dht table{*ann};
  EXPECT_FALSE(table.put(std::string(1000, 'k'), "", "v", 1min));
  EXPECT_FALSE(table.put("k", "", "v", -1min));
}

TEST(Service, AnAveragerIsAddedAndEndedWhileThePeersRun) {
  service mine;
  auto ann = node::start(mine.options());
  auto bob = node::start(mine.options({ann->address()}));
  ASSERT_TRUE(bob->wait_until_ready(10s));
  const averager_options how{.name = "scores", .matchmaking_time = 2s};
  std::vector<float> low(100, 1);
  std::vector<float> high(100, 3);
  for (int round = 0; round < 2; ++round) {
    auto first = averager::add(*ann, how);
    EXPECT_THAT(averager::add(*ann, how).error().detail, HasSubstr("'scores' already"));
    auto second = averager::add(*bob, how);
    const average_options both{.timeout = 20s, .expected_peers = 2};
    auto other = std::async(std::launch::async, [&] { return second->average(high, both); });
    auto ended = first->average(low, both);
    ASSERT_TRUE(other.get());
    EXPECT_EQ(ended->contributors.size(), 2U);
    EXPECT_THAT(low, Each(FloatEq(2)));
    EXPECT_EQ(low, high);

    // Nobody comes: its round fails when it ends, and not at the deadline.
    auto waits = std::async(std::launch::async, [&] {
      for (;;)
        if (auto r = first->average(low, {.timeout = 1h, .expected_peers = 2});
            r || r.error().code != ec::overloaded) // by the one below
          return r;
    });
    std::vector<float> other_values(100);
    const average_options briefly{.timeout = 1ms, .expected_peers = 2};
    while (first->average(other_values, briefly).error().code != ec::overloaded)
      std::this_thread::yield();
    EXPECT_TRUE(first->end());
    EXPECT_EQ(waits.get().error().code, ec::shutting_down);
    EXPECT_EQ(first->end().error().code, ec::bad_config);
    EXPECT_THAT(first->average(low).error().detail, HasSubstr("no averager 'scores'"));
    EXPECT_TRUE(second->end());
    low.assign(100, 1);
    high.assign(100, 3);
  }
  EXPECT_THAT(averager::add(*ann, {.name = "a.b"}).error().detail,
              HasSubstr("averager_options::name"));
  EXPECT_THAT(averager::add(*ann, {.name = "rates"}).error().detail, HasSubstr("'rates' already"));
  auto first = averager::of(*ann, "rates"); // that it has begun with
  EXPECT_TRUE(first->end());
  EXPECT_EQ(first->end().error().code, ec::bad_config);
  EXPECT_TRUE(averager::add(*ann, {.name = "rates", .matchmaking_time = 2s}));
}

/// It has no averager of its own program's, but those of the service.
TEST(Service, APeerThatNobodyReachesAveragesAsAClient) {
  service mine;
  auto ann = node::start(mine.options());
  auto closed = mine.options({ann->address()});
  closed.announce = {"127.0.0.1:1"};
  auto bob = node::start(closed);
  std::string notice;
  auto until = std::chrono::steady_clock::now() + 30s;
  while (notice.find("no other peer reaches this one") == notice.npos
         && std::chrono::steady_clock::now() < until)
    notice = bob->status_json();
  EXPECT_THAT(notice, HasSubstr("It goes on as a client"));
  EXPECT_THAT(bob->addresses(), IsEmpty());
  std::vector<float> low(8, 1);
  std::vector<float> high(8, 3);
  const average_options both{.timeout = 20s, .expected_peers = 2};
  auto other = std::async(std::launch::async,
                          [&] { return averager::of(*bob, "rates")->average(high, both); });
  EXPECT_TRUE(averager::of(*ann, "rates")->average(low, both));
  EXPECT_TRUE(other.get());
  EXPECT_THAT(low, Each(FloatEq(2)));
  EXPECT_EQ(low, high);
}

TEST(Service, TwoPeersDoNotShareAFolder) {
  service mine;
  testing::scratch_folder scratch;
  auto o = mine.options();
  o.data_dir = scratch.path();
  auto ann = node::start(o);
  auto id = ann->id();
  EXPECT_THAT(refusal(o), HasSubstr("node_options::data_dir: another peer uses"));
  EXPECT_TRUE(ann->leave());
  auto again = node::start(o);
  EXPECT_EQ(again->id(), id);
}

TEST(Service, ValuesComeWithTheTimesAtWhichTheyExpire) {
  service mine;
  auto ann = node::start(mine.options());
  dht table{*ann};
  system_wall_clock clock;
  auto before = clock.now();
  ASSERT_TRUE(table.put("members", "ann", "here", 1min));
  ASSERT_TRUE(table.put("members", "bob", "there", 1h));
  auto after = clock.now();
  auto found = table.get_dated("members");
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ(found->at("bob").value, "there");
  EXPECT_GE(found->at("ann").expires, before + 1min);
  EXPECT_LE(found->at("ann").expires, after + 1min);
  EXPECT_GE(found->at("bob").expires, before + 1h);
}

TEST(Service, StoresAndFindsOnlyWhatTheApplicationsCheckAccepts) {
  service mine;
  auto strict = mine.options();
  strict.accepts = [](const std::string& key, const std::string&, const std::string& value) {
    return key != "numbers" || value.find_first_not_of("0123456789") == std::string::npos;
  };
  auto ann = node::start(strict);
  auto bob = node::start(mine.options({ann->address()})); // without a check
  ASSERT_TRUE(bob);
  ASSERT_TRUE(bob->wait_until_ready(10s));
  dht here{*ann};
  dht there{*bob};
  auto refused = here.put("numbers", "a", "seven", 1h);
  EXPECT_EQ(refused.error().code, ec::schema_mismatch);
  EXPECT_THAT(refused.error().detail, HasSubstr("numbers"));
  ASSERT_TRUE(here.put("words", "a", "seven", 1h));
  ASSERT_TRUE(here.put("numbers", "a", "7", 1h));
  ASSERT_TRUE(there.put("numbers", "b", "eight", 1h)) << "bob itself stores it";
  auto with = there.get("numbers");
  EXPECT_EQ(with->size(), 2U);
  auto without = here.get("numbers");
  EXPECT_EQ(*without, (std::map<std::string, std::string>{{"a", "7"}}));
}

TEST(Service, OnlyItsOwnerReplacesAValueThatIsOwned) {
  service mine;
  auto ann = node::start(mine.options());
  auto bob = node::start(mine.options({ann->address()}));
  ASSERT_TRUE(bob->wait_until_ready(10s));
  auto app = identity::generate();
  auto other = identity::generate();
  dht here{*ann};
  dht there{*bob};
  ASSERT_TRUE(here.put_owned(*app, "models", "v7", 1h));
  ASSERT_TRUE(there.put_owned(*other, "models", "forged", 1h));
  ASSERT_TRUE(there.put("models", std::string{app->id().raw()}, "forged", 1h));
  ASSERT_TRUE(here.put_owned(*app, "models", "v8", 1min)) << "newer, and it expires earlier";
  for (auto* table : {&here, &there}) {
    auto found = table->get_owned("models");
    EXPECT_EQ(*found, (std::map<peer_id, std::string>{{app->id(), "v8"}, {other->id(), "forged"}}));
  }
  EXPECT_THAT(here.put_owned(*app, "", "v", 1h).error().detail, HasSubstr("the key has 0 bytes"));
  EXPECT_THAT(here.put_owned(*app, "k", std::string(70'000, 'v'), 1h).error().detail,
              HasSubstr("the value has 70000 bytes"));
  EXPECT_EQ(here.put_owned(*app, "k", "v", 25h).error().code, ec::bad_expiry);
  EXPECT_THAT(here.get_owned("models", -1ms).error().detail, HasSubstr("timeout"));
}

TEST(Service, AStateComesFromItsDonorsAndFromNoneThatDiffersFromMost) {
  service mine;
  std::vector<node> peers;
  for (int i = 0; i < 4; ++i) {
    auto made = node::start(
      mine.options(i == 0 ? std::vector<std::string>{} : std::vector{peers[0].address()}));
    ASSERT_TRUE(made->wait_until_ready(10s));
    peers.push_back(std::move(*made));
  }
  std::vector<std::byte> weights(1'000'000);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<std::byte>(i * i % 251);
  auto changed = weights;
  changed[77] ^= std::byte{1};
  auto of = [&](std::size_t i) { return *shared_state::of(peers[i], "weights"); };
  EXPECT_EQ(of(3).fetch(0, 100ms).error().code, ec::no_donor);
  ASSERT_TRUE(of(0).donate(7, changed));
  ASSERT_TRUE(of(1).donate(7, weights));
  ASSERT_TRUE(of(2).donate(7, weights));
  auto donors_known = [&] { return dht{peers[3]}.get_owned("waggle.state/weights")->size(); };
  while (donors_known() < 3) // donate does not wait for the DHT
    std::this_thread::yield();
  auto got = of(3).fetch(5, 30s);
  EXPECT_EQ(got->version, 7U);
  EXPECT_TRUE(got->bytes == weights);
  EXPECT_EQ(of(3).fetch(5, 30s, 1000).error().code, ec::oversize);
  EXPECT_EQ(of(3).fetch(8, 100ms).error().code, ec::no_donor);

  ASSERT_TRUE(of(1).donate(8, changed));
  auto next = of(3).fetch(8, 30s);
  EXPECT_EQ(next->donor, peers[1].id());
  EXPECT_TRUE(next->bytes == changed);
  EXPECT_EQ(of(0).donate(9, {}).error().code, ec::wrong_shape);
  EXPECT_EQ(of(0).donate((1ULL << 48U) + 1, changed).error().code, ec::bad_config);
  EXPECT_THAT(shared_state::of(peers[0], "").error().detail, HasSubstr("name"));
}

TEST(Service, AStateIsFetchedThoughItsDonorAnnouncesItLater) {
  service mine;
  auto donor = node::start(mine.options({}));
  auto reader = node::start(mine.options({donor->address()}));
  ASSERT_TRUE(reader->wait_until_ready(10s));
  auto theirs = *shared_state::of(*donor, "weights");
  std::vector<std::byte> bytes(1000, std::byte{7});
  for (std::uint64_t version = 7; version < 10; ++version) {
    ASSERT_TRUE(theirs.donate(version, bytes));
    auto got = shared_state::of(*reader, "weights")->fetch(version, 20s); // at once
    EXPECT_EQ(got->version, version);
  }
  auto waits = std::async(std::launch::async, [&reader] {
    auto got = shared_state::of(*reader, "weights")->fetch(10, 20s);
    return got ? got->version : 0;
  });
  ASSERT_EQ(waits.wait_for(200ms), std::future_status::timeout) << "nobody has version 10";
  ASSERT_TRUE(theirs.donate(10, bytes));
  EXPECT_EQ(waits.get(), 10U);
}

TEST(Service, APeerThatFindsNobodySaysWhatItWaitsFor) {
  service mine;
  auto ann = node::start(mine.options({"127.0.0.1:1"}));
  auto ready = ann->wait_until_ready(200ms);
  EXPECT_EQ(ready.error().code, ec::timeout);
  EXPECT_THAT(ready.error().detail, HasSubstr("not ready: "));
}

TEST(Service, HintsAreAboutWhatAServiceCanSet) {
  service mine;
  auto ann = node::start(mine.options());
  auto o = mine.options({ann->address()});
  o.listen = {ann->address()};
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("the port is taken"), Not(HasSubstr("--"))));
  o.listen = {"127.0.0.1:0"};
  o.announce = {"[fe80::1]:7700"};
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("add %INTERFACE"), Not(HasSubstr("--"))));
  o.announce.clear();
  o.run = "bees";
  auto bob = node::start(o);
  std::string why;
  for (int tries = 0; tries < 50 && why.find("the run's name") == std::string::npos; ++tries)
    why = bob->wait_until_ready(200ms).error().detail;
  EXPECT_THAT(why, AllOf(HasSubstr("the run's name must be the same"), Not(HasSubstr("--"))));
}

TEST(SimulatedService, TenPeersAverageWithoutTheOneThatDies) {
  simulation swarm{{.seed = 3}};
  node_options o{.averagers = {{.name = "rates", .matchmaking_time = 2s}}};
  for (std::size_t i = 0; i < 10; ++i)
    swarm.start(o, i == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{0});
  swarm.run_for(5s);
  std::size_t ended = 0;
  std::vector<std::vector<float>> means;
  auto average = [&](std::size_t peers) {
    ended = 0;
    means.clear();
    for (std::size_t i = 0; i < peers; ++i)
      swarm.average(i, "rates", std::vector<float>(100, static_cast<float>(i)),
                    {.timeout = 60s, .expected_peers = static_cast<std::uint32_t>(peers)},
                    [&](const result<average_report>& how, const std::vector<float>& mean) {
                      ++ended;
                      if (how && how->contributors.size() == peers)
                        means.push_back(mean);
                    });
    return swarm.run_until([&] { return ended == peers; }, 90s);
  };
  EXPECT_TRUE(average(10));
  ASSERT_THAT(means, SizeIs(10));
  EXPECT_THAT(means, Each(Each(FloatEq(4.5F))));
  swarm.crash(9);
  EXPECT_TRUE(average(9));
  ASSERT_THAT(means, SizeIs(9));
  EXPECT_THAT(means, Each(Each(FloatEq(4))));
  EXPECT_THROW(swarm.crash(9), std::invalid_argument);
  EXPECT_THROW((simulation{{.delay_min = 3ms, .delay_max = 2ms}}), std::invalid_argument);
  EXPECT_THROW(swarm.average(0, "weights", {1}, {}, {}), std::invalid_argument);
}

TEST(SimulatedService, ValuesInTheDhtSurviveThePeerThatStoredThemAndExpire) {
  simulation swarm;
  node_options o;
  for (std::size_t i = 0; i < 5; ++i)
    swarm.start(o, i == 0 ? std::vector<std::size_t>{} : std::vector<std::size_t>{0});
  swarm.run_for(5s);
  EXPECT_TRUE(swarm.put(1, "models", "small", "v7", 60s));
  swarm.leave(1);
  auto found = swarm.get(4, "models");
  EXPECT_EQ(*found, (std::map<std::string, std::string>{{"small", "v7"}}));
  swarm.run_for(61s);
  auto later = swarm.get(4, "models");
  EXPECT_THAT(*later, IsEmpty());
}

TEST(Simulation, PeersWithOneKeyAreOneRunWhateverItsLabel) {
  auto folder = std::filesystem::temp_directory_path()
                / ("waggle-keys-" + std::to_string(std::random_device{}()));
  for (const auto* name : {"birds", "bees"})
    ASSERT_TRUE(save_swarm_key(make_swarm_key(), folder / name));
  simulation swarm{{.seed = 7}};
  node_options o{.run = "label", .swarm_key = folder / "birds"};
  auto first = swarm.start(o);
  o.run = "another-label";
  auto second = swarm.start(o, {first});
  o.swarm_key = folder / "bees";
  auto other = swarm.start(o, {first});
  o.swarm_key.clear();
  auto nameless = swarm.start(o, {first});
  swarm.run_for(5s);
  ASSERT_TRUE(swarm.put(first, "key", "sub", "value", 60s));
  auto found = swarm.get(second, "key");
  EXPECT_EQ((*found)["sub"], "value");
  for (auto stranger : {other, nameless}) {
    auto hidden = swarm.get(stranger, "key");
    EXPECT_TRUE(!hidden || hidden->empty());
  }
  o.swarm_key = folder / "none";
  EXPECT_THROW((void)swarm.start(o), std::invalid_argument);
  std::filesystem::remove_all(folder);
}

std::string list_of(const identity& authority, std::uint64_t version,
                    const std::vector<peer_id>& ids) {
  std::vector<member_list::member> all;
  for (const auto& id : ids)
    all.push_back({id, *end_of_day("2199-12-31")});
  auto list = member_list::sign(authority, version, std::move(all));
  EXPECT_TRUE(list);
  return inline_text(*list);
}

TEST(Simulation, OnlyPeersOnTheListBelongToTheRun) {
  std::vector<peer_id> ids;
  {
    simulation alike{{.seed = 7}};
    for (int i = 0; i < 3; ++i)
      ids.push_back(alike.id(alike.start({})));
  }
  auto authority = identity::from_seed(99);
  simulation swarm{{.seed = 7}};
  node_options o{.members = to_string(authority->key()),
                 .members_list = list_of(*authority, 1, {ids[0], ids[1]})};
  auto first = swarm.start(o);
  o.members_list.clear();
  auto second = swarm.start(o, {first}); // gets the list from the first
  auto third = swarm.start(o, {first});
  EXPECT_EQ(swarm.id(third), ids[2]);
  auto sees = [&](auto who, const std::string& key) {
    auto found = swarm.get(who, key);
    return found && !found->empty();
  };
  swarm.run_for(5s);
  ASSERT_TRUE(swarm.put(first, "one", "sub", "value", 600s));
  EXPECT_TRUE(sees(second, "one"));
  EXPECT_FALSE(sees(third, "one"));
  // A peer brings a list without the second, and with the third.
  o.members_list = list_of(*authority, 2, {ids[0], ids[2]});
  auto bearer = swarm.start(o, {first});
  swarm.run_for(30s);
  ASSERT_TRUE(swarm.put(first, "two", "sub", "value", 600s));
  EXPECT_TRUE(sees(third, "two"));
  EXPECT_FALSE(sees(second, "two"));
  EXPECT_FALSE(sees(bearer, "two")) << "it is on no list itself";
}

TEST(Node, BelongsToARunThatHasAListOfMembers) {
  service s;
  testing::scratch_folder folder;
  auto authority = identity::generate();
  auto id_in = [&](const char* name) {
    return (*identity::load_or_create(folder.path() / name / "identity.pem"))->id();
  };
  auto options = [&](const char* name, std::vector<std::string> through) {
    auto o = s.options(std::move(through));
    o.data_dir = folder.path() / name;
    o.members = to_string(authority->key());
    return o;
  };
  std::filesystem::create_directories(folder.path() / "ada");
  std::filesystem::create_directories(folder.path() / "bob");
  auto given = options("ada", {});
  given.members_list = list_of(*authority, 1, {id_in("ada"), id_in("bob")});
  auto ada = node::start(given);
  {
    auto bob = node::start(options("bob", {ada->address()}));
    EXPECT_TRUE(bob->wait_until_ready(30s));
  }
  auto eve = node::start(options("eve", {ada->address()}));
  EXPECT_EQ(eve->wait_until_ready(1s).error().code, ec::timeout);
  auto nobody = s.options({ada->address()});
  auto stranger = node::start(nobody);
  EXPECT_EQ(stranger->wait_until_ready(1s).error().code, ec::timeout);
  // Bob kept the list, and starts a run of its own with it.
  EXPECT_TRUE(node::start(options("bob", {})));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "bob" / "members.list"));

  auto why = [&](auto change) {
    auto o = options("bad", {});
    change(o);
    auto started = node::start(o);
    return started ? std::string{"started"} : started.error().detail;
  };
  EXPECT_THAT(why([&](auto& o) { o.members = "me"; }), HasSubstr("members: 'me' is no public key"));
  EXPECT_THAT(why([&](auto& o) {
                o.members_list = given.members_list;
                o.members.clear();
              }),
              HasSubstr("members_list: needs `members`"));
  EXPECT_THAT(why([&](auto& o) {
                o.members = to_string(identity::generate()->key());
                o.members_list = given.members_list;
              }),
              HasSubstr("node_options::members_list: "));
  EXPECT_THAT(why([&](auto& o) { o.members_list = "list:zz"; }),
              HasSubstr("is no list of members"));
  EXPECT_THAT(why([&](auto& o) { o.members_list = "no-such-file"; }),
              HasSubstr("node_options::members_list: "));
}

} // namespace
} // namespace waggle
