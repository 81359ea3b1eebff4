#include "runtime/dht/record.hpp"

#include <cstring>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

using text_size = std::uint64_t;

const record_rules* rules_of(record_kind kind) {
  static constexpr record_rules open_rules{.owned = false,
                                           .of_applications = true,
                                           .subkey_bytes_max = 256,
                                           .value_bytes_max = 64_KiB,
                                           .time_to_live_max = std::chrono::hours{24}};
  static constexpr record_rules peer_rules{
    .subkey_bytes_max = 32, .value_bytes_max = 2_KiB, .time_to_live_max = std::chrono::minutes{10}};
  static constexpr record_rules owned_rules{.of_applications = true,
                                            .subkey_bytes_max = 32,
                                            .value_bytes_max = 64_KiB,
                                            .time_to_live_max = std::chrono::hours{24}};
  switch (kind) {
    case record_kind::open:
      return &open_rules;
    case record_kind::progress:
    case record_kind::group_member:
      return &peer_rules;
    case record_kind::owned:
      return &owned_rules;
  }
  return nullptr;
}

dht_id record_key(std::string_view run_id, record_kind kind, std::string_view name) {
  byte_writer out;
  out.put_raw("waggle/key/1").put_text<text_size>(run_id).put(static_cast<std::uint64_t>(kind));
  return {sha256(out.put_text<text_size>(name).text()).bytes};
}

std::string signed_bytes(std::string_view run_id, const record& entry) {
  byte_writer out;
  out.put_raw("waggle/record/1").put_text<text_size>(run_id);
  out.put(static_cast<std::uint64_t>(entry.kind));
  for (const auto* text : {&entry.name, &entry.subkey, &entry.value})
    out.put_text<text_size>(*text);
  out.put(to_nanoseconds(entry.expiration), entry.sequence, std::uint64_t{entry.tombstone});
  return out.put_text<text_size>(entry.owner.raw()).take();
}

std::uint64_t record_tag(std::string_view run_id, const record& entry) {
  auto whole = sha256(signed_bytes(run_id, entry) + std::string{entry.by.raw()});
  std::uint64_t tag = 0;
  std::memcpy(&tag, whole.raw().data(), sizeof tag);
  return tag;
}

void sign_record(std::string_view run_id, const identity& owner, record& entry) {
  const auto* rules = rules_of(entry.kind);
  if (rules != nullptr && rules->owned)
    entry.subkey = std::string{owner.id().raw()};
  entry.owner = owner.key();
  entry.by = owner.sign(signed_bytes(run_id, entry));
}

status validate_record(std::string_view run_id, const record& entry, swarm_time now,
                       const signature_verifier& verifier) {
  const auto* rules = rules_of(entry.kind);
  if (rules == nullptr)
    return failure{ec::protocol_violation, "a record of an unknown kind"};
  if (entry.name.empty() || entry.name.size() > rules->name_bytes_max
      || entry.subkey.size() > rules->subkey_bytes_max
      || entry.value.size() > rules->value_bytes_max)
    return failure{ec::oversize, "record"};
  if (entry.expiration <= now || entry.expiration > now + rules->time_to_live_max)
    return failure{ec::bad_expiry, "record"};
  bool is_signed = !entry.owner.is_zero() || !entry.by.is_zero();
  if (rules->owned && (!is_signed || entry.subkey != peer_id_of(entry.owner).raw()))
    return failure{ec::not_owner, "record"};
  if (is_signed
      && !verifier.verify(entry.owner, as_byte_span(signed_bytes(run_id, entry)), entry.by))
    return failure{ec::bad_signature, "record"};
  return done{};
}

} // namespace waggle
