#include "runtime/progress/report_pace.hpp"

#include <vector>

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
    pace.changed(false, false, 1, std::nullopt);
    EXPECT_TRUE(pace.note_due(steady_time{} + 7s, 1));
  }
}

TEST(ReportPace, ReportsOnceAnEpochAndReadsTwiceButNotMoreRarelyThanReportsNeed) {
  report_pace pace{{}, {}};
  auto began = steady_time{} + 7s;
  pace.begin(began);
  pace.expect(20);
  EXPECT_EQ(pace.between_reports(began), 15s);
  pace.expect(8);
  EXPECT_EQ(pace.between_reports(began + 7s), 8s);
  pace.expect(3'600);
  EXPECT_EQ(pace.between_reports(began), 15s);
  EXPECT_EQ(pace.between_readings(began), 30s);
  pace.expect(0);
  EXPECT_EQ(pace.between_reports(began + 12s), 12s) << "the first epoch";
  EXPECT_EQ(pace.between_readings(began + 32s), 16s);
}

TEST(ReportPace, NotesComeTheMoreOftenTheFewerSamplesAreMissing) {
  constexpr std::uint64_t target = 2400;
  constexpr std::size_t members = 3;
  report_pace pace{{}, {}};
  auto at = steady_time{} + 7s;
  pace.expect(64);
  pace.begin(at);
  std::vector<std::uint64_t> noted;
  for (std::uint64_t samples = 4; samples * members <= target; samples += 4) {
    at += 10ms;
    pace.changed(false, false, samples, target - samples * members);
    if (pace.note_due(at, members - 1)) {
      pace.noted(at);
      noted.push_back(samples);
    }
    auto unknown = (samples - (noted.empty() ? 0 : noted.back())) * members;
    EXPECT_LE(unknown * 4, target - samples * members) << "after " << samples << " samples";
  }
  EXPECT_EQ(noted.back(), target / members) << "now the epoch may end";
  EXPECT_LE(noted.size(), 25U) << "of 200 passes";
}

TEST(ReportPace, WhereTheEpochDoesNotEndBySamplesNotesComeEightTimes) {
  report_pace pace{{}, {}};
  auto began = steady_time{} + 7s;
  auto due = [&](steady_time at) {
    pace.changed(false, false, 1, std::nullopt);
    return pace.note_due(at, 1);
  };
  pace.begin(began);
  pace.expect(8);
  pace.noted(began);
  EXPECT_FALSE(due(began + 999ms));
  EXPECT_TRUE(due(began + 1s));
  pace.expect(2);
  pace.begin(began);
  pace.noted(began + 2s);
  EXPECT_FALSE(due(began + 2s + 280ms)) << "it lasts longer than expected";
  EXPECT_TRUE(due(began + 2s + 286ms));
  pace.noted(began + 60s);
  EXPECT_FALSE(due(began + 60s + 999ms));
  EXPECT_TRUE(due(began + 61s)) << "at least each second";
}

TEST(ReportPace, ASlowPeerIsHeardOfInATimeThatItsGroupWaits) {
  report_pace pace{{}, {}};
  auto began = steady_time{} + 7s;
  pace.begin(began);
  pace.expect(600);
  pace.noted(began);
  pace.changed(false, false, 1, 1'000'000);
  EXPECT_FALSE(pace.note_due(began + 4999ms, 1));
  EXPECT_TRUE(pace.note_due(began + 5s, 1));
}

TEST(ReportPace, SendsAtTheShortestIntervalsAndFirstWhatSaysMore) {
  auto at = steady_time{} + 7s;
  report_pace pace{{100ms, 5s, 60s}, at};
  EXPECT_FALSE(pace.push_due(at + 1s) || pace.note_due(at + 1s, 1)) << "nothing has changed";
  pace.changed(false, false, 0, 0);
  EXPECT_FALSE(pace.push_due(at + 99ms));
  EXPECT_TRUE(pace.note_due(at + 99ms, 8)) << "there was no note yet";
  EXPECT_TRUE(pace.push_due(at + 100ms));
  pace.noted(at + 99ms);
  EXPECT_FALSE(pace.note_due(at + 99ms, 8));
  EXPECT_TRUE(pace.push_due(at + 100ms)) << "a note is no report";
  pace.pushed(at + 100ms);
  EXPECT_FALSE(pace.push_due(at + 1s));
  pace.changed(false, false, 0, 0);
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
    pace.changed(true, false, 0, 100);
    pace.pushed(at);
    pace.changed(each.news, false, 1, each.may_end ? 0 : 100);
    EXPECT_EQ(pace.push_due(at + 1s), each.pushes);
    EXPECT_EQ(pace.note_due(at + 1s, 1), each.notes);
    pace.changed(false, false, 1, each.may_end ? 0 : 100);
    EXPECT_EQ(pace.push_due(at + 1s), each.pushes) << "news stay news until they are pushed";
  }
}

TEST(ReportPace, StoresWhatMovedSoonAndAllBeforeItExpires) {
  auto at = steady_time{} + 7s;
  report_pace pace{{100ms, 5s, 60s}, at};
  pace.changed(false, false, 0, 0);
  EXPECT_FALSE(pace.store_due(at + 29s));
  EXPECT_FALSE(pace.repeat_due(at + 29s));
  EXPECT_TRUE(pace.store_due(at + 30s));
  EXPECT_TRUE(pace.repeat_due(at + 30s));
  pace.changed(false, true, 0, 0);
  EXPECT_FALSE(pace.store_due(at + 4s));
  EXPECT_TRUE(pace.store_due(at + 5s));
  pace.stored(at + 5s);
  EXPECT_FALSE(pace.store_due(at + 34s));
}

} // namespace
} // namespace waggle
