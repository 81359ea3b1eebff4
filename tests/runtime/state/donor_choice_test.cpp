#include "runtime/state/donor_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

peer_record donor(unsigned number) {
  peer_record out;
  out.id.bytes.back() = static_cast<std::byte>(number);
  return out;
}

const std::vector<peer_record> all{donor(1), donor(2), donor(3)};

TEST(DonorChoice, AsksInTheOrderThatItIsGiven) {
  donor_choice choice;
  EXPECT_EQ(choice.among(all), all);
  EXPECT_TRUE(choice.among({}).empty());
}

TEST(DonorChoice, SkipsRefusedDonorsUntilAStateIsAccepted) {
  donor_choice choice;
  choice.refuse(donor(2).id);
  EXPECT_THAT(choice.among(all), testing::ElementsAre(donor(1), donor(3)));
  EXPECT_THAT(choice.among(all), testing::ElementsAre(donor(1), donor(3)));
  choice.succeeded();
  EXPECT_EQ(choice.among(all), all);
}

TEST(DonorChoice, AsksAllDonorsAgainOnceAllWereRefused) {
  donor_choice choice;
  for (unsigned i : {1U, 2U, 3U})
    choice.refuse(donor(i).id);
  EXPECT_EQ(choice.among(all), all);
  choice.refuse(donor(1).id);
  EXPECT_THAT(choice.among(all), testing::ElementsAre(donor(2), donor(3)));
}

TEST(DonorChoice, WaitsLongerAfterEachFailureUpToABound) {
  donor_choice choice;
  for (int seconds2 : {1, 2, 4, 8, 16, 16})
    EXPECT_EQ(choice.failed(), seconds2 * milliseconds{500});
  choice.succeeded();
  EXPECT_EQ(choice.failed(), donor_choice::pause_min);
}

} // namespace
} // namespace waggle
