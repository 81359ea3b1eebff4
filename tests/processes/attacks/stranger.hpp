#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/core/unique_fd.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/wire/messages.hpp"

struct ssl_st; // OpenSSL's

namespace waggle::proto {
class HandshakeMessage;
}

namespace waggle::attacks {

/// A blocking socket; every wait ends after `patience`.
class raw_socket {
public:
  /// @param source the local address, e.g. "127.0.0.2"; empty: the system chooses.
  explicit raw_socket(const endpoint& where, milliseconds patience = milliseconds{5'000},
                      const std::string& source = {});

  [[nodiscard]] bool connected() const { return static_cast<bool>(socket_); }
  /// False: the other end has closed the connection, or does not read.
  bool send(std::string_view bytes) const;
  bool receive(char* to, std::size_t bytes) const;
  /// Begins TLS of at most `version_max` (of OpenSSL; 0: the newest), and asks for `protocol`
  /// (empty: for none). False: refused.
  bool encrypt(const std::string& protocol, int version_max = 0);
  /// Past the encryption.
  bool send_raw(std::string_view bytes) const;
  /// New keys, and nothing else. False: refused.
  [[nodiscard]] bool change_keys() const;
  /// What both ends sign; empty: it is not encrypted.
  [[nodiscard]] std::string channel() const;
  /// All that the other end has shown.
  [[nodiscard]] const std::string& heard() const { return heard_; }
  /// Reads what has arrived and forgets it. False: the connection is closed.
  bool drain() const;
  /// Reads until the other end closes the connection or `patience` is over.
  [[nodiscard]] std::string receive_all() const;

private:
  [[nodiscard]] ssize_t read_some(char* to, std::size_t bytes) const;

  unique_fd socket_;
  std::shared_ptr<ssl_st> tls_; // null: not encrypted
  mutable std::string heard_;
};

/// What one end of a handshake says of the run's list of members.
struct list_story {
  public_key authority{}; // zero: it has no list
  list_rank rank{};       // of the list that it claims to have
  std::string list{};     // sent behind the proof, unless empty
  /// Bytes of the frame with the list, if it announces others than it has.
  std::optional<std::uint32_t> frame_bytes{};
};

/// One made-up peer with one link: does the whole handshake, in words of its own, then sends what
/// it is told to.
class stranger {
public:
  /// @param run its name, or the text of its key (swarm_key.hpp).
  /// @param seed of the identity.
  stranger(endpoint where, std::string run, std::uint64_t seed, std::string source = {});

  /// Before `join`: what it answers to what the peer says of its list. Without it, it has none.
  void tell(std::function<list_story(const list_story&)> answer) { answer_ = std::move(answer); }
  /// Before `join`: it begins with TLS, as it does without that to another machine. `channel`: what
  /// it signs in place of the truth.
  void encrypt(std::optional<std::string> channel = {}) {
    encrypts_ = true;
    channel_ = std::move(channel);
  }

  /// Connects and proves its identity. False: refused.
  bool join(const std::vector<endpoint>& announced = {});
  [[nodiscard]] bool joined() const { return socket_ && socket_->connected() && open_; }

  /// False: the link is closed, or is not read (for the time of the socket's patience).
  bool send(const wire::message& what, std::size_t body_bytes = 0);
  bool send_prefix(const net::frame_prefix& prefix, std::string_view then);
  /// Answers nothing. False: the link is closed.
  bool drain() { return joined() && (open_ = socket_->drain()); }
  /// Sends a request and waits for its answer, answering pings meanwhile. Nothing: no answer within
  /// 5 s, or a refusal.
  std::optional<wire::response> ask(wire::request what);
  /// Asks with a DHT ping. Returns how long it took.
  std::optional<std::chrono::microseconds> ping();
  /// Of the last failure of `join` or `ping`.
  [[nodiscard]] const std::string& why() const { return why_; }
  /// The reason that the peer gave `join`; none: none.
  [[nodiscard]] ec refusal() const { return refusal_; }
  [[nodiscard]] std::string heard() const { return socket_ ? socket_->heard() : std::string{}; }

  [[nodiscard]] const identity& self() const { return *self_; }
  /// As in records.
  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }

private:
  struct arrived {
    net::frame_kind kind{};
    std::string header;
  };
  std::optional<arrived> read_frame();
  bool upgrade();
  /// The peer's next message of the handshake. False: it has closed the link.
  bool hear(proto::HandshakeMessage& message);
  bool say(const proto::HandshakeMessage& message);
  /// Always false.
  bool fail(std::string why);

  endpoint where_;
  std::string given_; // name or key
  std::string run_;
  std::string source_;
  std::shared_ptr<const identity> self_;
  std::function<list_story(const list_story&)> answer_;
  bool encrypts_;
  std::optional<std::string> channel_;
  std::optional<raw_socket> socket_;
  bool open_ = false;
  std::string why_;
  ec refusal_ = ec::none;
  std::uint64_t calls_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

} // namespace waggle::attacks
