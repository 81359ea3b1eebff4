#include "runtime/allreduce/round_report.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

/// A complete round of four that this peer, member 0, has seen.
struct RoundReport : ::testing::Test {
  RoundReport() {
    report.outcome = round_outcome::complete;
    for (std::size_t i = 0; i < 4; ++i) {
      auto& m = marks.members.emplace_back();
      m.peer = peer_id{{std::byte(i + 1)}};
      m.reduces = true;
      m.weight = 10 * static_cast<double>(i + 1);
      m.contributions.mark(10ms);
      m.results.mark(20ms);
      m.confirmed = 30ms;
    }
  }
  double wait_for(std::size_t member) {
    report.marks = std::make_shared<const round_marks>(marks);
    return waits_in(report)[member].seconds;
  }
  round_report report;
  round_marks marks;
};

TEST_F(RoundReport, SaysHowLongTheRoundWaitedForEachMemberBeyondTheOthers) {
  marks.members[1].contributions.mark(100ms);
  marks.members[2].results.mark(300ms);
  marks.members[3].confirmed = 1s;
  EXPECT_NEAR(wait_for(1), 0.09, 1e-9);
  EXPECT_NEAR(wait_for(2), 0.2, 1e-9);
  EXPECT_NEAR(wait_for(3), 0.9, 1e-9);
  EXPECT_EQ(wait_for(0), 0);
  auto waits = waits_in(report);
  EXPECT_EQ(waits[0].weight, 10);
  EXPECT_EQ(waits[3].weight, 40);
  EXPECT_NEAR(waits[3].others, 0.01, 1e-9);
}

TEST_F(RoundReport, SaysNothingOfRoundsThatWereNotComplete) {
  report.outcome = round_outcome::shrunk;
  report.marks = std::make_shared<const round_marks>(marks);
  EXPECT_TRUE(waits_in(report).empty());
}

TEST_F(RoundReport, SaysNothingIfThisPeerSeesNoContributions) {
  marks.members[0].reduces = false;
  report.marks = std::make_shared<const round_marks>(marks);
  EXPECT_TRUE(waits_in(report).empty());
}

} // namespace
} // namespace waggle
