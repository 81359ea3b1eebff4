#include "runtime/state/state_sync.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using phase = state_sync::phase;

peer_record donor(std::uint8_t n) {
  peer_record record;
  record.id.bytes[0] = std::byte{n};
  return record;
}

const auto start = steady_time{} + milliseconds{1'000'000};

TEST(StateSync, GoesFromAQuestionToALoadedState) {
  state_sync sync;
  EXPECT_TRUE(sync.may_ask(start));
  auto asked = sync.ask({donor(1), donor(2)}, start);
  EXPECT_EQ(asked.donors.size(), 2U);
  EXPECT_TRUE(sync.awaits(asked.number));
  EXPECT_FALSE(sync.may_ask(start)) << "one download at a time";
  EXPECT_TRUE(sync.fetched(donor(1).id, 99, true, start + milliseconds{5}).empty());
  EXPECT_EQ(sync.at(), phase::loading);
  EXPECT_EQ(sync.last().bytes, 99U);
  EXPECT_TRUE(sync.last().resumed);
  EXPECT_EQ(sync.last().began, start);
  sync.loaded(start + milliseconds{7});
  EXPECT_EQ(sync.loaded_at(), start + milliseconds{7});
  sync.is_of_use(start + milliseconds{7});
  EXPECT_TRUE(sync.may_ask(start + milliseconds{7}));
}

TEST(StateSync, PausesTwiceAsLongAfterEachFailure) {
  state_sync sync;
  auto now = start;
  for (auto pause : {500, 1'000, 2'000, 4'000, 8'000, 8'000}) {
    (void)sync.ask({donor(1)}, now);
    (void)sync.failed(now);
    EXPECT_FALSE(sync.may_ask(now + milliseconds{pause - 1}));
    now += milliseconds{pause};
    EXPECT_TRUE(sync.may_ask(now));
  }
}

TEST(StateSync, DoesNotAskSuspectsAndDonorsOfARefusedState) {
  state_sync sync;
  auto first = sync.ask({donor(1), donor(2), donor(3)}, start);
  first.suspects->push_back(donor(2).id);
  EXPECT_EQ(sync.fetched(donor(1).id, 99, false, start), std::vector{donor(2).id});
  sync.refused_state(start);
  EXPECT_EQ(sync.refused(start), 2U);
  EXPECT_FALSE(sync.may_ask(start));
  auto second = sync.ask({donor(1), donor(2), donor(3)}, start + milliseconds{500});
  ASSERT_EQ(second.donors.size(), 1U);
  EXPECT_EQ(second.donors.front().id, donor(3).id);
}

using donors = std::vector<peer_record>;

/// Whom it would ask of these three.
donors asked_of_three(state_sync& sync, steady_time now) {
  auto asked = sync.ask({donor(1), donor(2), donor(3)}, now);
  sync.stop();
  return asked.donors;
}

void refuse(state_sync& sync, std::uint8_t n, steady_time now) {
  (void)sync.ask({donor(n)}, now);
  (void)sync.fetched(donor(n).id, 1, false, now);
  sync.refused_state(now);
}

TEST(StateSync, SkipsRefusedDonorsForATimeThatDoubles) {
  state_sync sync;
  EXPECT_EQ(asked_of_three(sync, start), (donors{donor(1), donor(2), donor(3)}));
  refuse(sync, 2, start);
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{4'999}), (donors{donor(1), donor(3)}));
  sync.is_of_use(start);
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{4'999}), (donors{donor(1), donor(3)}));
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{5'000}).size(), 3U);
  refuse(sync, 2, start + milliseconds{5'000});
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{14'999}).size(), 2U);
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{15'000}).size(), 3U);
}

TEST(StateSync, AsksAllDonorsAgainIfAllWereRefused) {
  state_sync sync;
  for (std::uint8_t n : {1, 2, 3})
    refuse(sync, n, start);
  EXPECT_EQ(asked_of_three(sync, start).size(), 3U);
}

TEST(StateSync, AsksASlowDonorLastForTenMinutes) {
  state_sync sync;
  sync.note_slow({donor(1).id, donor(2).id}, start);
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{599'999}),
            (donors{donor(3), donor(1), donor(2)}));
  EXPECT_EQ(asked_of_three(sync, start + milliseconds{600'000}),
            (donors{donor(1), donor(2), donor(3)}));
}

TEST(StateSync, WaitsLongerAfterEachRepeatedDownload) {
  state_sync sync;
  auto now = start;
  for (auto [after, pause] :
       {std::pair{0, 0}, {1'000, 500}, {1'000, 1'000}, {1'000, 2'000}, {10'000, 0}}) {
    now += milliseconds{after};
    sync.is_of_use(now);
    EXPECT_TRUE(sync.may_ask(now + milliseconds{pause}));
    EXPECT_FALSE(pause > 0 && sync.may_ask(now + milliseconds{pause - 1}));
  }
}

TEST(StateSync, AsksSlowDonorsLastAlsoAfterADownloadThatWasStopped) {
  state_sync sync;
  auto asked = sync.ask({donor(1), donor(2)}, start);
  sync.stop();
  EXPECT_FALSE(sync.awaits(asked.number));
  asked.slow->push_back(donor(1).id);
  sync.note_slow(*asked.slow, start);
  EXPECT_EQ(sync.ask({donor(1), donor(2)}, start).donors.front().id, donor(2).id);
}

TEST(StateSync, FindsTheRunTooFastAfterFourStatesThatWereTooOld) {
  state_sync sync;
  EXPECT_FALSE(sync.was_too_old(start)); // pauses of 0.5 s, 1 s, 2 s, 4 s
  EXPECT_FALSE(sync.was_too_old(start));
  EXPECT_FALSE(sync.was_too_old(start));
  EXPECT_TRUE(sync.was_too_old(start));
  EXPECT_EQ(sync.was_too_slow(), milliseconds{15'000});
  EXPECT_EQ(sync.was_too_slow(), milliseconds{30'000});
  sync.is_of_use(start);
  EXPECT_EQ(sync.was_too_slow(), milliseconds{15'000});
  EXPECT_FALSE(sync.was_too_old(start));
}

TEST(StateSync, RefusesOtherTransitions) {
  state_sync sync;
  EXPECT_DEATH(sync.stop(), "nothing was asked for");
  EXPECT_DEATH(sync.loaded(start), "nothing was fetched");
  EXPECT_DEATH((void)sync.failed(start), "nothing was asked for");
  (void)sync.ask({donor(1)}, start);
  EXPECT_DEATH((void)sync.ask({donor(1)}, start), "one download at a time");
  (void)sync.fetched(donor(1).id, 1, false, start);
  EXPECT_DEATH(sync.stop(), "nothing was asked for");
  EXPECT_DEATH((void)sync.failed(start), "nothing was asked for");
}

} // namespace
} // namespace waggle
