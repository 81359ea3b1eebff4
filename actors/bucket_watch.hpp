#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/crypto/identity.hpp"
#include "runtime/dht/record.hpp"
#include "runtime/matchmaking/bucket_load.hpp"

namespace waggle {

/// How the peers of a swarm tell each other through the DHT how full their buckets are
/// (`elastic_length`): one signed record a peer, under a name that is no bucket's. Whoever has the
/// DHT stores and fetches them. Not thread-safe.
class bucket_watch {
public:
  bucket_watch(std::string run_id, const std::string& prefix,
               std::shared_ptr<const identity> signer)
    : run_id_(std::move(run_id)), name_(prefix + ".load"), signer_(std::move(signer)) {}

  /// Where the records lie; their kind is group_member.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Replaces what this peer said before, also where the clock stands still.
  [[nodiscard]] record say(const bucket_load& seen, swarm_time expiration, swarm_time now);

  /// What is known by records that have passed `validate_record`, and what we said last, however
  /// long ago. Those that make no sense count for nothing. Of many only the newest half counts:
  /// of those who are gone some are still remembered.
  [[nodiscard]] std::vector<bucket_load> known(std::vector<record> entries) const;

  static constexpr std::size_t newest_min = 5;

private:
  std::string run_id_;
  std::string name_;
  std::shared_ptr<const identity> signer_;
  std::uint64_t sequence_ = 0; // of the last record
  std::optional<bucket_load> last_;
};

} // namespace waggle
