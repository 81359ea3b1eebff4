#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/core/ids.hpp"
#include "runtime/crypto/swarm_key.hpp"

namespace waggle {

/// What a run's key lets its peers compute, and nobody else: it shows that one has the key without
/// sending it. In a run without a key, its name takes the place: an observer of a proof can then
/// try names, and deriving is made slow (PBKDF2 with SHA-256), so that each attempt costs
/// milliseconds. Immutable and thread-safe.
class run_secret {
public:
  /// Takes some milliseconds: make it once for a process.
  explicit run_secret(std::string_view run_id);
  explicit run_secret(const swarm_key& key);

  [[nodiscard]] bool has_key() const { return has_key_; }

  /// Shows knowledge of key or name to a peer that knows it, too: HMAC-SHA256 over `transcript`,
  /// which has to be different for each connection and each end of it.
  [[nodiscard]] digest proof(std::string_view transcript) const;
  /// Whether `shown` is proof(transcript). Takes the same time for any 32 bytes.
  [[nodiscard]] bool proves(std::string_view transcript, std::string_view shown) const;
  /// Hides `text` from everybody who does not know it; a second call with the same
  /// `transcript` reveals it. Does not show changes: sign the text.
  [[nodiscard]] std::string masked(std::string_view transcript, std::string text) const;

private:
  [[nodiscard]] digest keyed(std::string_view purpose, std::string_view transcript) const;

  std::array<unsigned char, 32> key_;
  bool has_key_ = false;
};

/// What stands for the name of a run where the name must not be shown: "run-1a2b3c4d", the same on
/// all peers of the run. Takes some milliseconds if the last call of this thread was for another
/// name.
std::string run_tag(const std::string& run_id);

} // namespace waggle
