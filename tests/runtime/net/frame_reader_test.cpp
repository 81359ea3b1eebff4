#include "runtime/net/frame_reader.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "runtime/net/write_queue.hpp"
#include "tests/runtime/net/stream_oracle.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

std::string text_of(std::size_t size, std::uint64_t seed) {
  return std::string{as_string_view(body_of(size, seed).view())};
}

std::size_t everything() {
  return static_cast<std::size_t>(-1);
}

/// Reads `stream` in three ways that must agree.
reading read(std::string_view stream, const stream_terms& terms = {}) {
  auto whole = read_in_pieces(stream, terms, everything);
  auto single = read_in_pieces(stream, terms, [] { return std::size_t{1}; });
  auto early = read_in_pieces(stream, terms, everything, stream.size());
  EXPECT_EQ(whole.frames, single.frames);
  EXPECT_EQ(whole.frames, early.frames);
  EXPECT_EQ(whole.ended, single.ended);
  EXPECT_EQ(whole.ended, early.ended);
  EXPECT_EQ(whole.wrong + single.wrong + early.wrong, "");
  return whole;
}

ec end_of(std::string_view stream, const stream_terms& terms = {}) {
  return read(stream, terms).ended;
}

TEST(FrameReader, ReadsFramesWithAndWithoutABody) {
  auto body = text_of(700, 1);
  auto seen =
    read(frame_bytes(frame_kind::message, "ping") + frame_bytes(frame_kind::message, "part", body)
         + frame_bytes(frame_kind::window, "12345678"));
  ASSERT_EQ(seen.frames.size(), 3u);
  EXPECT_EQ(seen.frames[0], (seen_frame{frame_kind::message, "ping", "", 20, false}));
  EXPECT_EQ(seen.frames[1], (seen_frame{frame_kind::message, "part", body, 720, true}));
  EXPECT_EQ(seen.frames[2], (seen_frame{frame_kind::window, "12345678", "", 24, false}));
  EXPECT_EQ(seen.ended, ec::none);
}

TEST(FrameReader, AssemblesSlicesAndDeliversControlFramesBetweenThem) {
  auto body = text_of(1000, 2);
  std::string_view bytes = body;
  auto seen =
    read(opening_bytes("part", 1000) + frame_bytes(frame_kind::slice, "", bytes.substr(0, 400))
         + frame_bytes(frame_kind::message, "ping") + frame_bytes(frame_kind::release, "12345678")
         + frame_bytes(frame_kind::slice, "", bytes.substr(400, 599))
         + frame_bytes(frame_kind::slice, "", bytes.substr(999))
         + frame_bytes(frame_kind::message, "next", "body"));
  ASSERT_EQ(seen.frames.size(), 7u);
  EXPECT_EQ(seen.frames[0], (seen_frame{frame_kind::opening, "", "", 20, false}));
  EXPECT_EQ(seen.frames[1], (seen_frame{frame_kind::slice, "", "", 416, true}));
  EXPECT_EQ(seen.frames[2].header, "ping");
  EXPECT_EQ(seen.frames[3].kind, frame_kind::release);
  EXPECT_EQ(seen.frames[4].kind, frame_kind::slice);
  EXPECT_EQ(seen.frames[5], (seen_frame{frame_kind::message, "part", body, 17, true}))
    << "the last slice completes it; the others were counted before";
  EXPECT_EQ(seen.frames[6].body, "body");
}

TEST(FrameReader, RefusesPiecesThatDoNotFit) {
  auto opens = opening_bytes("part", 100);
  auto ends = [](const std::string& stream) { return end_of(stream); };
  auto slice_of = [](std::size_t n) {
    return frame_bytes(frame_kind::slice, "", std::string(n, 'x'));
  };
  EXPECT_EQ(ends(slice_of(1)), ec::protocol_violation) << "no body is open";
  EXPECT_EQ(ends(opens + slice_of(101)), ec::protocol_violation) << "too large";
  EXPECT_EQ(ends(opens + slice_of(60) + slice_of(41)), ec::protocol_violation) << "too large";
  EXPECT_EQ(ends(opens + slice_of(100) + slice_of(1)), ec::protocol_violation) << "one too many";
  EXPECT_EQ(ends(opens + opens), ec::protocol_violation) << "two bodies at once";
  EXPECT_EQ(ends(opens + frame_bytes(frame_kind::message, "h", "b")), ec::protocol_violation);
  EXPECT_EQ(ends(opens + frame_bytes(frame_kind::reference, write_reference({}))),
            ec::protocol_violation);
  EXPECT_EQ(ends(opens + slice_of(100) + opens + slice_of(100)), ec::none) << "one after another";
}

TEST(FrameReader, RefusesByThePrefixBeforeTheRestArrives) {
  auto prefix = [](frame_kind kind, std::uint32_t header, std::uint32_t body) {
    return std::string{as_string_view(write_prefix({kind, header, body}))};
  };
  auto refused = [&](frame_kind kind, std::uint32_t header, std::uint32_t body) {
    return end_of(prefix(kind, header, body));
  };
  EXPECT_EQ(refused(frame_kind::message, frame_header_bytes_max + 1, 0), ec::oversize);
  EXPECT_EQ(refused(frame_kind::message, 0, frame_body_bytes_max + 1), ec::oversize);
  EXPECT_EQ(refused(frame_kind::opening, 4, 0), ec::malformed) << "a body of no bytes";
  EXPECT_EQ(refused(frame_kind::opening, 4, frame_body_bytes_max + 1), ec::oversize);
  EXPECT_EQ(refused(frame_kind::slice, 1, 4), ec::malformed) << "a slice has no header";
  EXPECT_EQ(refused(frame_kind::slice, 0, 0), ec::malformed) << "an empty slice";
  EXPECT_EQ(refused(static_cast<frame_kind>(9), 0, 0), ec::malformed);
  EXPECT_EQ(refused(frame_kind::denial, denial_bytes_max + 1, 0), ec::malformed);
  EXPECT_EQ(refused(frame_kind::denial, 4, 1), ec::malformed) << "a denial has no body";
  EXPECT_EQ(end_of(std::string(16, 'x')), ec::malformed);
  EXPECT_EQ(end_of(std::string(15, 'x')), ec::none) << "not a prefix yet";
}

TEST(FrameReader, BeforeTheHandshakeIsDoneOnlySmallHandshakeFramesAreAllowed) {
  stream_terms two{4096, 2, true};
  auto shake = frame_bytes(frame_kind::handshake, "hello");
  auto message = frame_bytes(frame_kind::message, "ping");
  EXPECT_EQ(end_of(shake + shake + message, two), ec::none);
  EXPECT_EQ(end_of(message, two), ec::protocol_violation);
  EXPECT_EQ(end_of(shake + message, two), ec::protocol_violation);
  EXPECT_EQ(end_of(shake + opening_bytes("part", 1), two), ec::protocol_violation);
  EXPECT_EQ(end_of(shake + shake + shake, two), ec::protocol_violation) << "a second handshake";
  auto most = frame_bytes(frame_kind::handshake, std::string(handshake_bytes_max, 'h'));
  EXPECT_EQ(end_of(most, two), ec::none);
  auto more = frame_bytes(frame_kind::handshake, std::string(handshake_bytes_max + 1, 'h'));
  EXPECT_EQ(end_of(more.substr(0, frame_prefix::size), two), ec::protocol_violation);
}

TEST(FrameReader, ALongHeaderNeedsRoomUntilItIsHere) {
  frame_reader reader{{}, 1000, [](const std::string&, std::size_t) { return nullptr; }};
  reader.open();
  auto feed = [&](std::string_view bytes) {
    auto room = reader.room();
    auto count = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), count);
    reader.filled(count);
    return bytes.substr(count);
  };
  auto usual = reader.room().size();
  EXPECT_EQ(reader.long_header(), 0U);
  auto frame = frame_bytes(frame_kind::message, std::string(200'000, 'h'));
  auto left = std::string_view{frame}.substr(frame_prefix::size);
  EXPECT_TRUE(feed(std::string_view{frame}.substr(0, frame_prefix::size)).empty());
  EXPECT_FALSE(reader.next()->has_value());
  EXPECT_EQ(reader.long_header(), 200'000U) << "known before most of it arrives";
  while (!left.empty()) {
    left = feed(left);
    auto seen = reader.next();
    EXPECT_EQ(seen->has_value(), left.empty());
  }
  EXPECT_EQ(reader.long_header(), 0U);
  EXPECT_EQ(reader.room().size(), usual) << "the memory of the header is given back";
}

TEST(FrameReader, HoldsAWindowOfBodiesAndNoMore) {
  stream_terms stingy{1000, 0, false};
  auto sent = [](std::size_t n) {
    return frame_bytes(frame_kind::message, "part", std::string(n, 'x'));
  };
  EXPECT_EQ(end_of(sent(1000), stingy), ec::none);
  EXPECT_EQ(end_of(sent(1001), stingy), ec::protocol_violation);
  EXPECT_EQ(end_of(sent(600) + sent(401), stingy), ec::protocol_violation);
  EXPECT_EQ(end_of(sent(600) + opening_bytes("part", 401), stingy), ec::protocol_violation)
    << "an opening counts with the size of its whole body";
  stream_terms generous{1000, 0, true};
  std::string many;
  for (int i = 0; i < 10; ++i)
    many += sent(600);
  EXPECT_EQ(read(many, generous).frames.size(), 10u);
}

TEST(FrameReader, BodiesThroughSharedMemoryShareTheWindow) {
  frame_reader reader{
    frame_bytes(frame_kind::message, "part", "0123456789"), 100,
    [](const std::string&, std::size_t bytes) {
      return std::shared_ptr<std::byte>{new std::byte[bytes], std::default_delete<std::byte[]>{}};
    }};
  reader.open();
  ASSERT_TRUE(reader.window().take(91));
  EXPECT_EQ(reader.next().error().code, ec::protocol_violation);
}

TEST(FrameReader, AsksForMemoryWithTheHeaderAndReadsStraightIntoIt) {
  std::string asked;
  auto own = std::shared_ptr<std::byte>{new std::byte[50'000], std::default_delete<std::byte[]>{}};
  frame_reader reader{opening_bytes("part 7", 50'000), 1_MiB,
                      [&](const std::string& header, std::size_t bytes) {
                        asked = header + " " + std::to_string(bytes);
                        return own;
                      }};
  reader.open();
  ASSERT_EQ(reader.next()->value().kind, frame_kind::opening);
  EXPECT_EQ(asked, "part 7 50000");
  ASSERT_FALSE(reader.next()->has_value());
  auto prefix = write_prefix({frame_kind::slice, 0, 50'000});
  std::ranges::copy(prefix, reader.room().begin());
  reader.filled(prefix.size());
  ASSERT_FALSE(reader.next()->has_value());
  EXPECT_EQ(reader.room().data(), own.get()) << "no copy in between";
  EXPECT_EQ(reader.room().size(), 50'000u) << "and not a byte of the next frame";
  reader.filled(20'000);
  ASSERT_FALSE(reader.next()->has_value());
  EXPECT_EQ(reader.room().data(), own.get() + 20'000);
  reader.filled(30'000);
  auto whole = reader.next();
  ASSERT_TRUE(whole.ok() && whole->has_value());
  EXPECT_EQ((**whole).content.body.data.get(), own.get());
}

TEST(FrameReader, ReleasesABodyThatWillNotBeCompleted) {
  auto own = std::shared_ptr<std::byte>{new std::byte[100], std::default_delete<std::byte[]>{}};
  frame_reader reader{opening_bytes("part", 100), 1_MiB,
                      [&](const std::string&, std::size_t) { return own; }};
  reader.open();
  ASSERT_TRUE(reader.next().ok());
  EXPECT_EQ(own.use_count(), 2);
  reader.abandon_body();
  EXPECT_EQ(own.use_count(), 1);
}

TEST(FrameReader, ReleasesItsBufferWhenItIsNotReadFromAnyMore) {
  frame_reader reader{"", 1_MiB, {}};
  (void)reader.room();
  EXPECT_EQ(reader.buffer_bytes(), 20_KiB);
  reader.abandon_body();
  EXPECT_EQ(reader.buffer_bytes(), 0U);
}

TEST(FrameReader, TheLargestHeaderFitsAndTheBufferGrowsNoFurther) {
  std::string stream;
  for (int i = 0; i < 3; ++i)
    stream += frame_bytes(frame_kind::message, std::string(frame_header_bytes_max, 'h'));
  auto seen = read_in_pieces(stream, {}, everything);
  EXPECT_EQ(seen.wrong, "") << "more than a mebibyte at once";
  EXPECT_EQ(seen.frames.size(), 3u);
}

// -- at random -----------------------------------------------------------------------------------

/// Random valid frames; sometimes an invalid one.
std::string random_stream(random_source& random) {
  std::string out;
  std::size_t open = 0; // bytes of the open body that were announced and not sent yet
  auto mistaken = [&] { return random.below(20) == 0; };
  auto header = [&] { return text_of(random.below(40), random.next()); };
  auto body = [&](std::size_t most) {
    return text_of(random.below(std::max<std::size_t>(most, 1)) + 1, random.next());
  };
  for (auto frames = random.below(30); frames > 0; --frames) {
    switch (random.below(6)) {
      case 0:
        out += frame_bytes(frame_kind::message, header());
        break;
      case 1:
        out += frame_bytes(frame_kind::window, text_of(8, random.next()));
        break;
      case 2:
        if (open == 0 || mistaken())
          out += frame_bytes(frame_kind::message, header(), body(500));
        break;
      case 3:
        if (open == 0 || mistaken()) {
          open = random.below(600) + 1;
          out += opening_bytes(header(), static_cast<std::uint32_t>(open));
        }
        break;
      case 4:
        if (open > 0 || mistaken()) {
          auto piece = body(mistaken() ? open + 50 : open);
          open -= std::min(open, piece.size());
          out += frame_bytes(frame_kind::slice, "", piece);
        }
        break;
      default:
        if (mistaken())
          out += text_of(random.below(20), random.next());
    }
  }
  if (random.below(4) == 0)
    out.resize(random.below(out.size() + 1));
  return out;
}

TEST(FrameReader, ReadsEveryStreamAsIfItCameAtOnce) {
  std::size_t refused = 0;
  std::size_t whole = 0;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    random_source random{seed};
    auto stream = random_stream(random);
    stream_terms terms{random.below(2) == 0 ? 1500U : 100'000U, 0, random.below(2) == 0};
    auto expected = read_simply(stream, terms);
    auto most = random.below(100) + 1;
    auto seen = read_in_pieces(
      stream, terms, [&] { return random.below(most) + 1; }, random.below(50));
    ASSERT_EQ(seen.frames, expected.frames) << "seed " << seed;
    ASSERT_EQ(seen.ended, expected.ended) << "seed " << seed;
    ASSERT_EQ(seen.wrong, "") << "seed " << seed;
    (seen.ended == ec::none ? whole : refused) += 1;
  }
  EXPECT_GT(refused, 300u);
  EXPECT_GT(whole, 300u);
}

TEST(FrameReader, ReadsWhatAWriteQueueWrites) {
  std::size_t slices = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    random_source random{seed};
    std::vector<frame> waiting;
    std::vector<seen_frame> sent[2]; // control frames, bulk frames
    for (auto n = random.below(30) + 1; n > 0; --n) {
      payload body;
      if (random.below(3) > 0)
        body = body_of(random.below(random.below(2) == 0 ? 300 : 200'000) + 1, random.next());
      auto header = std::to_string(n) + text_of(random.below(50), n);
      sent[body.empty() ? 0 : 1].push_back(
        {frame_kind::message, header, std::string{as_string_view(body.view())}});
      waiting.push_back({std::move(header), std::move(body)});
    }
    std::string stream;
    write_queue queue{{.slices = random.below(4) > 0}};
    for (std::size_t taken = 0, idle = 0; taken < waiting.size() || idle == 0;) {
      for (auto n = random.below(4); n > 0 && taken < waiting.size(); --n)
        queue.offer(waiting[taken++]);
      queue.take_offered();
      std::vector<outgoing> batch;
      queue.next(batch, true, [](outgoing&) {});
      for (const auto& out : batch)
        (((stream += as_string_view(out.prefix)) += out.content.header) +=
         as_string_view(out.content.body.view()));
      queue.written(batch, milliseconds{random.below(20)});
      idle = batch.empty() ? 1 : 0;
    }
    auto most = random.below(40'000) + 1;
    auto seen = read_in_pieces(stream, {32_MiB, 0, false}, [&] { return random.below(most) + 1; });
    ASSERT_EQ(seen.ended, ec::none) << "seed " << seed;
    std::vector<seen_frame> came[2];
    for (auto& f : seen.frames) {
      slices += f.kind == frame_kind::slice ? 1 : 0;
      if (f.kind == frame_kind::message)
        came[f.body.empty() ? 0 : 1].push_back({f.kind, f.header, f.body});
    }
    ASSERT_EQ(came[0], sent[0]) << "seed " << seed;
    ASSERT_EQ(came[1], sent[1]) << "seed " << seed;
  }
  EXPECT_GT(slices, 100u);
}

} // namespace
} // namespace waggle::net
