#include "runtime/crypto/poly1305.hpp"

#include <openssl/evp.h>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

struct free_mac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
};
struct free_context {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

} // namespace

struct poly1305::impl {
  std::unique_ptr<EVP_MAC, free_mac> mac{EVP_MAC_fetch(nullptr, "POLY1305", nullptr)};
  std::unique_ptr<EVP_MAC_CTX, free_context> context{mac ? EVP_MAC_CTX_new(mac.get()) : nullptr};
};

poly1305::poly1305(const digest& key) : key_(key), impl_(std::make_unique<impl>()) {
  WAGGLE_CHECK(impl_->context, "OpenSSL offers no Poly1305");
}

poly1305::~poly1305() = default;

void poly1305::begin() {
  auto key = reinterpret_cast<const unsigned char*>(key_.bytes.data());
  WAGGLE_CHECK(EVP_MAC_init(impl_->context.get(), key, digest::size, nullptr) == 1, "Poly1305");
}

void poly1305::add(byte_span bytes) {
  auto data = reinterpret_cast<const unsigned char*>(bytes.data());
  WAGGLE_CHECK(EVP_MAC_update(impl_->context.get(), data, bytes.size()) == 1, "Poly1305");
}

poly1305::tag poly1305::finish() {
  tag out;
  std::size_t size = 0;
  WAGGLE_CHECK(EVP_MAC_final(impl_->context.get(), reinterpret_cast<unsigned char*>(out.data()),
                             &size, out.size())
                   == 1
                 && size == out.size(),
               "Poly1305");
  return out;
}

} // namespace waggle
