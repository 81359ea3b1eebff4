#include "runtime/training/epoch_progress.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"
#include "tests/support/strategies.hpp"

namespace waggle {
namespace {

using testing::collaborative;

/// Peer 1, in a group with peers 2 to n at epoch 5.
struct group {
  group(std::uint8_t n, const lane& how, std::uint64_t target = 64) : averages{how} {
    history past{sha256("run"), {}, {}, 100};
    at.begin(past, epoch_id{5});
    std::vector<peer_id> members;
    for (std::uint8_t i = 1; i <= n; ++i)
      members.push_back(id_of(i));
    within.begin(now);
    within.asked(false);
    within.entered({}, members, epoch_id{5}, now);
    progress.emplace(seen, within, at, averages, target, 60s);
    progress->enter(now);
    progress->begin_counting(wall, now);
  }
  swarm_progress::peer& reports(std::uint8_t n, std::uint64_t samples, double speed = 0) {
    auto& peer = seen.progress.peers.emplace_back();
    peer.who.id = id_of(n);
    peer.epoch = epoch_id{5};
    peer.claim.past = at.past();
    peer.claim.group_size = 2;
    peer.claim.ready = true;
    peer.samples = samples;
    peer.samples_per_second = speed;
    peer.time = wall;
    seen.connected.insert(peer.who.id);
    return peer;
  }
  void after(milliseconds time) {
    now += time;
    wall += time;
  }

  lane averages;
  run_view seen{id_of(1)};
  membership within{seen, {}};
  run_position at{1'000};
  steady_time now{1h};
  swarm_time wall{std::chrono::duration_cast<swarm_clock::duration>(1h)};
  std::optional<epoch_progress> progress;
};

const lane by_samples = collaborative(64).averages;
lane by_passes() {
  auto how = by_samples;
  how.due.counts = lane_clock::unit::each_member;
  return how;
}

TEST(EpochProgress, CountsWhatMembersReportForOurEpoch) {
  group g{3, by_samples};
  g.reports(1, 100); // our own report comes back to us
  g.reports(2, 8);
  g.reports(3, 8).epoch = epoch_id{4};
  g.reports(4, 8); // no member
  EXPECT_EQ(g.progress->samples_of_others(g.now), 8U);
  situation what;
  g.progress->describe(what, 4, nullptr, g.now);
  EXPECT_EQ(what.swarm_samples, 12U);
  EXPECT_EQ(what.members_missing, 0U) << "rounds are not due by passes";
}

TEST(EpochProgress, WaitsForThePassOfEachMemberThatMayDrawSamples) {
  group g{3, by_passes()};
  g.reports(2, 8);
  g.reports(3, 0);
  situation what;
  g.progress->describe(what, 4, nullptr, g.now);
  EXPECT_EQ(what.members_missing, 1U);
  sample_ledger ledger{512};
  std::vector<peer_id> others{id_of(1), id_of(2)};
  ledger.end_epoch({}, 0, others);
  g.progress->describe(what, 4, &ledger, g.now);
  EXPECT_EQ(what.members_missing, 0U) << "peer 3 has no range";
  EXPECT_FALSE(g.progress->next_pass(4, {}, false, g.wall, g.now).begin) << "one pass an epoch";
  EXPECT_TRUE(g.progress->next_pass(0, {}, false, g.wall, g.now).begin);
}

TEST(EpochProgress, OneEpochAMinuteMayEndEarly) {
  group g{2, by_samples};
  EXPECT_FALSE(g.progress->until_end(g.now));
  EXPECT_TRUE(g.progress->may_end_early(g.now)) << "nobody knows how long they take";
  g.after(100s);
  g.progress->end(g.now);
  EXPECT_EQ(g.progress->until_end(g.now + 30s), 70.0);
  EXPECT_EQ(g.progress->until_end(g.now + 130s), -30.0);
  g.after(80s);
  g.progress->end(g.now);
  EXPECT_TRUE(g.progress->may_end_early(g.now)) << "a faster one is not early";
  g.after(30s);
  g.progress->end(g.now);
  EXPECT_FALSE(g.progress->may_end_early(g.now + 59s));
  EXPECT_TRUE(g.progress->may_end_early(g.now + 60s));
}

TEST(EpochProgress, BoundariesStandOnTheNearestPointOfTheGrid) {
  auto how = by_samples;
  how.due.grid = 1'000;
  group g{1, how};
  g.after(1'600ms);
  g.progress->begin_counting(g.wall, g.now);
  situation what;
  g.progress->describe_time(what, g.wall);
  EXPECT_EQ(what.time, 3'601'600U);
  EXPECT_EQ(what.boundary_time, 3'602'000U);
}

TEST(EpochProgress, ClaimsThatAreNotDeliveredDoNotCountAnyMore) {
  group g{2, by_samples};
  g.reports(2, 32);
  EXPECT_TRUE(g.progress->is_comparable());
  g.progress->observe();
  g.progress->begin_counting(g.wall, g.now); // its round begins
  auto found = g.progress->end_round({id_of(1), id_of(2)}, 8, 8, g.now);
  EXPECT_EQ(found.missing, 32U);
  EXPECT_EQ(found.suspects, std::vector{id_of(2)});
  EXPECT_EQ(g.progress->suspects(g.now), 1U);
  EXPECT_EQ(g.progress->samples_of_others(g.now), 0U);

  group passes{2, by_passes()};
  EXPECT_FALSE(passes.progress->is_comparable()) << "its rounds are not due by samples";
}

TEST(EpochProgress, IsExhaustedOnceEverythingIsDrawnAndReported) {
  group g{2, by_samples, 512};
  sample_ledger ledger{512};
  std::vector<peer_id> both{id_of(1), id_of(2)};
  ledger.end_epoch({}, 0, both);
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, false, {}, g.now))
    << "peer 2 has not reported yet";
  auto& other = g.reports(2, 255);
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, false, {}, g.now));
  other.samples = 256;
  EXPECT_TRUE(g.progress->exhausted(ledger, 256, false, {}, g.now));
}

TEST(EpochProgress, WaitsForOneThatAddsNothingForAWhileOnly) {
  group g{2, by_samples};
  sample_ledger ledger{512};
  std::vector<peer_id> both{id_of(1), id_of(2)};
  ledger.end_epoch({}, 0, both);
  g.reports(2, 8);
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, false, {}, g.now));
  g.after(10'100ms);
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, true, {}, g.now)) << "we add some";
  EXPECT_TRUE(g.progress->exhausted(ledger, 256, false, {}, g.now));
  EXPECT_FALSE(g.progress->exhausted(ledger, 257, false, {}, g.now)) << "there are more";
}

TEST(EpochProgress, WaitsLongerForOneWhosePassesTakeLong) {
  group g{2, by_samples};
  sample_ledger ledger{512};
  std::vector<peer_id> both{id_of(1), id_of(2)};
  ledger.end_epoch({}, 0, both);
  g.reports(2, 8, 1);
  pass_account passes{.samples = 8, // eight seconds of the other's
                      .seconds = 0.5};
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, false, passes, g.now));
  g.after(15s); // a pass of 8 s, and a note 5 s after its end
  EXPECT_FALSE(g.progress->exhausted(ledger, 256, false, passes, g.now));
  g.after(3'100ms);
  EXPECT_TRUE(g.progress->exhausted(ledger, 256, false, passes, g.now));
}

TEST(EpochProgress, BeginsNoPassWhileOthersAreExpectedToReachTheTarget) {
  group g{2, by_samples, 32};
  g.reports(2, 0, 160);
  pass_account passes{.seconds = 0.1, .rate = 160};
  g.after(100ms);
  g.progress->end(g.now);
  EXPECT_DOUBLE_EQ(g.progress->seconds(), 0.1);
  EXPECT_FALSE(g.progress->next_pass(16, passes, false, g.wall, g.now).begin);
  EXPECT_TRUE(g.progress->next_pass(0, passes, false, g.wall, g.now).begin);
}

TEST(EpochProgress, ForecastsWhatOthersDoDuringARound) {
  group g{2, by_samples, 32};
  g.reports(2, 0, 160);
  pass_account passes{.rate = 160};
  EXPECT_TRUE(g.progress->next_pass(16, passes, true, g.wall, g.now).begin);
  g.after(100ms);
  auto decided = g.progress->next_pass(16, passes, true, g.wall, g.now);
  EXPECT_FALSE(decided.begin);
  EXPECT_DOUBLE_EQ(decided.wait, 0.1);
}

TEST(EpochProgress, TakesTheMeanOfItsEpochs) {
  group g{1, by_samples};
  EXPECT_EQ(g.progress->seconds(), 0);
  g.after(1'000ms);
  g.progress->end(g.now);
  EXPECT_DOUBLE_EQ(g.progress->seconds(), 1);
  g.after(2'000ms);
  g.progress->end(g.now);
  EXPECT_DOUBLE_EQ(g.progress->seconds(), 1.2);
}

} // namespace
} // namespace waggle
