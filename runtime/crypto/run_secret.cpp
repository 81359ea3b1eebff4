#include "runtime/crypto/run_secret.hpp"

#include <cstring>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

// 4 to 10 ms, once for a process.
constexpr int derivation_rounds = 20'000;
constexpr std::string_view salt = "waggle/run/1";

} // namespace

run_secret::run_secret(std::string_view run_id) {
  WAGGLE_CHECK(PKCS5_PBKDF2_HMAC(run_id.data(), static_cast<int>(run_id.size()),
                                 reinterpret_cast<const unsigned char*>(salt.data()),
                                 static_cast<int>(salt.size()), derivation_rounds, EVP_sha256(),
                                 static_cast<int>(key_.size()), key_.data())
                 == 1,
               "PBKDF2");
}

run_secret::run_secret(const swarm_key& key) : has_key_(true) {
  static_assert(swarm_key::size == sizeof key_);
  std::memcpy(key_.data(), key.bytes.data(), key_.size());
}

digest run_secret::keyed(std::string_view purpose, std::string_view transcript) const {
  std::string text{purpose};
  text += '\0'; // no purpose contains it
  text += transcript;
  digest out;
  unsigned size = 0;
  WAGGLE_CHECK(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<unsigned char*>(out.bytes.data()), &size)
                   != nullptr
                 && size == digest::size,
               "HMAC");
  return out;
}

digest run_secret::proof(std::string_view transcript) const {
  return keyed("proof", transcript);
}

bool run_secret::proves(std::string_view transcript, std::string_view shown) const {
  auto right = proof(transcript);
  return shown.size() == right.raw().size()
         && CRYPTO_memcmp(shown.data(), right.raw().data(), shown.size()) == 0;
}

std::string run_secret::masked(std::string_view transcript, std::string text) const {
  for (std::size_t begin = 0; begin < text.size(); begin += digest::size) {
    auto block = keyed("mask " + std::to_string(begin), transcript);
    for (std::size_t i = 0; i < digest::size && begin + i < text.size(); ++i)
      text[begin + i] = static_cast<char>(static_cast<unsigned char>(text[begin + i])
                                          ^ std::to_integer<unsigned>(block.bytes[i]));
  }
  return text;
}

std::string run_tag(const std::string& run_id) {
  // Peers that share a process are mostly of one run.
  static thread_local std::pair<std::string, std::string> last;
  if (last.first != run_id || last.second.empty())
    last = {run_id, "run-" + short_name(run_secret{run_id}.proof("tag"))};
  return last.second;
}

} // namespace waggle
