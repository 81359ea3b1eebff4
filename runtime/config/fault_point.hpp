#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// A moment within a round, as this peer lives it. Tests let a peer break there: unlike a moment on
/// the clock it lies within the round on every machine.
struct fault_point {
  enum class moment : std::uint8_t {
    sent,      // has handed its count-th contribution to a link
    received,  // has taken in the count-th part, a contribution or a result
    result,    // has handed the count-th copy of a part it reduced to a link
    prepared,  // holds the whole result and is about to say so
    committed, // has applied the result, and has not reported it yet
  };
  moment when = moment::sent;
  std::uint64_t count = 1; // ≥ 1; without meaning for prepared and committed

  friend bool operator==(const fault_point&, const fault_point&) = default;
};

/// sent:K, received:K, result:K, prepared or committed. Fails with a sentence that lists them.
result<fault_point> parse_fault_point(std::string_view text);

} // namespace waggle
