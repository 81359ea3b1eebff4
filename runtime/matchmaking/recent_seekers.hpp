#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// The peers that asked for a group while we were not searching. A search asks them first. Not
/// thread-safe.
class recent_seekers {
public:
  /// A peer that still searches has asked again within this time.
  static constexpr milliseconds memory{5'000};
  static constexpr std::size_t peers_max = 256; // further peers are not remembered

  /// `peer` wants a group of this kind (`schema`: the hash over what its members have in common) in
  /// this bucket. `expiration`: of its search.
  void remember(const peer_id& peer, const digest& schema, const std::string& bucket,
                swarm_time expiration, steady_time now) {
    std::erase_if(wishes_, [&](const auto& entry) { return now - entry.second.when > memory; });
    if (wishes_.size() < peers_max || wishes_.contains(peer))
      wishes_.insert_or_assign(peer, wish{schema, bucket, expiration, now});
  }
  /// The peers that recently wanted exactly this, in the order of their ids.
  [[nodiscard]] std::vector<peer_id> wanting(const digest& schema, const std::string& bucket,
                                             steady_time now) const {
    std::vector<peer_id> found;
    for (const auto& [peer, wish] : wishes_)
      if (wish.is(schema, bucket, now))
        found.push_back(peer);
    return found;
  }
  /// When the search of this one expires; nothing if it did not recently want exactly this.
  [[nodiscard]] std::optional<swarm_time> expiration_of(const peer_id& peer, const digest& schema,
                                                        const std::string& bucket,
                                                        steady_time now) const {
    auto found = wishes_.find(peer);
    if (found == wishes_.end() || !found->second.is(schema, bucket, now))
      return std::nullopt;
    return found->second.expiration;
  }

  /// Whether it recently wanted anything.
  [[nodiscard]] bool contains(const peer_id& peer, steady_time now) const {
    auto found = wishes_.find(peer);
    return found != wishes_.end() && now - found->second.when <= memory;
  }

private:
  struct wish {
    digest schema;
    std::string bucket;
    swarm_time expiration;
    steady_time when;

    [[nodiscard]] bool is(const digest& group, const std::string& where, steady_time now) const {
      return schema == group && bucket == where && now - when <= memory;
    }
  };
  std::map<peer_id, wish> wishes_; // bounded by peers_max
};

} // namespace waggle
