#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

struct evp_pkey_st; // OpenSSL's

namespace waggle {

/// Ed25519 signature (RFC 8032).
using signature = byte_id<struct signature_tag, 64>;

/// A peer's id: the SHA-256 of its public key.
peer_id peer_id_of(const public_key& key);

/// A peer's Ed25519 key pair. Immutable and thread-safe.
class identity {
public:
  /// A new key pair from the operating system's randomness.
  static std::shared_ptr<const identity> generate();
  /// The key pair that `seed` determines: for simulations and tests.
  static std::shared_ptr<const identity> from_seed(std::uint64_t seed);
  /// Reads the PEM (PKCS #8) file at `path`. Refuses one that other users can read.
  static result<std::shared_ptr<const identity>> load(const std::filesystem::path& path);
  /// Reads `path`, or creates it (mode 0600, atomically, with its parent directories).
  static result<std::shared_ptr<const identity>> load_or_create(const std::filesystem::path& path);

  [[nodiscard]] const public_key& key() const { return key_; }
  [[nodiscard]] const peer_id& id() const { return id_; }
  [[nodiscard]] signature sign(byte_span message) const;
  [[nodiscard]] signature sign(std::string_view message) const {
    return sign(as_byte_span(message));
  }
  /// For a certificate of this key.
  [[nodiscard]] evp_pkey_st* pair() const { return pair_.get(); }
  /// Writes the key pair atomically, mode 0600. Refuses to replace an existing file.
  [[nodiscard]] status save(const std::filesystem::path& path) const;

private:
  explicit identity(std::shared_ptr<evp_pkey_st> pair);

  std::shared_ptr<evp_pkey_st> pair_;
  public_key key_;
  peer_id id_;
};

/// Checks signatures. Implementations are thread-safe.
class signature_verifier {
public:
  virtual ~signature_verifier() = default;
  [[nodiscard]] virtual bool verify(const public_key& key, byte_span message,
                                    const signature& by) const = 0;
};

/// Verifies every signature each time, about 0.1 ms each.
std::shared_ptr<const signature_verifier> make_plain_verifier();

/// Remembers the digests of the last `entries_max` triples (key, message, signature) that verified.
std::shared_ptr<const signature_verifier> make_caching_verifier(std::size_t entries_max);

} // namespace waggle
