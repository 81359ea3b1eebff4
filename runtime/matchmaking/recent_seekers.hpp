#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// The peers that asked for a group while we were not searching. A persistent group whose members
/// start the next round without matchmaking checks here whether other peers want to join. Not
/// thread-safe.
class recent_seekers {
public:
  /// A peer that still searches has asked again within this time.
  static constexpr milliseconds memory{5'000};
  static constexpr std::size_t peers_max = 256; // further peers are not remembered

  /// `peer` wants a group of this kind (`schema`: the hash over what its members have in common) in
  /// this bucket.
  void remember(const peer_id& peer, const digest& schema, const std::string& bucket,
                steady_time now);
  /// The peers that recently wanted exactly this, in the order of their ids.
  [[nodiscard]] std::vector<peer_id> wanting(const digest& schema, const std::string& bucket,
                                             steady_time now) const;

private:
  struct wish {
    digest schema;
    std::string bucket;
    steady_time when;
  };
  std::map<peer_id, wish> wishes_; // bounded by peers_max
};

} // namespace waggle
