#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// How the contributions to one part become one result. Values travel: append only.
enum class aggregator : std::uint8_t {
  mean = 0,          // weighted mean; one liar can move it anywhere
  trimmed_mean = 1,  // per value: without the `faulty_max` smallest and largest
  median = 2,        // per value
  centered_clip = 3, // mean of differences to a centre, each clipped to a radius
  krum = 4,          // the contribution that is nearest to its nearest neighbours
};

std::string_view to_string(aggregator how);
result<aggregator> parse_aggregator(std::string_view name);

/// Everything the members must have alike so that whoever reduces a part gets the same bytes.
struct aggregation {
  aggregator how = aggregator::mean;
  /// Contributors that may lie: trimmed_mean drops that many at both ends, krum leaves that many
  /// out of its neighbourhoods.
  std::uint32_t faulty_max = 0;

  friend bool operator==(const aggregation&, const aggregation&) = default;
};

} // namespace waggle
