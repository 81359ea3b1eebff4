#include "runtime/watch/event_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using testing::HasSubstr, testing::IsEmpty, testing::Not, testing::StartsWith;
using watch::event_kind;

constexpr steady_time t0{};

std::shared_ptr<event_ring> ring_of(std::size_t events, std::size_t bytes_max = 1_MiB) {
  auto ring = std::make_shared<event_ring>("ab", bytes_max);
  for (std::size_t i = 0; i < events; ++i)
    ring->push(event_kind::other, "\"n\":1");
  return ring;
}

event_stream stream(const std::shared_ptr<event_ring>& ring, std::string_view last = {}) {
  return {
    ring,
    {[] { return std::string{"{\"v\":1"}; }, [] { return std::string{"{\"status\":1}"}; }, {}},
    last};
}

TEST(EventRing, NumbersItsLinesAndForgetsTheOldestBeyondItsBytes) {
  auto ring = ring_of(10, 60); // three lines of 18 or 19 bytes
  auto all = ring->after(0, 1_MiB);
  EXPECT_EQ(all.missed, 7U);
  ASSERT_EQ(all.lines.size(), 3U);
  EXPECT_EQ(*all.lines.front(), "{\"seq\":8,\"n\":1}");
  EXPECT_EQ(all.last, 10U);
  EXPECT_THAT(ring->after(10, 1_MiB).lines, IsEmpty());
  EXPECT_THAT(ring->after(99, 1_MiB).lines, IsEmpty());
}

TEST(EventRing, HandsOutAtLeastOneLineAndOtherwiseNoMoreThanWasAskedFor) {
  auto ring = ring_of(5);
  EXPECT_EQ(ring->after(0, 1).lines.size(), 1U);
  auto some = ring->after(2, 32);
  EXPECT_EQ(some.lines.size(), 2U);
  EXPECT_EQ(some.last, 4U);
}

TEST(EventRing, KeepsTheLastOfEachKindForNewcomers) {
  event_ring ring{"ab", 100};
  ring.push(event_kind::departure, "\"what\":\"left\"");
  for (int i = 0; i < 200; ++i) {
    ring.push(event_kind::routine, "\"c\":1");
    ring.push(event_kind::round, "\"r\":1");
    ring.push(event_kind::epoch, "\"e\":1");
  }
  auto newest = ring.newest();
  EXPECT_EQ(newest.rounds.size(), event_ring::rounds_kept);
  ASSERT_EQ(newest.others.size(), event_ring::others_kept * 3 / 2 + 1);
  EXPECT_EQ(*newest.others.front(), "{\"seq\":1,\"what\":\"left\"}")
    << "not lost to what is frequent";
  EXPECT_EQ(newest.last, 601U);
}

TEST(EventStream, BeginsWithASnapshotAndGoesOnWithWhatIsNew) {
  auto ring = ring_of(2);
  ring->push(event_kind::round, "\"r\":1");
  auto client = stream(ring);
  EXPECT_EQ(client.next(t0),
            "id: ab-3\nevent: snapshot\ndata: {\"v\":1,\"rounds\":[{\"seq\":3,\"r\":1}],"
            "\"events\":[{\"seq\":1,\"n\":1},{\"seq\":2,\"n\":1}]}\n\n");
  EXPECT_THAT(client.next(t0 + 100ms), IsEmpty());
  ring->push(event_kind::other, "\"n\":2");
  EXPECT_EQ(client.next(t0 + 200ms), "id: ab-4\nevent: event\ndata: {\"seq\":4,\"n\":2}\n\n");
  EXPECT_EQ(client.next(t0 + 1s), "event: vitals\ndata: {\"status\":1}\n\n");
  EXPECT_THAT(client.next(t0 + 1900ms), IsEmpty());
}

TEST(EventStream, ResumesAfterAnIdThatTheRingStillFollows) {
  auto ring = ring_of(3);
  auto client = stream(ring, "ab-1");
  auto first = client.next(t0);
  EXPECT_THAT(first, StartsWith("id: ab-2\nevent: event\n"));
  EXPECT_THAT(first, HasSubstr("id: ab-3\n"));
  EXPECT_THAT(first, Not(HasSubstr("snapshot")));
  EXPECT_THAT(stream(ring, "ab-3").next(t0), StartsWith("event: vitals"));
  EXPECT_THAT(stream(ring, "ab-0").next(t0), StartsWith("id: ab-1\nevent: event\n"));
}

TEST(EventStream, SaysThatSomethingIsMissingAfterAnyOtherId) {
  auto ring = ring_of(3);
  for (const auto* id : {"cd-1", "ab-4", "ab-", "ab", "ab-1x", "ab--1", "-1", "1",
                         "ab-99999999999999999999999", "ab-1\n\nevent: x"}) {
    auto first = stream(ring, id).next(t0);
    EXPECT_THAT(first, StartsWith("event: gap\ndata: {}\n\nid: ab-3\nevent: snapshot\n")) << id;
  }
  auto overtaken = ring_of(10, 60);
  EXPECT_THAT(stream(overtaken, "ab-2").next(t0),
              StartsWith("event: gap\ndata: {\"missed\":5}\n\nid: ab-10\nevent: snapshot\n"));
}

TEST(EventStream, AClientThatWasOvertakenGetsANewSnapshot) {
  auto ring = ring_of(1, 60);
  auto client = stream(ring);
  (void)client.next(t0);
  for (int i = 0; i < 9; ++i)
    ring->push(event_kind::other, "\"n\":1");
  auto next = client.next(t0 + 100ms);
  EXPECT_THAT(next, StartsWith("event: gap\ndata: {\"missed\":6}\n\nid: ab-10\nevent: snapshot\n"));
  ring->push(event_kind::other, "\"n\":3");
  EXPECT_THAT(client.next(t0 + 200ms), StartsWith("id: ab-11\nevent: event\n"));
}

TEST(EventStream, SendsWhatIsLargeInPieces) {
  auto ring = std::make_shared<event_ring>("ab");
  for (int i = 0; i < 64; ++i)
    ring->push(event_kind::round, "\"x\":\"" + std::string(16'000, 'x') + "\"");
  auto client = stream(ring);
  std::string all;
  for (auto piece = client.next(t0); !piece.empty(); piece = client.next(t0)) {
    EXPECT_LE(piece.size(), event_stream::piece_bytes_max);
    all += piece;
  }
  EXPECT_THAT(all, testing::EndsWith("\"events\":[]}\n\n"));
  EXPECT_THAT(all, HasSubstr("{\"seq\":64,"));
  EXPECT_LT(all.size(), event_stream::rounds_bytes_max + 1_KiB) << "the oldest rounds are left out";
}

TEST(EventStream, MasksEverythingThatIsSent) {
  auto ring = ring_of(0);
  ring->push(event_kind::other, "\"run\":\"secret\"");
  event_stream client{
    ring,
    {[] { return std::string{"{\"run\":\"secret\""}; }, [] { return std::string{"{}"}; },
     [](std::string& text) {
       for (auto at = text.find("secret"); at != std::string::npos; at = text.find("secret"))
         text.replace(at, 6, "tag");
     }},
    {}};
  auto first = client.next(t0);
  EXPECT_THAT(first, Not(HasSubstr("secret")));
  EXPECT_THAT(first, HasSubstr("tag"));
}

} // namespace
} // namespace waggle
