#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/core/unique_fd.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/wire/messages.hpp"

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
  /// Reads what has arrived and forgets it. False: the connection is closed.
  bool drain() const;
  /// Reads until the other end closes the connection or `patience` is over.
  [[nodiscard]] std::string receive_all() const;

private:
  unique_fd socket_;
};

/// One made-up peer with one link: does the whole handshake, then sends what it is told to.
class stranger {
public:
  /// @param seed of the identity.
  stranger(endpoint where, std::string run, std::uint64_t seed, std::string source = {});

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

  [[nodiscard]] const identity& self() const { return *self_; }
  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }

private:
  struct arrived {
    net::frame_kind kind{};
    std::string header;
  };
  std::optional<arrived> read_frame();
  /// Always false.
  bool fail(std::string why);

  endpoint where_;
  std::string run_;
  std::string source_;
  std::shared_ptr<const identity> self_;
  std::optional<raw_socket> socket_;
  bool open_ = false;
  std::string why_;
  std::uint64_t calls_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

} // namespace waggle::attacks
