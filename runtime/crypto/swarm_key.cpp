#include "runtime/crypto/swarm_key.hpp"

#include <openssl/rand.h>

#include "runtime/core/bytes.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/crypto/run_secret.hpp"

namespace waggle {

namespace {

constexpr std::string_view inline_prefix = "key:";
constexpr std::string_view cure = "`waggle id --swarm-key FILE` makes one";

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

} // namespace

swarm_key make_swarm_key() {
  swarm_key key;
  WAGGLE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(key.bytes.data()), swarm_key::size) == 1,
               "the operating system gives no randomness");
  return key;
}

result<swarm_key> load_swarm_key(const std::filesystem::path& path) {
  auto named = "'" + path.string() + "'";
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) && !unknown)
    return bad("there is no file " + named + ": copy the key of the run to it; for a new run, "
               + std::string{cure});
  auto read = read_private(path, 4_KiB); // larger than any key
  if (!read)
    return bad(read.error().detail);
  const auto& text = *read;
  if (auto key = swarm_key::from_raw(text))
    return *key;
  auto digits = std::string_view{text}.substr(0, text.find_last_not_of("\r\n") + 1);
  if (auto raw = from_hex(digits); raw && raw->size() == swarm_key::size)
    return *swarm_key::from_raw(*raw);
  if (text.size() < swarm_key::size)
    return bad(named + " has " + std::to_string(text.size())
               + " bytes, and a passphrase is not a key: a key is 32 random bytes; "
               + std::string{cure});
  return bad(named + " is not a swarm key: that is 32 random bytes, or 64 hexadecimal digits; "
             + std::string{cure});
}

status save_swarm_key(const swarm_key& key, const std::filesystem::path& file) {
  return write_private(file, key.raw());
}

std::string inline_text(const swarm_key& key) {
  return std::string{inline_prefix} + to_hex(key.view());
}

bool is_inline_key(std::string_view text) {
  return text.starts_with(inline_prefix);
}

result<swarm_key> parse_inline_key(std::string_view text) {
  auto raw = from_hex(text.substr(std::min(inline_prefix.size(), text.size())));
  auto key = is_inline_key(text) && raw ? swarm_key::from_raw(*raw) : std::nullopt;
  if (!key)
    return bad("what follows 'key:' is not a swarm key, which has 64 hexadecimal digits: "
               "`waggle invite` writes it");
  return *key;
}

std::string run_id_of(const swarm_key& key) {
  return "key-" + to_hex(run_secret{key}.proof("run id").view());
}

} // namespace waggle
