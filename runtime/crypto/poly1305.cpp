#include "runtime/crypto/poly1305.hpp"

#include <openssl/evp.h>

#include "runtime/core/check.hpp"

namespace waggle {

poly1305::poly1305(const digest& key) : key_(key), context_(nullptr, &EVP_MAC_CTX_free) {
  auto* mac = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
  WAGGLE_CHECK(mac, "OpenSSL offers no Poly1305");
  context_.reset(EVP_MAC_CTX_new(mac)); // refers to `mac`, too
  EVP_MAC_free(mac);
  WAGGLE_CHECK(context_, "Poly1305");
}

void poly1305::begin() {
  auto key = reinterpret_cast<const unsigned char*>(key_.bytes.data());
  WAGGLE_CHECK(EVP_MAC_init(context_.get(), key, digest::size, nullptr) == 1, "Poly1305");
}

void poly1305::add(byte_span bytes) {
  auto data = reinterpret_cast<const unsigned char*>(bytes.data());
  WAGGLE_CHECK(EVP_MAC_update(context_.get(), data, bytes.size()) == 1, "Poly1305");
}

poly1305::tag poly1305::finish() {
  tag out;
  std::size_t size = 0;
  WAGGLE_CHECK(
    EVP_MAC_final(context_.get(), reinterpret_cast<unsigned char*>(out.data()), &size, out.size())
        == 1
      && size == out.size(),
    "Poly1305");
  return out;
}

} // namespace waggle
