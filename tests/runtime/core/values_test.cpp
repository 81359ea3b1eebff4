#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/try.hpp"

namespace waggle {
namespace {

TEST(Ids, SurviveTheWayThroughHexAndRawBytes) {
  random_source random{3};
  for (int i = 0; i < 100; ++i) {
    digest id;
    random.fill(id.bytes);
    EXPECT_EQ(digest::parse(to_string(id)), id);
    EXPECT_EQ(digest::from_raw(id.raw()), id);
    EXPECT_EQ(short_name(id), to_string(id).substr(0, 8));
  }
}

TEST(Ids, OtherLengthsAndOtherLettersAreNoIds) {
  std::string hex(64, 'a');
  EXPECT_TRUE(digest::parse(hex));
  EXPECT_TRUE(digest::parse(std::string(64, 'F')));
  EXPECT_FALSE(digest::parse(hex + "aa"));
  EXPECT_FALSE(digest::parse(hex.substr(2)));
  EXPECT_FALSE(digest::parse(hex.substr(1)));
  EXPECT_FALSE(digest::parse("g" + hex.substr(1)));
  EXPECT_FALSE(digest::parse(""));
  EXPECT_FALSE(digest::from_raw("short"));
}

TEST(Ids, AreOrderedLikeBigEndianNumbers) {
  digest low;
  digest high;
  low.bytes[31] = std::byte{0xff};
  high.bytes[0] = std::byte{0x80};
  EXPECT_LT(low, high);
  EXPECT_TRUE(digest{}.is_zero());
  EXPECT_FALSE(low.is_zero());
}

TEST(Endpoint, IsReadAsItIsWritten) {
  for (const char* text : {"10.0.0.1:7700", "host.example:0", "[::1]:65535", "[fe80::1]:1"}) {
    auto read = parse_endpoint(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(to_string(*read), text);
  }
  EXPECT_EQ(parse_endpoint("[::1]:1")->host, "::1");
}

TEST(Endpoint, WhatIsNoAddressIsRefusedWithItsText) {
  for (const char* text :
       {"", ":", "host", "host:", ":7700", "host:65536", "host:-1", "host:+1", "host: 1", "host:1x",
        "::1:7700", "[]:1", "host:99999999999999999999", "http://host:1", "tcp://host:1"}) {
    auto read = parse_endpoint(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ec::bad_config) << text;
    EXPECT_NE(read.error().detail.find(text), std::string::npos) << text;
  }
  EXPECT_FALSE(parse_endpoint(std::string(254, 'a') + ":1").ok());
  EXPECT_TRUE(parse_endpoint(std::string(253, 'a') + ":1").ok());
}

TEST(Result, HoldsAValueOrTheReason) {
  result<int> good{5};
  result<int> bad{failure{ec::timeout, "slow"}};
  EXPECT_TRUE(good);
  EXPECT_EQ(*good, 5);
  EXPECT_EQ(bad.error().code, ec::timeout);
  EXPECT_EQ(to_string(bad.error()), "timeout: slow");
}

result<int> doubled(result<int> of) {
  WAGGLE_TRY(value, of);
  return 2 * *value;
}

TEST(Result, AFailureIsPassedOn) {
  EXPECT_EQ(*doubled(2), 4);
  EXPECT_EQ(doubled(ec::timeout).error().code, ec::timeout);
}

TEST(Result, TheValueOfAFailureThrowsItAndEndsNoService) {
  const failure slow{ec::timeout, "slow"};
  result<std::string> bad{slow};
  const auto& same = bad;
  const std::vector<std::function<void()>> uses{[&] { (void)bad.value(); },
                                                [&] { (void)same.value(); },
                                                [&] { (void)result<std::string>(bad).value(); },
                                                [&] { (void)*bad; },
                                                [&] { (void)*same; },
                                                [&] { (void)*result<std::string>(bad); },
                                                [&] { (void)bad->size(); },
                                                [&] { (void)same->size(); }};
  for (const auto& use : uses) {
    try {
      use();
      ADD_FAILURE() << "there was a value";
    } catch (const failure& why) {
      EXPECT_EQ(why, slow);
    }
    try {
      use();
    } catch (const std::exception& e) {
      EXPECT_STREQ(e.what(), "timeout: slow");
    }
  }
}

TEST(ErrorCodes, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (unsigned i = 0; i <= ec_max; ++i) {
    auto code = static_cast<ec>(i);
    EXPECT_TRUE(names.insert(to_string(code)).second) << i;
    EXPECT_NE(to_string(code), "unknown") << i;
    EXPECT_EQ(ec_from_wire(i), code);
  }
  EXPECT_EQ(to_string(static_cast<ec>(ec_max + 1)), "unknown");
  for (std::uint32_t i : {std::uint32_t{ec_max} + 1, 255U, 256U, 0xffffffffU})
    EXPECT_EQ(ec_from_wire(i), ec::internal) << i;
}

TEST(RandomSource, TheSameSeedGivesTheSameSequence) {
  random_source a{7};
  random_source b{7};
  random_source c{8};
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    auto x = a.next();
    EXPECT_EQ(x, b.next());
    differs = differs || x != c.next();
  }
  EXPECT_TRUE(differs);
}

TEST(RandomSource, ForksAreIndependentOfWhatWasDrawn) {
  random_source a{7};
  auto before = a.fork("dht").next();
  (void)a.next();
  EXPECT_EQ(a.fork("dht").next(), before);
  EXPECT_NE(a.fork("net").next(), before);
}

TEST(RandomSource, StaysWithinItsBoundsAndReachesAllOfThem) {
  random_source random{1};
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 7'000; ++i)
    ++seen[random.below(7)];
  EXPECT_EQ(seen.size(), 7u);
  for (auto [value, count] : seen) {
    EXPECT_LT(value, 7u);
    EXPECT_NEAR(count, 1'000, 200);
  }
  for (int i = 0; i < 1'000; ++i) {
    auto x = random.unit();
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
  }
  EXPECT_EQ(random.below(1), 0u);
}

TEST(SwarmTime, ADifferenceThatNoDurationHoldsIsTheNearestOne) {
  auto now = swarm_time_from(1'700'000'000'000'000'000);
  EXPECT_EQ(difference(now + 3s, now), 3s);
  EXPECT_EQ(difference(now, now + 3s), -3s);
  EXPECT_EQ(difference(now, swarm_time::min()), swarm_clock::duration::max());
  EXPECT_EQ(difference(swarm_time::min(), now), swarm_clock::duration::min());
  EXPECT_EQ(difference(swarm_time::max(), swarm_time::min()), swarm_clock::duration::max());
}

TEST(Payload, ASliceSharesAndKeepsTheMemory) {
  auto values = std::make_shared<const std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  auto part = slice(payload_of(values), 4, 8);
  std::weak_ptr<const std::vector<float>> watch = values;
  values.reset();
  ASSERT_FALSE(watch.expired());
  float second = 0;
  std::memcpy(&second, part.view().data(), 4);
  EXPECT_EQ(second, 2.0F);
  part = {};
  EXPECT_TRUE(watch.expired());
}

} // namespace
} // namespace waggle
