#include "runtime/training/own_progress.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

const digest state = sha256("a state");

own_progress full() {
  return {.run = "run-1a2b3c4d",
          .own = "scale 4",
          .position = "at 12",
          .stopped = true,
          .partial = {std::make_shared<float_vector>(float_vector{1, -0.0F, 3}), 8, 2, 0.5},
          .pending = std::make_shared<float_vector>(float_vector{7, 8}),
          .pending_samples = 32,
          .pending_position = "at 4",
          .local_samples = 24,
          .local_passes = 6,
          .uncounted_steps = 5,
          .residual = std::make_shared<float_vector>(float_vector{0.25F, -9, 0})};
}

std::string bytes_of(const own_progress& p, const digest& of = state) {
  auto out = head_of(p, of);
  for (const auto& v : {p.partial.sum, p.pending, p.residual})
    if (v)
      out += as_string_view(std::as_bytes(std::span{*v}));
  return out;
}

TEST(OwnProgress, IsReadAsItWasWritten) {
  auto read = decode_own_progress(bytes_of(full()), state);
  EXPECT_EQ(bytes_of(*read), bytes_of(full()));
  EXPECT_EQ(read->run, "run-1a2b3c4d");
  EXPECT_EQ(read->own, "scale 4");
  EXPECT_EQ(read->position, "at 12");
  EXPECT_TRUE(read->stopped);
  EXPECT_EQ(*read->partial.sum, *full().partial.sum);
  EXPECT_EQ(read->partial.passes, 2U);
  EXPECT_EQ(read->partial.scale, 0.5);
  EXPECT_EQ(*read->pending, *full().pending);
  EXPECT_EQ(read->pending_position, "at 4");
  EXPECT_EQ(read->samples(), 40U);
  EXPECT_EQ(read->local_samples, 24U);
  EXPECT_EQ(read->local_passes, 6U);
  EXPECT_EQ(read->uncounted_steps, 5U);
  EXPECT_EQ(*read->residual, *full().residual);
}

TEST(OwnProgress, WithoutVectorsIsShort) {
  own_progress p{.position = "at 12"};
  EXPECT_FALSE(p.empty());
  auto read = decode_own_progress(bytes_of(p), state);
  EXPECT_FALSE(read->stopped);
  EXPECT_FALSE(read->partial.sum || read->pending);
  EXPECT_LT(bytes_of(p).size(), 200U);
}

TEST(OwnProgress, MayHaveParametersOfItsOwnWithoutASample) {
  own_progress p;
  p.partial.sum = full().partial.sum;
  EXPECT_FALSE(p.empty());
  auto read = decode_own_progress(bytes_of(p), state);
  EXPECT_EQ(*read->partial.sum, *p.partial.sum);
  EXPECT_EQ(read->samples(), 0U);
}

TEST(OwnProgress, OfAnotherStateIsRefused) {
  EXPECT_EQ(decode_own_progress(bytes_of(full()), sha256("another")).error().code, ec::wrong_run);
}

TEST(OwnProgress, OfAnotherVersionIsRefusedAndSaysSo) {
  auto older = bytes_of(full());
  older.replace(0, 8, "WGGLOW04");
  EXPECT_NE(decode_own_progress(older, state).error().detail.find("version"), std::string::npos);
}

TEST(OwnProgress, EveryCutAndEveryFlippedBitIsRefused) {
  auto whole = bytes_of(full());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(decode_own_progress(whole.substr(0, n), state).ok()) << n;
    auto flipped = whole;
    flipped[n] = static_cast<char>(flipped[n] ^ 4);
    EXPECT_FALSE(decode_own_progress(flipped, state).ok()) << n;
  }
  EXPECT_FALSE(decode_own_progress(whole + "x", state).ok());
}

// With a correct hash: a program with a defect may have written it.
TEST(OwnProgress, FieldsThatContradictEachOtherAreRefused) {
  auto refused = [](auto change) {
    auto p = full();
    change(p);
    return decode_own_progress(bytes_of(p), state).error().code == ec::malformed;
  };
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.samples = 0; })) << "of two passes";
  EXPECT_TRUE(refused([](own_progress& p) { p.uncounted_steps = 1ULL << 60U; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.sum = nullptr; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.samples = 1ULL << 41U; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.passes = 9; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.scale = 0; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.partial.scale = std::nan(""); }));
  EXPECT_TRUE(refused([](own_progress& p) { p.pending_samples = 0; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.pending = nullptr; }));
  EXPECT_TRUE(refused([](own_progress& p) { p.pending_samples = 1ULL << 41U; }));
}

TEST(OwnProgress, RandomBytesAreRefused) {
  random_source random{4};
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes(random.below(400), '\0');
    random.fill(std::as_writable_bytes(std::span{bytes}));
    if (i % 2 == 0 && bytes.size() >= 8)
      bytes.replace(0, 8, "WGGLOW05");
    EXPECT_FALSE(decode_own_progress(bytes, state).ok());
  }
}

} // namespace
} // namespace waggle
