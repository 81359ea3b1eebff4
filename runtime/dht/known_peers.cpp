#include "runtime/dht/known_peers.hpp"

#include <algorithm>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::string_view title = "waggle known peers 1";

std::string run_line(std::string_view run_id) {
  return "run " + to_string(sha256(run_id));
}

/// The text before `separator`; both are removed from `rest`.
std::string_view cut(std::string_view& rest, char separator) {
  auto end = std::min(rest.find(separator), rest.size());
  auto piece = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return piece;
}

/// Hosts come from the network: one with a space or a line break would corrupt the file.
bool writable(const endpoint& where) {
  return where.port != 0 && !where.host.empty() && where.host.size() <= host_bytes_max
         && std::ranges::all_of(where.host, [](char c) { return c > ' ' && c <= '~'; });
}

result<known_peer> parse_peer(std::string_view line) {
  auto id = peer_id::parse(cut(line, ' '));
  if (!id)
    return failure{ec::malformed, "not a peer id"};
  known_peer peer{*id, {}};
  while (!line.empty()) {
    auto where = parse_endpoint(cut(line, ' '));
    if (!where || !writable(*where))
      return failure{ec::malformed, "not an address"};
    peer.addresses.push_back(std::move(*where));
  }
  if (peer.addresses.empty() || peer.addresses.size() > addresses_max)
    return failure{ec::malformed, "no address, or too many"};
  return peer;
}

} // namespace

result<known_peers> known_peers::parse(std::string_view text, std::string_view run_id) {
  if (cut(text, '\n') != title)
    return failure{ec::malformed, "line 1: not a list of known peers"};
  if (text.empty() || text.back() != '\n')
    return failure{ec::malformed, "it ends in the middle of a line"};
  known_peers all;
  if (cut(text, '\n') != run_line(run_id))
    return all;
  for (std::size_t number = 3; !text.empty(); ++number) {
    auto peer = parse_peer(cut(text, '\n'));
    if (!peer)
      return failure{ec::malformed, "line " + std::to_string(number) + ": " + peer.error().detail};
    if (std::ranges::any_of(all.peers_, [&](const known_peer& p) { return p.id == peer->id; }))
      return failure{ec::malformed, "line " + std::to_string(number) + ": a peer named twice"};
    if (all.peers_.size() == peers_max)
      return failure{ec::malformed, "more than " + std::to_string(peers_max) + " peers"};
    all.peers_.push_back(std::move(*peer));
  }
  return all;
}

std::string known_peers::text(std::string_view run_id) const {
  std::string out{title};
  out += "\n" + run_line(run_id) + "\n";
  for (const auto& peer : peers_) {
    out += to_string(peer.id);
    for (const auto& where : peer.addresses)
      out += " " + to_string(where);
    out += "\n";
  }
  return out;
}

bool known_peers::linked(const peer_record& peer) {
  known_peer fresh{peer.id, {}};
  std::copy_if(peer.addresses.begin(), peer.addresses.end(), std::back_inserter(fresh.addresses),
               writable);
  if (fresh.addresses.size() > addresses_max)
    fresh.addresses.resize(addresses_max);
  if (fresh.addresses.empty() || (!peers_.empty() && peers_.front() == fresh))
    return false;
  std::erase_if(peers_, [&](const known_peer& p) { return p.id == peer.id; });
  peers_.insert(peers_.begin(), std::move(fresh));
  if (peers_.size() > peers_max)
    peers_.pop_back();
  return true;
}

} // namespace waggle
