#include "runtime/crypto/identity.hpp"

#include <mutex>
#include <set>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "runtime/core/check.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

template <auto Free>
struct freed {
  template <class Object>
  void operator()(Object* object) const {
    Free(object);
  }
};
using key_ptr = std::unique_ptr<EVP_PKEY, freed<EVP_PKEY_free>>;
using context_ptr = std::unique_ptr<EVP_MD_CTX, freed<EVP_MD_CTX_free>>;
using bio_ptr = std::unique_ptr<BIO, freed<BIO_free>>;

const unsigned char* as_uchar(byte_span bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::string to_pem(EVP_PKEY* key) {
  bio_ptr bio{BIO_new(BIO_s_mem())};
  WAGGLE_CHECK(
    bio && PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
    "cannot write a key to memory");
  char* data = nullptr;
  auto size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

bool verify_once(const public_key& key, byte_span message, const signature& by) {
  key_ptr parsed{
    EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_uchar(key.view()), public_key::size)};
  context_ptr context{EVP_MD_CTX_new()};
  return parsed && context
         && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, parsed.get()) == 1
         && EVP_DigestVerify(context.get(), as_uchar(by.view()), signature::size, as_uchar(message),
                             message.size())
              == 1;
}

class plain_verifier final : public signature_verifier {
public:
  [[nodiscard]] bool verify(const public_key& key, byte_span message,
                            const signature& by) const override {
    return verify_once(key, message, by);
  }
};

/// Two generations: when the young one is full, it replaces the old one.
class caching_verifier final : public signature_verifier {
public:
  explicit caching_verifier(std::size_t entries_max)
    : half_(std::max<std::size_t>(1, entries_max / 2)) {}

  [[nodiscard]] bool verify(const public_key& key, byte_span message,
                            const signature& by) const override {
    auto name = sha256_stream{}.add(key.view()).add(by.view()).add(message).finish();
    {
      std::lock_guard lock{mutex_};
      if (young_.contains(name) || old_.contains(name))
        return true;
    }
    if (!verify_once(key, message, by))
      return false;
    std::lock_guard lock{mutex_};
    if (young_.size() >= half_)
      old_ = std::exchange(young_, {});
    young_.insert(name);
    return true;
  }

private:
  std::size_t half_;
  mutable std::mutex mutex_;
  mutable std::set<digest> young_;
  mutable std::set<digest> old_;
};

} // namespace

identity::identity(std::shared_ptr<EVP_PKEY> pair) : pair_(std::move(pair)) {
  std::size_t size = public_key::size;
  WAGGLE_CHECK(EVP_PKEY_get_raw_public_key(
                 pair_.get(), reinterpret_cast<unsigned char*>(key_.bytes.data()), &size)
                 == 1,
               "no raw public key");
  id_ = peer_id_of(key_);
}

peer_id peer_id_of(const public_key& key) {
  return {sha256(key.view()).bytes};
}

std::shared_ptr<const identity> identity::generate() {
  key_ptr key{EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")};
  WAGGLE_CHECK(key != nullptr, "OpenSSL makes no Ed25519 key");
  return std::shared_ptr<const identity>{new identity{std::move(key)}};
}

std::shared_ptr<const identity> identity::from_seed(std::uint64_t seed) {
  std::array<std::byte, 32> secret;
  random_source{seed}.fork("identity").fill(secret);
  key_ptr key{
    EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, as_uchar(secret), secret.size())};
  WAGGLE_CHECK(key != nullptr, "OpenSSL takes no Ed25519 secret");
  return std::shared_ptr<const identity>{new identity{std::move(key)}};
}

result<std::shared_ptr<const identity>> identity::load(const std::filesystem::path& path) {
  auto pem = read_private(path, 16_KiB, "the identity file "); // larger than any key file
  if (!pem)
    return pem.error();
  bio_ptr bio{BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size()))};
  key_ptr key{PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr)};
  if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
    return failure{ec::bad_config,
                   "'" + path.string()
                     + "' is not an Ed25519 private key in PEM; move it away, or make "
                       "one with `waggle id --identity FILE`"};
  return std::shared_ptr<const identity>{new identity{std::move(key)}};
}

status identity::save(const std::filesystem::path& path) const {
  return write_private(path, to_pem(pair_.get()));
}

result<std::shared_ptr<const identity>>
identity::load_or_create(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error))
    return load(path);
  auto fresh = generate();
  if (auto saved = fresh->save(path); !saved.ok())
    return saved.error();
  return fresh;
}

signature identity::sign(byte_span message) const {
  signature out;
  std::size_t size = signature::size;
  context_ptr context{EVP_MD_CTX_new()};
  WAGGLE_CHECK(
    context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_.get()) == 1
      && EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.bytes.data()), &size,
                        as_uchar(message), message.size())
           == 1,
    "Ed25519 signing failed");
  return out;
}

std::shared_ptr<const signature_verifier> make_plain_verifier() {
  return std::make_shared<plain_verifier>();
}

std::shared_ptr<const signature_verifier> make_caching_verifier(std::size_t entries_max) {
  return std::make_shared<caching_verifier>(entries_max);
}

} // namespace waggle
