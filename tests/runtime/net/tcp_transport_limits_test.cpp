// What strangers may use of a transport: sockets, handshakes, pages. Real sockets on loopback.

#include <future>

#include <gtest/gtest.h>

#include "runtime/net/http_client.hpp"
#include "runtime/net/tcp_transport.hpp"
#include "tests/runtime/net/test_peers.hpp"

namespace waggle::net {
namespace {

std::string get(const endpoint& where, const std::string& page, const std::string& host = "x") {
  raw_client client{where};
  client.write("GET " + page + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  return client.read_all();
}

TEST(TcpTransportLimits, IdleSocketsDoNotKeepOthersOut) {
  peer bob{2, "demo", [](tcp_transport_config& c) { c.http_connections = {8, 8}; }};
  auto where = bob.listen();
  std::vector<std::unique_ptr<raw_client>> idle;
  for (int i = 0; i < 20; ++i)
    idle.push_back(std::make_unique<raw_client>(where));
  EXPECT_TRUE(get(where, "/healthz").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(idle.front()->read_all(), "") << "the oldest was closed";
  EXPECT_TRUE(bob.waits_for_refusal(ec::rate_limited));
  peer ann{1};
  EXPECT_TRUE(ann.dial(where).ok());
}

TEST(TcpTransportLimits, HandshakesThatNobodyFinishesDoNotKeepPeersOut) {
  peer bob{2, "demo", [](tcp_transport_config& c) { c.handshakes = {4, 4}; }};
  auto where = bob.listen();
  std::vector<std::unique_ptr<raw_client>> mute;
  for (int i = 0; i < 12; ++i) {
    mute.push_back(std::make_unique<raw_client>(where));
    mute.back()->upgrade();
  }
  peer ann{1};
  EXPECT_TRUE(ann.dial(where).ok());
  (void)mute.front()->read_all(); // ends: it was closed, long before its handshake's deadline
  EXPECT_TRUE(bob.waits_for_refusal(ec::rate_limited));
}

TEST(TcpTransportLimits, AHostGetsSoManyHandshakesASecond) {
  peer bob{2, "demo", [](tcp_transport_config& c) { c.handshake_work = 3 * cost::handshake; }};
  auto where = bob.listen();
  for (int i = 0; i < 4; ++i)
    raw_client{where}.upgrade();
  EXPECT_TRUE(bob.waits_for_refusal(ec::rate_limited));
}

TEST(TcpTransportLimits, AnsweringHttpDoesNotDelayFrames) {
  std::promise<void> asked;
  std::promise<void> answer;
  peer bob{2, "demo", [&](tcp_transport_config& c) {
             c.http = [&](const http_request&) {
               asked.set_value();
               answer.get_future().wait();
               return http_response{200, "text/plain", "at last"};
             };
           }};
  auto where = bob.listen();
  peer ann{1};
  auto link = ann.dial(where);
  raw_client slow{where};
  slow.write("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  asked.get_future().wait();
  ASSERT_TRUE((*link)->send({"meanwhile", {}}));
  EXPECT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1; }));
  answer.set_value();
  EXPECT_NE(slow.read_all().find("at last"), std::string::npos);
}

TEST(TcpTransportLimits, PagesThatCostSomethingAreRefusedToWhoAsksAllTheTime) {
  peer bob{2, "demo", [](tcp_transport_config& c) {
             c.http = [](const http_request&) {
               volatile double sum = 0;
               for (int i = 0; i < 100'000'000; ++i)
                 sum = sum + 1; // a part of a second of this thread's time
               return http_response{200, "text/plain", "done"};
             };
           }};
  auto where = bob.listen();
  std::size_t refused = 0;
  for (int i = 0; i < 30 && refused == 0; ++i)
    refused += get(where, "/metrics").starts_with("HTTP/1.1 429") ? 1 : 0;
  EXPECT_EQ(refused, 1U);
  EXPECT_TRUE(get(where, "/healthz").starts_with("HTTP/1.1 200"));
}

TEST(TcpTransportLimits, PagesAboutTheRunAreNotServedUnderAForeignName) {
  peer bob{2, "demo", [](tcp_transport_config& c) { c.http_hosts = {"peer.example.org"}; }};
  auto where = bob.listen();
  EXPECT_TRUE(get(where, "/api/v1/status", "evil.example.com").starts_with("HTTP/1.1 421"));
  EXPECT_TRUE(get(where, "/api/v1/status", "peer.example.org:1").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(get(where, "/metrics", "peer.example.com").starts_with("HTTP/1.1 200"));
}

TEST(TcpTransportLimits, AHeldLinkIsNotReadUntilItIsResumed) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  ASSERT_TRUE((*link)->send({"first", {}}));
  ASSERT_TRUE(bob.seen.wait([&] { return bob.frames.size() == 1 && bob.links.size() == 1; }));
  auto& far = *bob.links[0];
  EXPECT_EQ(far.host(), "127.0.0.1");
  far.hold(true);
  // More than the sockets between them hold, so that the sender's queue must fill.
  constexpr int many = 600;
  std::string header(64 * 1024, 'x');
  bool full = false;
  int sent = 0;
  for (; sent < many && !full; ++sent)
    full = !(*link)->send({header, {}});
  EXPECT_TRUE(full) << "what the peer does not read stays here";
  EXPECT_LE(bob.frames.size(), 2U) << "one read may have been under way";
  far.hold(false);
  EXPECT_TRUE(bob.seen.wait([&] { return bob.frames.size() == static_cast<std::size_t>(sent); }));
}

TEST(TcpTransportLimits, WhoIsRefusedForLackOfRoomIsTold) {
  peer ann{1};
  peer bob{2};
  auto link = ann.dial(bob.listen());
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE(bob.seen.wait([&] { return bob.links.size() == 1; }));
  bob.links[0]->close({ec::overloaded, "no room"});
  ASSERT_TRUE(ann.seen.wait([&] { return ann.closed.size() == 1; }));
  EXPECT_EQ(ann.closed[0].code, ec::overloaded);
  EXPECT_EQ(ann.closed[0].detail, "refused by the peer: no room");
}

} // namespace
} // namespace waggle::net
