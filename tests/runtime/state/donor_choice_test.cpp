#include "runtime/state/donor_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

peer_record donor(unsigned number) {
  peer_record out;
  out.id.bytes.back() = static_cast<std::byte>(number);
  return out;
}

const std::vector<peer_record> all{donor(1), donor(2), donor(3)};

const steady_time t0{};

TEST(DonorChoice, AsksInTheOrderThatItIsGiven) {
  donor_choice choice;
  EXPECT_EQ(choice.among(all, t0), all);
  EXPECT_TRUE(choice.among({}, t0).empty());
}

TEST(DonorChoice, SkipsRefusedDonorsForATimeThatDoubles) {
  donor_choice choice;
  choice.refuse(donor(2).id, t0);
  EXPECT_THAT(choice.among(all, t0 + 4s), testing::ElementsAre(donor(1), donor(3)));
  (void)choice.succeeded(t0 + 4s);
  EXPECT_THAT(choice.among(all, t0 + 4s), testing::ElementsAre(donor(1), donor(3)));
  EXPECT_EQ(choice.among(all, t0 + 5s), all);
  choice.refuse(donor(2).id, t0 + 5s);
  EXPECT_THAT(choice.among(all, t0 + 14s), testing::ElementsAre(donor(1), donor(3)));
  EXPECT_EQ(choice.among(all, t0 + 15s), all);
}

TEST(DonorChoice, AsksAllDonorsAgainIfAllWereRefused) {
  donor_choice choice;
  for (unsigned i : {1U, 2U, 3U})
    choice.refuse(donor(i).id, t0);
  EXPECT_EQ(choice.among(all, t0), all);
}

TEST(DonorChoice, AsksASlowDonorLastForAWhile) {
  donor_choice choice;
  choice.ask_last(donor(1).id, t0);
  EXPECT_THAT(choice.among(all, t0), testing::ElementsAre(donor(2), donor(3), donor(1)));
  EXPECT_THAT(choice.among({donor(1)}, t0), testing::ElementsAre(donor(1)));
  choice.ask_last(donor(2).id, t0);
  EXPECT_THAT(choice.among(all, t0 + 599s), testing::ElementsAre(donor(3), donor(1), donor(2)));
  EXPECT_EQ(choice.among(all, t0 + 600s), all);
}

TEST(DonorChoice, WaitsLongerAfterEachFailureUpToABound) {
  donor_choice choice;
  for (int seconds2 : {1, 2, 4, 8, 16, 16})
    EXPECT_EQ(choice.failed(), seconds2 * milliseconds{500});
  EXPECT_EQ(choice.succeeded(t0), 0ms);
  EXPECT_EQ(choice.failed(), donor_choice::pause_min);
}

TEST(DonorChoice, WaitsLongerAfterEachRepeatedDownload) {
  donor_choice choice;
  EXPECT_EQ(choice.succeeded(t0), 0ms);
  EXPECT_EQ(choice.succeeded(t0 + 1s), 500ms);
  EXPECT_EQ(choice.succeeded(t0 + 2s), 1'000ms);
  EXPECT_EQ(choice.succeeded(t0 + 3s), 2'000ms);
  EXPECT_EQ(choice.succeeded(t0 + 13s), 0ms);
}

} // namespace
} // namespace waggle
