#include "runtime/state/awaited_states.hpp"

#include <string>

#include <gtest/gtest.h>

namespace waggle {
namespace {

using requests = awaited_states<std::string>;
using answers = std::vector<std::pair<std::string, bool>>;
const digest run{std::array<std::byte, digest::size>{std::byte{1}}};
const digest other{std::array<std::byte, digest::size>{std::byte{2}}};
constexpr steady_time start{1h};

TEST(AwaitedStates, WaitForAnEpochThatIsNearOrSoonReached) {
  requests it;
  EXPECT_FALSE(it.awaits(epoch_id{5}, epoch_id{5}, 0.1)) << "it is reached";
  EXPECT_TRUE(it.awaits(epoch_id{5 + requests::epochs_near}, epoch_id{5}, 0));
  EXPECT_FALSE(it.awaits(epoch_id{105}, epoch_id{5}, 0.2));
  EXPECT_TRUE(it.awaits(epoch_id{105}, epoch_id{5}, 0.1));
  EXPECT_FALSE(it.awaits(epoch_id{6 + requests::epochs_max}, epoch_id{5}, 1e-9));
}

TEST(AwaitedStates, AreBounded) {
  requests it;
  for (std::size_t i = 0; i < requests::requests_max; ++i)
    it.add(run, epoch_id{6}, "one", start);
  EXPECT_FALSE(it.awaits(epoch_id{6}, epoch_id{5}, 0.1));
  EXPECT_EQ(it.take(run, epoch_id{6}, start).size(), requests::requests_max);
  EXPECT_TRUE(it.awaits(epoch_id{6}, epoch_id{5}, 0.1));
}

TEST(AwaitedStates, AreGivenOnceTheEpochIsReached) {
  requests it;
  it.add(run, epoch_id{6}, "soon", start);
  it.add(run, epoch_id{7}, "later", start);
  EXPECT_EQ(it.take(run, epoch_id{5}, start), answers{});
  EXPECT_EQ(it.take(run, epoch_id{6}, start), (answers{{"soon", true}}));
  EXPECT_EQ(it.take(run, epoch_id{9}, start), (answers{{"later", true}}));
}

TEST(AwaitedStates, AreRefusedWhenTheirHistoryIsLeftOrTheyAreLate) {
  requests it;
  it.add(run, epoch_id{6}, "left", start);
  EXPECT_EQ(it.take({}, epoch_id{6}, start), (answers{{"left", false}}));
  it.add(run, epoch_id{6}, "moved", start);
  EXPECT_EQ(it.take(other, epoch_id{6}, start), (answers{{"moved", false}}));
  it.add(run, epoch_id{6}, "late", start);
  EXPECT_EQ(it.take(run, epoch_id{5}, start + requests::lasts), (answers{{"late", false}}));
}

} // namespace
} // namespace waggle
