#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle::net {

/// Peers of different versions do not talk.
constexpr std::uint32_t protocol_version = 1;

/// A handshake message is never larger.
constexpr std::size_t handshake_bytes_max = 4096;

using handshake_nonce = byte_id<struct handshake_nonce_tag, 32>;

/// Proves to each other who both ends of a connection are, and that they belong together:
///
///     both → hello: version, run id, public key, fresh nonce, addresses
///     both → proof: signature over domain, role, version, run id, both keys and both nonces
///
/// The nonces make each proof good for this connection only; the role keeps one from being sent
/// back to its maker. Whoever refuses says why in a last message, so that the operator at the other
/// end reads the reason.
///
/// No sockets, no time: give it what arrives, send what it returns. Not thread-safe.
class handshake {
public:
  struct setup {
    bool dialled = false; // our role
    std::string run_id;
    std::shared_ptr<const identity> self;
    peer_record record; // what we announce
    std::shared_ptr<const signature_verifier> verifier;
    handshake_nonce nonce;
    peer_id expected; // zero: whoever it is
    /// Of this host, network and user (host_token); empty: shares no memory. A hint: what follows
    /// from it is proved by the kernel.
    std::string host;
  };

  explicit handshake(setup with);

  /// The first message.
  [[nodiscard]] std::string hello() const;

  struct step {
    std::vector<std::string> send;   // in order
    std::optional<peer_record> peer; // set: done, and who it is
    failure why;                     // not none: close, after sending
  };
  [[nodiscard]] step on_message(std::string_view bytes);

  /// Whether both said the same `host`.
  [[nodiscard]] bool same_host() const { return same_host_; }

private:
  [[nodiscard]] std::string proof_text(bool by_dialler) const;
  [[nodiscard]] step refuse(ec code, std::string detail) const;

  setup with_;
  std::optional<peer_record> peer_; // claimed until the proof verified
  handshake_nonce peer_nonce_;
  bool same_host_ = false;
  bool done_ = false;
};

} // namespace waggle::net
