#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/averaging/aggregator_table.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// Null if this version does not know the number.
const aggregator_row* find_row(aggregator how);
std::string_view to_string(aggregator how);

/// The settings that all members must share, so that any reducer of a part produces the same bytes.
struct aggregation {
  aggregator how = aggregator::mean;
  /// The assumed maximum number of Byzantine contributors: trimmed_mean drops that many at both
  /// ends, krum leaves that many out of its neighbourhoods and of its mean. The other two do not
  /// use it.
  std::uint32_t faulty_max = 0;
  /// The share of the parts whose sums are checked by another member (sum_checks.hpp), 0 … 1.
  double check_share = 0;

  friend bool operator==(const aggregation&, const aggregation&) = default;
};

/// The fewest contributors for which the guarantee of `how` holds. At least 1.
std::uint64_t contributors_needed(const aggregation& how);

/// Whether `contributors` are enough for the guarantee; checked at start. Fails with ec::bad_config
/// and a sentence: too few contributors, a mean with faulty_max > 0, or a robust aggregator that
/// needs faulty_max and has none.
status check_aggregation(const aggregation& how, std::size_t contributors);

/// The aggregator that is applied to `contributors`: `how.how` if there are enough of them, else
/// the median, which has no minimum; a round that shrank below the guarantee uses that. With
/// faulty_max 0, trimmed_mean and krum are the mean.
aggregator effective_aggregator(const aggregation& how, std::size_t contributors);

} // namespace waggle
