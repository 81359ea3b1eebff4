#include "actors/bucket_watch.hpp"

#include <algorithm>

namespace waggle {

record bucket_watch::say(const bucket_load& seen, swarm_time expiration, swarm_time now) {
  record entry;
  entry.kind = record_kind::group_member;
  entry.name = name_;
  entry.value = seen.text();
  entry.expiration = expiration;
  auto stamp = static_cast<std::uint64_t>(to_nanoseconds(now));
  entry.sequence = sequence_ = std::max(stamp, sequence_ + 1);
  sign_record(run_id_, *signer_, entry);
  return entry;
}

std::vector<bucket_load> bucket_watch::read(const std::vector<record>& entries) {
  std::vector<bucket_load> loads;
  for (const auto& entry : entries)
    if (auto load = bucket_load::parse(entry.value))
      loads.push_back(*load);
  return loads;
}

} // namespace waggle
