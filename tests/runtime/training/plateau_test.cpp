#include "runtime/training/plateau.hpp"

#include <cmath>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/training/schedule_text.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

plateau_rule quick() {
  return {.peak = 0.1, .factor = 0.5, .patience = 1};
}

plateau after(const plateau_rule& rule, const std::vector<float>& losses) {
  plateau made{rule};
  for (float loss : losses)
    made.advance(loss);
  return made;
}

std::string refusal(const plateau_rule& rule, const std::vector<float>& values) {
  auto read = plateau::decode(rule, values);
  if (read)
    return {};
  EXPECT_EQ(read.error().code, ec::malformed);
  return read.error().detail;
}

TEST(Plateau, HasTheRatesOfPyTorch) {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/training/plateau_vectors.json"};
  auto runs = nlohmann::json::parse(file);
  ASSERT_GT(runs.size(), 10U);
  for (const auto& run : runs) {
    auto text = run["schedule"].get<std::string>();
    auto parts = parse_schedule(text);
    ASSERT_TRUE(parts) << text << " " << parts.error().detail;
    auto schedule = make_schedule(*parts, 0.1, 0, 0);
    ASSERT_TRUE(schedule->plateau()) << text;
    plateau tested{*schedule->plateau()};
    for (std::size_t e = 0; e < run["losses"].size(); ++e) {
      auto before = tested.rate();
      bool lowered = tested.advance(run["losses"][e].get<float>());
      EXPECT_EQ(tested.rate(), run["rates"][e].get<double>()) << text << ", epoch " << e;
      EXPECT_EQ(lowered, tested.rate() < before) << text << ", epoch " << e;
    }
  }
}

TEST(Plateau, ALossThatIsNotKnownChangesNothing) {
  for (float unknown : {plateau::unknown_loss, -plateau::unknown_loss, INFINITY, -INFINITY, NAN,
                        std::numeric_limits<float>::max(), 1e20F}) {
    EXPECT_EQ(after(quick(), {unknown}).encode(), plateau{quick()}.encode()) << unknown;
    auto before = after(quick(), {1, 1});
    auto tested = before;
    EXPECT_FALSE(tested.advance(unknown));
    EXPECT_EQ(tested.encode(), before.encode()) << unknown;
    EXPECT_TRUE(tested.advance(1)) << "one epoch more than its patience";
  }
}

TEST(Plateau, AMeanWithOneUnknownLossIsNotKnown) {
  // The least share of a peer: one sample of 2^30.
  float mean = plateau::unknown_loss / 0x1p30F;
  EXPECT_EQ(after(quick(), {mean}).encode(), plateau{quick()}.encode());
}

TEST(Plateau, GoesOnEquallyFromItsEncodedState) {
  auto rule = quick();
  rule.patience = 2;
  rule.cooldown = 3;
  std::vector<float> losses;
  for (int i = 0; i < 60; ++i)
    losses.push_back(1.0F + std::sin(static_cast<float>(i * i)));
  for (std::size_t split = 0; split < losses.size(); ++split) {
    auto from = losses.begin() + static_cast<std::ptrdiff_t>(split);
    auto early = after(rule, {losses.begin(), from});
    auto read = plateau::decode(rule, early.encode());
    ASSERT_TRUE(read) << split << " " << read.error().detail;
    EXPECT_EQ(read->rate(), early.rate());
    EXPECT_EQ(read->best(), early.best());
    for (auto loss = from; loss != losses.end(); ++loss)
      read->advance(*loss);
    EXPECT_EQ(read->encode(), after(rule, losses).encode()) << split;
    EXPECT_EQ(read->rate(), after(rule, losses).rate()) << split;
  }
  EXPECT_GT(after(rule, losses).reductions(), 3U);
}

TEST(Plateau, AStateThatNoSequenceOfLossesLeadsToIsRefused) {
  auto rule = quick();
  rule.cooldown = 2;
  constexpr float none = std::numeric_limits<float>::max();
  EXPECT_EQ(refusal(rule, {0.5F, 1, 2, 3}), "");
  EXPECT_EQ(refusal(rule, {none, 0, 0, 0}), "");
  for (float best : {NAN, INFINITY, -INFINITY, 1e20F, -none})
    EXPECT_THAT(refusal(rule, {best, 0, 0, 0}), HasSubstr("best loss")) << best;
  for (float bad : {2.0F, -1.0F, 0.5F, 1e30F, NAN, INFINITY})
    EXPECT_THAT(refusal(rule, {1, bad, 0, 0}), HasSubstr("patience")) << bad;
  for (float left : {3.0F, -1.0F, 0.5F, 1e30F, NAN})
    EXPECT_THAT(refusal(rule, {1, 0, left, 0}), HasSubstr("cooldown")) << left;
  for (float reductions : {-1.0F, 0.5F, 2e6F, 1e30F, NAN, INFINITY})
    EXPECT_THAT(refusal(rule, {1, 0, 0, reductions}), HasSubstr("reductions")) << reductions;
  EXPECT_THAT(refusal(rule, {none, 1, 0, 0}), HasSubstr("without a loss"));
  EXPECT_THAT(refusal(rule, {none, 0, 0, 1}), HasSubstr("without a loss"));
  EXPECT_THAT(refusal(rule, {1, 0, 0}), HasSubstr("3 values"));
  rule.floor = 0.025;
  EXPECT_EQ(refusal(rule, {1, 0, 0, 2}), "");
  EXPECT_THAT(refusal(rule, {1, 0, 0, 3}), HasSubstr("floor")) << "0.05, 0.025, and no further";
}

TEST(Plateau, TheRateIsNeverBelow0OrAboveThePeak) {
  for (double factor : {0.0, 0.3, 0.999999}) {
    auto rule = quick();
    rule.factor = factor;
    rule.patience = 0;
    rule.least_change = 0;
    plateau tested{rule};
    for (int i = 0; i < 3'000; ++i) {
      tested.advance(1);
      ASSERT_TRUE(tested.rate() >= 0 && tested.rate() <= rule.peak) << tested.rate();
    }
    EXPECT_EQ(plateau::decode(rule, tested.encode())->rate(), tested.rate());
  }
}

} // namespace
} // namespace waggle
