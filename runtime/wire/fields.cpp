#include "runtime/wire/fields.hpp"

#include "runtime/crypto/digest.hpp"

namespace waggle::wire {

bool read_peer(const proto::Peer& from, peer_record& out) {
  if (!read_id(from.key(), out.key)
      || static_cast<std::size_t>(from.addresses_size()) > addresses_max)
    return false;
  out.id = peer_id_of(out.key); // derived from the key, so that it cannot be forged
  out.client_mode = from.client_mode();
  out.addresses.clear();
  for (const auto& address : from.addresses()) {
    if (address.host().empty() || address.host().size() > host_bytes_max || address.port() == 0
        || address.port() > 65535)
      return false;
    out.addresses.push_back({address.host(), static_cast<std::uint16_t>(address.port())});
  }
  return true;
}

void write_peer(const peer_record& from, proto::Peer& out) {
  out.set_key(write_id(from.key));
  out.set_client_mode(from.client_mode);
  for (const auto& address : from.addresses) {
    auto& to = *out.add_addresses();
    to.set_host(address.host);
    to.set_port(address.port);
  }
}

bool read_record(const proto::Record& from, record& out) {
  const auto* rules =
    from.kind() <= 255 ? rules_of(static_cast<record_kind>(from.kind())) : nullptr;
  if (rules == nullptr || from.name().size() > rules->name_bytes_max
      || from.subkey().size() > rules->subkey_bytes_max
      || from.value().size() > rules->value_bytes_max)
    return false;
  out.kind = static_cast<record_kind>(from.kind());
  out.name = from.name();
  out.subkey = from.subkey();
  out.value = from.value();
  out.expiration = swarm_time_from(from.expiration());
  out.sequence = from.sequence();
  out.tombstone = from.tombstone();
  if (from.owner().empty() && from.signature().empty())
    return true;
  return read_id(from.owner(), out.owner) && read_id(from.signature(), out.by);
}

void write_record(const record& from, proto::Record& out) {
  out.set_kind(static_cast<std::uint32_t>(from.kind));
  out.set_name(from.name);
  out.set_subkey(from.subkey);
  out.set_value(from.value);
  out.set_expiration(to_nanoseconds(from.expiration));
  out.set_sequence(from.sequence);
  out.set_tombstone(from.tombstone);
  if (!from.owner.is_zero() || !from.by.is_zero()) {
    out.set_owner(write_id(from.owner));
    out.set_signature(write_id(from.by));
  }
}

bool read_view(const proto::View& from, round_view& out) {
  out = {from.number(), from.contributors(), from.participants(), from.adopted(), {}};
  return out.participants != 0 && (from.result().empty() || read_id(from.result(), out.result));
}

void write_view(const round_view& from, proto::View& out) {
  out.set_number(from.number);
  out.set_contributors(from.contributors);
  out.set_participants(from.participants);
  out.set_adopted(from.adopted);
  if (!from.result.is_zero())
    out.set_result(write_id(from.result));
}

bool read_codecs(const codec_runs& from, codec_plan& out) {
  if (from.size() > static_cast<int>(codec_runs_max))
    return false;
  out.clear();
  std::uint64_t elements = 0;
  for (const auto& run : from) {
    auto codec = static_cast<codec_id>(run.codec());
    if (run.codec() > 255 || !is_known(codec) || run.elements() == 0
        || run.elements() > plan_elements_max - elements)
      return false;
    elements += run.elements();
    out.push_back({run.elements(), codec});
  }
  return true;
}

void write_codecs(const codec_plan& from, codec_runs& out) {
  for (const auto& run : from) {
    auto& to = *out.Add();
    to.set_elements(run.elements);
    to.set_codec(static_cast<std::uint32_t>(run.codec));
  }
}

bool read_plan(const proto::Plan& from, round_plan& out) {
  auto members = static_cast<std::size_t>(from.members_size());
  if (!read_id(from.id(), out.id) || from.prefix().size() > prefix_bytes_max
      || members > round_members_max || from.shares_size() != from.members_size()
      || from.gathered_size() != from.members_size() || from.aggregator() > 255)
    return false;
  out.prefix = from.prefix();
  out.epoch = epoch_id{from.epoch()};
  out.members.clear();
  for (const auto& member : from.members()) {
    auto& to = out.members.emplace_back();
    if (!read_peer(member.peer(), to.peer) || !read_mode(member.mode(), to.mode))
      return false;
  }
  out.elements = from.elements();
  out.part_elements = from.part_elements();
  if (!read_codecs(from.codecs(), out.codecs))
    return false;
  out.reduce_by = {static_cast<aggregator>(from.aggregator()), from.faulty_max(),
                   from.check_share()};
  out.gathered.clear();
  for (const auto& text : from.gathered()) {
    if (text.size() > gather_bytes_max)
      return false;
    out.gathered.push_back(text);
  }
  out.shares.assign(from.shares().begin(), from.shares().end());
  out.min_contributors = from.min_contributors();
  out.one_host = from.one_host();
  return validate_plan(out).ok();
}

void write_plan(const round_plan& from, proto::Plan& out) {
  out.set_id(write_id(from.id));
  out.set_prefix(from.prefix);
  out.set_epoch(from.epoch.value());
  for (const auto& member : from.members) {
    auto& to = *out.add_members();
    write_peer(member.peer, *to.mutable_peer());
    to.set_mode(static_cast<std::uint32_t>(member.mode));
  }
  out.set_elements(from.elements);
  out.set_part_elements(from.part_elements);
  write_codecs(from.codecs, *out.mutable_codecs());
  out.set_aggregator(static_cast<std::uint32_t>(from.reduce_by.how));
  out.set_faulty_max(from.reduce_by.faulty_max);
  out.set_check_share(from.reduce_by.check_share);
  for (const auto& text : from.gathered)
    out.add_gathered(text);
  for (auto share : from.shares)
    out.add_shares(share);
  out.set_min_contributors(from.min_contributors);
  out.set_one_host(from.one_host);
}

} // namespace waggle::wire
