#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::proto {
class Hello;
class Proof;
} // namespace waggle::proto

namespace waggle::net {

/// Peers of different versions do not talk.
constexpr std::uint32_t protocol_version = 2;

/// A handshake message is never larger.
constexpr std::size_t handshake_bytes_max = 4096;
static_assert(run_agreement::bytes_max + 512 < handshake_bytes_max, "a proof holds an agreement");

/// Tells the peer why an open link ends: the message of a denial frame.
std::string write_denial(const failure& why);
/// The peer's reason; ec::malformed if it is none.
failure read_denial(std::string_view bytes);

using handshake_nonce = byte_id<struct handshake_nonce_tag, 32>;

/// Proves to each other who both ends of a connection are, and that they belong together:
///
///     both → hello: version, run id, public key, fresh nonce, addresses, instance of the process
///     both → proof: the agreement, and a signature over domain, role, run id, both keys, both
///                   nonces, the maker's instance and its agreement
///
/// The nonces make each proof good for this connection only; the role keeps one from being sent
/// back to its maker. The agreement is only sent to who named the right run. Both ends compare it,
/// so that the operator of each reads what is "here" and what is "there". Whoever refuses says why
/// in a last message.
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
    peer_claims claims{}; // ours
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

  /// What the peer said of itself; whole once the handshake is done.
  [[nodiscard]] const peer_claims& claims() const { return claims_; }

private:
  [[nodiscard]] std::string proof_text(bool ours, std::string_view agreement) const;
  [[nodiscard]] step refuse(ec code, std::string detail) const;
  [[nodiscard]] step on_hello(const proto::Hello& hello);
  [[nodiscard]] step on_proof(const proto::Proof& proof);

  setup with_;
  std::optional<peer_record> peer_; // claimed until the proof verified
  handshake_nonce peer_nonce_;
  peer_claims claims_; // the peer's
  bool same_host_ = false;
  bool done_ = false;
};

} // namespace waggle::net
