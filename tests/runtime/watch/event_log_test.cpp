#include "runtime/watch/event_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/memory_disk.hpp"

namespace waggle {
namespace {

using testing::EndsWith, testing::SizeIs;
using watch::event_kind;

const std::filesystem::path folder = "/peer/events";

void push(event_ring& ring, std::size_t count, std::size_t bytes = 10) {
  for (std::size_t i = 0; i < count; ++i)
    ring.push(event_kind::other, "\"x\":\"" + std::string(bytes, 'x') + "\"");
}

struct EventLog : testing::Test {
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    if (auto names = disk->list(folder))
      for (const auto& name : *names)
        all.push_back(folder / name);
    return all;
  }
  std::string text(const std::filesystem::path& file) const {
    auto content = disk->read(file, 1_MiB);
    return content ? *content : std::string{};
  }

  std::shared_ptr<memory_disk> disk = std::make_shared<memory_disk>();
};

TEST_F(EventLog, WritesEachLineOnce) {
  event_ring ring{"ab"};
  event_log log{disk, {folder, 1_MiB}};
  push(ring, 2);
  ASSERT_TRUE(log.write_new(ring));
  push(ring, 1);
  ASSERT_TRUE(log.write_new(ring));
  ASSERT_TRUE(log.write_new(ring));
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_EQ(text(files()[0]), "{\"seq\":1,\"x\":\"xxxxxxxxxx\"}\n{\"seq\":2,\"x\":\"xxxxxxxxxx\"}\n"
                              "{\"seq\":3,\"x\":\"xxxxxxxxxx\"}\n");
}

TEST_F(EventLog, KeepsFourFilesOfAQuarterEach) {
  event_ring ring{"ab"};
  event_log log{disk, {folder, 8000}};
  for (int i = 0; i < 60; ++i) {
    push(ring, 1, 300);
    ASSERT_TRUE(log.write_new(ring));
  }
  ASSERT_THAT(files(), SizeIs(4));
  std::size_t bytes = 0;
  for (const auto& file : files()) {
    EXPECT_LE(text(file).size(), 1000U);
    bytes += text(file).size();
  }
  EXPECT_GT(bytes, 2500U);
  EXPECT_NE(text(files().back()).find("{\"seq\":60,"), std::string::npos);
}

TEST_F(EventLog, RoundsDoNotPushOutWhatWentWrong) {
  event_ring ring{"ab"};
  event_log log{disk, {folder, 8000}};
  push(ring, 3);
  for (int i = 0; i < 200; ++i) {
    for (auto kind : {event_kind::round, event_kind::epoch, event_kind::checkpoint})
      ring.push(kind, "\"x\":\"" + std::string(100, 'r') + "\"");
    ASSERT_TRUE(log.write_new(ring));
  }
  push(ring, 1);
  ASSERT_TRUE(log.write_new(ring));
  ASSERT_THAT(files(), SizeIs(5)) << "one of events, four of rounds";
  auto events = text(files()[0]);
  EXPECT_EQ(std::ranges::count(events, '\n'), 4);
  EXPECT_NE(events.find("{\"seq\":604,"), std::string::npos);
  EXPECT_EQ(events.find('r'), std::string::npos);
  std::size_t bytes = 0;
  for (const auto& file : files())
    bytes += text(file).size();
  EXPECT_LE(bytes, 8000U);
}

TEST_F(EventLog, GoesOnInTheFilesOfAVersionThatHadOneNameForAll) {
  event_ring ring{"ab"};
  push(ring, 1);
  ring.push(event_kind::round, "\"x\":\"r\"");
  disk->corrupt(folder / "events-000003.jsonl", std::string(7000, 'o') + "\n");
  event_log log{disk, {folder, 8000}};
  ASSERT_TRUE(log.write_new(ring));
  ASSERT_THAT(files(), SizeIs(3));
  EXPECT_THAT(files()[1].string(), EndsWith("events-000004.jsonl")) << "the old one is too large";
  EXPECT_THAT(files()[2].string(), EndsWith("rounds-000001.jsonl"));
}

TEST_F(EventLog, GoesOnInTheNewestFileAndEndsATornLine) {
  event_ring ring{"ab"};
  push(ring, 1);
  disk->corrupt(folder / "events-000007.jsonl", "{\"seq\":1}\n{\"seq\":2,\"to");
  event_log log{disk, {folder, 1_MiB}};
  ASSERT_TRUE(log.write_new(ring));
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_EQ(text(files()[0]), "{\"seq\":1}\n{\"seq\":2,\"to\n{\"seq\":1,\"x\":\"xxxxxxxxxx\"}\n");
}

TEST_F(EventLog, AFullDiskEndsItOnce) {
  event_ring ring{"ab"};
  event_log log{disk, {folder, 1_MiB}};
  push(ring, 1);
  disk->fail_writes(failure{ec::io_error, "no space"});
  EXPECT_EQ(log.write_new(ring).error().code, ec::io_error);
  EXPECT_TRUE(log.ended());
  disk->fail_writes(std::nullopt);
  EXPECT_TRUE(log.write_new(ring)) << "nothing is written any more, and nobody is told again";
  EXPECT_THAT(files(), SizeIs(0));
}

TEST_F(EventLog, NoneIsWrittenWithoutRoom) {
  event_ring ring{"ab"};
  event_log log{disk, {folder, 0}};
  push(ring, 1);
  EXPECT_TRUE(log.write_new(ring));
  EXPECT_THAT(files(), SizeIs(0));
}

} // namespace
} // namespace waggle
