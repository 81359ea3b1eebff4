#include "runtime/net/tls_channel.hpp"

#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "runtime/core/random.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle::net {
namespace {

using ::testing::HasSubstr;

byte_span bytes_of(std::string_view text) {
  return as_byte_span(text);
}

bool ready(const result<bool>& outcome) {
  return outcome && *outcome;
}
bool waits(const result<bool>& outcome) {
  return outcome && !*outcome;
}

/// Two ends, in memory: ann dials bob.
struct two_ends {
  std::shared_ptr<const identity> ann_is = identity::from_seed(1);
  std::shared_ptr<const identity> bob_is = identity::from_seed(2);
  tls_context ann_has{*ann_is};
  tls_context bob_has{*bob_is};
  tls_channel ann{ann_has, true};
  tls_channel bob{bob_has, false};
  std::string wire; // everything that was sent

  /// Moves what one end has to send to the other, in pieces of at most `step` bytes.
  void carry(tls_channel& from, tls_channel& to, std::size_t step = 1 << 20) {
    auto all = from.take_output();
    wire += as_string_view(all);
    for (byte_span rest{all}; !rest.empty(); rest = rest.subspan(std::min(step, rest.size())))
      to.arrived(rest.first(std::min(step, rest.size())));
  }
  void open() {
    ASSERT_TRUE(waits(ann.begin()));
    carry(ann, bob);
    ASSERT_TRUE(ready(bob.begin()));
    carry(bob, ann);
    ASSERT_TRUE(ready(ann.begin()));
    carry(ann, bob);
  }
};

std::string read_all(tls_channel& from, std::size_t room = 1 << 16) {
  std::string out;
  for (;;) {
    std::vector<std::byte> piece(room);
    auto bytes = from.read(piece);
    EXPECT_TRUE(bytes) << (bytes ? "" : to_string(bytes.error()));
    if (!bytes || *bytes == 0)
      return out;
    out += as_string_view({piece.data(), *bytes});
  }
}

TEST(TlsChannel, CarriesBytesBothWaysAndShowsNoneOfThem) {
  two_ends talk;
  talk.open();
  std::string pattern = "a pattern that is planted in the gradient";
  std::string text;
  while (text.size() < 300'000)
    text += pattern;
  ASSERT_TRUE(talk.ann.write(bytes_of(text)));
  talk.carry(talk.ann, talk.bob, 1000);
  EXPECT_EQ(read_all(talk.bob), text);
  ASSERT_TRUE(talk.bob.write(bytes_of(text)));
  talk.carry(talk.bob, talk.ann);
  EXPECT_EQ(read_all(talk.ann, 7), text);
  EXPECT_GT(talk.wire.size(), 2 * text.size());
  EXPECT_EQ(talk.wire.find(pattern), std::string::npos);
}

TEST(TlsChannel, KeepsOfWhatHasJustArrivedWhatItDoesNotDecrypt) {
  for (std::size_t room : {3U, 40'000U}) {
    two_ends talk;
    talk.open();
    std::string text(100'000, 'x');
    text += "the end";
    ASSERT_TRUE(talk.ann.write(bytes_of(text)));
    std::string got;
    std::vector<std::byte> piece(room);
    auto sent = talk.ann.take_output();
    for (byte_span rest{sent}; !rest.empty();) { // within records, and over their ends
      auto size = std::min<std::size_t>(23'456, rest.size());
      std::vector<std::byte> lent(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size));
      auto bytes = talk.bob.read(piece, lent);
      got += as_string_view(byte_span{piece}.first(*bytes));
      rest = rest.subspan(size);
    }
    EXPECT_EQ(got + read_all(talk.bob), text) << room;
  }
}

TEST(TlsChannel, TheAcceptorWritesBeforeTheDiallerHasAnswered) {
  two_ends talk;
  ASSERT_TRUE(waits(talk.ann.begin()));
  talk.carry(talk.ann, talk.bob);
  ASSERT_TRUE(ready(talk.bob.begin()));
  ASSERT_TRUE(talk.bob.write(bytes_of("hello")));
  talk.carry(talk.bob, talk.ann); // one flight
  ASSERT_TRUE(ready(talk.ann.begin()));
  EXPECT_EQ(read_all(talk.ann), "hello");
  ASSERT_TRUE(talk.ann.write(bytes_of("answer")));
  talk.carry(talk.ann, talk.bob); // the rest of the handshake is in it
  EXPECT_EQ(read_all(talk.bob), "answer");
  ASSERT_TRUE(talk.bob.write(bytes_of("and more")));
  talk.carry(talk.bob, talk.ann);
  EXPECT_EQ(read_all(talk.ann), "and more");
}

TEST(TlsChannel, BothEndsNameTheChannelAlikeAndNoOtherOneSo) {
  two_ends talk;
  two_ends other;
  talk.open();
  other.open();
  EXPECT_EQ(talk.ann.binding(), talk.bob.binding());
  EXPECT_EQ(talk.ann.binding().size(), 32u);
  EXPECT_NE(talk.ann.binding(), other.ann.binding());
}

TEST(TlsChannel, ShowsTheDiallerWhoseKeyTheOtherEndHas) {
  two_ends talk;
  talk.open();
  ASSERT_TRUE(talk.ann.peer_key());
  EXPECT_EQ(*talk.ann.peer_key(), talk.bob_is->key());
  EXPECT_EQ(talk.wire.find(talk.bob_is->key().raw()), std::string::npos)
    << "a reader of the wire does not learn it";
}

TEST(TlsChannel, AChangedByteEndsIt) {
  two_ends talk;
  talk.open();
  ASSERT_TRUE(talk.ann.write(bytes_of("text")));
  auto sent = talk.ann.take_output();
  sent.back() ^= std::byte{1};
  talk.bob.arrived(sent);
  std::vector<std::byte> room(100);
  EXPECT_EQ(talk.bob.read(room).error().code, ec::protocol_violation);
}

/// What bob answers to a client of OpenSSL with these settings.
failure answer_to(const std::function<void(SSL_CTX*)>& settings) {
  two_ends talk;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_client_method()),
                                                       SSL_CTX_free};
  settings(context.get());
  std::unique_ptr<SSL, void (*)(SSL*)> client{SSL_new(context.get()), SSL_free};
  auto* to_bob = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), BIO_new(BIO_s_mem()), to_bob);
  SSL_set_connect_state(client.get());
  (void)SSL_do_handshake(client.get());
  std::vector<std::byte> hello(BIO_ctrl_pending(to_bob));
  BIO_read(to_bob, hello.data(), static_cast<int>(hello.size()));
  EXPECT_FALSE(hello.empty());
  talk.bob.arrived(hello);
  auto outcome = talk.bob.begin();
  EXPECT_FALSE(outcome);
  EXPECT_TRUE(talk.bob.has_output()) << "an alert";
  return outcome ? failure{} : outcome.error();
}

TEST(TlsChannel, ClientsOfAnotherProtocolOrAnOlderTlsAreRefused) {
  EXPECT_NE(answer_to([](SSL_CTX*) {}).code, ec::none); // no ALPN
  EXPECT_NE(answer_to([](SSL_CTX* c) {
              SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>("\x08http/1.1"), 9);
            }).code,
            ec::none);
  auto old = answer_to([](SSL_CTX* c) {
    SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION);
    SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>("\x08waggle/1"), 9);
  });
  EXPECT_EQ(old.code, ec::wrong_version) << to_string(old);
}

TEST(TlsChannel, APeerThatDoesNotEncryptIsNamed) {
  two_ends talk;
  ASSERT_TRUE(waits(talk.ann.begin()));
  tls_channel plain{tls_context{*talk.bob_is, page_certificate::make(), false}, false};
  talk.carry(talk.ann, plain);
  EXPECT_EQ(plain.begin().error().detail, not_encrypted);
  talk.carry(plain, talk.ann);
  EXPECT_EQ(talk.ann.begin().error().detail, encrypted_here);
}

TEST(TlsChannel, AnAnswerThatIsNoTlsEndsTheDial) {
  two_ends talk;
  ASSERT_TRUE(waits(talk.ann.begin()));
  talk.ann.arrived(bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n"));
  auto outcome = talk.ann.begin();
  EXPECT_EQ(outcome.error().code, ec::malformed);
  EXPECT_THAT(outcome.error().detail, HasSubstr("does not speak TLS 1.3"));
}

TEST(TlsChannel, AReaderOfPagesIsNoPeer) {
  auto bob_is = identity::from_seed(2);
  tls_channel reader{tls_context::of_reader(), true};
  tls_channel bob{tls_context{*bob_is, page_certificate::make()}, false};
  auto carry = [](tls_channel& from, tls_channel& to) { to.arrived(from.take_output()); };
  ASSERT_TRUE(waits(reader.begin()));
  carry(reader, bob);
  ASSERT_TRUE(ready(bob.begin()));
  EXPECT_TRUE(bob.is_for_pages());
  carry(bob, reader);
  ASSERT_TRUE(ready(reader.begin()));
  ASSERT_TRUE(reader.write(bytes_of("GET")));
  carry(reader, bob);
  EXPECT_EQ(read_all(bob), "GET");
  EXPECT_EQ(bob.binding(), reader.binding());
  bob.close();
  carry(bob, reader);
  std::vector<std::byte> room(100);
  EXPECT_EQ(reader.read(room).error().code, ec::peer_lost);
}

/// Mutations of a client's first message: what it says about lengths is believed nowhere.
TEST(TlsChannel, BentFirstMessagesAreSurvived) {
  auto bob_is = identity::from_seed(2);
  tls_context bob_has{*bob_is, page_certificate::make()};
  tls_context reader = tls_context::of_reader();
  random_source random{11};
  for (int i = 0; i < 2'000; ++i) {
    tls_channel client{reader, true};
    ASSERT_TRUE(waits(client.begin()));
    auto hello = client.take_output();
    for (auto n = 1 + random.next() % 4; n > 0; --n)
      hello[1 + random.next() % (hello.size() - 1)] = static_cast<std::byte>(random.next());
    if (i % 5 == 0)
      hello.resize(1 + random.next() % hello.size());
    tls_channel bob{bob_has, false};
    bob.arrived(hello);
    std::vector<std::byte> room(100);
    if (!ready(bob.begin()))
      continue;
    auto read = bob.read(room);
    EXPECT_TRUE(!read || *read == 0);
  }
}

TEST(TlsChannel, APeerThatChangesKeysWithoutEndIsRefused) {
  two_ends talk;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_client_method()),
                                                       SSL_CTX_free};
  SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>("\x08waggle/1"), 9);
  std::unique_ptr<SSL, void (*)(SSL*)> client{SSL_new(context.get()), SSL_free};
  auto* to_bob = BIO_new(BIO_s_mem());
  auto* from_bob = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), from_bob, to_bob);
  SSL_set_connect_state(client.get());
  auto carry = [&] {
    std::vector<std::byte> bytes(BIO_ctrl_pending(to_bob));
    if (!bytes.empty())
      BIO_read(to_bob, bytes.data(), static_cast<int>(bytes.size()));
    talk.bob.arrived(bytes);
  };
  (void)SSL_do_handshake(client.get());
  carry();
  ASSERT_TRUE(ready(talk.bob.begin()));
  auto answer = talk.bob.take_output();
  BIO_write(from_bob, answer.data(), static_cast<int>(answer.size()));
  ASSERT_EQ(SSL_do_handshake(client.get()), 1);
  std::vector<std::byte> room(100);
  int updates = 0;
  for (; updates < 1000; ++updates) {
    ASSERT_EQ(SSL_key_update(client.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    ASSERT_EQ(SSL_write(client.get(), "x", 1), 1);
    carry();
    if (auto read = talk.bob.read(room); !read) {
      EXPECT_EQ(read.error().code, ec::protocol_violation);
      break;
    }
  }
  EXPECT_LT(updates, 100);
}

} // namespace
} // namespace waggle::net
