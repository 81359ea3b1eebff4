#include "runtime/crypto/digest.hpp"

#include <openssl/evp.h>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

struct free_context {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

} // namespace

struct sha256_stream::impl {
  std::unique_ptr<EVP_MD_CTX, free_context> context{EVP_MD_CTX_new()};
};

sha256_stream::sha256_stream() : impl_(std::make_unique<impl>()) {
  WAGGLE_CHECK(impl_->context
                 && EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) == 1,
               "OpenSSL offers no SHA-256");
}

sha256_stream::~sha256_stream() = default;

sha256_stream& sha256_stream::add(byte_span bytes) {
  WAGGLE_CHECK(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
  return *this;
}

digest sha256_stream::finish() {
  digest out;
  unsigned size = 0;
  WAGGLE_CHECK(EVP_DigestFinal_ex(impl_->context.get(),
                                  reinterpret_cast<unsigned char*>(out.bytes.data()), &size)
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
