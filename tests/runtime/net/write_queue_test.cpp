#include "runtime/net/write_queue.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

constexpr auto quick = std::chrono::milliseconds{1};
constexpr auto fair = std::chrono::milliseconds{5};
constexpr auto slow = std::chrono::milliseconds{50};

std::vector<outgoing> next(write_queue& queue, bool bulk_too = true) {
  std::vector<outgoing> batch;
  queue.next(batch, bulk_too, [](outgoing&) {});
  return batch;
}

frame_prefix prefix_of(const outgoing& out) {
  return *read_prefix(out.prefix);
}

frame bulk(std::string header, std::size_t bytes) {
  return {std::move(header), body_of(bytes, 1)};
}

TEST(WriteQueue, ControlFramesOvertakeBulkFrames) {
  write_queue queue{{}};
  EXPECT_EQ(queue.offer(bulk("part", 100)), write_queue::admission::first);
  EXPECT_EQ(queue.offer({"ping", {}}), write_queue::admission::admitted);
  queue.take_offered();
  auto batch = next(queue);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].content.header, "ping");
  EXPECT_EQ(batch[1].content.header, "part");
  EXPECT_EQ(queue.offer({"later", {}}), write_queue::admission::first);
}

TEST(WriteQueue, BackgroundBodiesAndOthersShareTheLinkWhileBothWait) {
  write_queue queue{{}};
  for (int i = 0; i < 8; ++i)
    queue.offer({"chunk", body_of(100, 1), true});
  for (int i = 0; i < 2; ++i)
    queue.offer(bulk("part", 200));
  queue.take_offered();
  std::string order;
  for (auto batch = next(queue); !batch.empty(); batch = next(queue)) {
    for (const auto& out : batch)
      order += out.content.header.front();
    queue.written(batch, quick);
  }
  EXPECT_EQ(order, "pccpcccccc") << "a part waits for two chunks at most, and no chunk for ever";
  EXPECT_TRUE(queue.empty());
}

TEST(WriteQueue, CountsTheBackgroundBodiesThatWait) {
  write_queue queue{{.window_bytes = 150}};
  for (int i = 0; i < 3; ++i)
    queue.offer({"chunk", body_of(100, 1), true});
  queue.offer(bulk("part", 40));
  EXPECT_EQ(queue.background_bytes(), 300U);
  queue.take_offered();
  EXPECT_EQ(queue.background_bytes(), 300U);
  auto batch = next(queue);
  EXPECT_EQ(queue.background_bytes(), 200U) << "the window lets one of them through";
  queue.written(batch, quick);
  EXPECT_EQ(queue.background_bytes(), 200U);
  queue.drop_bulk();
  EXPECT_EQ(queue.background_bytes(), 0U);
}

TEST(WriteQueue, ABodyThatWaitsForTheWindowDoesNotChangeWhoseTurnItIs) {
  write_queue queue{{.window_bytes = 150}};
  queue.offer({"chunk", body_of(100, 1), true});
  queue.offer(bulk("part", 100));
  queue.offer(bulk("part", 100));
  queue.take_offered();
  EXPECT_EQ(next(queue).size(), 1u); // a part
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(next(queue).empty());
  ASSERT_TRUE(queue.open_window(100));
  auto batch = next(queue);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch[0].content.header, "chunk");
}

TEST(WriteQueue, BodiesStayWholeOnShortLinks) {
  write_queue queue{{}};
  queue.offer(bulk("part", 4_MiB));
  queue.take_offered();
  auto batch = next(queue);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(prefix_of(batch[0]).kind, frame_kind::message);
  EXPECT_EQ(batch[0].content.body.size, 4_MiB);
}

TEST(WriteQueue, AControlFrameWaitsForOneSliceOfABodyOnLongLinks) {
  write_queue queue{{.slices = true}};
  queue.offer(bulk("part", 300'000));
  queue.take_offered();
  auto batch = next(queue);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(prefix_of(batch[0]).kind, frame_kind::opening);
  EXPECT_EQ(prefix_of(batch[0]).body_bytes, 300'000u);
  EXPECT_TRUE(batch[0].content.body.empty());
  EXPECT_EQ(prefix_of(batch[1]).kind, frame_kind::slice);
  EXPECT_EQ(batch[1].content.body.size, queue.slice_bytes());
  queue.written(batch, fair);
  queue.offer({"ping", {}});
  queue.take_offered();
  batch = next(queue);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].content.header, "ping");
  EXPECT_EQ(prefix_of(batch[1]).kind, frame_kind::slice);
}

TEST(WriteQueue, SlicesAddUpToTheBodiesInTheirOrder) {
  write_queue queue{{.slices = true}};
  auto first = body_of(1'000'001, 2);
  auto second = body_of(70'000, 3);
  queue.offer({"first", first});
  queue.offer({"small", body_of(10, 4)});
  queue.offer({"second", second});
  queue.take_offered();
  std::vector<std::pair<std::string, std::vector<std::byte>>> seen;
  for (;;) {
    auto batch = next(queue);
    if (batch.empty())
      break;
    std::size_t bytes = 0;
    for (const auto& out : batch) {
      auto prefix = prefix_of(out);
      EXPECT_EQ(prefix.header_bytes, out.content.header.size());
      if (prefix.kind != frame_kind::slice)
        seen.emplace_back(out.content.header, std::vector<std::byte>{});
      auto body = out.content.body.view();
      seen.back().second.insert(seen.back().second.end(), body.begin(), body.end());
      bytes += body.size();
    }
    EXPECT_LE(bytes, queue.slice_bytes());
    queue.written(batch, fair);
  }
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].first, "first");
  EXPECT_TRUE(std::equal(seen[0].second.begin(), seen[0].second.end(), first.view().begin(),
                         first.view().end()));
  EXPECT_EQ(seen[1].second.size(), 10u);
  EXPECT_TRUE(std::equal(seen[2].second.begin(), seen[2].second.end(), second.view().begin(),
                         second.view().end()));
}

TEST(WriteQueue, SlicesAreWhatTheLinkCarriesInAFewMilliseconds) {
  write_queue queue{{.slices = true}};
  for (int i = 0; i < 8; ++i)
    queue.offer(bulk("part", 8_MiB));
  queue.take_offered();
  ASSERT_TRUE(queue.open_window(0));
  for (int i = 0; i < 10; ++i)
    queue.written(next(queue), quick);
  EXPECT_EQ(queue.slice_bytes(), write_queue::slice_bytes_max);
  queue.written(next(queue), fair);
  EXPECT_EQ(queue.slice_bytes(), write_queue::slice_bytes_max);
  for (int i = 0; i < 10; ++i)
    queue.written(next(queue), slow);
  EXPECT_EQ(queue.slice_bytes(), write_queue::slice_bytes_min);
}

TEST(WriteQueue, BodiesWaitForTheWindowAndNothingElseDoes) {
  write_queue queue{{.window_bytes = 1000}};
  queue.offer(bulk("one", 800));
  queue.offer(bulk("two", 300));
  queue.take_offered();
  EXPECT_EQ(next(queue).size(), 1u);
  EXPECT_TRUE(next(queue).empty());
  queue.add(frame_kind::window, std::string(8, '\0'));
  EXPECT_EQ(next(queue).size(), 1u);
  EXPECT_TRUE(queue.open_window(100));
  EXPECT_EQ(next(queue).size(), 1u);
  EXPECT_FALSE(queue.open_window(1001)) << "more than the window";
  EXPECT_TRUE(queue.open_window(1000));
  EXPECT_FALSE(queue.open_window(1)) << "more than was taken from it";
}

TEST(WriteQueue, BodiesOfAFailedRoundMakeRoomForThoseOfTheNext) {
  write_queue queue{{.window_bytes = 100}};
  auto failed = std::make_shared<std::atomic<bool>>(false);
  for (int i = 0; i < 3; ++i)
    queue.offer({"failed", body_of(100, 1), false, failed});
  queue.take_offered();
  auto first = next(queue);
  EXPECT_EQ(first.size(), 1u);
  *failed = true;
  queue.offer(bulk("next", 100));
  queue.take_offered();
  EXPECT_EQ(failed.use_count(), 2) << "only what is being written still belongs to the round";
  queue.written(first, quick);
  ASSERT_TRUE(queue.open_window(100));
  auto second = next(queue);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].content.header, "next");
  queue.written(second, quick);
  EXPECT_TRUE(queue.empty());
}

TEST(WriteQueue, RefusesWhatIsOverItsLimitsUntilSomethingIsWritten) {
  write_queue queue{{.control_bytes_max = 40, .bulk_frames_max = 1, .slices = true}};
  EXPECT_EQ(queue.offer({"0123456789", {}}), write_queue::admission::first);
  EXPECT_EQ(queue.offer({"0123456789", {}}), write_queue::admission::refused);
  EXPECT_EQ(queue.offer(bulk("part", 100'000)), write_queue::admission::admitted);
  EXPECT_EQ(queue.offer(bulk("part", 100'000)), write_queue::admission::refused);
  queue.take_offered();
  queue.written(next(queue), fair);
  EXPECT_EQ(queue.offer({"0123456789", {}}), write_queue::admission::first);
  EXPECT_EQ(queue.offer(bulk("part", 1)), write_queue::admission::refused)
    << "only half of it was written";
  queue.written(next(queue), fair);
  EXPECT_EQ(queue.offer(bulk("part", 1)), write_queue::admission::admitted);
}

TEST(WriteQueue, AClosingLinkStillSendsItsGoodbyeInTheMiddleOfABody) {
  write_queue queue{{.slices = true}};
  queue.offer(bulk("part", 300'000));
  queue.take_offered();
  queue.written(next(queue), fair);
  queue.offer({"goodbye", {}});
  queue.take_offered();
  queue.drop_bulk();
  auto batch = next(queue, false);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch[0].content.header, "goodbye");
  EXPECT_TRUE(next(queue).empty());
}

} // namespace
} // namespace waggle::net
