#include "runtime/progress/report_pace.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

TEST(ReportPace, LeavesShortEpochsAndUnknownOnesAsTheyAre) {
  report_pace pace;
  pace.begin(steady_time{} + 7s);
  for (auto seconds : {0.0, 0.3, 4.9}) {
    pace.expect(seconds);
    EXPECT_EQ(pace.between_reports(steady_time{} + 8s), 0s);
    EXPECT_EQ(pace.between_readings(steady_time{} + 8s), 0s);
    EXPECT_EQ(pace.between_notes(steady_time{} + 7s), 0s);
  }
}

TEST(ReportPace, ReportsFourTimesAnEpochAndReadsTwiceButNotMoreRarelyThanReportsNeed) {
  report_pace pace;
  auto began = steady_time{} + 7s;
  pace.begin(began);
  pace.expect(20);
  EXPECT_EQ(pace.between_reports(began), 5s);
  EXPECT_EQ(pace.between_reports(began + 19s), 5s);
  pace.expect(3'600);
  EXPECT_EQ(pace.between_reports(began), 15s);
  EXPECT_EQ(pace.between_readings(began), 30s);
  pace.expect(0);
  EXPECT_EQ(pace.between_reports(began + 32s), 8s) << "the first epoch";
  EXPECT_EQ(pace.between_readings(began + 32s), 16s);
}

TEST(ReportPace, NotesComeAtOnceWhenTheEpochMayEnd) {
  report_pace pace;
  auto began = steady_time{} + 7s;
  pace.expect(64);
  pace.begin(began);
  EXPECT_EQ(pace.between_notes(began), 5s);
  EXPECT_EQ(pace.between_notes(began + 32s), 4s);
  EXPECT_EQ(pace.between_notes(began + 63s), 125ms);
  EXPECT_EQ(pace.between_notes(began + 64s), 0s);
  EXPECT_EQ(pace.between_notes(began + 90s), 0s) << "it lasts longer than expected";
  pace.begin(began + 90s);
  EXPECT_EQ(pace.between_notes(began + 90s), 5s);
}

} // namespace
} // namespace waggle
