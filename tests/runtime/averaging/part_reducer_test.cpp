#include "runtime/averaging/part_reducer.hpp"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/codec/half.hpp"
#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

payload encoded(codec_id codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(encoded_size(codec, values.size()));
  encode(codec, values, bytes);
  return copy_to_payload(bytes);
}

std::vector<float> random_values(random_source& random, std::size_t n) {
  std::vector<float> out(n);
  for (auto& x : out)
    x = static_cast<float>((random.unit() - 0.5)
                           * std::ldexp(1.0, static_cast<int>(random.below(20))));
  return out;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(PartReducer, TheResultHasTheSameBytesInWhateverOrderContributionsCome) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    random_source random{seed};
    auto codec = random.below(2) == 0 ? codec_id::none : codec_id::float16;
    auto n = 1 + random.below(3'000);
    auto members = 2 + random.below(7);
    std::vector<payload> sent;
    std::vector<double> weights;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < members; ++i) {
      sent.push_back(encoded(codec, random_values(random, n)));
      weights.push_back(random.unit() * 10 + 0.1);
      order.push_back(i);
    }
    std::vector<float> first;
    for (int turn = 0; turn < 3; ++turn) {
      random.shuffle(order);
      part_reducer reducer{codec, static_cast<std::uint32_t>(n)};
      for (auto i : order)
        ASSERT_TRUE(reducer.add(i, weights[i], sent[i]).ok());
      std::vector<float> out(n);
      auto done = reducer.reduce(member_set::first(members), out);
      ASSERT_TRUE(poisoned(done).empty());
      // The canonical sum: ascending member, double, weight · value.
      if (turn == 0) {
        first = out;
        double sum_w = 0;
        for (auto w : weights)
          sum_w += w;
        EXPECT_EQ(done.weight_sum, sum_w);
        std::vector<float> decoded(n);
        std::vector<double> sums(n, 0.0);
        for (std::size_t i = 0; i < members; ++i) {
          ASSERT_TRUE(decode(codec, sent[i].view(), decoded).ok());
          for (std::size_t e = 0; e < n; ++e) {
            double term = weights[i] * static_cast<double>(decoded[e]);
            sums[e] = i == 0 ? term : sums[e] + term;
          }
        }
        double factor = 1.0 / sum_w;
        for (std::size_t e = 0; e < n; ++e)
          ASSERT_EQ(out[e], codec == codec_id::none ? static_cast<float>(sums[e] * factor)
                                                    : codecs::to_odd(sums[e] * factor))
            << "seed " << seed;
      } else {
        ASSERT_TRUE(same_bytes(first, out)) << "seed " << seed;
      }
    }
  }
}

TEST(PartReducer, APartReducedAgainOverFewerIsWhatThoseAloneWouldHaveMade) {
  random_source random{7};
  auto a = encoded(codec_id::none, random_values(random, 2'000));
  auto b = encoded(codec_id::none, random_values(random, 2'000));
  auto c = encoded(codec_id::none, random_values(random, 2'000));
  part_reducer three{codec_id::none, 2'000};
  part_reducer two{codec_id::none, 2'000};
  ASSERT_TRUE(three.add(0, 1, a).ok() && three.add(1, 2, b).ok() && three.add(2, 3, c).ok());
  ASSERT_TRUE(two.add(2, 3, c).ok() && two.add(0, 1, a).ok());
  std::vector<float> from_three(2'000);
  std::vector<float> from_two(2'000);
  (void)three.reduce(members_of({0, 2}), from_three);
  (void)two.reduce(members_of({0, 2}), from_two);
  EXPECT_TRUE(same_bytes(from_three, from_two));
}

TEST(PartReducer, WeighsGradientsByTheSamplesBehindThem) {
  part_reducer reducer{codec_id::none, 1};
  ASSERT_TRUE(reducer.add(0, 8, encoded(codec_id::none, {-0.08F})));
  ASSERT_TRUE(reducer.add(1, 18, encoded(codec_id::none, {0.08F})));
  std::vector<float> mean(1);
  EXPECT_EQ(reducer.reduce(member_set::first(2), mean).weight_sum, 26);
  EXPECT_NEAR(mean[0], 0.0307692, 1e-7);
}

TEST(PartReducer, AMeanInSixteenBitsIsRoundedOnce) {
  // Just above the middle between two neighbours: in 24 bits it is the middle, and then even.
  for (auto [codec, step] : {std::pair{codec_id::float16, 0x1p-10F}, {codec_id::bfloat16, 0x1p-7F}})
    for (float sign : {1.0F, -1.0F}) {
      part_reducer reducer{codec, 17}; // both paths of the kernels
      std::vector<float> low(17, sign);
      std::vector<float> high(17, sign * (1 + step));
      ASSERT_TRUE(reducer.add(0, 1, encoded(codec, low)).ok());
      ASSERT_TRUE(reducer.add(1, 1 + 1e-9, encoded(codec, high)).ok());
      std::vector<float> mean(17);
      (void)reducer.reduce(member_set::first(2), mean);
      std::vector<float> received(17);
      ASSERT_TRUE(decode(codec, encoded(codec, mean).view(), received).ok());
      EXPECT_TRUE(same_bytes(received, high));
    }
}

TEST(PartReducer, AWeightOfZeroChangesNoBit) {
  random_source random{3};
  auto a = encoded(codec_id::none, {-0.0F, 1.5F, -3.25F});
  part_reducer with{codec_id::none, 3};
  part_reducer without{codec_id::none, 3};
  auto poison = encoded(codec_id::none, {std::nanf(""), 1e38F, -1e38F});
  ASSERT_TRUE(with.add(0, 0, poison).ok() && with.add(1, 2, a).ok());
  ASSERT_TRUE(without.add(1, 2, a).ok());
  std::vector<float> x(3);
  std::vector<float> y(3);
  auto done = with.reduce(members_of({0, 1}), x);
  (void)without.reduce(members_of({1}), y);
  EXPECT_TRUE(poisoned(done).empty());
  EXPECT_EQ(done.weight_sum, 2);
  EXPECT_TRUE(same_bytes(x, y));
}

TEST(PartReducer, WeightsThatSumToZeroGiveZerosAndNoNaN) {
  part_reducer reducer{codec_id::none, 2};
  ASSERT_TRUE(reducer.add(0, 0, encoded(codec_id::none, {1, 2})).ok());
  ASSERT_TRUE(reducer.add(1, 0, encoded(codec_id::none, {3, 4})).ok());
  std::vector<float> out{9, 9};
  EXPECT_EQ(reducer.reduce(members_of({0, 1}), out).weight_sum, 0);
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
}

TEST(PartReducer, FindsTheSendersOfNonFiniteValues) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()})
    for (std::size_t at :
         {std::size_t{0}, std::size_t{1'023}, std::size_t{1'024}, std::size_t{4'999}}) {
      std::vector<float> values(5'000, 1.0F);
      part_reducer reducer{codec_id::none, 5'000};
      ASSERT_TRUE(reducer.add(0, 1, encoded(codec_id::none, values)).ok());
      ASSERT_TRUE(reducer.add(2, 1, encoded(codec_id::none, values)).ok());
      values[at] = bad;
      ASSERT_TRUE(reducer.add(1, 0.5, encoded(codec_id::none, values)).ok());
      std::vector<float> out(5'000);
      EXPECT_EQ(poisoned(reducer.reduce(members_of({0, 1, 2}), out)), members_of({1}));
      EXPECT_TRUE(poisoned(reducer.reduce(members_of({0, 2}), out)).empty());
      EXPECT_TRUE(all_finite(out));
    }
}

TEST(PartReducer, TheMeanOfTheLargestFloatsIsFiniteForEveryWeightThatIsTaken) {
  auto top = std::numeric_limits<float>::max();
  for (double w : {weight_min, 1.0, weight_max}) {
    part_reducer reducer{codec_id::none, 2};
    for (std::size_t i = 0; i < 64; ++i)
      ASSERT_TRUE(reducer.add(i, w, encoded(codec_id::none, {top, -top})).ok());
    std::vector<float> out(2);
    EXPECT_TRUE(poisoned(reducer.reduce(member_set::first(64), out)).empty()) << w;
    EXPECT_TRUE(all_finite(out)) << w;
  }
}

TEST(PartReducer, WeightsThatWouldLeaveTheDoublesAreNotTaken) {
  for (double w : {1e200, std::numeric_limits<double>::max(), 1e-200,
                   std::numeric_limits<double>::denorm_min()}) {
    part_reducer reducer{codec_id::none, 1};
    EXPECT_EQ(reducer.add(0, w, encoded(codec_id::none, {1})).error().code, ec::bad_weight) << w;
  }
}

TEST(PartReducer, InvalidContributionsAreRefused) {
  part_reducer reducer{codec_id::none, 2};
  auto good = encoded(codec_id::none, {1, 2});
  EXPECT_EQ(reducer.add(0, -1, good).error().code, ec::bad_weight);
  EXPECT_EQ(reducer.add(0, std::nan(""), good).error().code, ec::bad_weight);
  EXPECT_EQ(reducer.add(0, std::numeric_limits<double>::infinity(), good).error().code,
            ec::bad_weight);
  EXPECT_EQ(reducer.add(0, 1, encoded(codec_id::none, {1})).error().code, ec::wrong_shape);
  EXPECT_TRUE(reducer.present().empty());
  EXPECT_TRUE(reducer.add(0, 1, good).ok());
  EXPECT_EQ(reducer.add(0, 1, good).error().code, ec::duplicate_peer);
}

TEST(CopyFinite, CopiesAndFindsWhatIsNot) {
  for (std::size_t n : {0U, 1U, 4095U, 4096U, 4097U, 20'000U}) {
    std::vector<float> from(n, 1.5F);
    std::vector<float> to(n, 0.0F);
    auto bytes = std::as_bytes(std::span{from});
    EXPECT_TRUE(copy_finite(bytes, to));
    EXPECT_EQ(from, to);
    if (n == 0)
      continue;
    from[n - 1] = -std::numeric_limits<float>::infinity();
    EXPECT_FALSE(copy_finite(bytes, to)) << n;
  }
}

#if defined(__SANITIZE_THREAD__)
#define WAGGLE_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define WAGGLE_UNSEEN
#endif

/// Imitates another process that writes to shared memory which it must not change.
WAGGLE_UNSEEN void flicker(std::vector<float>& memory, const std::atomic<bool>& done) {
  auto* at = static_cast<volatile float*>(memory.data());
  for (std::size_t i = 0; !done; i = (i + 7) % memory.size()) {
    at[i] = std::numeric_limits<float>::quiet_NaN();
    at[i] = 1;
  }
}

TEST(PartReducer, ASenderThatChangesSharedValuesHurtsOnlyItself) {
  constexpr std::uint32_t n = 4096;
  auto memory = std::make_shared<std::vector<float>>(n, 1.0F);
  std::atomic<bool> done{false};
  std::thread liar{[&] { flicker(*memory, done); }};
  std::size_t caught = 0;
  for (int round = 0; round < 300; ++round) {
    part_reducer reducer{codec_id::none, n};
    auto shared = payload_of(std::shared_ptr<const std::vector<float>>{memory});
    shared.sender_can_write = true;
    ASSERT_TRUE(reducer.add(0, 1, encoded(codec_id::none, std::vector<float>(n, 3.0F))).ok());
    ASSERT_TRUE(reducer.add(1, 1, shared).ok());
    std::vector<float> out(n);
    auto ended = reducer.reduce(member_set::first(2), out);
    if (ended.excluded.empty()) {
      EXPECT_TRUE(all_finite(out)) << "a result that is not finite without an excluded member";
      continue;
    }
    ++caught;
    ASSERT_EQ(ended.excluded.size(), 1u);
    EXPECT_EQ(ended.excluded[0].member, 1u);
  }
  done = true;
  liar.join();
  RecordProperty("caught", static_cast<int>(caught));
}

TEST(PartReducer, TakesMemoryThatMayChangeOnlyWhereItReadsOnce) {
  EXPECT_TRUE(part_reducer::reads_once(codec_id::none, {}));
  EXPECT_FALSE(part_reducer::reads_once(codec_id::float16, {})) << "headers are checked first";
  EXPECT_FALSE(part_reducer::reads_once(codec_id::none, {aggregator::median, 1}));
}

} // namespace
} // namespace waggle
