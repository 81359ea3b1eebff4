#include "runtime/net/tls_channel.hpp"

#include <cstring>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "runtime/core/check.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle::net {

namespace {

/// TLS 1.3 allows 2^24.5 full records of AES-GCM under one key, 400 GB (RFC 8446, 5.5).
constexpr std::uint64_t bytes_of_a_key = std::uint64_t{64} << 30U;
/// Of a peer, besides those that it needs for the bytes that it sends.
constexpr std::uint64_t key_updates_max = 16;

/// A name as ALPN writes it: behind its length.
std::string offer(std::string_view protocol) {
  return std::string(1, static_cast<char>(protocol.size())) + std::string{protocol};
}
const std::string link_offer = offer(tls_protocol);
const std::string page_offer = offer("http/1.1");

/// `of`: what is offered here.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* in, unsigned in_size, void* of) {
  const auto& offered = *static_cast<const std::string*>(of);
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size,
                            reinterpret_cast<const unsigned char*>(offered.data()),
                            static_cast<unsigned>(offered.size()), in, in_size)
      != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

/// Self-signed, without a name: it carries the key, and what proves something is inside the
/// channel.
std::shared_ptr<X509> certificate_of(EVP_PKEY* pair) {
  std::shared_ptr<X509> made{X509_new(), X509_free};
  bool good = made && X509_set_version(made.get(), X509_VERSION_3) == 1
              && ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1) == 1
              && ASN1_TIME_set_string_X509(X509_getm_notBefore(made.get()), "20200101000000Z") == 1
              && ASN1_TIME_set_string_X509(X509_getm_notAfter(made.get()), "99991231235959Z") == 1
              && X509_set_pubkey(made.get(), pair) == 1
              && X509_sign(made.get(), pair, nullptr) != 0;
  WAGGLE_CHECK(good, "OpenSSL makes no certificate");
  return made;
}

} // namespace

/// What OpenSSL calls instead of a socket.
struct channel_bytes {
  static int read(BIO* bio, char* to, std::size_t size, std::size_t* done) {
    auto* of = static_cast<tls_channel*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    bool kept = of->begin_ < of->input_.size();
    auto from = kept ? byte_span{of->input_}.subspan(of->begin_) : of->arrived_;
    *done = std::min(size, from.size());
    if (*done == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    std::memcpy(to, from.data(), *done);
    if (kept)
      of->begin_ += *done;
    else
      of->arrived_ = from.subspan(*done);
    return 1;
  }
  static int write(BIO* bio, const char* from, std::size_t size, std::size_t* done) {
    auto* of = static_cast<tls_channel*>(BIO_get_data(bio));
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    of->output_.insert(of->output_.end(), bytes, bytes + size);
    *done = size;
    return 1;
  }
  static long control(BIO*, int what, long, void*) { return what == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO* make(tls_channel* of) {
    static BIO_METHOD* const method = [] {
      auto* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "waggle");
      WAGGLE_CHECK(made != nullptr && BIO_meth_set_read_ex(made, read) == 1
                     && BIO_meth_set_write_ex(made, write) == 1
                     && BIO_meth_set_ctrl(made, control) == 1,
                   "OpenSSL takes no BIO");
      return made;
    }();
    auto* bio = BIO_new(method);
    WAGGLE_CHECK(bio != nullptr, "OpenSSL makes no BIO");
    BIO_set_data(bio, of);
    BIO_set_init(bio, 1);
    return bio;
  }

  static void on_message(int written, int, int type, const void* bytes, std::size_t size, SSL*,
                         void* of) {
    if (written == 0 && type == SSL3_RT_HANDSHAKE && size > 0
        && *static_cast<const unsigned char*>(bytes) == SSL3_MT_KEY_UPDATE)
      ++static_cast<tls_channel*>(of)->key_updates_;
  }
};

struct tls_context::choice {
  bool links;
  std::shared_ptr<SSL_CTX> pages; // null: none

  /// A client's first message is complete. What it asks for decides which certificate it gets.
  static int on_hello(SSL* ssl, int* alert, void* of) {
    const auto* self = static_cast<const choice*>(of);
    const unsigned char* data = nullptr;
    std::size_t size = 0;
    // Names that only contain ours are refused when the protocol is chosen.
    bool peer = SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation,
                                          &data, &size)
                  == 1
                && std::string_view{reinterpret_cast<const char*>(data), size}.find(link_offer)
                     != std::string_view::npos;
    if (peer && !self->links) {
      *alert = SSL_AD_INSUFFICIENT_SECURITY;
      return SSL_CLIENT_HELLO_ERROR;
    }
    if (!peer && self->pages) {
      SSL_set_SSL_CTX(ssl, self->pages.get());
      (void)SSL_set1_groups_list(ssl, "X25519:P-256");
    }
    return SSL_CLIENT_HELLO_SUCCESS;
  }
};

namespace {

/// Offers one protocol, with a certificate unless these are null.
std::shared_ptr<SSL_CTX> context_with(X509* certificate, EVP_PKEY* pair, STACK_OF(X509) * chain,
                                      const std::string& offered) {
  std::shared_ptr<SSL_CTX> made{SSL_CTX_new(TLS_method()), SSL_CTX_free};
  auto* c = made.get();
  bool good =
    c != nullptr && SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1
    && SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:"
                                   "TLS_AES_256_GCM_SHA384")
         == 1
    && SSL_CTX_set1_groups_list(c, "X25519") == 1
    && (certificate == nullptr || SSL_CTX_use_cert_and_key(c, certificate, pair, chain, 1) == 1)
    && SSL_CTX_set_num_tickets(c, 0) == 1
    && SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>(offered.data()),
                               static_cast<unsigned>(offered.size()))
         == 0;
  WAGGLE_CHECK(good, "OpenSSL lacks what TLS 1.3 needs");
  SSL_CTX_set_alpn_select_cb(c, choose_protocol, const_cast<std::string*>(&offered));
  SSL_CTX_set_verify(c, SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS); // an idle link holds none
  SSL_CTX_set_msg_callback(c, channel_bytes::on_message);
  return made;
}

} // namespace

tls_context::tls_context(const identity& self, std::shared_ptr<const page_certificate> pages,
                         bool links)
  : context_(context_with(certificate_of(self.pair()).get(), self.pair(), nullptr, link_offer)),
    choice_(std::make_shared<const choice>(choice{
      links, pages ? context_with(pages->certificate(), pages->pair(), pages->chain(), page_offer)
                   : nullptr})) {
  SSL_CTX_set_client_hello_cb(context_.get(), choice::on_hello, const_cast<choice*>(choice_.get()));
}

tls_context tls_context::of_reader() {
  tls_context made;
  made.context_ = context_with(nullptr, nullptr, nullptr, page_offer);
  return made;
}

tls_channel::tls_channel(const tls_context& context, bool dialled, const std::string& host)
  : context_(context), ssl_(SSL_new(context.get()), SSL_free), dialled_(dialled) {
  WAGGLE_CHECK(ssl_ != nullptr, "OpenSSL is out of memory");
  auto* bio = channel_bytes::make(this);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  if (dialled_)
    SSL_set_connect_state(ssl_.get());
  else
    SSL_set_accept_state(ssl_.get());
  if (dialled_ && !host.empty())
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
}

tls_channel::~tls_channel() = default;

void tls_channel::arrived(byte_span bytes) {
  if (begin_ == input_.size()) {
    input_.clear();
    begin_ = 0;
  }
  input_.insert(input_.end(), bytes.begin(), bytes.end());
}

result<bool> tls_channel::begin() {
  ERR_clear_error();
  if (dialled_) {
    auto outcome = SSL_connect(ssl_.get());
    if (outcome != 1 && SSL_get_error(ssl_.get(), outcome) == SSL_ERROR_WANT_READ)
      return false;
    if (outcome != 1)
      return failed();
    if (is_for_pages() && context_.choice_)
      return failure{ec::wrong_version, "the server there speaks TLS, but is not a waggle peer"};
    return true;
  }
  // Not for early data, which nobody is offered, but to write before the dialler has answered.
  std::size_t none = 0;
  auto outcome = SSL_read_early_data(ssl_.get(), nullptr, 0, &none);
  if (outcome == SSL_READ_EARLY_DATA_ERROR) {
    if (SSL_get_error(ssl_.get(), 0) == SSL_ERROR_WANT_READ)
      return false;
    return failed();
  }
  if (outcome != SSL_READ_EARLY_DATA_FINISH || (is_for_pages() && !context_.choice_->pages))
    return failure{ec::wrong_version,
                   "a TLS client that does not ask for " + std::string{tls_protocol}};
  return true;
}

result<std::size_t> tls_channel::read(std::span<std::byte> room, byte_span arrived) {
  arrived_ = arrived;
  auto bytes = decrypt(room);
  if (auto rest = std::exchange(arrived_, {}); !rest.empty())
    this->arrived(rest);
  if (begin_ == input_.size()) { // an idle link holds no buffer
    input_ = {};
    begin_ = 0;
  }
  return bytes;
}

result<std::size_t> tls_channel::decrypt(std::span<std::byte> room) {
  ERR_clear_error();
  std::size_t all = 0;
  while (all < room.size()) {
    std::size_t bytes = 0;
    auto outcome = SSL_read_ex(ssl_.get(), room.data() + all, room.size() - all, &bytes);
    if (outcome != 1) {
      auto why = SSL_get_error(ssl_.get(), outcome);
      if (all == 0 && why == SSL_ERROR_ZERO_RETURN)
        return failure{ec::peer_lost, "the connection was closed"};
      if (all == 0 && why != SSL_ERROR_WANT_READ)
        return failed();
      break;
    }
    all += bytes;
  }
  received_ += all;
  if (key_updates_ > key_updates_max + 2 * (received_ / bytes_of_a_key))
    return failure{ec::protocol_violation, "the peer changes its keys without need"};
  return all;
}

status tls_channel::write(byte_span bytes) {
  ERR_clear_error();
  if (bytes.size() > record_bytes) // not again for each record
    output_.reserve(output_.size() + bytes.size() + bytes.size() / 512);
  std::size_t done_bytes = 0;
  bool early = SSL_get_state(ssl_.get()) == TLS_ST_EARLY_DATA;
  auto outcome = early ? SSL_write_early_data(ssl_.get(), bytes.data(), bytes.size(), &done_bytes)
                       : SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &done_bytes);
  if (outcome != 1)
    return failed();
  written_ += bytes.size();
  if (!early && written_ > bytes_of_a_key) {
    written_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
      return failed();
  }
  return done{};
}

void tls_channel::close() {
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
}

bool tls_channel::is_for_pages() const {
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &chosen, &size);
  return std::string_view{reinterpret_cast<const char*>(chosen), size} != tls_protocol;
}

std::string tls_channel::binding() const {
  constexpr std::string_view label = "EXPORTER-Channel-Binding";
  std::string out(32, '\0');
  WAGGLE_CHECK(SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(out.data()),
                                          out.size(), label.data(), label.size(), nullptr, 0, 0)
                 == 1,
               "the exporter of a TLS channel");
  return out;
}

std::string tls_channel::peer_fingerprint() const {
  auto* certificate = SSL_get0_peer_certificate(ssl_.get());
  WAGGLE_CHECK(certificate != nullptr, "the certificate of a TLS channel");
  return fingerprint_of(certificate);
}

std::optional<public_key> tls_channel::peer_key() const {
  auto* certificate = SSL_get0_peer_certificate(ssl_.get());
  auto* pair = certificate != nullptr ? X509_get0_pubkey(certificate) : nullptr;
  public_key key;
  std::size_t size = public_key::size;
  if (pair == nullptr || EVP_PKEY_get_id(pair) != EVP_PKEY_ED25519
      || EVP_PKEY_get_raw_public_key(pair, reinterpret_cast<unsigned char*>(key.bytes.data()),
                                     &size)
           != 1
      || size != public_key::size)
    return std::nullopt;
  return key;
}

failure tls_channel::failed() const {
  auto code = ERR_peek_error();
  if (code != 0 && ERR_GET_REASON(code) == SSL_R_TLSV1_ALERT_INSUFFICIENT_SECURITY)
    return {ec::wrong_version, std::string{encrypted_here}};
  if (code != 0 && ERR_GET_REASON(code) == SSL_R_CALLBACK_FAILED)
    return {ec::wrong_version, std::string{not_encrypted}};
  if (code != 0 && ERR_GET_REASON(code) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL)
    return {ec::wrong_version, "the server there speaks TLS, but is not a waggle peer"};
  if (code != 0
      && (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER
          || ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST))
    return {ec::malformed, "the other end does not speak TLS 1.3"};
  if (code != 0 && ERR_GET_REASON(code) == SSL_R_UNSUPPORTED_PROTOCOL)
    return {ec::wrong_version, "the other end speaks an older TLS than 1.3"};
  const char* text = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return {ec::protocol_violation,
          std::string{"TLS failed: "} + (text != nullptr ? text : "the channel is broken")};
}

} // namespace waggle::net
