#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Who asked for a group while we were not looking for one. A persistent group that goes on among
/// itself asks whether somebody stands outside. Not thread-safe.
class recent_seekers {
public:
  /// Whoever still looks has asked again by then.
  static constexpr milliseconds memory{5'000};
  static constexpr std::size_t peers_max = 256; // newcomers beyond are not remembered

  /// `peer` wants a group of this kind (the hash over what its members have alike) in this bucket.
  void remember(const peer_id& peer, const digest& schema, const std::string& bucket,
                steady_time now);
  /// Those who lately wanted just this, in the order of their ids.
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
