// The switchboard's links: how many there are, and which one ends for another.

#include <algorithm>

#include "actors/links/switchboard.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle {

std::size_t switchboard::connection_count() const {
  std::size_t n = 0;
  for (const auto& [id, peer] : peers_)
    n += peer.connections.size();
  return n;
}

bool switchboard::is_known(const peer_id& peer) const {
  return configured_.contains(peer) || ctx_.rounds->has_averaged_with(peer);
}

/// Whether there is room for `fresh`, perhaps because another link was closed for it.
bool switchboard::make_room(const net::link& fresh) {
  bool full = connection_count() >= config_.links_max;
  if (is_known(fresh.remote().id))
    return !full || close_one(age::newest, false) || close_one(age::newest, true);
  // Whom we dial, a stranger's answer to a lookup may have named. So our own dials take each
  // other's place, and never that of a peer that came to us.
  if (fresh.outbound()) {
    bool many = dialled_strangers() >= config_.dialled_strangers_max;
    return !(full || many) || close_one(age::oldest, true);
  }
  std::map<std::string, std::size_t> strangers; // links, by host
  std::size_t all = 0;
  for (const auto& [id, peer] : peers_)
    if (!is_known(id))
      for (const auto& c : peer.connections)
        if (!c.outbound) {
          ++all;
          ++strangers[c.host];
        }
  if (!full && all < config_.stranger_links_max)
    return true;
  auto most = std::max_element(strangers.begin(), strangers.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == strangers.end() || most->second <= strangers[fresh.host()] + 1)
    return false;
  auto host = most->first;
  return close_one(age::newest, false, &host);
}

/// The number of links that this peer opened to strangers.
std::size_t switchboard::dialled_strangers() const {
  std::size_t n = 0;
  for (const auto& [id, peer] : peers_)
    if (!is_known(id))
      n += static_cast<std::size_t>(std::count_if(peer.connections.begin(), peer.connections.end(),
                                                  [](const auto& c) { return c.outbound; }));
  return n;
}

/// Closes the newest or the oldest link with a stranger in this direction, if there is one. Of our
/// own dials it is the oldest: newer ones are in use by lookups.
/// @param host only links with this host; null: with any.
bool switchboard::close_one(age which, bool outbound, const std::string* host) {
  std::optional<link_down> found;
  wired_peer_link_actor actor;
  failure why{ec::overloaded, std::string{net::no_room}};
  for (const auto& [id, peer] : peers_)
    if (!is_known(id))
      for (const auto& c : peer.connections)
        if (c.outbound == outbound && (host == nullptr || c.host == *host)
            && (!found || (c.number > found->link) == (which == age::newest))) {
          found = link_down{id, c.number, why};
          actor = c.actor;
        }
  if (!found)
    return false;
  if (which == age::newest)
    ctx_.metrics->count_refused_input(ec::overloaded);
  send(actor, close_link{why, false});
  on_link_down(*found);
  return true;
}

void switchboard::count_connections() {
  double in = 0;
  double out = 0;
  for (const auto& [id, peer] : peers_)
    for (const auto& c : peer.connections)
      (c.outbound ? out : in) += 1;
  ctx_.metrics->set_connections(in, out);
}

} // namespace waggle
