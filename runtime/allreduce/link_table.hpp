#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/net/transport.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle {

/// The link to use for each connected peer, for senders on any thread. Thread-safe.
class link_table {
public:
  void set(const peer_id& peer, std::shared_ptr<net::link> link) {
    std::lock_guard guard{mutex_};
    links_.insert_or_assign(peer, std::move(link));
  }
  void erase(const peer_id& peer) {
    std::lock_guard guard{mutex_};
    links_.erase(peer);
  }
  [[nodiscard]] std::shared_ptr<net::link> find(const peer_id& peer) const {
    std::lock_guard guard{mutex_};
    auto found = links_.find(peer);
    return found == links_.end() ? nullptr : found->second;
  }

  /// Sends `what` over the peer's link. False: there is none.
  bool tell(const peer_id& peer, const wire::event& what, payload body) const {
    auto link = find(peer);
    if (!link)
      return false;
    // A link that refuses a frame is closed: otherwise the frame would be lost silently, and the
    // peers could not know what arrived.
    if (!link->send({wire::encode(wire::message{what}), std::move(body)}))
      link->close({ec::overloaded, "the peer does not keep up with what we send"});
    return true;
  }

private:
  mutable std::mutex mutex_;
  std::map<peer_id, std::shared_ptr<net::link>> links_;
};

} // namespace waggle
