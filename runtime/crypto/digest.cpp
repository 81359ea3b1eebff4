#include "runtime/crypto/digest.hpp"

#include <openssl/evp.h>

#include "runtime/core/check.hpp"

namespace waggle {

sha256_stream::sha256_stream() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  WAGGLE_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
               "OpenSSL offers no SHA-256");
}

sha256_stream& sha256_stream::add(byte_span bytes) {
  WAGGLE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
  return *this;
}

digest sha256_stream::finish() {
  digest out;
  unsigned size = 0;
  WAGGLE_CHECK(
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(out.bytes.data()), &size)
        == 1
      && size == digest::size,
    "SHA-256");
  return out;
}

digest sha256(byte_span bytes) {
  return sha256_stream{}.add(bytes).finish();
}

result<digest> sha256_of(const byte_source& from, std::uint64_t at, std::uint64_t bytes) {
  sha256_stream hash;
  auto read = for_each_piece(from, at, bytes, [&](byte_span piece) -> status {
    hash.add(piece);
    return done{};
  });
  if (!read)
    return read.error();
  return hash.finish();
}

} // namespace waggle
