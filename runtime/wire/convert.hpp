#pragma once

#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle::wire {

/// The protobuf header of a frame.
std::string encode(const message& what);

/// Parses and validates: every field within its limits, lists bounded before they are allocated,
/// floating-point values finite, weights not negative, peer ids equal to the hash of their keys,
/// `body_bytes` non-zero exactly for the messages that have a body.
/// Fails with ec::malformed, ec::oversize, ec::protocol_violation, ec::non_finite or
/// ec::bad_weight.
result<message> decode(std::string_view header, std::size_t body_bytes);

} // namespace waggle::wire
