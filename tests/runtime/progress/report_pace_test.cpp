#include "runtime/progress/report_pace.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

TEST(ReportPace, LeavesShortEpochsAndUnknownOnesAsTheyAre) {
  report_pace pace{{}, {}};
  pace.begin(steady_time{} + 7s);
  for (auto seconds : {0.0, 0.3, 0.9}) {
    pace.expect(seconds);
    EXPECT_EQ(pace.between_reports(steady_time{} + 7900ms), 0s);
    EXPECT_EQ(pace.between_readings(steady_time{} + 7900ms), 0s);
    EXPECT_EQ(pace.between_notes(steady_time{} + 7s), 0s);
  }
}

TEST(ReportPace, ReportsFourTimesAnEpochAndReadsTwiceButNotMoreRarelyThanReportsNeed) {
  report_pace pace{{}, {}};
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
  report_pace pace{{}, {}};
  auto began = steady_time{} + 7s;
  pace.expect(64);
  pace.begin(began);
  EXPECT_EQ(pace.between_notes(began), 5s);
  EXPECT_EQ(pace.between_notes(began + 32s), 4s);
  EXPECT_EQ(pace.between_notes(began + 63s), 125ms);
  EXPECT_EQ(pace.between_notes(began + 64s), 0s);
  EXPECT_EQ(pace.between_notes(began + 90s), 0s) << "it lasts longer than expected";
  pace.expect(0);
  EXPECT_EQ(pace.between_notes(began + 8s), 500ms);
  EXPECT_EQ(pace.between_notes(began + 90s), 1s);
  pace.expect(64);
  pace.begin(began + 90s);
  EXPECT_EQ(pace.between_notes(began + 90s), 5s);
}

TEST(ReportPace, SendsAtTheShortestIntervalsAndFirstWhatSaysMore) {
  auto at = steady_time{} + 7s;
  report_pace pace{{100ms, 5s, 60s}, at};
  EXPECT_FALSE(pace.push_due(at + 1s) || pace.note_due(at + 1s, 1)) << "nothing has changed";
  pace.changed(false, false, false);
  EXPECT_FALSE(pace.push_due(at + 99ms));
  EXPECT_TRUE(pace.note_due(at + 99ms, 8)) << "there was no note yet";
  EXPECT_TRUE(pace.push_due(at + 100ms));
  pace.noted(at + 99ms);
  EXPECT_FALSE(pace.note_due(at + 99ms, 8));
  EXPECT_TRUE(pace.push_due(at + 100ms)) << "a note is no report";
  pace.pushed(at + 100ms);
  EXPECT_FALSE(pace.push_due(at + 1s));
  pace.changed(false, false, false);
  EXPECT_FALSE(pace.note_due(at + 117ms, 9)) << "2 ms for each of many peers";
  EXPECT_TRUE(pace.note_due(at + 118ms, 9));
}

TEST(ReportPace, InLongEpochsSendsNewsAndTheirEndAtOnce) {
  struct row {
    bool news;
    bool may_end;
    bool pushes;
    bool notes;
  };
  for (auto each : {row{false, false, false, false}, row{true, false, true, true},
                    row{false, true, false, true}}) {
    auto at = steady_time{} + 7s;
    report_pace pace{{100ms, 5s, 60s}, at};
    pace.expect(64);
    pace.changed(true, false, false);
    pace.pushed(at);
    pace.changed(each.news, false, each.may_end);
    EXPECT_EQ(pace.push_due(at + 1s), each.pushes);
    EXPECT_EQ(pace.note_due(at + 1s, 1), each.notes);
    pace.changed(false, false, each.may_end);
    EXPECT_EQ(pace.push_due(at + 1s), each.pushes) << "news stay news until they are pushed";
  }
}

TEST(ReportPace, StoresWhatMovedSoonAndAllBeforeItExpires) {
  auto at = steady_time{} + 7s;
  report_pace pace{{100ms, 5s, 60s}, at};
  pace.changed(false, false, false);
  EXPECT_FALSE(pace.store_due(at + 29s));
  EXPECT_FALSE(pace.repeat_due(at + 29s));
  EXPECT_TRUE(pace.store_due(at + 30s));
  EXPECT_TRUE(pace.repeat_due(at + 30s));
  pace.changed(false, true, false);
  EXPECT_FALSE(pace.store_due(at + 4s));
  EXPECT_TRUE(pace.store_due(at + 5s));
  pace.stored(at + 5s);
  EXPECT_FALSE(pace.store_due(at + 34s));
}

} // namespace
} // namespace waggle
