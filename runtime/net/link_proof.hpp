#pragma once

// Internal to runtime/net: what the two ends of a connection prove before it is a link.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/net/handshake.hpp"
#include "runtime/net/local_path.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

class tcp_session;

/// The handshake of a connection while it is under way, and what is known of both ends since. I/O
/// thread only, but for what is known once the handshake has succeeded.
class link_proof {
public:
  using ready = std::function<void(result<std::shared_ptr<tcp_session>>)>;

  /// Returns the first message. `ends`: nothing if the connection has none any more.
  std::string begin(handshake::setup setup, std::optional<socket_ends> ends, ready on_ready) {
    outbound_ = setup.dialled;
    ends_ = std::move(ends);
    on_ready_ = std::move(on_ready);
    return handshake_.emplace(std::move(setup)).hello();
  }
  [[nodiscard]] bool under_way() const { return handshake_.has_value(); }
  /// REQUIRES, as the next two: it is under way.
  handshake::step on_message(std::string_view bytes) {
    auto step = handshake_->on_message(bytes);
    claims_ = handshake_->claims();
    if (step.peer)
      remote_ = *step.peer;
    // A peer that listens on every interface does not know the address by which we reach it.
    for (auto& [host, port] : remote_.addresses)
      if (ends_ && (host.empty() || host == "0.0.0.0" || host == "::"))
        host = this->host();
    return step;
  }
  [[nodiscard]] bool same_host() const { return handshake_->same_host(); }
  /// REQUIRES: the peer has proved who it is.
  [[nodiscard]] link_ends peers() const {
    return outbound_ ? link_ends{handshake_->self(), remote_.id}
                     : link_ends{remote_.id, handshake_->self()};
  }
  /// Calls `on_ready`, unless it has ended.
  void end(result<std::shared_ptr<tcp_session>> outcome) {
    handshake_.reset();
    if (auto done = std::exchange(on_ready_, nullptr))
      done(std::move(outcome));
  }

  [[nodiscard]] bool outbound() const { return outbound_; }
  [[nodiscard]] const peer_record& remote() const { return remote_; }
  [[nodiscard]] const peer_claims& claims() const { return claims_; }
  [[nodiscard]] const std::optional<socket_ends>& ends() const { return ends_; }
  /// The other end's.
  [[nodiscard]] std::string host() const { return ends_ ? ends_->there.host : std::string{}; }

private:
  std::optional<handshake> handshake_;
  ready on_ready_;
  bool outbound_ = false;
  std::optional<socket_ends> ends_;
  peer_record remote_;
  peer_claims claims_;
};

} // namespace waggle::net
