#pragma once

#include <array>
#include <memory>

#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"

struct evp_mac_ctx_st; // OpenSSL's

namespace waggle {

/// Poly1305 tags of any number of byte sequences under one key (RFC 8439, section 2.5). Tags under
/// one key may be shown only to those who may know the key. Not thread-safe.
class poly1305 {
public:
  using tag = std::array<std::byte, 16>;

  explicit poly1305(const digest& key);

  /// Begins the next sequence. To be called before `add` and after `finish`.
  void begin();
  void add(byte_span bytes);
  tag finish();

private:
  digest key_;
  std::unique_ptr<evp_mac_ctx_st, void (*)(evp_mac_ctx_st*)> context_;
};

} // namespace waggle
