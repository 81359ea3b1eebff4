#include "runtime/progress/sample_claims.hpp"

#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;

const peer_id ann = id_of(1);
const peer_id ben = id_of(2);

struct SampleClaims : ::testing::Test {
  SampleClaims() { claims.begin_epoch(now); }

  /// A round at the end of an epoch of one second in which we contributed 10 samples.
  sample_claims::shortfall round(std::vector<std::pair<peer_id, std::uint64_t>> claimed,
                                 double delivered) {
    std::vector<peer_id> contributors;
    for (const auto& [peer, samples] : claimed) {
      claims.observe(peer, samples);
      contributors.push_back(peer);
    }
    now += 1s;
    claims.begin_epoch(now);
    return claims.end_round(contributors, delivered, 10, now);
  }

  sample_claims claims{100};
  steady_time now{};
};

TEST_F(SampleClaims, CountUpToTheTargetAtFirst) {
  EXPECT_EQ(claims.counted(ann, 30, now), 30U);
  EXPECT_EQ(claims.counted(ann, ~0ULL, now), 100U);
  EXPECT_EQ(claims.speed(ann, 1e9, now), 1e9);
}

TEST_F(SampleClaims, WhoDeliversIsNeverSuspected) {
  for (int i = 0; i < 10; ++i) {
    auto result = round({{ann, 30}, {ben, 40}}, 85); // 5 samples came after the last report
    EXPECT_EQ(result.missing, 0U);
    EXPECT_TRUE(result.suspects.empty());
  }
  EXPECT_EQ(claims.counted(ann, 30, now), 30U);
}

TEST_F(SampleClaims, WhoClaimsAndDoesNotDeliverIsNotCountedForATimeThatDoubles) {
  auto result = round({{ann, 100}}, 10);
  EXPECT_EQ(result.missing, 100U);
  EXPECT_EQ(result.suspects, (std::vector{ann}));
  EXPECT_EQ(claims.counted(ann, 50, now), 0U);
  EXPECT_EQ(claims.speed(ann, 50, now), 0);
  EXPECT_EQ(claims.counted(ann, 50, now + 2s), 50U);
  now += 2s;
  EXPECT_EQ(round({{ann, 100}}, 10).suspects.size(), 1U);
  EXPECT_EQ(claims.counted(ann, 50, now + 3s), 0U);
  EXPECT_EQ(claims.counted(ann, 50, now + 4s), 50U);
}

TEST_F(SampleClaims, WhoHasDeliveredAsMuchBeforeIsNotSuspectedForAnother) {
  (void)round({{ann, 40}}, 50);
  auto result = round({{ann, 40}, {ben, 100}}, 50);
  EXPECT_EQ(result.missing, 100U);
  EXPECT_EQ(result.suspects, (std::vector{ben}));
  EXPECT_EQ(claims.counted(ann, 40, now), 40U);
  // What Ben claims while it is not counted is nobody's fault.
  result = round({{ann, 40}, {ben, 100}}, 50);
  EXPECT_EQ(result.missing, 0U);
}

TEST_F(SampleClaims, OfNewMembersTheLargestClaimIsSuspected) {
  EXPECT_EQ(round({{ann, 20}, {ben, 100}}, 30).suspects, (std::vector{ben}));
}

TEST_F(SampleClaims, AClaimIsBoundedByWhatWasSeen) {
  (void)round({{ann, 20}}, 30);
  EXPECT_EQ(claims.counted(ann, 100, now), 20U);
  EXPECT_EQ(claims.counted(ann, 100, now + 1s), 60U) << "twice as fast";
  EXPECT_EQ(claims.counted(ann, 100, now + 5s), 100U) << "the others have left";
  EXPECT_EQ(claims.speed(ann, 1e9, now), 200);
  EXPECT_EQ(claims.speed(ann, 30, now), 30);
}

TEST_F(SampleClaims, LostMembersAreNotSuspected) {
  claims.observe(ann, 90);
  claims.begin_epoch(now + 1s);
  EXPECT_EQ(claims.end_round({ben}, 10, 10, now + 1s).missing, 0U);
  EXPECT_EQ(claims.counted(ann, 90, now + 1s), 90U);
}

} // namespace
} // namespace waggle
