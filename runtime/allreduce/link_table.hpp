#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle {

/// The link to use for each connected peer, for senders on any thread. Thread-safe.
class link_table {
public:
  /// `trusts_all`: all peers are taken for neighbours (--trust-members true).
  explicit link_table(bool trusts_all = false) : trusts_all_(trusts_all) {}

  void set(const peer_id& peer, std::shared_ptr<net::link> link) {
    std::lock_guard guard{mutex_};
    auto [known, is_new] = links_.try_emplace(peer);
    auto& entry = known->second;
    if (is_new)
      entry.record = link->remote();
    auto seen = link->neighbour();
    entry.link = std::move(link);
    if (!seen || std::find(entry.seen.begin(), entry.seen.end(), seen) != entry.seen.end())
      return;
    if (entry.seen.size() == seen_max)
      entry.seen.erase(entry.seen.begin());
    entry.seen.push_back(std::move(seen));
  }
  void erase(const peer_id& peer) {
    std::lock_guard guard{mutex_};
    links_.erase(peer);
  }
  /// The peer announces this from now on, in place of what it said in a handshake.
  void set_record(const peer_record& now) {
    std::lock_guard guard{mutex_};
    if (auto found = links_.find(now.id); found != links_.end())
      found->second.record = now;
  }
  /// What the peer announced last; nothing: it has no link.
  [[nodiscard]] std::optional<peer_record> record(const peer_id& peer) const {
    std::lock_guard guard{mutex_};
    auto found = links_.find(peer);
    return found == links_.end() ? std::nullopt : std::optional{found->second.record};
  }
  [[nodiscard]] std::shared_ptr<net::link> find(const peer_id& peer) const {
    std::lock_guard guard{mutex_};
    auto found = links_.find(peer);
    return found == links_.end() ? nullptr : found->second.link;
  }

  [[nodiscard]] std::vector<peer_id> peers() const {
    std::lock_guard guard{mutex_};
    std::vector<peer_id> out;
    for (const auto& [peer, entry] : links_)
      out.push_back(peer);
    return out;
  }

  /// Sends `what` over the peer's link. False: there is none.
  bool tell(const peer_id& peer, const wire::event& what, payload body) const {
    auto link = find(peer);
    if (link)
      send(*link, {wire::encode(wire::message{what}), std::move(body)});
    return link != nullptr;
  }
  /// The same to several peers, encoded once. Calls `without_link` for those that have none.
  /// `obsolete`: see net::frame.
  template <class WithoutLink>
  void tell_all(std::span<const peer_record* const> to, const wire::event& what,
                const payload& body, const std::shared_ptr<const std::atomic<bool>>& obsolete,
                WithoutLink without_link) const {
    std::string header;
    for (const auto* peer : to) {
      auto link = find(peer->id);
      if (link && header.empty())
        header = wire::encode(wire::message{what});
      if (link)
        send(*link, {header, body, false, obsolete});
      else
        without_link(*peer);
    }
  }

  /// Whether the peer is a process of our user on this host with which a link has shared memory.
  /// Any of its links counts: when both dialled at once, the two sides may use different ones for a
  /// while, and what one says by its link the other must believe. `mutual`: and it knows that of
  /// us.
  [[nodiscard]] bool is_neighbour(const peer_id& peer, bool mutual) const {
    if (trusts_all_)
      return true;
    std::lock_guard guard{mutex_};
    auto found = links_.find(peer);
    return found != links_.end()
           && std::any_of(
             found->second.seen.begin(), found->second.seen.end(),
             [mutual](const auto& s) { return (mutual ? s->mutual : s->seen).load(); });
  }
  /// As the leader: whether all members of `plan` but `self` are.
  [[nodiscard]] bool are_neighbours(const round_plan& plan, const peer_id& self) const {
    return std::all_of(plan.members.begin(), plan.members.end(), [&](const round_member& m) {
      return m.peer.id == self || is_neighbour(m.peer.id, true);
    });
  }
  /// As another member: whether what `leader` says in its plan can be seen from here.
  [[nodiscard]] bool may_believe(const round_plan& plan, const peer_id& leader) const {
    return !plan.one_host || is_neighbour(leader, false);
  }

private:
  // A link that refuses a frame is closed: otherwise the frame would be lost silently, and the
  // peers could not know what arrived.
  static void send(net::link& link, net::frame what) {
    if (!link.send(std::move(what)))
      link.close({ec::overloaded, "the peer does not keep up with what we send"});
  }

  static constexpr std::size_t seen_max = 8; // a peer may have half as many links

  struct entry {
    peer_record record;
    std::shared_ptr<net::link> link;
    std::vector<std::shared_ptr<const net::neighbourhood>> seen; // by the links since it connected
  };

  mutable std::mutex mutex_;
  std::map<peer_id, entry> links_;
  const bool trusts_all_;
};

} // namespace waggle
