#pragma once

// Internal to runtime/net: TLS 1.3 without a socket.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/page_certificate.hpp"

struct ssl_st; // OpenSSL's
struct ssl_ctx_st;

namespace waggle::net {

/// The certificates of one end, and what both roles share. Immutable and thread-safe.
class tls_context {
public:
  /// Of a peer. Its links have a certificate made from its identity; clients that do not ask for
  /// `tls_protocol` get `pages`, and nothing if that is null. Without `links`, it refuses peers
  /// that encrypt (--encrypt never).
  explicit tls_context(const identity& self,
                       std::shared_ptr<const page_certificate> pages = nullptr, bool links = true);
  /// Of a client that reads pages. It believes every certificate (page_proof.hpp).
  static tls_context of_reader();

  [[nodiscard]] ssl_ctx_st* get() const { return context_.get(); }

private:
  friend class tls_channel;
  struct choice; // for an acceptor that sees a client's first message

  tls_context() = default;

  std::shared_ptr<ssl_ctx_st> context_;
  std::shared_ptr<const choice> choice_; // null: of a reader
};

/// A record holds so many bytes, and has 22 of its own.
constexpr std::size_t record_bytes = 16_KiB;
/// The first byte of a connection that begins with TLS.
constexpr std::byte tls_first_byte{0x16};
/// The protocol that both ends have to name (ALPN).
constexpr std::string_view tls_protocol = "waggle/1";

/// One end of an encrypted connection. It has no socket: pass in what arrives, send what it
/// returns.
///
///     dialler:  begin() ─► established()          both then: read, write
///     acceptor: begin() ─► may write, to a dialler that has not answered yet ─► established()
///
/// The certificate proves nothing to the acceptor, and to the dialler only which key the other end
/// of the channel has: the handshake inside (handshake.hpp) proves identities, for the one channel
/// that `binding` names. Ends with a failure: then what `output` holds, if anything, is an alert
/// for the other end. One thread at a time.
class tls_channel {
public:
  tls_channel(const tls_context& context, bool dialled, const std::string& host = {});
  ~tls_channel();
  tls_channel(const tls_channel&) = delete;
  tls_channel& operator=(const tls_channel&) = delete;

  /// Bytes from the network. They are copied.
  void arrived(byte_span bytes);
  /// Goes on with the handshake. True: the dialler is done, or the acceptor may write. The
  /// acceptor's ends with its first `read` that returns bytes.
  [[nodiscard]] result<bool> begin();

  /// Decrypts into `room`; 0: more has to arrive. Of what has just arrived, it copies only what it
  /// does not decrypt now. REQUIRES: `begin` returned true.
  [[nodiscard]] result<std::size_t> read(std::span<std::byte> room, byte_span arrived = {});
  /// Encrypts. REQUIRES: `begin` returned true.
  [[nodiscard]] status write(byte_span bytes);

  /// Says that nothing follows.
  void close();

  /// The memory for what is to be sent next.
  void write_into(std::vector<std::byte> room) {
    if (output_.empty())
      output_ = std::move(room);
  }
  /// What to send next, in this order; taken out.
  [[nodiscard]] std::vector<std::byte> take_output() { return std::exchange(output_, {}); }
  [[nodiscard]] bool has_output() const { return !output_.empty(); }

  /// The client reads pages, and is no peer. REQUIRES: `begin` returned true.
  [[nodiscard]] bool is_for_pages() const;
  /// 32 bytes that no other connection has (RFC 9266). REQUIRES: `begin` returned true.
  [[nodiscard]] std::string binding() const;
  /// The key in the certificate of the acceptor, seen by the dialler; nothing: it is no Ed25519
  /// key.
  [[nodiscard]] std::optional<public_key> peer_key() const;
  /// Of that certificate (page_certificate.hpp). REQUIRES: the dialler's `begin` returned true.
  [[nodiscard]] std::string peer_fingerprint() const;

private:
  friend struct channel_bytes; // OpenSSL's way to input_ and output_

  [[nodiscard]] result<std::size_t> decrypt(std::span<std::byte> room);
  [[nodiscard]] failure failed() const;

  tls_context context_; // first: outlives ssl_
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;
  bool dialled_;
  std::vector<std::byte> input_; // arrived and not decrypted: [begin_, end)
  std::size_t begin_ = 0;
  byte_span arrived_; // after these; empty between two calls
  std::vector<std::byte> output_;
  std::uint64_t written_ = 0; // bytes since the last new key
  std::uint64_t received_ = 0;
  std::uint64_t key_updates_ = 0; // of the peer
};

} // namespace waggle::net
