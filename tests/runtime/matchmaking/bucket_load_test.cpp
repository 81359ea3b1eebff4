#include "runtime/matchmaking/bucket_load.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/matchmaking/group_key.hpp"

namespace waggle {
namespace {

TEST(BucketLoad, IsReadBack) {
  for (bucket_load load : {bucket_load{0, 1}, {3, 17}, {20, 1'000'000}})
    EXPECT_EQ(bucket_load::parse(load.text()), load) << load.text();
}

TEST(BucketLoad, NothingElseIsRead) {
  for (const char* text :
       {"", " ", "3", "3 ", " 17", "3  17", "3 17 ", "3,17", "03 17", "3 017", "-3 17", "3 -17",
        "3 0", "21 1", "3 1000001", "3 99999999999999999999", "99999999999999999999 3", "a b"})
    EXPECT_FALSE(bucket_load::parse(text)) << '"' << text << '"';
}

TEST(ElasticLength, WithoutLoadsThereIsNoLength) {
  EXPECT_FALSE(elastic_length({}, 8, 2));
}

TEST(ElasticLength, SplitsWhatIsCrowdedAndMergesWhatIsEmpty) {
  struct row {
    bucket_load seen;
    std::size_t length;
  };
  for (auto [seen, length] : {row{{0, 1}, 0},
                              {{0, 16}, 0},
                              {{0, 17}, 1},
                              {{0, 64}, 2},
                              {{0, 65}, 3},
                              {{3, 8}, 3},
                              {{3, 16}, 3},
                              {{3, 17}, 4},
                              {{3, 5}, 3},
                              {{3, 4}, 2},
                              {{3, 3}, 2},
                              {{3, 1}, 0},
                              {{1, 1}, 0}})
    EXPECT_EQ(elastic_length({seen}, 8, 2), length) << seen.text();
}

TEST(ElasticLength, NoPeerStaysAloneInABucket) {
  EXPECT_EQ(elastic_length({{2, 1}}, 2, 2), 1U) << "half of the target is one";
  EXPECT_EQ(elastic_length({{2, 1}}, 2, 1), 1U);
  EXPECT_EQ(elastic_length({{2, 11}}, 16, 12), 1U) << "too few peers for a group";
  EXPECT_EQ(elastic_length({{2, 12}}, 16, 12), 2U);
  EXPECT_EQ(elastic_length({{2, 7}}, 8, 8), 1U);
}

TEST(ElasticLength, OneStepThereIsNoneBack) {
  for (std::size_t peers = 1; peers < 500; ++peers) {
    auto length = *elastic_length({{0, peers}}, 8, 2);
    auto in_a_bucket = std::max<std::size_t>(peers >> length, 1);
    EXPECT_EQ(elastic_length({{length, in_a_bucket}}, 8, 2), length) << peers;
  }
}

// Peers that begin with different lengths choose the same one.
TEST(ElasticLength, IsTheSameForAllPeersWithTheSameLoads) {
  std::vector<bucket_load> loads{{2, 10}, {2, 14}, {2, 7}, {0, 1}, {0, 3}};
  EXPECT_EQ(elastic_length(loads, 8, 2), 2U);
  std::reverse(loads.begin(), loads.end());
  EXPECT_EQ(elastic_length(loads, 8, 2), 2U);
}

TEST(ElasticLength, AFewFalseClaimsChangeNothing) {
  std::vector<bucket_load> loads(5, {2, 10});
  auto honest = elastic_length(loads, 8, 2);
  for (bucket_load false_claim : {bucket_load{20, 1'000'000}, {0, 1}, {0, 1'000'000}, {20, 1}}) {
    auto claims = loads;
    claims.insert(claims.end(), 4, false_claim);
    EXPECT_EQ(elastic_length(claims, 8, 2), honest) << false_claim.text();
  }
}

TEST(ElasticLength, NeverGrowsBeyondTheLimit) {
  EXPECT_EQ(elastic_length({{20, 1'000'000}}, 2, 2), bucket_load::bits_max);
}

TEST(GroupKeyResize, KeepsWhatItCanAndSplitsEvenly) {
  auto key = *group_key::make("p", "1011");
  key.resize(2, [] { return 0U; });
  EXPECT_EQ(key.bits(), "11");
  key.resize(4, [] { return 1U; });
  EXPECT_EQ(key.bits(), "1111");
  key.resize(0, [] { return 0U; });
  EXPECT_EQ(key.bits(), "");
  random_source random{1};
  std::map<std::string, int> crowds;
  for (int i = 0; i < 4'000; ++i) {
    auto one = *group_key::make("p", "");
    one.resize(2, [&] { return static_cast<unsigned>(random.below(2)); });
    ++crowds[one.bits()];
  }
  ASSERT_EQ(crowds.size(), 4U);
  for (const auto& [bits, peers] : crowds)
    EXPECT_NEAR(peers, 1'000, 120) << bits; // four standard deviations
}

} // namespace
} // namespace waggle
