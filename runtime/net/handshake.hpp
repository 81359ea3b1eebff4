#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/version.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::proto {
class Hello;
class Proof;
} // namespace waggle::proto

namespace waggle::net {

/// A handshake message is never larger.
constexpr std::size_t handshake_bytes_max = 4096;
static_assert(run_agreement::bytes_max + 512 < handshake_bytes_max, "a proof holds an agreement");

/// The content of a denial frame, which tells the peer why an open link ends.
std::string write_denial(const failure& why);
/// The reason in a denial frame; ec::malformed if it cannot be parsed.
failure read_denial(std::string_view bytes);

using handshake_nonce = byte_id<struct handshake_nonce_tag, 32>;

/// Both ends of a connection prove their identity and check that they belong to the same run:
///
///     both → hello: version, run id, public key, fresh nonce, addresses, instance of the process
///     both → proof: the agreement, and a signature over domain, role, run id, both keys, both
///                   nonces, the signer's instance and its agreement
///
/// The nonces make each proof valid for this connection only. The role prevents a proof from being
/// reflected to its signer. The agreement is only sent to a peer that named the right run. Both
/// ends compare it, so that the log of each names the difference as "here" and "there". A peer that
/// refuses sends its reason in a last message.
///
/// Uses no sockets and no clock: pass in what arrives, send what it returns. Not thread-safe.
class handshake {
public:
  struct setup {
    bool dialled = false; // our role
    std::string run_id;
    std::shared_ptr<const identity> self;
    peer_record record; // what we announce
    std::shared_ptr<const signature_verifier> verifier;
    handshake_nonce nonce;
    peer_id expected; // zero: any peer
    /// Identifies this host, network namespace and user (host_token); empty: shares no memory. Only
    /// a hint: the kernel proves the other process's user before memory is shared.
    std::string host;
    peer_claims claims{}; // ours
  };

  explicit handshake(setup with);

  /// The first message.
  [[nodiscard]] std::string hello() const;

  struct step {
    std::vector<std::string> send;   // in order
    std::optional<peer_record> peer; // set: the handshake is done, with this peer
    failure why;                     // not none: close after sending
  };
  [[nodiscard]] step on_message(std::string_view bytes);

  /// Whether both sent the same `host`.
  [[nodiscard]] bool same_host() const { return same_host_; }

  /// The peer's claims; complete once the handshake is done.
  [[nodiscard]] const peer_claims& claims() const { return claims_; }

private:
  [[nodiscard]] std::string proof_text(bool ours, std::string_view agreement) const;
  [[nodiscard]] step refuse(ec code, std::string detail) const;
  [[nodiscard]] step on_hello(const proto::Hello& hello);
  [[nodiscard]] step on_proof(const proto::Proof& proof);

  setup with_;
  std::optional<peer_record> peer_; // unproved until the proof is verified
  handshake_nonce peer_nonce_;
  peer_claims claims_; // the peer's
  bool same_host_ = false;
  bool done_ = false;
};

} // namespace waggle::net
