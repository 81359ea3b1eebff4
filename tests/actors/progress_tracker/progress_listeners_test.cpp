// When listeners are told, and of whom the tracker keeps reports.

#include "tests/actors/progress_tracker/tracker_fixture.hpp"
#include "tests/support/hosted_link.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {
namespace {

/// A listener that has not processed a view before the test says so.
struct slow_listener {
  std::vector<swarm_progress> heard;
  std::vector<caf::response_promise> unprocessed;
  caf::actor actor;
};
caf::behavior slow_behavior(caf::event_based_actor* self, slow_listener* facts) {
  return {
    [self, facts](const swarm_progress& view) {
      facts->heard.push_back(view);
      facts->unprocessed.push_back(self->make_response_promise());
    },
    [facts](caf::ok_atom) {
      for (auto& one : std::exchange(facts->unprocessed, {}))
        one.deliver(caf::unit);
    },
  };
}

struct ProgressListeners : ProgressTracker {
  ~ProgressListeners() override { end_actors(); }

  void SetUp() override {
    ProgressTracker::SetUp();
    pass(1s);
    world->heard.clear();
  }

  /// The samples at the global epoch that were seen in each view.
  std::vector<std::uint64_t> heard() const {
    std::vector<std::uint64_t> all;
    for (const auto& view : world->heard)
      all.push_back(samples_in(view));
    return all;
  }
  /// The same of the last view.
  static std::uint64_t last(const slow_listener& slow) {
    return slow.heard.empty() ? 0 : samples_in(slow.heard.back());
  }
  void subscribe(slow_listener& slow) {
    slow.actor = spawn(slow_behavior, &slow);
    tell(tracker, subscribe_progress{caf::actor_cast<progress_listener_actor>(slow.actor)});
  }
  void process(const slow_listener& slow) { tell(slow.actor, caf::ok_atom::value); }

  void process_all() {
    while (!first.unprocessed.empty() || !second.unprocessed.empty()) {
      process(first);
      process(second);
    }
  }

  slow_listener first;
  slow_listener second;
  using samples = std::vector<std::uint64_t>;
};

// -- when ----------------------------------------------------------------------------------------

TEST_F(ProgressListeners, HearOfManyReportsTogether) {
  push(2, record_of(2, 3, 10));
  EXPECT_EQ(heard(), (samples{10})) << "the first one at once";
  for (std::uint64_t i = 11; i <= 60; ++i)
    note(2, 3, i);
  EXPECT_EQ(heard(), (samples{10}));
  pass(5ms);
  EXPECT_EQ(heard(), (samples{10, 60}));
  pass(1s);
  EXPECT_EQ(heard(), (samples{10, 60})) << "nothing has changed since";
  note(2, 3, 61);
  EXPECT_EQ(heard(), (samples{10, 60, 61})) << "long after the last one";
}

TEST_F(ProgressListeners, HearOfSteadyReportsAtABoundedRate) {
  push(2, record_of(2, 3, 10));
  for (std::uint64_t i = 11; i <= 1'010; ++i) {
    note(2, 3, i);
    pass(1ms);
  }
  EXPECT_GE(world->heard.size(), 190U);
  EXPECT_LE(world->heard.size(), 202U) << "one each 5 ms";
  pass(5ms);
  EXPECT_EQ(heard().back(), 1'010U);
}

TEST_F(ProgressListeners, HearAtOnceWhatThisPeerReports) {
  push(2, record_of(2, 3, 10));
  note(2, 3, 11);
  report(3, 1);
  EXPECT_EQ(heard(), (samples{10, 12})) << "with what others have reported meanwhile";
  report(3, 2);
  EXPECT_EQ(heard(), (samples{10, 12, 13}));
  pass(100ms);
  EXPECT_EQ(heard(), (samples{10, 12, 13})) << "nothing is said twice";
}

TEST_F(ProgressListeners, AreToldLessOftenInALargeSwarm) {
  for (std::uint64_t seed = 1'000; seed < 1'500; ++seed)
    world->in_dht.push_back(record_of(seed, 0, 1));
  pass(4s); // they are read
  ASSERT_EQ(view().num_peers, 500U);
  world->in_dht.clear();
  pass(100ms);
  world->heard.clear();
  note(1'000, 0, 2);
  note(1'000, 0, 3);
  pass(9'999us);
  EXPECT_EQ(world->heard.size(), 1U);
  pass(1us);
  EXPECT_EQ(world->heard.size(), 2U);
}

TEST_F(ProgressListeners, HaveOneViewAtMostThatTheyHaveNotProcessed) {
  subscribe(first);
  ASSERT_EQ(first.heard.size(), 1U);
  push(2, record_of(2, 3, 10));
  for (std::uint64_t i = 11; i <= 200; ++i) {
    note(2, 3, i);
    report(3, i);
    pass(1ms);
  }
  EXPECT_EQ(first.heard.size(), 1U);
  process(first);
  ASSERT_EQ(first.heard.size(), 2U);
  EXPECT_EQ(samples_in(first.heard.back()), 400U) << "the newest one";
  process(first);
  EXPECT_EQ(first.heard.size(), 2U) << "nothing has changed since";
}

TEST_F(ProgressListeners, OneThatNeverAnswersDelaysTheOthersForAWhileOnly) {
  subscribe(first);
  subscribe(second);
  process(second);
  push(2, record_of(2, 3, 10));
  EXPECT_EQ(last(second), 0U) << "it may ask the first one about what that has seen";
  pass(5s);
  process_all();
  EXPECT_EQ(last(second), 10U);
}

TEST_F(ProgressListeners, ASlowOneDelaysNobodyThatSubscribedBefore) {
  subscribe(first);
  push(2, record_of(2, 3, 10));
  EXPECT_EQ(heard().back(), 10U);
  pass(5ms);
  note(2, 3, 11);
  EXPECT_EQ(heard().back(), 11U);
}

TEST_F(ProgressListeners, NobodySeesMoreThanThoseBeforeWereTold) {
  subscribe(first);
  subscribe(second);
  process_all();
  report(3, 1);
  ASSERT_EQ(last(second), 1U);
  process(second); // and not the first
  report(3, 2);
  EXPECT_EQ(last(second), 1U);
  process(first);
  EXPECT_EQ(last(first), 2U);
  EXPECT_EQ(last(second), 2U);
}

TEST_F(ProgressListeners, OneThatEndsDelaysNobody) {
  subscribe(first);
  subscribe(second);
  process_all();
  report(3, 1);
  process(second);
  report(3, 2);
  ASSERT_EQ(last(second), 1U) << "it waits for the one before";
  caf::anon_send_exit(first.actor, caf::exit_reason::kill);
  settle();
  EXPECT_EQ(last(second), 2U);
  process(second);
  report(3, 3);
  EXPECT_EQ(last(second), 3U);
}

// -- of whom -------------------------------------------------------------------------------------

struct CrowdedTracker : ProgressListeners {
  void SetUp() override {
    config.ledger.peers_max = 3;
    ProgressListeners::SetUp();
  }

  /// Pushes a report over a link from `host` that has ended meanwhile.
  void push_late(std::uint64_t seed, const std::string& host) {
    tell(tracker, inbound_event{test_peer(seed),
                                wire::progress_push{record_of(seed, 3, 1)},
                                {},
                                std::make_shared<hosted_link>(test_peer(seed), host, false)});
  }
  bool knows(std::uint64_t seed) {
    auto peers = view().peers;
    return std::any_of(peers.begin(), peers.end(),
                       [&](const auto& peer) { return peer.who.id == test_peer(seed).id; });
  }
};

TEST_F(CrowdedTracker, KeepsPeersWithWhichItHasAveraged) {
  auto plan = plan_for(2);
  plan.members[0].peer = test_peer(1);
  plan.members[1].peer = test_peer(2);
  begin_round(ctx, plan);
  push(2, record_of(2, 3, 1));
  connect(3);
  push(3, record_of(3, 3, 1));
  for (std::uint64_t seed = 10; seed < 30; ++seed)
    push(seed, record_of(seed, 3, 1));
  EXPECT_TRUE(knows(2));
  EXPECT_TRUE(knows(3));
  EXPECT_TRUE(knows(29)) << "a newcomer is not dropped";
  EXPECT_EQ(refused(ec::overloaded), 19) << "those that it took the place of";
  connect(4);
  push(4, record_of(4, 3, 1));
  EXPECT_TRUE(knows(4));
  push(30, record_of(30, 3, 1));
  EXPECT_FALSE(knows(30));
  EXPECT_EQ(refused(ec::overloaded), 21);
}

TEST_F(CrowdedTracker, ALinkInTheTableCountsBeforeTheSwitchboardSaysSo) {
  ctx.links->set(test_peer(2).id, std::make_shared<hosted_link>(test_peer(2), "192.0.2.1", false));
  push(2, record_of(2, 3, 1));
  for (std::uint64_t seed = 10; seed < 30; ++seed)
    push(seed, record_of(seed, 3, 1));
  EXPECT_TRUE(knows(2));
}

TEST_F(CrowdedTracker, ManyIdentitiesOfAHostDoNotPushOutThoseOfAnother) {
  push_late(2, "192.0.2.1");
  for (std::uint64_t seed = 10; seed < 30; ++seed)
    push_late(seed, "198.51.100.1");
  EXPECT_TRUE(knows(2));
  push(3, record_of(3, 3, 1));
  EXPECT_TRUE(knows(3)) << "one that the DHT knows";
  EXPECT_TRUE(knows(2));
}

} // namespace
} // namespace waggle::testing
