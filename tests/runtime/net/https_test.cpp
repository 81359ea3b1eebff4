#include <array>
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "runtime/net/http_client.hpp"
#include "runtime/net/http_front.hpp"
#include "tests/runtime/net/test_peers.hpp"
#include "tests/support/own_certificate.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle::net {
namespace {

using ::testing::AllOf, ::testing::AnyOf, ::testing::Contains, ::testing::Each, ::testing::EndsWith,
  ::testing::HasSubstr, ::testing::StartsWith;

/// OpenSSL's own client, blocking. `settings`: of its context.
struct https_client {
  explicit https_client(const endpoint& where, const std::function<void(SSL_CTX*)>& settings = {})
    : tcp(where) {
    ::signal(SIGPIPE, SIG_IGN); // OpenSSL writes to the socket itself
    if (settings)
      settings(context.get());
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), tcp.socket.native_handle());
    opened = SSL_connect(ssl.get()) == 1;
  }

  void write(std::string_view text) {
    SSL_write(ssl.get(), text.data(), static_cast<int>(text.size()));
  }
  /// What arrives until `end` is part of it, or the peer ends.
  std::string read_until(const std::string& end) {
    std::string out;
    std::array<char, 4'096> piece{};
    while (out.find(end) == std::string::npos) {
      auto bytes = SSL_read(ssl.get(), piece.data(), piece.size());
      if (bytes <= 0)
        break;
      out.append(piece.data(), static_cast<std::size_t>(bytes));
    }
    return out;
  }
  std::string get(const std::string& target, const std::string& headers = "") {
    write("GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n");
    return read_until("\r\n\r\nGET " + target);
  }

  raw_client tcp;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_client_method()),
                                                       SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> ssl{nullptr, SSL_free};
  bool opened = false;
};

std::function<void(SSL_CTX*)> offering(const std::string& protocols) {
  return [protocols](SSL_CTX* c) {
    SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>(protocols.data()),
                            static_cast<unsigned>(protocols.size()));
  };
}

struct Https : ::testing::Test {
  https_client client(const std::function<void(SSL_CTX*)>& settings = {}) {
    return https_client{where, settings};
  }
  bool shows_certificate(const https_client& client) const {
    return X509_cmp(SSL_get0_peer_certificate(client.ssl.get()), certificate->certificate()) == 0;
  }

  std::shared_ptr<const page_certificate> certificate = page_certificate::make();
  peer server{1, "demo", [this](tcp_transport_config& c) { c.pages = certificate; }};
  endpoint where = server.listen();
};

TEST_F(Https, PagesAreServedOnThePortOfThePeers) {
  for (const auto* protocols : {"", "\x08http/1.1", "\x02h2\x08http/1.1"}) {
    auto browser = *protocols == '\0' ? client() : client(offering(protocols));
    ASSERT_TRUE(browser.opened) << protocols;
    EXPECT_TRUE(shows_certificate(browser));
    EXPECT_THAT(browser.get("/a"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(browser.get("/b", "Connection: close\r\n"), EndsWith("GET /b"));
    EXPECT_EQ(browser.read_until("never"), "");
    EXPECT_EQ(SSL_get_shutdown(browser.ssl.get()), SSL_RECEIVED_SHUTDOWN) << "it says so";
  }
}

TEST_F(Https, OurOwnClientReadsPagesOverIt) {
  auto page = http_get(where, "/own", 20s, {}, true);
  EXPECT_EQ(page->body, "GET /own");
}

TEST_F(Https, CertificatesOfAnOperatorAreShownWithWhoSignsThem) {
  waggle::testing::scratch_folder scratch;
  auto path = scratch.path() / page_certificate_file;
  auto signer = waggle::testing::own_certificate("P-256");
  signer = signer.substr(signer.find("-----BEGIN CERTIFICATE"));
  for (const auto* kind : {"P-256", "P-384", "ED25519", "2048"}) {
    std::ofstream{path} << waggle::testing::own_certificate(kind) << signer;
    std::filesystem::permissions(path, std::filesystem::perms{0600});
    auto loaded = page_certificate::load(path);
    peer other{2, "demo", [&](tcp_transport_config& c) { c.pages = *loaded; }};
    https_client browser{other.listen()};
    ASSERT_TRUE(browser.opened) << kind;
    EXPECT_EQ(sk_X509_num(SSL_get_peer_cert_chain(browser.ssl.get())), 2) << kind;
    EXPECT_THAT(browser.get("/x"), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(Https, AClientThatAsksForTheLinksOfPeersGetsTheirCertificate) {
  auto linking = client(offering("\x08waggle/1"));
  ASSERT_TRUE(linking.opened);
  EXPECT_FALSE(shows_certificate(linking));
  EXPECT_FALSE(client(offering("\x02h2")).opened);
  EXPECT_FALSE(client(offering("\x09waggle/12")).opened);
}

TEST_F(Https, IsTls13AndTakesTheCurveThatAClientHas) {
  EXPECT_FALSE(client([](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION); }).opened);
  for (const auto* curves : {"X25519", "P-256", "P-384:P-256", "P-384:X25519"}) { // two ask again
    auto browser = client([&](SSL_CTX* c) { SSL_CTX_set1_groups_list(c, curves); });
    ASSERT_TRUE(browser.opened) << curves;
    EXPECT_THAT(browser.get("/x"), StartsWith("HTTP/1.1 200"));
  }
}

TEST_F(Https, AClientInPiecesIsServed) {
  // The first message of a client, a byte at a time.
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_client_method()),
                                                       SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> ssl{SSL_new(context.get()), SSL_free};
  auto* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_set_connect_state(ssl.get());
  (void)SSL_do_handshake(ssl.get());
  std::string hello(BIO_ctrl_pending(out), '\0');
  BIO_read(out, hello.data(), static_cast<int>(hello.size()));
  raw_client slow{where};
  slow.socket.set_option(tcp::no_delay{true});
  for (char byte : hello)
    slow.write(std::string_view{&byte, 1});
  char answer = 0;
  asio::read(slow.socket, asio::buffer(&answer, 1));
  EXPECT_EQ(answer, 0x16);
}

TEST_F(Https, GarbageIsCountedAndSurvived) {
  random_source random{7};
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> bytes(1 + random.next() % 400);
    random.fill(bytes);
    bytes[0] = tls_first_byte;
    if (i % 2 == 0 && bytes.size() > 9) { // a record and a message of a client, with any length
      bytes[1] = std::byte{3};
      bytes[2] = std::byte{1};
      bytes[5] = std::byte{1};
    }
    raw_client client{where};
    client.write(bytes);
    boost::system::error_code ignored;
    client.socket.shutdown(tcp::socket::shutdown_send, ignored);
    (void)client.read_all();
  }
  // Those that say they are longer than they are have left.
  ASSERT_TRUE(server.seen.wait([&] { return server.refused.size() > 150; }));
  EXPECT_THAT(server.refused, Each(AnyOf(ec::malformed, ec::protocol_violation)));
  EXPECT_THAT(server.refused, AllOf(Contains(ec::malformed), Contains(ec::protocol_violation)));
  raw_client plain{where};
  plain.write("GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(plain.read_all(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(client().get("/x"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Https, AHandshakeWithoutEndIsRefused) {
  raw_client client{where};
  using namespace std::string_view_literals;
  constexpr auto full_record = "\x16\x03\x01\x40\x00"sv;
  constexpr auto message_of_100_kib = "\x01\x01\x90\x00"sv; // OpenSSL would wait for it
  std::string sent{full_record};
  sent += message_of_100_kib;
  sent += std::string(16_KiB - message_of_100_kib.size(), 'x');
  sent += full_record;
  sent += std::string(4_KiB, 'x');
  client.write(sent);
  (void)client.read_all();
  ASSERT_TRUE(server.seen.wait([&] { return !server.refused.empty(); }));
  EXPECT_EQ(server.refused.front(), ec::oversize);
}

TEST_F(Https, AnUpgradeInsideIsARequest) {
  auto browser = client();
  EXPECT_THAT(browser.get("/peer", "Connection: Upgrade\r\nUpgrade: waggle/1\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(Https, LargePagesArriveIntact) {
  std::string body;
  for (int i = 0; i < 300'000; ++i)
    body += std::to_string(i) + ' ';
  peer large{2, "demo", [&](tcp_transport_config& c) {
               c.http = [&](const http_request&) { return http_response{200, "text/plain", body}; };
             }};
  https_client browser{large.listen()};
  browser.write("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
  auto all = browser.read_until("\r\n\r\n" + body);
  EXPECT_TRUE(all.ends_with(body)) << all.size();
}

TEST_F(Https, PeersThatDoNotEncryptLinksAndPeersThatAcceptNoneServeIt) {
  peer plain{2, "demo", [](tcp_transport_config& c) { c.encrypts = false; }};
  auto at_plain = plain.listen();
  EXPECT_THAT(https_client{at_plain}.get("/x"), StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE((https_client{at_plain, offering("\x08waggle/1")}.opened));
  peer dials_only{3};
  auto bound = dials_only.wire->listen({{"127.0.0.1", 0}}, nullptr);
  EXPECT_THAT(https_client{bound->front()}.get("/x"), StartsWith("HTTP/1.1 200"));
  (void)https_client{bound->front(), offering("\x08waggle/1")};
  EXPECT_TRUE(dials_only.waits_for_refusal(ec::unreachable));
}

TEST_F(Https, ASlowClientIsClosed) {
  peer hasty{2, "demo", [](tcp_transport_config& c) { c.http_timeout = 200ms; }};
  auto at = hasty.listen();
  raw_client silent{at};
  silent.write("\x16\x03");
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(hasty.waits_for_refusal(ec::timeout));
  https_client asks_nothing{at};
  ASSERT_TRUE(asks_nothing.opened);
  EXPECT_EQ(asks_nothing.read_until("never"), "");
  EXPECT_TRUE(hasty.seen.wait([&] { return std::ranges::count(hasty.refused, ec::timeout) == 2; }));
}

TEST_F(Https, HandshakesOfOneHostHaveALimit) {
  peer thrifty{2, "demo", [](tcp_transport_config& c) { c.handshake_work = cost::handshake; }};
  auto at = thrifty.listen();
  auto opened = [&] { return https_client{at}.opened; };
  int refused = 0;
  for (int i = 0; i < 100 && refused == 0; ++i) // one a second, more are refused
    refused += opened() ? 0 : 1;
  EXPECT_EQ(refused, 1);
  EXPECT_TRUE(thrifty.waits_for_refusal(ec::rate_limited));
}

TEST_F(Https, AStreamGoesOnAndItsPlaceIsFreeWhenTheClientLeaves) {
  http_settings settings;
  settings.handler = [](const http_request&) {
    http_response reply{200, "text/event-stream", {}, {}};
    reply.stream = [n = 0](steady_time) mutable {
      return n == 3 ? std::string{} : "#" + std::to_string(n++) + "\n";
    };
    return reply;
  };
  settings.events = std::make_shared<net_events>();
  settings.tls = std::make_shared<tls_context>(*identity::from_seed(3), certificate);
  http_front front{std::move(settings), connection_slots::limits{64, 64}};
  auto at = front.listen({{"127.0.0.1", 0}}, {})->front();
  auto open = [&] {
    auto watching = std::make_unique<https_client>(at);
    watching->write("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    return watching;
  };
  std::vector<std::unique_ptr<https_client>> all;
  for (std::size_t i = 0; i < stream_slots::own_max; ++i)
    all.push_back(open());
  for (const auto& each : all)
    EXPECT_THAT(each->read_until("#2\n"), HasSubstr("#0\n"));
  EXPECT_THAT(open()->read_until("later"), StartsWith("HTTP/1.1 429"));
  SSL_shutdown(all.back()->ssl.get()); // it keeps the connection
  std::string answer;
  for (auto end = std::chrono::steady_clock::now() + 20s;
       !answer.starts_with("HTTP/1.1 200") && std::chrono::steady_clock::now() < end;)
    answer = open()->read_until("\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

} // namespace
} // namespace waggle::net
