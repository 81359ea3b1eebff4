#include "runtime/crypto/page_certificate.hpp"

#include <array>
#include <cstdio>

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "runtime/core/bytes.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/private_file.hpp"

namespace waggle {

namespace {

std::shared_ptr<BIO> memory_of(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

/// No passphrase is asked for.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

bool extend(X509* certificate, int what, const char* text) {
  std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> made{
    X509V3_EXT_conf_nid(nullptr, nullptr, what, text), X509_EXTENSION_free};
  return made && X509_add_ext(certificate, made.get(), -1) == 1;
}

/// Browsers refuse two certificates of one name with the same number.
bool number(X509* certificate) {
  std::unique_ptr<BIGNUM, decltype(&BN_free)> any{BN_new(), BN_free};
  return any && BN_rand(any.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1
         && BN_to_ASN1_INTEGER(any.get(), X509_get_serialNumber(certificate)) != nullptr;
}

/// Those that browsers know, and that cost a handshake little.
bool is_of_known_kind(const EVP_PKEY* pair) {
  std::array<char, 32> group{};
  switch (EVP_PKEY_get_id(pair)) {
    case EVP_PKEY_ED25519:
      return true;
    case EVP_PKEY_RSA:
      return EVP_PKEY_get_bits(pair) >= 2048 && EVP_PKEY_get_bits(pair) <= 4096;
    case EVP_PKEY_EC:
      return EVP_PKEY_get_group_name(pair, group.data(), group.size(), nullptr) == 1
             && (std::string_view{group.data()} == SN_X9_62_prime256v1
                 || std::string_view{group.data()} == SN_secp384r1);
    default:
      return false;
  }
}

/// All certificates of a file; null if one is broken.
std::shared_ptr<STACK_OF(X509)> certificates_in(std::string_view pem) {
  std::shared_ptr<STACK_OF(X509)> all{sk_X509_new_null(),
                                      [](STACK_OF(X509) * of) { sk_X509_pop_free(of, X509_free); }};
  auto bio = memory_of(pem);
  ERR_clear_error();
  while (auto* next = PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr))
    if (sk_X509_push(all.get(), next) == 0)
      X509_free(next);
  bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  return ended ? all : nullptr;
}

bool tls_takes(X509* certificate, EVP_PKEY* pair, STACK_OF(X509) * chain) {
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tried{SSL_CTX_new(TLS_method()), SSL_CTX_free};
  return tried && SSL_CTX_use_cert_and_key(tried.get(), certificate, pair, chain, 1) == 1;
}

} // namespace

std::shared_ptr<const page_certificate> page_certificate::make() {
  std::shared_ptr<EVP_PKEY> pair{EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), EVP_PKEY_free};
  std::shared_ptr<X509> made{X509_new(), X509_free};
  WAGGLE_CHECK(pair && made, "OpenSSL makes no P-256 key");
  auto* c = made.get();
  auto* name = X509_get_subject_name(c);
  bool good =
    X509_set_version(c, X509_VERSION_3) == 1 && number(c)
    && ASN1_TIME_set_string_X509(X509_getm_notBefore(c), "20200101000000Z") == 1
    && ASN1_TIME_set_string_X509(X509_getm_notAfter(c), "99991231235959Z") == 1
    && X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                  reinterpret_cast<const unsigned char*>("waggle"), -1, -1, 0)
         == 1
    && X509_set_issuer_name(c, name) == 1 && X509_set_pubkey(c, pair.get()) == 1
    && extend(c, NID_subject_alt_name, "DNS:waggle,DNS:localhost,IP:127.0.0.1,IP:::1")
    && extend(c, NID_basic_constraints, "critical,CA:FALSE")
    && extend(c, NID_ext_key_usage, "serverAuth") && X509_sign(c, pair.get(), EVP_sha256()) != 0;
  WAGGLE_CHECK(good, "OpenSSL makes no certificate");
  return std::shared_ptr<const page_certificate>{
    new page_certificate{std::move(pair), std::move(made)}};
}

result<std::shared_ptr<const page_certificate>>
page_certificate::load(const std::filesystem::path& path) {
  auto pem = read_private(path, 64_KiB); // larger than a key and its certificate
  if (!pem)
    return pem.error();
  std::shared_ptr<EVP_PKEY> pair{
    PEM_read_bio_PrivateKey(memory_of(*pem).get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free};
  auto chain = certificates_in(*pem);
  std::shared_ptr<X509> found{chain ? sk_X509_shift(chain.get()) : nullptr, X509_free};
  bool good = pair && found && is_of_known_kind(pair.get())
              && tls_takes(found.get(), pair.get(), chain.get());
  ERR_clear_error();
  if (!good)
    return failure{ec::bad_config,
                   "'" + path.string()
                     + "' is not a private key (P-256, P-384, Ed25519, or RSA of 2048 to 4096 "
                       "bits) with its certificate, in PEM, that TLS takes: replace it, or move it "
                       "away, and the next start makes one"};
  return std::shared_ptr<const page_certificate>{
    new page_certificate{std::move(pair), std::move(found), std::move(chain)}};
}

result<std::shared_ptr<const page_certificate>>
page_certificate::load_or_create(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error))
    return load(path);
  auto saved = write_private(path, make()->to_pem());
  if (!saved.ok() && !std::filesystem::exists(path, error)) // no other process was faster
    return saved.error();
  return load(path);
}

std::string fingerprint_of(const x509_st* certificate) {
  std::array<unsigned char, 32> hash{};
  unsigned size = 0;
  WAGGLE_CHECK(X509_digest(certificate, EVP_sha256(), hash.data(), &size) == 1
                 && size == hash.size(),
               "OpenSSL hashes no certificate");
  std::string out;
  for (auto byte : hash) {
    char text[4];
    std::snprintf(text, sizeof text, "%s%02X", out.empty() ? "" : ":", byte);
    out += text;
  }
  return out;
}

std::string page_certificate::to_pem() const {
  std::shared_ptr<BIO> bio{BIO_new(BIO_s_mem()), BIO_free};
  WAGGLE_CHECK(
    bio
      && PEM_write_bio_PrivateKey(bio.get(), pair_.get(), nullptr, nullptr, 0, nullptr, nullptr)
           == 1
      && PEM_write_bio_X509(bio.get(), certificate_.get()) == 1,
    "cannot write a key to memory");
  char* data = nullptr;
  auto size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

} // namespace waggle
