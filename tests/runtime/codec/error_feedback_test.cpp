#include "runtime/codec/error_feedback.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "tests/runtime/codec/samples.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

using namespace codec_samples;

std::vector<coded_part> cut(std::size_t n, std::uint32_t part, codec_id codec) {
  std::vector<coded_part> parts;
  for (std::size_t at = 0; at < n; at += part)
    parts.push_back({at, static_cast<std::uint32_t>(std::min<std::size_t>(part, n - at)), codec});
  return parts;
}

std::vector<float> decoded(const std::vector<float>& sent, const std::vector<coded_part>& parts) {
  std::vector<float> out;
  for (const auto& part : parts) {
    auto begin = sent.begin() + static_cast<std::ptrdiff_t>(part.offset);
    auto back = travelled(part.codec, {begin, begin + part.count});
    out.insert(out.end(), back.begin(), back.end());
  }
  return out;
}

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

class Lossy : public ::testing::TestWithParam<codec_id> {};
INSTANTIATE_TEST_SUITE_P(ErrorFeedback, Lossy,
                         ::testing::ValuesIn(all_codecs().begin() + 1, all_codecs().end()),
                         [](const auto& info) { return std::string{to_string(info.param)}; });

// The mean over many rounds of the decoded values converges to the vector itself; without feedback
// every round has the same error.
TEST_P(Lossy, TheMeanOverManyRoundsComesToTheVector) {
  constexpr std::size_t n = 3'000;
  constexpr int rounds = 200;
  auto values = bells(71, n);
  auto parts = cut(n, 1'024, GetParam());
  error_feedback feedback;
  std::vector<float> sent(n);
  std::vector<double> sums(n);
  double largest = 0; // residual
  for (int round = 0; round < rounds; ++round) {
    feedback.begin(values, sent);
    auto seen = decoded(sent, parts);
    for (std::size_t i = 0; i < n; ++i)
      sums[i] += static_cast<double>(seen[i]);
    feedback.commit(sent, parts);
    for (auto r : feedback.residual())
      largest = std::max(largest, std::fabs(static_cast<double>(r)));
  }
  auto without = decoded(values, parts);
  double with_square = 0;
  double without_square = 0;
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    auto x = static_cast<double>(values[i]);
    auto error = sums[i] / rounds - x;
    worst = std::max(worst, std::fabs(error));
    with_square += error * error;
    without_square += (static_cast<double>(without[i]) - x) * (static_cast<double>(without[i]) - x);
  }
  RecordProperty("with", std::to_string(std::sqrt(with_square / n)));
  RecordProperty("without", std::to_string(std::sqrt(without_square / n)));
  RecordProperty("largest_residual", std::to_string(largest));
  // Within 64 rounds every value is sent once.
  auto gain = GetParam() == codec_id::sparse2 ? 3 : 20;
  EXPECT_LT(std::sqrt(with_square), std::sqrt(without_square) / gain) << "seed 71";
  // The sum of the sent values is the sum of the vectors except for the last residual.
  EXPECT_LE(worst, largest / rounds + 1e-5) << "seed 71";
  EXPECT_GT(without_square, 0) << "else there is nothing to feed back";
}

TEST_P(Lossy, TheResidualIsWhatDecodingLost) {
  auto codec = GetParam();
  auto values = bells(72, 5'000);
  auto parts = cut(values.size(), 2'048, codec);
  error_feedback feedback;
  std::vector<float> sent(values.size());
  feedback.begin(values, sent);
  EXPECT_EQ(sent, values) << "the first round has no residual";
  feedback.commit(sent, parts);
  auto seen = decoded(sent, parts);
  ASSERT_EQ(feedback.residual().size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(feedback.residual()[i], values[i] - seen[i]);
  auto owed = copy(feedback.residual());
  feedback.begin(values, sent);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(sent[i], values[i] + owed[i]);
}

TEST(ErrorFeedback, ARoundThatDidNotCountLeavesTheResidualAlone) {
  auto values = bells(73, 2'000);
  auto parts = cut(values.size(), 1'000, codec_id::uniform8);
  error_feedback feedback;
  std::vector<float> sent(values.size());
  feedback.begin(values, sent);
  feedback.commit(sent, parts);
  auto owed = copy(feedback.residual());
  feedback.begin(values, sent);
  auto first = sent;
  EXPECT_TRUE(feedback.in_round());
  feedback.roll_back();
  EXPECT_FALSE(feedback.in_round());
  EXPECT_EQ(copy(feedback.residual()), owed);
  feedback.begin(values, sent);
  EXPECT_EQ(sent, first) << "the next round has the same residual";
  feedback.begin(values, sent); // the previous round was neither committed nor rolled back
  EXPECT_EQ(sent, first);
}

TEST(ErrorFeedback, AnotherLengthForgetsTheResidual) {
  auto values = bells(74, 2'000);
  error_feedback feedback;
  std::vector<float> sent(values.size());
  feedback.begin(values, sent);
  feedback.commit(sent, cut(2'000, 2'000, codec_id::quantile8));
  EXPECT_FALSE(feedback.residual().empty());
  auto longer = bells(74, 2'001);
  std::vector<float> sent_longer(longer.size());
  feedback.begin(longer, sent_longer);
  EXPECT_EQ(sent_longer, longer);
  EXPECT_TRUE(feedback.residual().empty());
  feedback.commit(sent_longer, cut(2'001, 512, codec_id::quantile8));
  EXPECT_EQ(feedback.residual().size(), 2'001U);
  feedback.forget();
  EXPECT_TRUE(feedback.residual().empty());
}

TEST(ErrorFeedback, VectorsInTurnHaveAResidualEach) {
  const std::size_t lengths[] = {5'000, 300};
  error_feedback both;
  error_feedback alone[2];
  for (int round = 0; round < 6; ++round) {
    auto turn = static_cast<std::size_t>(round % 2);
    residual_range where{turn * lengths[0], lengths[0] + lengths[1]};
    auto values = bells(static_cast<std::uint64_t>(7 + round), lengths[turn]);
    std::vector<float> sent(values.size());
    std::vector<float> expected(values.size());
    both.begin(values, sent, where);
    alone[turn].begin(values, expected);
    EXPECT_EQ(sent, expected) << round;
    auto parts = cut(values.size(), 1'024, codec_id::uniform8);
    if (round == 3) {
      both.roll_back();
      alone[turn].roll_back();
      continue;
    }
    both.commit(sent, parts);
    alone[turn].commit(expected, parts);
  }
  std::vector<float> joined;
  for (const auto& one : alone)
    joined.insert(joined.end(), one.residual().begin(), one.residual().end());
  EXPECT_TRUE(std::ranges::equal(both.residual(), joined));
}

TEST(ErrorFeedback, WorksInPlace) {
  auto values = bells(75, 1'000);
  auto parts = cut(1'000, 400, codec_id::blockwise8);
  error_feedback apart;
  error_feedback in_place;
  std::vector<float> sent(1'000);
  for (int round = 0; round < 3; ++round) {
    apart.begin(values, sent);
    apart.commit(sent, parts);
    auto same = values;
    in_place.begin(same, same);
    in_place.commit(same, parts);
    ASSERT_EQ(same, sent);
  }
}

TEST(ErrorFeedback, ALosslessVectorCostsNoMemory) {
  auto values = bells(76, 1'000);
  error_feedback feedback;
  std::vector<float> sent(1'000);
  feedback.begin(values, sent);
  feedback.commit(sent, cut(1'000, 300, codec_id::none));
  EXPECT_TRUE(feedback.residual().empty());
}

TEST(ErrorFeedback, OnlyLossyRangesHaveAResidual) {
  auto values = bells(77, 2'000);
  error_feedback feedback;
  std::vector<float> sent(2'000);
  feedback.begin(values, sent);
  std::vector<coded_part> parts{{0, 1'000, codec_id::none}, {1'000, 1'000, codec_id::uniform8}};
  feedback.commit(sent, parts);
  double first = 0;
  double second = 0;
  for (std::size_t i = 0; i < 2'000; ++i)
    (i < 1'000 ? first : second) += std::fabs(feedback.residual()[i]);
  EXPECT_EQ(first, 0);
  EXPECT_GT(second, 0);
}

TEST(ErrorFeedback, FiniteValuesStayFiniteAndOthersAreSeen) {
  constexpr auto most = std::numeric_limits<float>::max();
  std::vector<float> values(1'000, most);
  values[3] = -most;
  error_feedback feedback;
  std::vector<float> sent(1'000);
  auto parts = cut(1'000, 1'000, codec_id::float16);
  for (int round = 0; round < 5; ++round) { // halves end at 65504: the residual grows
    feedback.begin(values, sent);
    for (auto x : sent)
      ASSERT_TRUE(std::isfinite(x));
    feedback.commit(sent, parts);
    for (auto r : feedback.residual())
      ASSERT_TRUE(std::isfinite(r));
  }
  values[7] = std::nanf("");
  values[8] = std::numeric_limits<float>::infinity();
  feedback.begin(values, sent);
  EXPECT_TRUE(std::isnan(sent[7]));
  EXPECT_EQ(sent[8], std::numeric_limits<float>::infinity());
  feedback.commit(sent, parts);
  for (auto r : feedback.residual())
    ASSERT_TRUE(std::isfinite(r)) << "values that are not finite must not stay in the residual";
}

TEST(ErrorFeedback, AddsTheResidualThatAnotherProcessHasLeft) {
  error_feedback feedback{0.5};
  std::vector<float> values{1, 2};
  std::vector<float> sent(2);
  feedback.add(std::vector<float>{4, -4});
  feedback.begin(values, sent);
  EXPECT_EQ(sent, (std::vector<float>{3, 0}));
  feedback.roll_back();
  feedback.add(std::vector<float>{2, 2});
  feedback.begin(values, sent);
  EXPECT_EQ(sent, (std::vector<float>{4, 1}));
  feedback.commit(sent, cut(2, 2, codec_id::none));
  feedback.begin(values, sent);
  EXPECT_EQ(sent, values) << "a codec without errors has sent all of it";
}

} // namespace
} // namespace waggle
