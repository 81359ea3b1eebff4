#include "runtime/status/event_maker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using testing::IsEmpty, testing::SizeIs;

constexpr steady_time t0{1h};

peer_record peer(int n) {
  peer_record out;
  out.id.bytes[0] = std::byte(n);
  out.id.bytes[1] = std::byte(n / 256);
  out.addresses = {{"10.0.0.1", 7700}};
  return out;
}

training_status at(trainer_phase phase, std::uint64_t epoch) {
  training_status s;
  s.phase = phase;
  s.epoch = epoch_id{epoch};
  return s;
}

TEST(EventMaker, TellsOfPhasesButNotOfTheRoutineOnes) {
  event_maker maker;
  auto first = maker.on_status(at(trainer_phase::joining, 0), t0);
  ASSERT_THAT(first, SizeIs(1));
  const auto& joined = std::get<watch::phase_changed>(first[0]);
  EXPECT_EQ(joined.from, "starting");
  EXPECT_EQ(joined.to, "joining");
  EXPECT_THAT(maker.on_status(at(trainer_phase::training, 0), t0), SizeIs(1));
  EXPECT_THAT(maker.on_status(at(trainer_phase::averaging, 0), t0), IsEmpty());
  EXPECT_THAT(maker.on_status(at(trainer_phase::training, 0), t0), IsEmpty());
}

TEST(EventMaker, TellsOfEpochsOnceASecond) {
  event_maker maker;
  (void)maker.on_status(at(trainer_phase::training, 7), t0);
  auto s = at(trainer_phase::training, 8);
  s.samples_used = 64;
  s.loss = 2.5;
  s.steps = 3;
  EXPECT_THAT(maker.on_status(s, t0 + 100ms), IsEmpty());
  s.epoch = epoch_id{11};
  auto events = maker.on_status(s, t0 + 2s);
  ASSERT_THAT(events, SizeIs(1));
  const auto& ended = std::get<watch::epochs_ended>(events[0]);
  EXPECT_EQ(ended.epoch, 11U);
  EXPECT_EQ(ended.epochs, 4U);
  EXPECT_EQ(ended.samples, 64U);
  EXPECT_EQ(ended.loss, 2.5);
  EXPECT_EQ(ended.duration_s, 0.5);
  EXPECT_THAT(maker.on_status(s, t0 + 9s), IsEmpty());
}

TEST(EventMaker, TellsOfNoticesAndSplitsWhenTheyChange) {
  event_maker maker;
  auto s = at(trainer_phase::training, 0);
  (void)maker.on_status(s, t0);
  s.notices = {{"x", "in 8 of 32 epochs", "raise X"}};
  s.histories = 2;
  auto events = maker.on_status(s, t0);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(std::get<watch::remark>(events[0]).text, "live peers train 2 histories");
  EXPECT_EQ(std::get<watch::remark>(events[1]).text, "in 8 of 32 epochs: raise X");
  EXPECT_THAT(maker.on_status(s, t0), IsEmpty());
  s.notices[0].seen = "in 9 of 32 epochs";
  EXPECT_THAT(maker.on_status(s, t0), IsEmpty()) << "only a number has changed";
  s.notices.push_back({"y", "no room", {}});
  EXPECT_EQ(std::get<watch::remark>(maker.on_status(s, t0).at(0)).text,
            "in 9 of 32 epochs: raise X; no room");
  s.notices.clear();
  EXPECT_THAT(maker.on_status(s, t0), SizeIs(1));
}

TEST(EventMaker, RemembersWhoLeftHowOftenAndWhetherItIsBack) {
  event_maker maker;
  EXPECT_THAT(maker.on_disconnected(peer(1).id, {ec::timeout, {}}, t0, {}), IsEmpty());
  EXPECT_THAT(maker.on_connected(peer(1), "tcp", t0), SizeIs(1));
  (void)maker.on_connected(peer(2), "tcp", t0);
  auto events = maker.on_disconnected(peer(1).id, {ec::timeout, "silent"}, t0 + 5s, {});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(std::get<watch::peer_left>(events[0]).after_s, 5);
  EXPECT_EQ(std::get<watch::peer_left>(events[0]).reason, "timeout: silent");
  (void)maker.on_disconnected(peer(2).id, {ec::peer_lost, {}}, t0 + 6s, {});
  ASSERT_THAT(maker.departures(t0 + 7s), SizeIs(2));
  EXPECT_EQ(maker.departures(t0 + 7s).front().peer, peer(2).id);
  (void)maker.on_connected(peer(2), "tcp", t0 + 8s);
  auto all = maker.departures(t0 + 8s);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_TRUE(all[0].back && all[0].times == 1 && all[0].lost);
  EXPECT_FALSE(all[1].back);
  EXPECT_TRUE(all[1].recent);
  auto ordered = maker.on_disconnected(peer(2).id, {ec::shutting_down, {}}, t0 + 9s, {});
  EXPECT_TRUE(std::get<watch::peer_left>(ordered.at(0)).ordered);
  all = maker.departures(t0 + 5s + 10min);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].peer, peer(2).id);
  EXPECT_EQ(all[0].times, 2U);
  EXPECT_FALSE(all[0].lost || all[0].back);
  EXPECT_FALSE(all[1].recent);
}

TEST(EventMaker, PeersThatComeAndGoAllTheTimeAreCountedNotListed) {
  event_maker maker;
  std::size_t told = 0;
  for (int i = 0; i < 500; ++i) {
    told += maker.on_connected(peer(i), "tcp", t0).size();
    told += maker.on_disconnected(peer(i).id, {ec::peer_lost, {}}, t0, {}).size();
  }
  EXPECT_EQ(told, event_maker::links_per_second_max);
  EXPECT_THAT(maker.departures(t0), SizeIs(event_maker::departures_max));
  auto refused = maker.on_refused(std::array<std::uint64_t, 2>{}, t0);
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(std::get<watch::refused>(refused[0]).count, 1000 - told);
  EXPECT_THAT(maker.on_connected(peer(1), "tcp", t0 + 1s), SizeIs(1));
}

TEST(EventMaker, TellsOfWhatIsRefusedWhenTheReasonChangesAndThenOnceAMinute) {
  event_maker maker;
  std::array<std::uint64_t, 9> counts{};
  EXPECT_THAT(maker.on_refused(counts, t0), IsEmpty());
  counts[static_cast<std::size_t>(ec::timeout)] = 2;
  counts[static_cast<std::size_t>(ec::malformed)] = 5;
  auto events = maker.on_refused(counts, t0);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(std::get<watch::refused>(events[0]).count, 7U);
  EXPECT_EQ(std::get<watch::refused>(events[0]).reason, "malformed");
  EXPECT_THAT(maker.on_refused(counts, t0), IsEmpty());
  counts[static_cast<std::size_t>(ec::malformed)] += 3;
  EXPECT_THAT(maker.on_refused(counts, t0 + 59s), IsEmpty());
  counts[static_cast<std::size_t>(ec::malformed)] += 1;
  EXPECT_EQ(std::get<watch::refused>(maker.on_refused(counts, t0 + 60s).at(0)).count, 4U);
  counts[static_cast<std::size_t>(ec::timeout)] += 1;
  EXPECT_EQ(std::get<watch::refused>(maker.on_refused(counts, t0 + 61s).at(0)).reason, "timeout");
}

TEST(EventMaker, TellsOfASlowPeerWhenTheCauseChanges) {
  event_maker maker;
  slow_report found;
  found.peers = {{peer(1).id, slow_cause::passes, 2, "long"}};
  EXPECT_THAT(maker.on_slow(found), SizeIs(1));
  found.peers[0].text = "longer";
  EXPECT_THAT(maker.on_slow(found), IsEmpty());
  found.peers[0].cause = slow_cause::far;
  EXPECT_EQ(std::get<watch::slow>(maker.on_slow(found).at(0)).cause, "far");
  EXPECT_EQ(std::get<watch::slow>(maker.on_slow({}).at(0)).cause, "");
}

TEST(EventMaker, APeerThatIsConnectedAlreadyIsNoNews) {
  event_maker maker;
  EXPECT_THAT(maker.on_connected(peer(1), "", t0), SizeIs(1));
  EXPECT_THAT(maker.on_connected(peer(1), "", t0 + 5s), IsEmpty());
  auto left = maker.on_disconnected(peer(1).id, {ec::peer_lost, ""}, t0 + 9s, {});
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(std::get<watch::peer_left>(left[0]).after_s, 9);
}

} // namespace
} // namespace waggle
