#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// A moment within a round, counted in this peer's events. Tests break a peer there: unlike a time,
/// it lies within the round on every machine.
struct fault_point {
  enum class moment : std::uint8_t {
    sent,      // its count-th contribution was given to a link
    received,  // the count-th part, a contribution or a result, was processed
    result,    // the count-th copy of a part that it reduced was given to a link
    prepared,  // it holds the whole result and is about to announce it
    committed, // it has applied the result and has not reported it yet
  };
  moment when = moment::sent;
  std::uint64_t count = 1; // ≥ 1; unused for prepared and committed

  friend bool operator==(const fault_point&, const fault_point&) = default;
};

/// sent:K, received:K, result:K, prepared or committed. Fails with a sentence that lists them.
result<fault_point> parse_fault_point(std::string_view text);

} // namespace waggle
