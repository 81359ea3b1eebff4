#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/core/result.hpp"

struct evp_pkey_st; // OpenSSL's
struct stack_st_X509;
struct x509_st;

namespace waggle {

/// A certificate's SHA-256, as browsers show it: "AB:CD:…".
[[nodiscard]] std::string fingerprint_of(const x509_st* certificate);

/// What a peer shows to browsers and scrapers that read its pages over HTTPS: a self-signed
/// certificate of a P-256 key, because browsers know no Ed25519. Immutable and thread-safe.
class page_certificate {
public:
  /// A new one, for the names `waggle` and `localhost`. It has no end that anybody lives to see.
  static std::shared_ptr<const page_certificate> make();
  /// Reads a PEM file with a private key (P-256, P-384, Ed25519 or RSA of 2048 to 4096 bits), its
  /// certificate and, after it, those that sign it, if any. Refuses one that other users can read,
  /// and what TLS does not take.
  static result<std::shared_ptr<const page_certificate>> load(const std::filesystem::path& path);
  /// Reads `path`, or creates it (mode 0600, atomically, with its parent directories).
  static result<std::shared_ptr<const page_certificate>>
  load_or_create(const std::filesystem::path& path);

  [[nodiscard]] std::string fingerprint() const { return fingerprint_of(certificate_.get()); }
  [[nodiscard]] evp_pkey_st* pair() const { return pair_.get(); }
  [[nodiscard]] x509_st* certificate() const { return certificate_.get(); }
  /// The certificates that sign it; null if there is none.
  [[nodiscard]] stack_st_X509* chain() const { return chain_.get(); }

private:
  page_certificate(std::shared_ptr<evp_pkey_st> pair, std::shared_ptr<x509_st> certificate,
                   std::shared_ptr<stack_st_X509> chain = nullptr)
    : pair_(std::move(pair)), certificate_(std::move(certificate)), chain_(std::move(chain)) {}

  [[nodiscard]] std::string to_pem() const;

  std::shared_ptr<evp_pkey_st> pair_;
  std::shared_ptr<x509_st> certificate_;
  std::shared_ptr<stack_st_X509> chain_;
};

/// Its file in a data folder.
constexpr const char* page_certificate_file = "pages.pem";

} // namespace waggle
