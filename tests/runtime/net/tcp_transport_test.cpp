// Real sockets on loopback, port 0. Nothing sleeps: a test waits for the expected event, with a
// deadline that is only reached on failure.

#include "runtime/net/tcp_transport.hpp"

#include <future>

#include <gtest/gtest.h>
#include <malloc.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/net/http_client.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

TEST(TcpTransport, TwoPeersProveWhoTheyAreAndExchangeFrames) {
  peer ann{1};
  peer bob{2};
  auto where = bob.listen();
  ASSERT_NE(where.port, 0);
  auto link = ann.dial(where, bob.id);
  EXPECT_EQ((*link)->remote().id, bob.id);
  EXPECT_TRUE((*link)->outbound());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  EXPECT_EQ(bob.links[0]->remote().id, ann.id);
  EXPECT_FALSE(bob.links[0]->outbound());
  EXPECT_EQ(bob.links[0]->remote().addresses.at(0).host, "127.0.0.1")
    << "0.0.0.0 is not an address to dial";
  auto body = body_of(70'000, 5);
  EXPECT_TRUE((*link)->send({"from ann", {}}));
  EXPECT_TRUE((*link)->send({"bulk", body}));
  EXPECT_TRUE(bob.links[0]->send({"from bob", {}}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 2; }));
  ASSERT_TRUE(ann.seen.wait([&] { return ann.frames.size() == 1; }));
  EXPECT_EQ(ann.frames[0].header, "from bob");
  for (const auto& f : bob.frames) {
    if (f.header == "bulk") {
      EXPECT_EQ(sha256(f.body.view()), sha256(body.view()));
    } else {
      EXPECT_EQ(f.header, "from ann");
    }
  }
}

TEST(TcpTransport, SixtyFourMebibytesArriveIntactThroughASmallerWindow) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  auto whole = body_of(64_MiB, 9);
  constexpr std::size_t piece = 1_MiB + 4_KiB - 1;
  for (std::size_t at = 0; at < whole.size; at += piece)
    ASSERT_TRUE((*link)->send({"part", slice(whole, at, std::min(piece, whole.size - at))}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == whole.size; }));
  sha256_stream hash;
  for (const auto& f : bob.frames)
    hash.add(f.body.view());
  EXPECT_EQ(hash.finish(), sha256(whole.view()));
}

void far_away(tcp_transport_config& config) {
  config.loopback_is_far = true;
  config.shared_memory = false;
}

TEST(TcpTransport, BodiesArriveIntactInSlices) {
  peer ann{1, "demo", far_away};
  peer bob{2, "demo", far_away};
  auto link = ann.dial(bob.listen());
  auto whole = body_of(48_MiB, 9);
  constexpr std::size_t piece = 1_MiB + 4_KiB - 1;
  for (std::size_t at = 0; at < whole.size; at += piece) {
    ASSERT_TRUE((*link)->send({"part", slice(whole, at, std::min(piece, whole.size - at))}));
    ASSERT_TRUE((*link)->send({"word", {}}));
  }
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == whole.size; }));
  sha256_stream hash;
  for (const auto& f : bob.frames)
    hash.add(f.body.view());
  EXPECT_EQ(hash.finish(), sha256(whole.view()));
}

TEST(TcpTransport, LinksBetweenMachinesAreEncryptedAndNothingFallsBack) {
  auto plain = [](tcp_transport_config& config) {
    far_away(config);
    config.encrypts = false;
  };
  peer ann{1, "demo", far_away};
  peer bob{2, "demo", far_away};
  peer carl{3, "demo", plain};
  peer dora{4, "demo", plain};
  auto at_bob = bob.listen();
  auto at_dora = dora.listen();
  auto encrypted = ann.dial(at_bob);
  EXPECT_TRUE((*encrypted)->facts().encrypted);
  auto open = carl.dial(at_dora);
  EXPECT_FALSE((*open)->facts().encrypted);
  for (auto refused : {carl.dial(at_bob), ann.dial(at_dora)}) {
    EXPECT_EQ(refused.error().code, ec::wrong_version);
    EXPECT_NE(refused.error().detail.find("at both ends or at none"), std::string::npos)
      << to_string(refused.error());
  }
  EXPECT_TRUE(bob.waits_for_refusal(ec::wrong_version));
  EXPECT_TRUE(dora.waits_for_refusal(ec::wrong_version));
  peer near{5};
  peer nearer{6};
  auto here = near.dial(nearer.listen());
  EXPECT_FALSE((*here)->facts().encrypted) << "both ends are on loopback";
}

TEST(TcpTransport, WithAKeyOtherMachinesSeeHealthAndMetricsUnlessTheyKnowIt) {
  auto key = make_swarm_key();
  auto serving = [&](bool open) {
    return [&key, open](tcp_transport_config& config) {
      far_away(config);
      config.key = key;
      config.open_pages = open;
      config.http = [](const http_request&) { return http_response{200, "text/plain", "seen"}; };
    };
  };
  peer closed{1, "demo", serving(false)};
  peer open{2, "demo", serving(true)};
  auto at_closed = closed.listen();
  auto at_open = open.listen();
  auto status_of = [](const endpoint& where, const char* page, std::optional<swarm_key> shown) {
    auto answer = http_get(where, page, 20s, shown);
    return answer ? answer->status : 0;
  };
  for (const auto* page : {"/", "/api/v1/peers", "/sd", "/api/v1/status?x", "/metricsx"}) {
    EXPECT_EQ(status_of(at_closed, page, {}), 403U) << page;
    EXPECT_EQ(status_of(at_closed, page, make_swarm_key()), 403U) << page;
    EXPECT_EQ(status_of(at_closed, page, key), 200U) << page;
    EXPECT_EQ(status_of(at_open, page, {}), 200U) << page;
    EXPECT_EQ(status_of(at_open, page, key), 200U) << page;
  }
  peer keyless{3, "demo", far_away};
  EXPECT_EQ(http_get(keyless.listen(), "/", 20s, key).error().code, ec::bad_signature);
  auto refused = http_get(at_closed, "/", 20s, make_swarm_key());
  EXPECT_EQ(refused->body, "") << "nobody proved it";
  EXPECT_NE(http_get(at_closed, "/", 20s)->body, "");
  for (const auto* page : {"/metrics", "/metrics?x", "/healthz", "/readyz"})
    EXPECT_EQ(status_of(at_closed, page, {}), 200U) << page;
}

TEST(TcpTransport, ControlFramesComeBetweenTheSlicesOfABody) {
  peer ann{1, "demo", far_away};
  peer bob{2, "demo", far_away};
  std::promise<void> began;
  std::promise<void> said;
  bob.body_memory = [&](const std::string&, std::size_t) -> std::shared_ptr<std::byte> {
    began.set_value(); // bob stops reading: most of the body cannot have left ann
    said.get_future().wait();
    return nullptr;
  };
  auto link = ann.dial(bob.listen());
  auto body = body_of(16_MiB, 3);
  ASSERT_TRUE((*link)->send({"bulk", body}));
  began.get_future().wait();
  ASSERT_TRUE((*link)->send({"control", {}}));
  said.set_value();
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 2; }));
  EXPECT_EQ(bob.frames[0].header, "control");
  EXPECT_EQ(sha256(bob.frames[1].body.view()), sha256(body.view()));
}

TEST(TcpTransport, UnprocessedBulkStopsItsSenderAndControlFramesPass) {
  peer ann{1};
  peer bob{2};
  bob.granting = false;
  auto link = ann.dial(bob.listen());
  auto body = body_of(8_MiB, 3);
  for (int i = 0; i < 8; ++i) // twice the window
    ASSERT_TRUE((*link)->send({"bulk", body}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == 32_MiB; }));
  // The control frame is sent later, so the remaining bulk could have arrived before it.
  ASSERT_TRUE((*link)->send({"control", {}}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.back().header == "control"; }));
  EXPECT_EQ(bob.body_bytes, 32_MiB);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  bob.granting = true;
  bob.links[0]->grant(32_MiB);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == 64_MiB; }));
}

TEST(TcpTransport, ThousandsOfTinyBodiesBehindALargeHeaderAreNoTrouble) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  auto tiny = body_of(1, 1);
  ASSERT_TRUE(
    (*link)->send({std::string(frame_header_bytes_max, 'h'), {}})); // grows the read buffer
  constexpr std::size_t many = 60'000;
  for (std::size_t i = 0; i < many; ++i)
    ASSERT_TRUE((*link)->send({"", tiny}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == many + 1; }));
}

TEST(TcpTransport, FramesOverTheLimitAreNotSent) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  EXPECT_FALSE((*link)->send({std::string(frame_header_bytes_max + 1, 'h'), {}}));
  EXPECT_FALSE((*link)->send({"h", body_of(frame_body_bytes_max + 1, 1)}));
  EXPECT_TRUE((*link)->send({"h", body_of(frame_body_bytes_max, 1)}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == frame_body_bytes_max; }));
}

TEST(TcpTransport, EachEndGetsTheReasonOfAClosedLinkOnce) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  ASSERT_TRUE((*link)->send({"goodbye", {}}));
  (*link)->close({ec::duplicate_peer, "a newer link"});
  ASSERT_TRUE(ann.seen.wait([&] { return !ann.closed.empty(); }));
  ASSERT_TRUE(bob.seen.wait([&] { return !bob.closed.empty(); }));
  EXPECT_EQ(ann.closed[0].code, ec::duplicate_peer);
  EXPECT_EQ(bob.closed[0].code, ec::peer_lost);
  ASSERT_EQ(bob.frames.size(), 1u) << "frames queued before the end are still sent";
  EXPECT_EQ(bob.frames[0].header, "goodbye");
  EXPECT_FALSE((*link)->send({"more", {}}));
  (*link)->close({ec::timeout, {}});
  EXPECT_EQ(ann.closed.size(), 1u);
}

TEST(TcpTransport, ALinkMayOutliveItsTransport) {
  std::shared_ptr<link> kept;
  peer bob{2};
  {
    peer ann{1};
    kept = *ann.dial(bob.listen());
  }
  EXPECT_FALSE(kept->send({"x", {}}));
  kept->grant(5);
  kept->close({ec::cancelled, {}});
}

TEST(TcpTransport, WrongPeersAreRefusedWithAReason) {
  peer bob{2};
  auto where = bob.listen();
  auto code = [](const auto& outcome) { return outcome.ok() ? ec::none : outcome.error().code; };
  peer other{3, "other run"};
  EXPECT_EQ(code(other.dial(where)), ec::wrong_run);
  EXPECT_TRUE(bob.waits_for_refusal(ec::wrong_run));
  peer twin{2};
  EXPECT_EQ(code(twin.dial(where)), ec::duplicate_identity);
  peer ann{1};
  EXPECT_EQ(code(ann.dial(where, other.id)), ec::bad_signature);
  EXPECT_EQ(code(ann.dial(where, bob.id)), ec::none);
}

TEST(TcpTransport, AClientAnswersHttpAndAcceptsNoPeers) {
  peer client{2};
  auto bound = client.wire->listen({{"127.0.0.1", 0}}, nullptr);
  auto where = bound->front();
  ASSERT_NE(where.port, 0);
  auto page = http_get(where, "/metrics", 5s);
  EXPECT_EQ(page->body, "GET /metrics");
  peer ann{1};
  auto outcome = ann.dial(where);
  ASSERT_FALSE(outcome.ok());
  EXPECT_TRUE(client.links.empty());
  EXPECT_TRUE(http_get(where, "/metrics", 5s).ok()) << "it still serves";
  auto other = ann.listen();
  EXPECT_TRUE(client.dial(other).ok()) << "it dials as before";
}

TEST(TcpTransport, DiallingAClosedPortFailsWithAReason) {
  peer ann{1};
  endpoint gone;
  {
    peer bob{2};
    gone = bob.listen();
  }
  auto outcome = ann.dial(gone);
  EXPECT_EQ(outcome.error().code, ec::unreachable);
  EXPECT_NE(outcome.error().detail.find(to_string(gone)), std::string::npos);
}

TEST(TcpTransport, APeerThatAcceptsAndIsSilentCostsOnlyTheTimeout) {
  asio::io_context io;
  tcp::acceptor mute{io, tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
  peer ann{1};
  auto outcome = ann.dial({"127.0.0.1", mute.local_endpoint().port()}, {}, 100ms);
  EXPECT_EQ(outcome.error().code, ec::timeout);
}

TEST(TcpTransport, ATakenPortFailsWithASentenceForTheOperator) {
  peer ann{1};
  peer bob{2};
  auto where = ann.listen();
  auto outcome = bob.wire->listen({where}, [](const std::shared_ptr<link>&) {});
  EXPECT_EQ(outcome.error().code, ec::bad_config);
  EXPECT_NE(outcome.error().detail.find(to_string(where)), std::string::npos);
  EXPECT_NE(outcome.error().detail.find("taken"), std::string::npos);
  EXPECT_EQ(outcome.error().detail.find('\n'), std::string::npos);
  auto foreign = bob.wire->listen({{"192.0.2.1", 0}}, [](const std::shared_ptr<link>&) {});
  ASSERT_FALSE(foreign.ok());
  EXPECT_TRUE(bob.wire->listen({{"127.0.0.1", 0}}, [](const std::shared_ptr<link>&) {}).ok())
    << "a failed attempt does not affect the next";
}

TEST(TcpTransport, AcceptsIpv4BesideIpv6AndSeesTheSameHost) {
  peer bob{2};
  std::string seen;
  auto every = bob.wire->listen({{"::", 0}}, [&](std::shared_ptr<link> l) {
    seen = l->host();
    bob.adopt(std::move(l));
  });
  ASSERT_TRUE(every.ok()) << every.error().detail; // 0.0.0.0 on a machine without IPv6
  peer ann{1};
  ASSERT_TRUE(ann.dial({"127.0.0.1", every->front().port}).ok());
  EXPECT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  EXPECT_EQ(seen, "127.0.0.1");
}

TEST(TcpTransport, ListensOnEachAddressOfAList) {
  peer bob{2};
  auto adopt = [&](std::shared_ptr<link> l) { bob.adopt(std::move(l)); };
  auto bound = bob.wire->listen({{"127.0.0.1", 0}, {"::1", 0}}, adopt);
  ASSERT_EQ(bound->size(), 2u);
  peer ann{1};
  EXPECT_TRUE(ann.dial(bound->front()).ok());
  peer cid{3};
  EXPECT_TRUE(cid.dial(bound->back()).ok());
  peer dan{4};
  auto port = bound->front().port;
  auto taken = dan.wire->listen({{"127.0.0.1", 0}, {"127.0.0.1", port}}, adopt);
  EXPECT_NE(taken.error().detail.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  auto both = dan.wire->listen({{"0.0.0.0", 0}, {"::", 0}}, adopt);
  auto again = peer{5}.wire->listen({{"0.0.0.0", both->front().port}}, adopt);
  EXPECT_FALSE(again.ok());
}

TEST(TcpTransport, ListensOnBothFamiliesWithOnePort) {
  peer bob{2};
  endpoint free = bob.listen();
  bob.wire->stop();
  peer ann{1};
  auto bound = ann.wire->listen({{"0.0.0.0", free.port}, {"::", free.port}},
                                [](const std::shared_ptr<link>&) {});
  EXPECT_TRUE(bound.ok()) << bound.error().detail;
}

TEST(TcpTransport, ServesHttpOnTheSamePort) {
  peer bob{2};
  auto where = bob.listen();
  auto got = http_get(where, "/metrics?x=1", 20s);
  EXPECT_EQ(got->status, 200u);
  EXPECT_EQ(got->body, "GET /metrics?x=1");
  raw_client head{where};
  head.write("HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  auto text = head.read_all();
  EXPECT_NE(text.find("Content-Length: 7"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 4), "\r\n\r\n") << "no body";
}

TEST(TcpTransport, InvalidInputIsAnsweredAndCounted) {
  peer bob{2};
  auto where = bob.listen();
  {
    raw_client garbage{where};
    std::string noise(400, '\0');
    random_source{4}.fill(std::as_writable_bytes(std::span{noise}));
    garbage.write(noise + "\r\n\r\n");
    EXPECT_EQ(garbage.read_all().substr(0, 12), "HTTP/1.1 400");
    EXPECT_TRUE(bob.waits_for_refusal(ec::malformed));
  }
  {
    raw_client huge{where};
    huge.write("GET / HTTP/1.1\r\nX: " + std::string(9_KiB, 'x') + "\r\n\r\n");
    (void)huge.read_all();
    EXPECT_TRUE(bob.waits_for_refusal(ec::oversize));
  }
  {
    raw_client other{where};
    other.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    EXPECT_EQ(other.read_all().substr(0, 12), "HTTP/1.1 426");
    EXPECT_TRUE(bob.waits_for_refusal(ec::wrong_version));
  }
  EXPECT_TRUE(http_get(where, "/", 20s).ok());
}

TEST(TcpTransport, AnAnsweredConnectionMayBeIdleForLongerThanARequestMayTake) {
  peer bob{2, "demo", [](auto& config) { config.http_timeout = 50ms; }};
  auto where = bob.listen();
  raw_client kept{where};
  kept.write("GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
  std::string first;
  asio::read_until(kept.socket, asio::dynamic_buffer(first), "GET /one");
  raw_client half{where};
  half.write("GET /two");
  EXPECT_TRUE(bob.waits_for_refusal(ec::timeout)) << "of what was begun";
  kept.write("GET /three HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(kept.read_all().find("GET /three"), std::string::npos);
  EXPECT_EQ(bob.refused, std::vector{ec::timeout});
}

TEST(TcpTransport, WhoOnlyLooksAndIsRefusedIsNotCounted) {
  peer bob{2};
  auto where = bob.listen();
  peer doctor{1, "another run", [](auto& config) { config.looks = true; }};
  EXPECT_EQ(doctor.dial(where).error().code, ec::wrong_run);
  peer stranger{3, "another run"};
  EXPECT_EQ(stranger.dial(where).error().code, ec::wrong_run);
  EXPECT_TRUE(bob.waits_for_refusal(ec::wrong_run));
  EXPECT_EQ(bob.refused.size(), 1U);
  peer welcome{4, "demo", [](auto& config) { config.looks = true; }};
  ASSERT_TRUE(welcome.dial(where).ok());
  EXPECT_TRUE(bob.seen.wait([&] { return !bob.links.empty(); }));
  EXPECT_TRUE(bob.links.front()->claims().looks);
}

TEST(TcpTransport, BytesThatAreNotAFrameEndTheConnection) {
  peer bob{2};
  auto where = bob.listen();
  raw_client c{where};
  c.upgrade();
  c.write("these are not sixteen bytes of a frame");
  (void)c.read_all();
  EXPECT_TRUE(bob.waits_for_refusal(ec::malformed));
  raw_client big{where};
  big.upgrade();
  big.write(write_prefix({frame_kind::message, 0xffffffffU, 0xffffffffU}));
  (void)big.read_all();
  EXPECT_TRUE(bob.waits_for_refusal(ec::oversize));
  raw_client early{where};
  early.upgrade();
  early.write(write_prefix({frame_kind::message, 0, 1_MiB}));
  (void)early.read_all();
  EXPECT_TRUE(bob.waits_for_refusal(ec::protocol_violation)) << "no bulk before the handshake";
}

/// A peer that proves its identity and then writes arbitrary bytes.
struct rude_peer : raw_client {
  explicit rude_peer(const endpoint& where) : raw_client(where) {
    upgrade();
    auto self = identity::from_seed(9);
    handshake talk{{true,
                    std::make_shared<const run_secret>("demo"),
                    self,
                    {self->id(), self->key(), {}, false},
                    make_plain_verifier(),
                    {},
                    {},
                    {}}};
    write_frame(frame_kind::handshake, talk.hello(), 0);
    for (bool done = false; !done;) {
      std::array<std::byte, frame_prefix::size> bytes{};
      asio::read(socket, asio::buffer(bytes));
      auto prefix = *read_prefix(bytes);
      std::string message(prefix.header_bytes, '\0');
      asio::read(socket, asio::buffer(message));
      auto step = talk.on_message(message);
      for (const auto& answer : step.send)
        write_frame(frame_kind::handshake, answer, 0);
      done = step.peer.has_value();
    }
  }
  void write_frame(frame_kind kind, std::string_view header, std::uint32_t body_bytes) {
    write(write_prefix({kind, static_cast<std::uint32_t>(header.size()), body_bytes}));
    write(header);
  }
};

TEST(TcpTransport, PiecesOfABodyThatDoNotFitEndTheLink) {
  using write = std::function<void(rude_peer&)>;
  auto opens = [](rude_peer& p) { p.write_frame(frame_kind::opening, "part", 100); };
  const std::vector<std::pair<const char*, write>> ways{
    {"a slice of nothing", [](rude_peer& p) { p.write_frame(frame_kind::slice, "", 10); }},
    {"a slice too large",
     [&](rude_peer& p) {
       opens(p);
       p.write_frame(frame_kind::slice, "", 101);
     }},
    {"two bodies at once",
     [&](rude_peer& p) {
       opens(p);
       opens(p);
     }},
    {"a complete body within one",
     [&](rude_peer& p) {
       opens(p);
       p.write_frame(frame_kind::message, "part", 10);
     }},
    {"a reference within one",
     [&](rude_peer& p) {
       opens(p);
       p.write_frame(frame_kind::reference, write_reference({}), 0);
     }},
    {"more than the window", [](rude_peer& p) {
       for (int i = 0; i < 3; ++i) {
         p.write_frame(frame_kind::opening, "part", 16_MiB);
         for (int slices = 0; slices < 16; ++slices) {
           p.write_frame(frame_kind::slice, "", 1_MiB);
           p.write(std::string(1_MiB, 'x'));
         }
       }
     }}};
  for (const auto& [name, misbehave] : ways) {
    peer bob{2};
    bob.granting = false;
    rude_peer rude{bob.listen()};
    misbehave(rude);
    ASSERT_TRUE(bob.seen.wait([&] { return !bob.closed.empty(); })) << name;
    EXPECT_EQ(bob.closed[0].code, ec::protocol_violation) << name;
  }
}

TEST(TcpTransport, FramesThatDoNothingEndTheLink) {
  const std::vector<std::tuple<const char*, frame_kind, std::string>> frames{
    {"a window update that grants nothing", frame_kind::window, std::string(8, '\0')},
    {"a release of nothing", frame_kind::release, ""},
    {"a release without shared memory", frame_kind::release, std::string(8, '\1')}};
  for (const auto& [name, kind, header] : frames) {
    peer bob{2};
    rude_peer rude{bob.listen()};
    rude.write_frame(kind, header, 0);
    ASSERT_TRUE(bob.seen.wait([&] { return !bob.closed.empty(); })) << name;
    EXPECT_EQ(bob.closed[0].code, ec::protocol_violation) << name;
  }
}

TEST(TcpTransport, FramesThatAreNotMessagesAreReported) {
  peer bob{2};
  rude_peer rude{bob.listen()};
  std::string bytes;
  auto add = [&](frame_kind kind, std::string_view header, std::uint32_t body_bytes) {
    auto prefix = write_prefix({kind, static_cast<std::uint32_t>(header.size()), body_bytes});
    bytes.append(as_string_view(prefix)).append(header);
  };
  add(frame_kind::opening, "part", 5'000);
  for (int i = 0; i < 5'000; ++i) {
    add(frame_kind::slice, "", 1);
    bytes.push_back('x');
    if (i % 10 == 0)
      add(frame_kind::message, "a message", 0);
  }
  rude.write(bytes);
  ASSERT_TRUE(
    bob.seen.wait([&] { return bob.frames.size() == 501 && bob.overhead_frames >= 5'000; }));
  // The last slice is reported as the message that it completes.
  EXPECT_EQ(bob.overhead_frames, 5'000U);
  EXPECT_EQ(bob.overhead_bytes, 0U);
}

TEST(TcpTransport, ALinkThatIsHeldForItsOverheadIsReadLater) {
  peer bob{2};
  bob.overheard = [&bob, first = true]() mutable {
    if (std::exchange(first, false))
      bob.links.at(0)->hold(true);
  };
  auto where = bob.listen();
  rude_peer rude{where};
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  rude.write_frame(frame_kind::opening, "part", 1'000);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.overhead_frames == 1; }));
  for (int i = 0; i < 500; ++i) {
    rude.write_frame(frame_kind::slice, "", 1);
    rude.write("x");
  }
  rude_peer later{where}; // by the time that it is heard, the slices would have been read
  later.write_frame(frame_kind::message, "a message", 0);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1; }));
  EXPECT_EQ(bob.overhead_frames, 1U);
  bob.links.at(0)->hold(false);
  EXPECT_TRUE(bob.seen.wait([&] { return bob.overhead_frames == 501; }));
}

/// Bytes of this process's heap that are in use; 0: the allocator does not tell (a sanitizer's).
std::size_t heap_bytes() {
  return ::mallinfo2().uordblks;
}

// Messages of a round that nobody has announced yet keep their link.
TEST(TcpTransport, ALinkThatHasEndedDoesNotKeepItsBuffers) {
  peer ann{1};
  peer bob{2};
  auto where = bob.listen();
  constexpr std::size_t count = 32;
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(ann.dial(where).ok());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == count; }));
  auto before = heap_bytes();
  if (before == 0)
    GTEST_SKIP() << "this allocator does not tell what is in use";
  for (const auto& link : ann.links)
    link->close({ec::none, {}});
  ASSERT_TRUE(bob.seen.wait([&] { return bob.closed.size() == count; }));
  ASSERT_TRUE(ann.seen.wait([&] { return ann.closed.size() == count; }));
  // Another link, so that the reads that were pending have ended, too.
  ASSERT_TRUE(ann.dial(where).ok());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == count + 1; }));
  EXPECT_LT(heap_bytes() + 3 * count / 2 * 20_KiB, before);
}

TEST(TcpTransport, ALinkMayEndInTheMiddleOfABody) {
  peer bob{2};
  {
    rude_peer rude{bob.listen()};
    rude.write_frame(frame_kind::opening, "part", 1'000'000);
    rude.write_frame(frame_kind::slice, "", 500'000);
    rude.write(std::string(200'000, 'x'));
  }
  ASSERT_TRUE(bob.seen.wait([&] { return !bob.closed.empty(); }));
  EXPECT_EQ(bob.closed[0].code, ec::peer_lost);
  EXPECT_TRUE(bob.frames.empty());
}

TEST(TcpTransport, ALinkIsIdleBetweenBodies) {
  peer bob{2};
  rude_peer rude{bob.listen()};
  rude.write_frame(frame_kind::opening, "part", 1'000);
  rude.write_frame(frame_kind::slice, "", 400);
  rude.write(std::string(400, 'x'));
  rude.write_frame(frame_kind::message, "control", 0);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1 && bob.links.size() == 1; }));
  EXPECT_FALSE(bob.links.at(0)->idle()) << "it has less than half of the body";
  rude.write_frame(frame_kind::slice, "", 600);
  rude.write(std::string(600, 'x'));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 2; }));
  EXPECT_TRUE(bob.links.at(0)->idle());
}

TEST(TcpTransport, ALinkIsIdleOnceEverythingIsWritten) {
  peer ann{1};
  peer bob{2};
  bob.granting = false;
  auto link = ann.dial(bob.listen());
  auto body = body_of(8_MiB, 3);
  for (int i = 0; i < 5; ++i) // one more than the window holds
    ASSERT_TRUE((*link)->send({"bulk", body}));
  EXPECT_FALSE((*link)->idle());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == 32_MiB && bob.links.size() == 1; }));
  EXPECT_FALSE((*link)->idle());
  bob.links.at(0)->grant(32_MiB);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.body_bytes == 40_MiB; }));
  // Bob has the last body, but ann's I/O thread may not have handled the end of the write yet.
  for (std::size_t sent = 0; sent < 100 && !(*link)->idle(); ++sent) {
    ASSERT_TRUE(bob.links.at(0)->send({"go on", {}}));
    ASSERT_TRUE(ann.seen.wait([&] { return ann.frames.size() == sent + 1; }));
  }
  EXPECT_TRUE((*link)->idle());
}

TEST(TcpTransport, AClientThatDoesNotFinishIsDisconnected) {
  peer bob{2, "demo", [](tcp_transport_config& c) {
             c.http_timeout = 100ms;
             c.handshake_timeout = 100ms;
           }};
  auto where = bob.listen();
  raw_client slow{where};
  slow.write("GET / HTTP/1.1\r\nX-One-Letter-A-Minute: a"); // incomplete
  (void)slow.read_all();
  raw_client mute{where};
  mute.upgrade();
  (void)mute.read_all();
  EXPECT_TRUE(bob.waits_for_refusal(ec::timeout));
}

TEST(TcpTransport, StoppingEndsLinksAndDialsAndNothingIsCalledLater) {
  asio::io_context io;
  tcp::acceptor mute{io, tcp::endpoint{asio::ip::address_v4::loopback(), 0}};
  peer bob{2};
  auto ann = std::make_unique<peer>(1);
  auto link = ann->dial(bob.listen());
  ASSERT_TRUE(link.ok());
  std::promise<ec> answer;
  auto future = answer.get_future();
  ann->wire->dial(
    {{"127.0.0.1", mute.local_endpoint().port()}, {}, {}}, 60s,
    [&](result<std::shared_ptr<net::link>> outcome) { answer.set_value(outcome.error().code); });
  ann->wire->stop();
  ASSERT_EQ(future.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(future.get(), ec::shutting_down);
  ASSERT_TRUE(ann->seen.wait([&] { return ann->closed.size() == 1; }));
  EXPECT_EQ(ann->closed[0].code, ec::shutting_down);
  ASSERT_TRUE(bob.seen.wait([&] { return bob.closed.size() == 1; }));
  ann.reset();
}

} // namespace
} // namespace waggle::net
