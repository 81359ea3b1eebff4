#include "runtime/matchmaking/group_declaration.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace waggle {

namespace {

std::string addresses_text(const std::vector<endpoint>& addresses) {
  std::string text;
  for (const auto& where : addresses)
    text += (text.empty() ? "" : ",") + to_string(where);
  return text;
}

std::vector<endpoint> parse_addresses(std::string_view text) {
  std::vector<endpoint> found;
  while (!text.empty() && found.size() < addresses_max) {
    auto comma = std::min(text.find(','), text.size());
    if (auto where = parse_endpoint(text.substr(0, comma)))
      found.push_back(*where);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return found;
}

} // namespace

record group_declaration::declare(const group_key& bucket, const std::vector<endpoint>& addresses,
                                  swarm_time expiration, swarm_time now) {
  auto& entry = current_.emplace();
  entry.kind = record_kind::group_member;
  entry.name = bucket.text();
  entry.value = addresses_text(addresses);
  entry.expiration = expiration;
  sign(entry, now);
  return entry;
}

std::optional<record> group_declaration::withdraw(swarm_time now) {
  auto entry = std::exchange(current_, std::nullopt);
  if (!entry || entry->expiration <= now)
    return std::nullopt;
  entry->tombstone = true;
  entry->value.clear();
  sign(*entry, now);
  return entry;
}

void group_declaration::sign(record& entry, swarm_time now) {
  auto stamp = static_cast<std::uint64_t>(to_nanoseconds(now));
  entry.sequence = sequence_ = std::max(stamp, sequence_ + 1);
  sign_record(run_id_, *signer_, entry);
}

std::optional<declared_peer> read_declaration(const record& entry) {
  auto id = peer_id::from_raw(entry.subkey);
  if (!id)
    return std::nullopt;
  return declared_peer{{*id, entry.owner, parse_addresses(entry.value), false}, entry.expiration};
}

} // namespace waggle
