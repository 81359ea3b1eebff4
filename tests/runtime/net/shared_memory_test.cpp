// Two peers on one host: bodies by reference, and all cases in which that is not possible.

#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/net/local_path.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

std::function<void(tcp_transport_config&)> with_arena(std::shared_ptr<shared_arena> arena) {
  return [arena](tcp_transport_config& c) { c.arena = arena; };
}

/// Ann's link to Bob, over which both share memory.
struct couple {
  explicit couple(std::shared_ptr<shared_arena> arena = shared_arena::make())
    : anns(std::move(arena)), ann{1, "demo", with_arena(anns)} {
    where = bob.listen();
    auto dialled = ann.dial(where);
    EXPECT_TRUE(dialled.ok());
    link = *dialled;
    EXPECT_TRUE(ann.waits_for_path());
    EXPECT_TRUE(bob.waits_for_path());
    EXPECT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  }
  /// A message to Bob and one back: afterwards everything queued before was processed.
  void round_trip() {
    auto message = "ping " + std::to_string(++pings);
    auto received = [&message](const peer& by) {
      return std::any_of(by.frames.begin(), by.frames.end(),
                         [&](const frame& f) { return f.header == message; });
    };
    EXPECT_TRUE(link->send({message, {}}));
    EXPECT_TRUE(bob.seen.wait([&] { return received(bob); }));
    EXPECT_TRUE(bob.links[0]->send({message, {}}));
    EXPECT_TRUE(ann.seen.wait([&] { return received(ann); }));
  }
  frame next_at_bob() {
    EXPECT_TRUE(bob.seen.wait([&] { return !bob.frames.empty(); }));
    auto out = std::move(bob.frames.front());
    bob.frames.erase(bob.frames.begin());
    return out;
  }

  endpoint where;
  std::shared_ptr<shared_arena> anns;
  peer bob{2};
  peer ann;
  std::shared_ptr<net::link> link;
  int pings = 0;
};

/// Payloads of Ann's arena are released on her thread, soon after Bob's message.
bool comes_back(couple& c) {
  for (int i = 0; i < 1000 && c.anns->in_use().taken > 0; ++i)
    c.round_trip();
  return c.anns->in_use().taken == 0;
}

TEST(SharedMemory, LargeBodiesToAPeerOnThisHostAreNotOnTheWire) {
  couple c;
  auto body = body_of(1_MiB, 7);
  ASSERT_TRUE(c.link->send({"large", body}));
  auto got = c.next_at_bob();
  EXPECT_EQ(got.header, "large");
  EXPECT_EQ(sha256(got.body.view()), sha256(body.view()));
  EXPECT_EQ(c.ann.shared_out, 1_MiB);
  EXPECT_EQ(c.bob.shared_in, 1_MiB);
  EXPECT_LT(c.ann.wire_out, 64_KiB);
  ASSERT_TRUE(c.link->send({"small", body_of(1_KiB, 8)}));
  EXPECT_EQ(c.next_at_bob().body.size, 1_KiB);
  EXPECT_EQ(c.ann.shared_out, 1_MiB) << "small bodies go over TCP";
  EXPECT_TRUE(comes_back(c)) << "Ann's copy is no longer read";
}

TEST(SharedMemory, BothEndsSeeThatTheyBelongToOneUser) {
  couple c;
  c.round_trip();
  for (const auto& link : {c.link, c.bob.links[0]}) {
    EXPECT_TRUE(link->facts().shares_memory);
    EXPECT_TRUE(link->neighbour()->seen);
    EXPECT_TRUE(link->neighbour()->mutual);
  }
}

TEST(SharedMemory, ASocketOfAnotherKindBelongsToNobodyWeSee) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(is_same_user(ends[0]));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SharedMemory, AWindowFullOfReferencesStopsTheSender) {
  couple c;
  c.bob.granting = false;
  auto body = body_of(8_MiB, 3);
  for (int i = 0; i < 8; ++i) // twice the window
    ASSERT_TRUE(c.link->send({"bulk", body}));
  ASSERT_TRUE(c.bob.seen.wait([&] { return c.bob.body_bytes == 32_MiB; }));
  c.round_trip();
  EXPECT_EQ(c.bob.body_bytes, 32_MiB);
  c.bob.granting = true;
  c.bob.links[0]->grant(32_MiB);
  ASSERT_TRUE(c.bob.seen.wait([&] { return c.bob.body_bytes == 64_MiB; }));
  EXPECT_EQ(c.ann.shared_out, 64_MiB);
}

TEST(SharedMemory, BodiesAreCopiedUnlessTheReceiverAllowsZeroCopy) {
  couple c;
  auto block = c.anns->take(500'000);
  std::memset(block.get(), 1, 500'000);
  payload body{block, 500'000};
  ASSERT_TRUE(c.link->send({"copied", body}));
  auto copied = c.next_at_bob();
  c.bob.zero_copy_ok = true;
  ASSERT_TRUE(c.link->send({"seen", body}));
  auto seen = c.next_at_bob();
  block.get()[499'999] = std::byte{2}; // not allowed; here it shows which body is a copy
  EXPECT_EQ(copied.body.view()[499'999], std::byte{1});
  EXPECT_EQ(seen.body.view()[499'999], std::byte{2}) << "bodies in the arena are not copied";
}

TEST(SharedMemory, TheReceiversOwnMemoryIsUsed) {
  couple c;
  auto place = std::shared_ptr<std::byte>{new std::byte[1_MiB], std::default_delete<std::byte[]>{}};
  c.bob.body_memory = [place](const std::string& header, std::size_t bytes) {
    return header == "here" && bytes == 1_MiB ? place : nullptr;
  };
  peer cid{3};
  ASSERT_TRUE(cid.dial(c.where).ok());
  ASSERT_TRUE(cid.waits_for_path());
  auto body = body_of(1_MiB, 4);
  ASSERT_TRUE(cid.links[0]->send({"here", body}));
  auto got = c.next_at_bob();
  EXPECT_EQ(got.body.data, place);
  EXPECT_EQ(sha256(got.body.view()), sha256(body.view()));
  EXPECT_EQ(c.bob.shared_in, 1_MiB);
}

TEST(SharedMemory, ABodyForManyIsCopiedOnce) {
  couple c;
  peer cid{3};
  cid.zero_copy_ok = true;
  c.bob.zero_copy_ok = true;
  ASSERT_TRUE(c.ann.dial(cid.listen()).ok());
  ASSERT_TRUE(cid.waits_for_path());
  ASSERT_TRUE(c.ann.seen.wait([&] { return c.ann.paths.size() == 2; }));
  auto body = body_of(4_MiB, 5);
  for (const auto& l : c.ann.links)
    ASSERT_TRUE(l->send({"result", body}));
  ASSERT_TRUE(cid.seen.wait([&] { return cid.frames.size() == 1; }));
  ASSERT_TRUE(c.bob.seen.wait([&] { return c.bob.frames.size() == 1; }));
  EXPECT_EQ(c.anns->in_use().taken, 4_MiB);
  EXPECT_EQ(sha256(cid.frames[0].body.view()), sha256(body.view()));
}

TEST(SharedMemory, EitherEndCanDoWithout) {
  for (bool at_dialler : {false, true}) {
    auto off = [](tcp_transport_config& config) { config.shared_memory = false; };
    peer ann{1, "demo", at_dialler ? std::function<void(tcp_transport_config&)>{off} : nullptr};
    peer bob{2, "demo", at_dialler ? nullptr : std::function<void(tcp_transport_config&)>{off}};
    auto link = ann.dial(bob.listen());
    ASSERT_TRUE((*link)->send({"large", body_of(1_MiB, 7)}));
    ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1; }));
    EXPECT_EQ(ann.shared_out, 0u);
    EXPECT_TRUE(ann.paths.empty());
  }
}

TEST(SharedMemory, WithAFullArenaBodiesGoOverTcp) {
  couple c{shared_arena::make({1_MiB, 1_MiB, 1_MiB})};
  auto body = body_of(4_MiB, 6);
  ASSERT_TRUE(c.link->send({"too large", body}));
  EXPECT_EQ(sha256(c.next_at_bob().body.view()), sha256(body.view()));
  EXPECT_EQ(c.ann.shared_out, 0u);
  ASSERT_TRUE(c.link->send({"fits", body_of(500_KiB, 6)}));
  EXPECT_EQ(c.next_at_bob().header, "fits");
  EXPECT_EQ(c.ann.shared_out, 500_KiB);
}

TEST(SharedMemory, SegmentsThatComeLaterAreUsedToo) {
  couple c{shared_arena::make({1_MiB, 16_MiB, 16_MiB})};
  c.bob.zero_copy_ok = true;
  for (int i = 0; i < 8; ++i) { // Bob keeps all of them
    ASSERT_TRUE(c.link->send({"more", body_of(600_KiB, 10)}));
    ASSERT_TRUE(c.bob.seen.wait(
      [&] { return c.bob.body_bytes == static_cast<std::size_t>(i + 1) * 600_KiB; }));
    c.round_trip();
  }
  EXPECT_GT(c.anns->segment_count(), 4u);
  EXPECT_GE(c.ann.shared_out, 4 * 600_KiB);
  auto want = sha256(body_of(600_KiB, 10).view());
  for (const auto& f : c.bob.frames)
    if (f.header == "more") {
      EXPECT_EQ(sha256(f.body.view()), want);
    }
  c.bob.frames.clear();
  EXPECT_TRUE(comes_back(c));
}

TEST(SharedMemory, MemoryThatAPeerStillReadsIsKeptAfterTheLink) {
  couple c;
  c.bob.zero_copy_ok = true;
  auto body = body_of(1_MiB, 11);
  ASSERT_TRUE(c.link->send({"kept", body}));
  auto kept = c.next_at_bob();
  c.link->close({ec::timeout, "no patience"});
  ASSERT_TRUE(c.ann.seen.wait([&] { return c.ann.closed.size() == 1; }));
  ASSERT_TRUE(c.bob.seen.wait([&] { return c.bob.closed.size() == 1; }));
  EXPECT_EQ(c.anns->in_use().taken, 1_MiB);
  EXPECT_EQ(sha256(kept.body.view()), sha256(body.view()));
  kept = {};
  // Ann's thread is notified asynchronously: the time of a new dial is enough.
  for (int i = 0; i < 100 && c.anns->in_use().taken > 0; ++i)
    ASSERT_TRUE(c.ann.dial(c.where).ok());
  EXPECT_EQ(c.anns->in_use().taken, 0u);
}

TEST(SharedMemory, APayloadOutlivesBothTransports) {
  payload kept;
  auto body = body_of(1_MiB, 12);
  {
    couple c;
    c.bob.zero_copy_ok = true;
    ASSERT_TRUE(c.link->send({"kept", body}));
    kept = c.next_at_bob().body;
  }
  EXPECT_EQ(kept.view()[0], body.view()[0]);
  kept = {};
}

// -- a peer that violates the protocol -----------------------------------------------------------

/// Follows the protocol up to the end of the handshake; then the test sends what it wants.
struct rogue : raw_client {
  explicit rogue(const endpoint& where) : raw_client(where) {
    upgrade();
    auto self = identity::from_seed(66);
    net::handshake::setup with;
    with.dialled = true;
    with.run = std::make_shared<const run_secret>("demo");
    with.self = self;
    with.record = {self->id(), self->key(), {}, true};
    with.verifier = make_plain_verifier();
    with.host = host_token();
    net::handshake shake{with};
    send(frame_kind::handshake, shake.hello());
    for (bool done = false; !done;) {
      auto step = shake.on_message(receive(frame_kind::handshake));
      for (const auto& message : step.send)
        send(frame_kind::handshake, message);
      done = step.peer.has_value();
      if (done)
        ends = {self->id(), step.peer->id};
      EXPECT_EQ(step.why.code, ec::none);
    }
    EXPECT_TRUE(shake.same_host());
    offer = receive(frame_kind::offer);
  }
  void send(frame_kind kind, const std::string& header) {
    write(write_prefix({kind, static_cast<std::uint32_t>(header.size()), 0}));
    write(std::string_view{header});
  }
  std::string receive(frame_kind kind) {
    std::array<std::byte, frame_prefix::size> bytes{};
    asio::read(socket, asio::buffer(bytes));
    auto prefix = read_prefix(bytes);
    EXPECT_TRUE(prefix.ok() && prefix->kind == kind);
    std::string header(prefix->header_bytes, '\0');
    asio::read(socket, asio::buffer(header));
    return header;
  }
  /// Announces a segment of `bytes` bytes in `file`.
  void announce(int beside, int file, std::uint64_t bytes) {
    struct {
      std::uint32_t what = 1;
      std::uint32_t count = 0;
      std::uint64_t bytes = 0;
    } note;
    note.bytes = bytes;
    iovec data{&note, sizeof note};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
    EXPECT_EQ(::sendmsg(beside, &message, 0), static_cast<ssize_t>(sizeof note));
  }

  link_ends ends;
  std::string offer;
};

unique_fd memory_file(std::size_t bytes, bool sealed) {
  unique_fd file{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  if (sealed) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  return file;
}

bool ends(const unique_fd& socket) {
  std::array<char, 64> bytes{};
  pollfd wait{socket.get(), POLLIN, 0};
  while (::poll(&wait, 1, 30'000) == 1)
    if (::recv(socket.get(), bytes.data(), bytes.size(), 0) <= 0)
      return true;
  return false;
}

TEST(SharedMemory, AWrongNonceOpensNothing) {
  peer bob{2};
  rogue r{bob.listen()};
  auto forged = r.offer;
  forged[0] = static_cast<char>(forged[0] ^ 1);
  auto beside = local_host::connect(forged, r.ends);
  EXPECT_TRUE(ends(*beside));
  r.send(frame_kind::reference, write_reference({0, 1, 0, 1}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.closed.size() == 1; }));
  EXPECT_EQ(bob.closed[0].code, ec::protocol_violation);
}

// Bob's offer to a peer on another host, which makes it its own offer to another peer on this one.
TEST(SharedMemory, AnOfferThatIsPassedOnOpensNothing) {
  peer bob{2};
  rogue r{bob.listen()};
  auto beside = local_host::connect(r.offer, {identity::from_seed(3)->id(), r.ends.dialler});
  EXPECT_TRUE(ends(*beside));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  const auto& link = bob.links[0];
  EXPECT_FALSE(link->facts().shares_memory || link->neighbour()->seen || link->neighbour()->mutual);
}

TEST(SharedMemory, AnOfferCannotSendUsToAnySocket) {
  auto refused = [](std::string_view name) {
    return local_host::connect(std::string(32, 'n').append(name), {}).error().code;
  };
  EXPECT_EQ(refused("/tmp/.X11-unix/X0"), ec::malformed);
  EXPECT_EQ(local_host::connect("waggle/", {}).error().code, ec::malformed);
  EXPECT_EQ(refused("waggle/" + std::string(200, 'x')), ec::malformed);
  EXPECT_EQ(refused("waggle/nobody"), ec::unreachable);
}

TEST(SharedMemory, AFileThatMayShrinkIsNotMappedAndTheLinkContinues) {
  peer bob{2};
  rogue r{bob.listen()};
  auto beside = local_host::connect(r.offer, r.ends);
  auto file = memory_file(1_MiB, false);
  r.announce(beside->get(), file.get(), 1_MiB);
  ASSERT_TRUE(bob.waits_for_path(ec::protocol_violation));
  r.send(frame_kind::message, "still here");
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1; }));
  r.send(frame_kind::reference, write_reference({0, 1, 0, 1}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.closed.size() == 1; }));
}

TEST(SharedMemory, AReferenceOutOfBoundsEndsTheLink) {
  for (auto forged : {memory_reference{0, 2, 1_MiB - 1, 7}, memory_reference{3, 1, 0, 7},
                      memory_reference{0, 0xffffffffU, 0, 7}}) {
    peer bob{2};
    rogue r{bob.listen()};
    auto beside = local_host::connect(r.offer, r.ends);
    auto file = memory_file(1_MiB, true);
    r.announce(beside->get(), file.get(), 1_MiB);
    r.send(frame_kind::release, std::string(80, 'x')); // ids that were never lent: ignored
    // Bob may receive the frame before the file; then the segment is unknown, the same error.
    r.send(frame_kind::reference, write_reference(forged) + "header");
    ASSERT_TRUE(bob.seen.wait([&] { return bob.closed.size() == 1; }));
    EXPECT_EQ(bob.closed[0].code, ec::protocol_violation);
    EXPECT_TRUE(bob.frames.empty());
  }
}

} // namespace
} // namespace waggle::net
