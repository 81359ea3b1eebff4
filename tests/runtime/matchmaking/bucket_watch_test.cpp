#include "runtime/matchmaking/bucket_watch.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

const swarm_time t0{500'000h};

struct BucketWatch : testing::Test {
  bucket_watch of(std::uint64_t seed) { return {"run", "p", identity::from_seed(seed)}; }
  bucket_watch self = of(1);
};

TEST_F(BucketWatch, WhatItSaysIsValidAndReadBackByOthers) {
  auto entry = self.announce({3, 17}, t0 + 60s, t0);
  EXPECT_TRUE(validate_record("run", entry, t0, *make_plain_verifier()).ok());
  EXPECT_EQ(entry.name, "p.load");
  EXPECT_EQ(of(2).known({entry}), (std::vector<bucket_load>{{3, 17}}));
}

TEST_F(BucketWatch, EachWordIsNewerThanTheOneBefore) {
  auto last = self.announce({1, 2}, t0 + 60s, t0).sequence;
  for (auto now : {t0, t0 - 1h, t0 + 1s}) {
    auto next = self.announce({1, 2}, t0 + 60s, now).sequence;
    EXPECT_GT(next, last);
    last = next;
  }
}

// With rare rounds, the announcements of others expire, and that of a newcomer that was alone must
// not be the only one that counts.
TEST_F(BucketWatch, RemembersItsOwnWord) {
  EXPECT_TRUE(self.known({}).empty());
  auto first = self.announce({3, 9}, t0 + 60s, t0);
  auto second = self.announce({3, 10}, t0 + 60s, t0 + 1s);
  EXPECT_EQ(self.known({}), (std::vector<bucket_load>{{3, 10}}));
  EXPECT_EQ(self.known({first}), (std::vector<bucket_load>{{3, 10}})) << "once";
  EXPECT_EQ(elastic_length(self.known({of(2).announce({0, 1}, t0 + 1h, t0 + 30min)}), 8, 2), 3U);
}

TEST_F(BucketWatch, OfManyTheNewestCount) {
  std::vector<record> entries;
  for (std::uint64_t seed = 10; seed < 50; ++seed)
    entries.push_back(of(seed).announce({4, seed < 30 ? 16U : 1U}, t0 + 1h, t0 + seed * 1s));
  auto known = of(1).known(entries);
  EXPECT_EQ(known, std::vector<bucket_load>(20, {4, 1})) << "the others may have left";
  entries.resize(3);
  EXPECT_EQ(of(1).known(entries).size(), 3U);
}

TEST_F(BucketWatch, NonsenseCountsForNothing) {
  auto entry = of(2).announce({1, 1}, t0 + 60s, t0);
  entry.value = "1 1 1";
  EXPECT_TRUE(self.known({entry}).empty());
}

} // namespace
} // namespace waggle
