#include "runtime/matchmaking/bucket_watch.hpp"

#include <algorithm>

namespace waggle {

record bucket_watch::announce(const bucket_load& seen, swarm_time expiration, swarm_time now) {
  record entry;
  entry.kind = record_kind::group_member;
  entry.name = name_;
  entry.value = seen.text();
  entry.expiration = expiration;
  auto stamp = static_cast<std::uint64_t>(to_nanoseconds(now));
  entry.sequence = sequence_ = std::max(stamp, sequence_ + 1);
  sign_record(run_id_, *signer_, entry);
  last_ = seen;
  return entry;
}

std::vector<bucket_load> bucket_watch::known(std::vector<record> entries) const {
  std::sort(entries.begin(), entries.end(),
            [](const record& a, const record& b) { return a.sequence > b.sequence; });
  std::vector<bucket_load> loads;
  if (last_)
    loads.push_back(*last_);
  auto enough = std::max(newest_min, entries.size() / 2);
  for (const auto& entry : entries) {
    auto load = bucket_load::parse(entry.value);
    if (load && entry.owner != signer_->key() && loads.size() < enough)
      loads.push_back(*load);
  }
  return loads;
}

} // namespace waggle
