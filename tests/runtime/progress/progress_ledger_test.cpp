#include "runtime/progress/progress_ledger.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"
#include "tests/support/ids.hpp"

namespace waggle {
namespace {

const swarm_time now{std::chrono::hours{24 * 365 * 50}};
const swarm_time later = now + 60s;

progress_report report(std::uint8_t who, std::uint64_t epoch, std::uint64_t samples,
                       double rate = 1, swarm_clock::duration age = {}) {
  progress_report r;
  r.who.id = id_of(who);
  r.epoch = epoch_id{epoch};
  r.samples = samples;
  r.samples_per_second = rate;
  r.time = now - age;
  return r;
}

progress_report holding(progress_report r, std::string_view parameters) {
  r.parameters = sha256(parameters);
  return r;
}

progress_report client(progress_report r) {
  r.who.client_mode = true;
  return r;
}

struct ProgressLedger : ::testing::Test {
  progress_ledger ledger{id_of(0), {}};

  void add(const progress_report& r) { ASSERT_TRUE(ledger.record(r, later)); }
};

// -- estimates -----------------------------------------------------------------------------------

TEST_F(ProgressLedger, MatchesTheReferenceValues) {
  add(report(1, 3, 100, 20, 1s));
  add(report(2, 3, 50, 10, 2s));
  add(report(3, 2, 40, 30));
  auto view = ledger.view(std::nullopt, now);
  EXPECT_EQ(view.num_peers, 3U);
  EXPECT_EQ(view.global_epoch, epoch_id{3});
  EXPECT_NEAR(view.samples_per_second, 60, 1e-9);
  EXPECT_NEAR(view.eta_seconds, 1.1, 1e-9);
  EXPECT_NEAR(view.refresh_seconds, 0.55, 1e-9);
}

TEST_F(ProgressLedger, CountsItsOwnReportAsOneOfTheSwarm) {
  add(report(2, 3, 50, 10, 2s));
  add(report(3, 2, 40, 30));
  auto view = ledger.view(report(0, 3, 100, 20, 1s), now);
  EXPECT_EQ(view.num_peers, 3U);
  EXPECT_NEAR(view.eta_seconds, 1.1, 1e-9);
  EXPECT_NEAR(view.refresh_seconds, 0.55, 1e-9);
}

TEST_F(ProgressLedger, AloneKnowsItselfAndLooksAgainAfterTheDefaultPeriod) {
  auto view = ledger.view(report(0, 5, 56, 20), now);
  EXPECT_EQ(view.num_peers, 1U);
  EXPECT_EQ(view.global_epoch, epoch_id{5});
  EXPECT_NEAR(view.eta_seconds, 10, 1e-9);
  EXPECT_DOUBLE_EQ(view.refresh_seconds, 3);
}

TEST_F(ProgressLedger, WithoutPeersStillGivesFiniteNumbers) {
  auto view = ledger.view(std::nullopt, now);
  EXPECT_EQ(view.num_peers, 0U);
  EXPECT_TRUE(std::isfinite(view.eta_seconds));
  EXPECT_GT(view.eta_seconds, 1e20);
  EXPECT_DOUBLE_EQ(view.refresh_seconds, 3);
}

TEST_F(ProgressLedger, TakesAnyTimeThatAPeerClaims) {
  auto ancient = report(1, 3, 100, 1e300);
  ancient.time = swarm_time::min();
  add(ancient);
  auto to_come = report(2, 3, 50, 1e300);
  to_come.time = swarm_time::max();
  add(to_come);
  auto view = ledger.view(report(0, 3, 10, 20), now);
  EXPECT_GE(view.eta_seconds, 0);
  EXPECT_DOUBLE_EQ(view.refresh_seconds, 0.5);
}

TEST_F(ProgressLedger, ClampsTheRefreshPeriodAtBothEnds) {
  add(report(1, 0, 250, 1'000'000));
  EXPECT_DOUBLE_EQ(ledger.view(report(0, 0, 0), now).refresh_seconds, 0.5);
  progress_ledger slow{id_of(0), {}};
  ASSERT_TRUE(slow.record(report(1, 0, 0, 0.001), later));
  EXPECT_DOUBLE_EQ(slow.view(report(0, 0, 0, 0.001), now).refresh_seconds, 10);
}

TEST_F(ProgressLedger, ExpectsAFractionOfALargeSwarmToChange) {
  // 20 peers: the rate of 0.2 (24) exceeds the number 3 (23).
  for (std::uint8_t i = 1; i <= 19; ++i)
    add(report(i, 0, 0, 2));
  auto view = ledger.view(report(0, 0, 0, 2), now);
  EXPECT_NEAR(view.eta_seconds, 6.4, 1e-9);
  EXPECT_NEAR(view.refresh_seconds, 6.4 * 20 / 24, 1e-9);
}

TEST_F(ProgressLedger, ExpectsTheChangesAndKeepsToThePeriodsOfItsOptions) {
  auto refresh = [](ledger_options options) {
    progress_ledger one{id_of(0), options};
    for (std::uint8_t i = 1; i <= 19; ++i)
      EXPECT_TRUE(one.record(report(i, 0, 0, 2), later));
    return one.view(report(0, 0, 0, 2), now).refresh_seconds;
  };
  EXPECT_NEAR(refresh({.expected_drift_peers = 12}), 6.4 * 20 / 32, 1e-9);
  EXPECT_NEAR(refresh({.expected_drift_rate = 1}), 6.4 * 20 / 40, 1e-9);
  EXPECT_DOUBLE_EQ(refresh({.refresh_max = 2s}), 2);
  EXPECT_DOUBLE_EQ(refresh({.refresh_min = 8s}), 8);
  progress_ledger alone{id_of(0), {.refresh_default = 4s}};
  EXPECT_DOUBLE_EQ(alone.view(report(0, 0, 0), now).refresh_seconds, 4);
}

TEST_F(ProgressLedger, DoesNotTrustTheTimeOfAClockThatIsAhead) {
  add(report(1, 0, 100, 50, -30s));
  EXPECT_NEAR(ledger.view(std::nullopt, now).eta_seconds, 156.0 / 50, 1e-9);
}

// -- epochs --------------------------------------------------------------------------------------

TEST_F(ProgressLedger, ClientsNeverAdvanceTheRun) {
  add(client(report(1, 9, 100)));
  add(report(2, 3, 10));
  auto view = ledger.view(report(0, 2, 0), now);
  EXPECT_EQ(view.global_epoch, epoch_id{3});
  EXPECT_EQ(view.num_clients, 1U);
  EXPECT_EQ(view.num_peers, 3U);
}

TEST_F(ProgressLedger, AnAuxiliaryIsNoTrainer) {
  auto idle = report(1, 90, 7, 5);
  idle.claim.auxiliary = true;
  add(idle);
  add(report(2, 3, 10, 20));
  auto view = ledger.view(report(0, 3, 10, 20), now);
  EXPECT_EQ(view.num_peers, 2U);
  EXPECT_EQ(view.num_auxiliaries, 1U);
  EXPECT_DOUBLE_EQ(view.samples_per_second, 40);
  EXPECT_EQ(view.global_epoch, epoch_id{3}) << "it is in no group";
  EXPECT_EQ(view.peers.size(), 3U) << "but it is known";
  idle.claim.group_size = 2;
  idle.time = now + 1s;
  add(idle);
  EXPECT_EQ(ledger.view(report(0, 3, 10, 20), now).global_epoch, epoch_id{90});
}

TEST_F(ProgressLedger, AnAuxiliaryThatFollowsTheRunIsNoTrainer) {
  auto follows = report(1, 3, 0, 0);
  follows.claim.reduces_only = true;
  follows.claim.group_size = 3;
  add(follows);
  add(report(2, 3, 10, 20));
  auto view = ledger.view(report(0, 3, 10, 20), now);
  EXPECT_EQ(view.num_peers, 2U);
  EXPECT_EQ(view.num_auxiliaries, 1U);
}

// -- which report counts -------------------------------------------------------------------------

TEST_F(ProgressLedger, TheNewestReportOfAPeerWins) {
  EXPECT_TRUE(ledger.record(report(1, 0, 10, 1, 5s), later));
  EXPECT_TRUE(ledger.record(report(1, 0, 20, 1, 2s), later));
  EXPECT_FALSE(ledger.record(report(1, 0, 10, 1, 5s), later)) << "a replay";
  EXPECT_FALSE(ledger.record(report(1, 0, 99, 1, 2s), later)) << "with the same time";
  EXPECT_EQ(ledger.view(std::nullopt, now).peers.at(0).samples, 20U);
}

TEST_F(ProgressLedger, AReportCountsUntilItExpiresAndNotLonger) {
  add(report(1, 0, 10));
  EXPECT_EQ(ledger.view(std::nullopt, later).num_peers, 1U);
  EXPECT_EQ(ledger.view(std::nullopt, later + 1ns).num_peers, 0U);
  EXPECT_FALSE(ledger.purge(later));
  EXPECT_TRUE(ledger.purge(later + 1ns));
  EXPECT_EQ(ledger.size(), 0U);
}

TEST_F(ProgressLedger, RecordsAboutOurselvesAreIgnored) {
  EXPECT_FALSE(ledger.record(report(0, 9, 10), later));
  EXPECT_EQ(ledger.view(report(0, 1, 0), now).global_epoch, epoch_id{1});
}

TEST_F(ProgressLedger, AGoodbyeHidesOlderReportsAndNoNewerOnes) {
  add(report(1, 0, 10, 1, 5s));
  EXPECT_TRUE(ledger.forget(id_of(1), now - 3s, later));
  EXPECT_EQ(ledger.view(std::nullopt, now).num_peers, 0U);
  EXPECT_FALSE(ledger.record(report(1, 0, 10, 1, 4s), later));
  EXPECT_TRUE(ledger.record(report(1, 0, 0, 1, 2s), later)) << "it came back";
  EXPECT_FALSE(ledger.forget(id_of(1), now - 3s, later)) << "an old goodbye";
  EXPECT_EQ(ledger.view(std::nullopt, now).num_peers, 1U);
}

TEST_F(ProgressLedger, AnExpiredGoodbyeIsNoNews) {
  add(report(1, 0, 10, 1, 5s));
  ASSERT_TRUE(ledger.forget(id_of(1), now, later));
  EXPECT_FALSE(ledger.purge(later + 1ns));
}

TEST_F(ProgressLedger, ALostPeerDoesNotCountUntilItReportsAgain) {
  add(report(1, 0, 10, 1, 5s));
  EXPECT_TRUE(ledger.lose(id_of(1), now, later));
  EXPECT_FALSE(ledger.lose(id_of(1), now, later));
  EXPECT_EQ(ledger.view(std::nullopt, now).num_peers, 0U);
  EXPECT_FALSE(ledger.record(report(1, 0, 10, 1, 1s), later)) << "the DHT still had it";
  EXPECT_TRUE(ledger.record(report(1, 0, 10, 1, -1s), later));
}

TEST_F(ProgressLedger, ALostPeerIsForgottenEvenIfItsClockIsAhead) {
  add(report(1, 0, 10, 1, -20s));
  EXPECT_TRUE(ledger.lose(id_of(1), now, later));
  EXPECT_EQ(ledger.view(std::nullopt, now).num_peers, 0U);
  EXPECT_FALSE(ledger.record(report(1, 0, 10, 1, -20s), later));
}

TEST_F(ProgressLedger, APeerThatIsConnectedAgainCountsEvenIfItsClockIsBehind) {
  add(report(1, 0, 10, 1, 30s));
  ASSERT_TRUE(ledger.lose(id_of(1), now, later));
  ledger.found_again(id_of(1));
  EXPECT_TRUE(ledger.record(report(1, 0, 12, 1, 29s), later));
}

TEST_F(ProgressLedger, AConnectionDoesNotTakeBackAGoodbye) {
  add(report(1, 0, 10, 1, 5s));
  ASSERT_TRUE(ledger.forget(id_of(1), now, later));
  ledger.found_again(id_of(1));
  EXPECT_FALSE(ledger.record(report(1, 0, 10, 1, 1s), later));
}

// -- the record's value --------------------------------------------------------------------------

TEST(ProgressRecord, ComesBackAsItWasWritten) {
  auto written = holding(report(7, 12, 345, 6.5), "p");
  written.who.client_mode = true;
  written.who.addresses = {{"example.org", 7700}, {"::1", 1}, {"10.0.0.1", 65535}};
  written.claim.auxiliary = true;
  written.claim.target_batch_size = 4096;
  auto follows = written;
  follows.claim.auxiliary = false;
  follows.claim.reduces_only = true;
  EXPECT_EQ(*decode_progress(follows.who.key, follows.who.id, encode_progress(follows)), follows);
  EXPECT_EQ(*decode_progress(written.who.key, written.who.id, encode_progress(written)), written);
}

TEST(ProgressRecord, FieldsOfALaterVersionAreIgnored) {
  auto written = report(7, 12, 345, 6.5);
  written.sketch.rounding = 1;
  written.vitals.settings = "version=0.1.0\n";
  auto value = encode_progress(written);
  value[0] = 9;
  EXPECT_EQ(*decode_progress(written.who.key, written.who.id, value + "more of it"), written);
}

TEST(ProgressRecord, EveryTruncationAndEveryEarlierVersionAreRefused) {
  auto written = report(7, 12, 345, 6.5);
  written.who.addresses = {{"example.org", 7700}};
  auto value = encode_progress(written);
  for (std::size_t size = 0; size < value.size(); ++size) {
    auto read = decode_progress(written.who.key, written.who.id, value.substr(0, size));
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().code, ec::malformed);
  }
  while (--value[0] >= 0)
    EXPECT_FALSE(decode_progress(written.who.key, written.who.id, value));
}

TEST(ProgressRecord, NumbersOutOfRangeAreRefused) {
  auto refused = [](double rate) {
    auto r = report(7, 12, 345, rate);
    return !decode_progress(r.who.key, r.who.id, encode_progress(r)).ok();
  };
  EXPECT_TRUE(refused(-1));
  EXPECT_TRUE(refused(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(refused(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(refused(0));
}

TEST(ProgressRecord, AddressesThatAreNoneAreRefused) {
  for (const char* host : {"a b", "x\n", "<script>", "\xff\xfe"}) {
    auto r = report(7, 12, 345);
    r.who.addresses = {{host, 7700}};
    EXPECT_FALSE(decode_progress(r.who.key, r.who.id, encode_progress(r))) << host;
  }
}

TEST(ProgressRecord, RandomBytesAreRefusedOrReadAndNeverHarm) {
  std::uint64_t seed = 5;
  SCOPED_TRACE(seed);
  random_source random{seed};
  auto good = report(7, 12, 345, 6.5);
  good.who.addresses = {{"example.org", 7700}, {"10.0.0.1", 7701}};
  auto value = encode_progress(good);
  for (int trial = 0; trial < 20'000; ++trial) {
    auto broken = value;
    for (auto n = 1 + random.below(6); n > 0; --n)
      broken[random.below(broken.size())] = static_cast<char>(random.below(256));
    auto read = decode_progress(good.who.key, good.who.id, broken);
    if (read) {
      EXPECT_GE(read->samples_per_second, 0);
      EXPECT_LE(read->who.addresses.size(), addresses_max);
    }
  }
}

TEST(ProgressReport, CarriesWhatAPeerSaysOfItsWorkWithinBounds) {
  auto sent = report(1, 3, 4);
  sent.vitals = {std::uint8_t{3}, 2.5F, 0.25F, std::nullopt};
  auto read = [&](const std::string& text) { return decode_progress({}, sent.who.id, text); };
  EXPECT_EQ(read(encode_progress(sent))->vitals, sent.vitals);
  auto silent = sent;
  silent.vitals = {};
  EXPECT_EQ(read(encode_progress(silent))->vitals, peer_vitals{});
  auto of_later = sent;
  of_later.vitals.phase = 200;
  EXPECT_EQ(read(encode_progress(of_later))->vitals.phase, std::nullopt);
  for (auto seconds : {-1.0F, 2 * vitals_seconds_max, std::numeric_limits<float>::infinity()}) {
    auto lie = sent;
    lie.vitals.pass_seconds = seconds;
    EXPECT_FALSE(read(encode_progress(lie)).ok()) << seconds;
  }
  auto lie = sent;
  lie.vitals.loss = -std::numeric_limits<float>::infinity();
  EXPECT_FALSE(read(encode_progress(lie)).ok());
  sent.vitals.samples_per_second = 397.5F;
  EXPECT_EQ(read(encode_progress(sent))->vitals, sent.vitals);
  for (auto rate : {-1.0F, std::numeric_limits<float>::infinity()}) {
    lie = sent;
    lie.vitals.samples_per_second = rate;
    EXPECT_FALSE(read(encode_progress(lie)).ok()) << rate;
  }
  lie.vitals.samples_per_second = std::nanf("");
  EXPECT_EQ(read(encode_progress(lie))->vitals.samples_per_second, std::nullopt);
}

TEST(ProgressReport, CarriesSharesAndSettingsOfAMachineWithinBounds) {
  auto sent = report(1, 3, 4);
  auto read = [&](const std::string& text) { return decode_progress({}, sent.who.id, text); };
  sent.vitals.shares.set(0, 0.6154);
  sent.vitals.shares.set(9, 1e9); // a load
  sent.vitals.shares.set(10, -1);
  sent.vitals.shares.set(99, 1); // of a later version
  sent.vitals.settings = "version=0.1.0\nlr=<b>\n";
  auto value = encode_progress(sent);
  auto got = read(value);
  EXPECT_EQ(got->vitals, sent.vitals);
  EXPECT_EQ(got->vitals.shares.at(0), 0.615);
  EXPECT_EQ(got->vitals.shares.at(9), 65.534);
  EXPECT_EQ(got->vitals.shares.at(10), std::nullopt) << "not known";
  EXPECT_EQ(got->vitals.samples_per_second, std::nullopt);
  for (std::size_t size = 0; size < value.size(); ++size)
    EXPECT_FALSE(read(value.substr(0, size)).ok()) << size;
  for (const auto& bad : {std::string{"a=\x1b[2J"}, std::string{"a=\xff"}}) {
    auto lie = sent;
    lie.vitals.settings = bad;
    EXPECT_FALSE(read(encode_progress(lie)).ok()) << bad;
  }
  auto long_ = sent;
  long_.vitals.settings = std::string(settings_bytes_max + 99, 'x');
  EXPECT_EQ(read(encode_progress(long_))->vitals.settings.size(), settings_bytes_max);
}

TEST(ProgressReport, HasASketchOfTheParametersIfItIsKnownHowUpdatesRound) {
  auto sent = report(2, 8, 40);
  auto read = [&](const std::string& text) { return decode_progress({}, sent.who.id, text); };
  EXPECT_EQ(read(encode_progress(sent))->sketch, parameter_sketch{});
  sent.sketch.rounding = 7;
  sent.sketch.sums.back() = -0.25F;
  EXPECT_EQ(read(encode_progress(sent))->sketch, sent.sketch);
  sent.sketch.sums.front() = std::nanf("");
  EXPECT_FALSE(read(encode_progress(sent)).ok());
}

} // namespace
} // namespace waggle
