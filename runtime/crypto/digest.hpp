#pragma once

#include <memory>
#include <string_view>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

struct evp_md_ctx_st; // OpenSSL's

namespace waggle {

/// SHA-256 over bytes that are added in pieces. Not thread-safe.
class sha256_stream {
public:
  sha256_stream();

  sha256_stream& add(byte_span bytes);
  sha256_stream& add(std::string_view bytes) { return add(as_byte_span(bytes)); }
  /// Ends the stream; it must not be used afterwards.
  digest finish();

private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

digest sha256(byte_span bytes);
/// SHA-256 of the bytes [at, at + bytes) of `from`, read in pieces. Fails with ec::io_error.
result<digest> sha256_of(const byte_source& from, std::uint64_t at, std::uint64_t bytes);
inline digest sha256(std::string_view bytes) {
  return sha256(as_byte_span(bytes));
}

} // namespace waggle
