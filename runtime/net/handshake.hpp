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
#include "runtime/crypto/member_list.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/net/clock_offset.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::proto {
class Hello;
class Members;
class Proof;
} // namespace waggle::proto

namespace waggle::net {

/// A handshake message is never larger.
constexpr std::size_t handshake_bytes_max = 4096;
/// But for the one with a list of members, which follows a proof.
constexpr std::size_t list_message_bytes_max = member_list::bytes_max + 64;
constexpr std::size_t denial_text_bytes_max = 512;
static_assert(run_agreement::bytes_max + denial_text_bytes_max + 256 < handshake_bytes_max,
              "a proof holds an agreement and a refusal");

/// The content of a denial frame, which gives the peer the reason why an open link ends.
std::string write_denial(const failure& why);
/// The reason in a denial frame; ec::malformed if it cannot be parsed.
failure read_denial(std::string_view bytes);

using handshake_nonce = byte_id<struct handshake_nonce_tag, 32>;

/// Both ends of a connection prove their identity and check that they belong to the same run:
///
///     both → hello: version, public key, fresh nonce, addresses, instance of the process, time
///     dialler → proof: that it knows the run's key or name; the agreement; a signature over
///     domain, role,
///                      both keys, both nonces, the signer's instance and time, and its agreement
///     acceptor → proof: the same, and its reason if it refuses the dialler
///
/// The nonces make each proof valid for this connection only, and `setup::channel` for this
/// encrypted channel: whoever ends the channel of each end cannot pass a proof from one on to the
/// other. The role prevents a proof from being
/// reflected to its signer. Key and name are never sent (run_secret); what shows knowledge
/// of it goes to the peer that we dialled, and to others only after they have shown theirs. An end
/// that does not know it cannot read the agreement. Both ends compare the agreements, so that
/// the log of each names the difference as "here" and "there", and the clocks. Nothing that a peer
/// claims is used before its proof was checked. A peer that refuses sends its reason last.
///
/// In a run with a list of members, a hello names the authority and the sender's list. The end that
/// has the newer list sends it behind its proof, so that both judge by the same one, and a peer
/// that is not on it learns why it is refused.
///
/// Waiting for the dialler's proof costs no time: the acceptor's hello arrives with the answer to
/// the upgrade request, so that the dialler sends hello and proof together.
///
/// Uses no sockets: pass in what arrives, send what it returns. Not thread-safe.
class handshake {
public:
  struct setup {
    bool dialled = false; // our role
    std::shared_ptr<const run_secret> run;
    std::shared_ptr<const identity> self;
    peer_record record; // what we announce
    std::shared_ptr<const signature_verifier> verifier;
    handshake_nonce nonce;
    peer_id expected; // zero: any peer
    /// Identifies this host, network namespace and user (host_token); empty: shares no memory. Only
    /// a hint: the kernel proves the other process's user before memory is shared.
    std::string host;
    peer_claims claims{}; // ours
    /// Null: the clocks are not compared.
    std::shared_ptr<const wall_clock> clock = nullptr;
    /// When the connection began: the peer reads its clock for its hello after that.
    swarm_time began{};
    clock_limits clocks{};
    /// What only the two ends of this encrypted connection know (tls_channel::binding); empty: it
    /// is not encrypted.
    std::string channel{};
    /// The key in the acceptor's certificate, seen by the dialler. Zero: there is none.
    public_key certified{};
    /// Who belongs to the run. Null: whoever knows its key or name.
    std::shared_ptr<run_members> members = nullptr;
  };

  explicit handshake(setup with);

  [[nodiscard]] std::string hello() const;

  /// How far a peer's clock is from ours, at least (least_offset).
  struct clock_reading {
    peer_id peer;
    swarm_clock::duration offset{0};
  };
  struct step {
    std::vector<std::string> send;   // in order
    std::optional<peer_record> peer; // set: the handshake is done, with this peer
    failure why;                     // not none: close after sending
    /// The peer has completed the handshake: what is sent has to be a frame of an open link.
    bool peer_is_open = false;
    /// Set once the peer's proof was checked, also if it is refused for this.
    std::optional<clock_reading> clock;
    /// The next message holds a list of members: up to list_message_bytes_max.
    bool list_follows = false;
  };
  [[nodiscard]] step on_message(std::string_view bytes);

  [[nodiscard]] peer_id self() const { return with_.self->id(); }
  [[nodiscard]] bool same_host() const { return same_host_; }

  /// The peer's claims; complete once the handshake is done.
  [[nodiscard]] const peer_claims& claims() const { return claims_; }

private:
  [[nodiscard]] std::string transcript(bool ours) const;
  [[nodiscard]] std::string proof_text(bool ours, std::string_view agreement) const;
  [[nodiscard]] std::string own_proof(const failure& refusal) const;
  [[nodiscard]] step refuse(ec code, std::string detail) const;
  [[nodiscard]] step on_hello(const proto::Hello& hello);
  [[nodiscard]] step on_proof(const proto::Proof& proof);
  [[nodiscard]] step on_members(const proto::Members& members);
  [[nodiscard]] step conclude();
  [[nodiscard]] step refuse_proved(ec code, std::string detail) const;
  void send_list(step& next) const;
  struct judgement {
    failure here; // none: no objection
    failure there;
  };
  [[nodiscard]] judgement judge() const;

  setup with_;
  std::optional<peer_record> peer_; // unproved until the proof is verified
  handshake_nonce peer_nonce_;
  peer_claims claims_;         // the peer's
  std::int64_t time_ = 0;      // in our hello
  std::int64_t peer_time_ = 0; // in the peer's; 0: not sent
  swarm_clock::duration clock_offset_{0};
  list_rank list_;                 // in our hello
  list_rank peer_list_;            // in the peer's
  std::optional<failure> refusal_; // in the acceptor's proof
  bool awaits_list_ = false;       // the proof was checked
  bool same_host_ = false;
  bool done_ = false;
};

} // namespace waggle::net
