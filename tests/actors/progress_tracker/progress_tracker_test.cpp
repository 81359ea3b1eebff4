#include "tests/actors/progress_tracker/tracker_fixture.hpp"

namespace waggle::testing {
namespace {

// -- publishing ----------------------------------------------------------------------------------

TEST_F(ProgressTracker, ANewcomerHearsHowFarWeAreAtOnce) {
  report(3, 20);
  ASSERT_TRUE(world->told.empty());
  connect(2);
  ASSERT_EQ(world->told.size(), 1U);
  EXPECT_EQ(world->told[0].to.id, test_peer(2).id);
  auto entry = pushed(world->told[0]);
  EXPECT_TRUE(validate_record("test", entry, wall->now(), *ctx.verifier));
  auto said = read(entry);
  EXPECT_EQ(said.epoch, epoch_id{3});
  EXPECT_EQ(said.samples, 20U);
  EXPECT_EQ(said.who.id, ctx.record.id);
  EXPECT_EQ(said.who.addresses, ctx.record.addresses);
}

TEST_F(ProgressTracker, EverythingGoesOutAtOnceAndIsSignedAtALimitedRate) {
  connect(2);
  report(3, 0);
  ASSERT_EQ(world->told.size(), 1U);
  for (int i = 1; i <= 50; ++i) {
    report(3, static_cast<std::uint64_t>(i));
    EXPECT_GE(world->told.size(), static_cast<std::size_t>(1 + i));
    pass(10ms);
  }
  // Half a second: five signed reports, at one per 100 ms.
  EXPECT_GE(told<wire::progress_push>().size(), 4U);
  EXPECT_LE(told<wire::progress_push>().size(), 7U);
  auto before = world->told.size();
  report(4, 0);
  EXPECT_EQ(world->told.size(), before + 1);
}

TEST_F(ProgressTracker, AnotherHistoryOrGroupIsSignedAtOnce) {
  connect(2);
  report_progress said{epoch_id{3}, 0, sha256("p"), {}, 0};
  tell(tracker, said);
  said.claim.past.branch = sha256("a");
  tell(tracker, said);
  said.claim.group_size = 2;
  tell(tracker, said);
  EXPECT_EQ(told<wire::progress_push>().size(), 3U);
  EXPECT_EQ(read(told<wire::progress_push>().back().entry).claim, said.claim);
}

TEST_F(ProgressTracker, ANoteCountsForTheHistoryThatItsPeerReported) {
  push(2, record_of(2, 3, 10));
  auto note = [&](std::uint64_t epoch, const digest& branch, std::uint64_t samples) {
    wire::progress_note what{epoch_id{epoch}, branch, samples, 5};
    tell(tracker, inbound_event{test_peer(2), what, {}, nullptr});
    auto seen = view().peers;
    return seen.empty() ? std::pair<std::uint64_t, std::uint64_t>{}
                        : std::pair{seen[0].epoch.value(), seen[0].samples};
  };
  using at = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(note(3, {}, 18), (at{3, 18}));
  EXPECT_EQ(note(3, {}, 12), (at{3, 18})) << "an older report";
  EXPECT_EQ(note(4, sha256("another"), 2), (at{3, 18}));
  EXPECT_EQ(note(4, {}, 2), (at{4, 2}));
}

TEST_F(ProgressTracker, ANoteOfAPeerThatNeverReportedIsNothing) {
  tell(tracker,
       inbound_event{test_peer(2), wire::progress_note{epoch_id{9}, {}, 5, 1}, {}, nullptr});
  EXPECT_TRUE(view().peers.empty());
}

TEST_F(ProgressTracker, TheLastSamplesGoOutEvenIfNothingFollows) {
  connect(2);
  report(3, 0);
  report(3, 7);
  ASSERT_EQ(told<wire::progress_note>().size(), 1U);
  EXPECT_EQ(told<wire::progress_note>()[0].samples, 7U);
  pass(200ms);
  ASSERT_EQ(told<wire::progress_push>().size(), 2U)
    << "signed, for the DHT's readers and after a loss";
  EXPECT_EQ(read(told<wire::progress_push>().back().entry).samples, 7U);
}

TEST_F(ProgressTracker, ReportsRarelyInLongEpochsAndNewsAtOnce) {
  connect(2);
  world->told.clear();
  auto say = [&](std::uint64_t epoch, std::uint64_t samples) {
    tell(tracker, report_progress{
                    epoch_id{epoch}, samples, sha256("p"), {}, 0, {}, {}, 64, 2 * (600 - samples)});
    pass(100ms);
  };
  for (std::uint64_t i = 0; i < 600; ++i)
    say(3, i);
  EXPECT_LE(told<wire::progress_push>().size(), 8U) << "each tenth second, or more rarely";
  EXPECT_LE(told<wire::progress_note>().size(), 45U);
  EXPECT_GE(told<wire::progress_note>().size(), 15U);
  say(4, 0);
  EXPECT_EQ(read(told<wire::progress_push>().back().entry).epoch, epoch_id{4});
  say(4, 1);
  auto notes = told<wire::progress_note>().size();
  say(4, 600);
  EXPECT_EQ(told<wire::progress_note>().size(), notes + 1) << "somebody may wait for it";
}

TEST_F(ProgressTracker, EveryReportIsNewsToWhoeverReadsIt) {
  connect(2);
  // Without time passing: readers compare times.
  report(3, 0);
  report(4, 0);
  report(5, 0);
  ASSERT_EQ(world->told.size(), 3U);
  progress_ledger other{test_peer(2).id, {}};
  for (const auto& told : world->told)
    if (const auto* note = std::get_if<wire::progress_note>(&told.what))
      EXPECT_TRUE(other.note(ctx.record.id, note->epoch, note->branch, note->samples,
                             note->samples_per_second, wall->now()));
    else
      EXPECT_TRUE(other.record(read(pushed(told)), wall->now() + 60s));
}

TEST_F(ProgressTracker, StoresInTheDhtAtALimitedRate) {
  report(0, 4);
  pass(60s);
  EXPECT_GE(world->stored.size(), 2U);
  EXPECT_LE(world->stored.size(), 4U); // about every half lifetime while nothing changes
  world->stored.clear();
  for (std::uint64_t epoch = 1; epoch <= 100; ++epoch) {
    report(epoch, 0);
    report(epoch, 4);
    pass(100ms);
  }
  EXPECT_GE(world->stored.size(), 1U);
  EXPECT_LE(world->stored.size(), 3U) << "10 s at one per 5 s";
  for (const auto& entry : world->stored)
    EXPECT_TRUE(validate_record("test", entry, entry.expiration - 30s, *ctx.verifier));
}

TEST_F(ProgressTracker, APeerThatOnlyWatchesIsNotPublished) {
  report(0, 0);
  pass(120s);
  EXPECT_TRUE(world->stored.empty());
}

TEST_F(ProgressTracker, SaysThatItIsStillHereWhileNothingIsReported) {
  connect(2);
  report(3, 8);
  world->told.clear();
  pass(55s);
  EXPECT_GE(world->told.size(), 1U) << "otherwise our report would expire at a connected peer";
}

TEST_F(ProgressTracker, ItsReportsCountAsLongAsItsOptionsSay) {
  config.report_ttl = 7s;
  start();
  connect(2);
  report(3, 8);
  ASSERT_FALSE(world->told.empty());
  auto entry = pushed(world->told.back());
  EXPECT_EQ(entry.expiration, read(entry).time + 7s);
  world->told.clear();
  pass(7s);
  EXPECT_GE(world->told.size(), 1U) << "repeated before it expires";
}

TEST_F(ProgressTracker, AGoodbyeIsPushedAndStoredOnceAndEndsTheReports) {
  connect(2);
  report(3, 8);
  world->told.clear();
  tell(tracker, announce_departure{});
  tell(tracker, announce_departure{});
  ASSERT_EQ(world->told.size(), 1U);
  EXPECT_TRUE(pushed(world->told[0]).tombstone);
  ASSERT_EQ(world->stored.size(), 1U);
  EXPECT_TRUE(world->stored[0].tombstone);
  EXPECT_TRUE(validate_record("test", world->stored[0], wall->now(), *ctx.verifier));
  connect(3);
  report(4, 8);
  pass(60s);
  EXPECT_EQ(world->told.size(), 1U);
  EXPECT_EQ(world->stored.size(), 1U);
}

TEST_F(ProgressTracker, ADhtThatFailsIsSurvived) {
  world->dht_fails = true;
  report(3, 8);
  pass(60s);
  EXPECT_GT(world->reads, 1);
  ASSERT_TRUE(alive(tracker));
  world->dht_fails = false;
  world->in_dht = {record_of(2, 3, 5)};
  pass(60s);
  EXPECT_GE(world->stored.size(), 1U);
}

// -- receiving -----------------------------------------------------------------------------------

TEST_F(ProgressTracker, APushChangesTheViewAndListenersHearIt) {
  report(3, 8);
  world->heard.clear();
  push(2, record_of(2, 3, 100));
  ASSERT_EQ(world->heard.size(), 1U);
  EXPECT_EQ(world->heard[0].num_peers, 2U);
  EXPECT_EQ(samples_in(world->heard[0]), 108U);
  EXPECT_EQ(samples_in(view()), 108U);
}

TEST_F(ProgressTracker, AReplayChangesNothing) {
  auto old = record_of(2, 3, 100);
  push(2, old);
  pass(1s);
  push(2, record_of(2, 3, 120));
  world->heard.clear();
  push(2, old);
  EXPECT_TRUE(world->heard.empty());
  EXPECT_EQ(samples_in(view()), 120U);
}

TEST_F(ProgressTracker, AThirdPeersRecordMayComeFromAnybody) {
  push(3, record_of(2, 3, 100));
  EXPECT_EQ(view().num_peers, 1U);
}

TEST_F(ProgressTracker, ForgedRecordsAreRefusedAndCounted) {
  auto forged = record_of(2, 3, 100);
  forged.value[2] = static_cast<char>(forged.value[2] ^ 1);
  push(2, forged);
  EXPECT_EQ(refused(ec::bad_signature), 1);

  push(2, record_of(2, 3, 100, "another run"));
  EXPECT_EQ(refused(ec::bad_signature), 2);

  auto stolen = record_of(2, 3, 100);
  stolen.subkey = std::string{test_peer(3).id.raw()};
  push(2, stolen);
  EXPECT_EQ(refused(ec::not_owner), 1);

  auto expired = record_of(2, 3, 100, "test", false, 61s);
  push(2, expired);
  EXPECT_EQ(refused(ec::bad_expiry), 1);

  auto other = record_of(2, 3, 100);
  other.name = "something else";
  sign_record("test", *identity::from_seed(2), other);
  push(2, other);
  EXPECT_EQ(refused(ec::protocol_violation), 1);

  auto garbage = record_of(2, 3, 100);
  garbage.value = "garbage";
  sign_record("test", *identity::from_seed(2), garbage);
  push(2, garbage);
  EXPECT_EQ(refused(ec::malformed), 1);

  EXPECT_EQ(view().num_peers, 0U);
  EXPECT_TRUE(alive(tracker));
}

TEST_F(ProgressTracker, ReadsTheDhtForPeersThatItIsNotConnectedTo) {
  report(3, 8);
  world->in_dht = {record_of(2, 3, 30), record_of(3, 2, 50)};
  pass(4s); // the default refresh period is 3 s
  auto now = view();
  EXPECT_EQ(now.num_peers, 3U);
  EXPECT_EQ(samples_in(now), 38U);
}

TEST_F(ProgressTracker, ListenersHearWhenAReportExpires) {
  report(3, 8);
  push(2, record_of(2, 3, 100));
  world->heard.clear();
  pass(65s);
  ASSERT_FALSE(world->heard.empty());
  EXPECT_EQ(world->heard.back().num_peers, 1U);
  EXPECT_EQ(view().num_peers, 1U);
}

TEST_F(ProgressTracker, AnswersRequestsOfPeersWithARefusal) {
  auto answer = ask<outbound_answer>(tracker, inbound_call{test_peer(2), wire::open_state{}});
  EXPECT_EQ(answer.error().code, ec::protocol_violation);
}

// -- connecting and leaving ----------------------------------------------------------------------

TEST_F(ProgressTracker, ALostPeerDoesNotCountThoughTheDhtStillHasItsReport) {
  report(3, 8);
  connect(2);
  push(2, record_of(2, 3, 100));
  world->in_dht = {record_of(2, 3, 100)};
  pass(1s);
  world->heard.clear();
  disconnect(2);
  ASSERT_EQ(world->heard.size(), 1U);
  EXPECT_EQ(world->heard[0].num_peers, 1U);
  pass(20s);
  EXPECT_EQ(view().num_peers, 1U);
}

TEST_F(ProgressTracker, NothingIsPushedToALostPeer) {
  report(3, 0);
  connect(2);
  disconnect(2);
  world->told.clear();
  report(4, 0);
  pass(1s);
  EXPECT_TRUE(world->told.empty());
}

// -- estimating ----------------------------------------------------------------------------------

TEST_F(ProgressTracker, MeasuresItsThroughputWithinEpochs) {
  report(0, 0);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    pass(500ms);
    report(0, 4 * i);
  }
  EXPECT_NEAR(view().samples_per_second, 8, 0.01);
  pass(10s); // averaging: not counted
  report(1, 0);
  pass(500ms);
  report(1, 4);
  EXPECT_NEAR(view().samples_per_second, 8, 0.01);
}

TEST_F(ProgressTracker, TheNewestSpeedWeighsWhatTheOptionSays) { // --performance-ema-alpha
  // 8 samples per second, then 16: seconds per sample are averaged, with weights alpha (1 - alpha)
  // and alpha, divided by their sum.
  for (double alpha : {0.1, 0.5, 1.0}) {
    config.performance_ema_alpha = alpha;
    start();
    report(0, 0);
    pass(500ms);
    report(0, 4);
    EXPECT_NEAR(view().samples_per_second, 8, 1e-6);
    pass(250ms);
    report(0, 8);
    auto seconds_per_sample = (alpha / 16 + alpha * (1 - alpha) / 8) / (alpha * (2 - alpha));
    EXPECT_NEAR(view().samples_per_second, 1 / seconds_per_sample, 1e-6) << "alpha " << alpha;
  }
}

} // namespace
} // namespace waggle::testing
