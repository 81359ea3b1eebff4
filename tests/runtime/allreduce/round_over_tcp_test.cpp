#include "tests/runtime/allreduce/tcp_rounds.hpp"

namespace waggle {
namespace {

TEST(RoundOverTcp, AllMembersEndWithTheSameBytesForEveryCodec) {
  testing::tcp_group group{1}; // workers sum all parts
  group.connect(4);
  constexpr std::uint64_t elements = 300'001;
  auto values = group.values_of(elements);
  std::uint8_t number = 0;
  for (auto codec : {codec_id::none, codec_id::float16, codec_id::none, codec_id::blockwise8}) {
    auto plan = group.plan_of(elements, codec, ++number);
    group.begin(plan, values);
    std::vector<round_report> reports;
    for (auto& p : group.peers) {
      auto report = p->finish();
      ASSERT_TRUE(report) << "round " << int{number};
      ASSERT_EQ(report->outcome, round_outcome::complete) << to_string(report->why);
      reports.push_back(*report);
    }
    for (const auto& report : reports)
      ASSERT_TRUE(*report.values == *reports[0].values) << "round " << int{number};
    if (codec != codec_id::none)
      continue;
    for (std::size_t k = 0; k < elements; k += 1'009) {
      double sum = 0;
      for (const auto& each : values)
        sum += static_cast<double>((*each)[k]);
      ASSERT_FLOAT_EQ((*reports[0].values)[k], static_cast<float>(sum / 4)) << k;
    }
  }
}

TEST(RoundOverTcp, SurvivorsOfALossInTheMiddleEndWithTheSameBytes) {
  testing::tcp_group group{1}; // workers sum all parts
  group.connect(4);
  auto plan = group.plan_of(2'000'000, codec_id::none, 1);
  auto values = group.values_of(plan.elements);
  group.begin(plan, values);
  group.peers[3]->stop();
  std::vector<round_report> reports;
  for (std::size_t i = 0; i < 3; ++i) {
    auto report = group.peers[i]->finish();
    ASSERT_TRUE(report);
    ASSERT_NE(report->outcome, round_outcome::failed) << to_string(report->why);
    reports.push_back(*report);
  }
  for (const auto& report : reports) {
    EXPECT_EQ(report.contributors, reports[0].contributors);
    EXPECT_TRUE(*report.values == *reports[0].values);
  }
}

} // namespace
} // namespace waggle
