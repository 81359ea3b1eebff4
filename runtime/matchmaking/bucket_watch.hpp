#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/crypto/identity.hpp"
#include "runtime/dht/record.hpp"
#include "runtime/matchmaking/bucket_load.hpp"

namespace waggle {

/// Lets the peers of a swarm announce through the DHT how full their buckets are
/// (`elastic_length`): one signed record per peer, under a name that no bucket uses. The caller
/// stores and fetches the records. Not thread-safe.
class bucket_watch {
public:
  bucket_watch(std::string run_id, const std::string& prefix,
               std::shared_ptr<const identity> signer)
    : run_id_(std::move(run_id)), name_(prefix + ".load"), signer_(std::move(signer)) {}

  /// The name of the records; their kind is group_member.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// The record that announces `seen`. It replaces this peer's previous record, even if the clock
  /// has not advanced.
  [[nodiscard]] record announce(const bucket_load& seen, swarm_time expiration, swarm_time now) {
    record entry{.kind = record_kind::group_member,
                 .name = name_,
                 .value = seen.text(),
                 .expiration = expiration};
    auto stamp = static_cast<std::uint64_t>(to_nanoseconds(now));
    entry.sequence = sequence_ = std::max(stamp, sequence_ + 1);
    sign_record(run_id_, *signer_, entry);
    last_ = seen;
    return entry;
  }

  /// The loads in `entries`, which have passed `validate_record`, and this peer's last
  /// announcement, whatever its age. Records that cannot be parsed are ignored. With many records,
  /// only the newest half counts, because some belong to peers that have left.
  [[nodiscard]] std::vector<bucket_load> known(std::vector<record> entries) const {
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

  static constexpr std::size_t newest_min = 5;

private:
  std::string run_id_;
  std::string name_;
  std::shared_ptr<const identity> signer_;
  std::uint64_t sequence_ = 0; // of the last record
  std::optional<bucket_load> last_;
};

} // namespace waggle
